"""The sizes of the images and sequences that a model's convolutions meet in example inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

Sizes = tuple[int, ...]
"""The extents of N, H and W, or of N and L."""


def sizes_met(
    model: torch.nn.Module, modules: Iterable[torch.nn.Module], examples: Iterable[Any]
) -> dict[int, list[Sizes]]:
    """Calls a model with each example, and returns the sizes that its convolutions met, by their ``id``.

    The model is called in evaluation mode, without gradients, and is then as it was.

    Args:
        modules: convolutions of the model.
        examples: inputs of the model; each is one argument, a tuple of arguments, or a mapping from names to
            arguments.
    """
    met = dict[int, list[Sizes]]()
    handles = [module.register_forward_pre_hook(partial(_note, met), with_kwargs=True) for module in modules]
    try:
        with _evaluating(model), torch.no_grad():
            for example in examples:
                _call(model, example)
    finally:
        for handle in handles:
            handle.remove()
    return met


def _note(
    met: dict[int, list[Sizes]], module: torch.nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Notes the size of a convolution's input, unless it is empty; a single image is a batch of one."""
    given: Tensor = arguments[0] if arguments else named["input"]
    image = len(module.kernel_size)
    if given.numel():
        images = given.shape[: -1 - image] or (1,)
        met.setdefault(id(module), []).append((*images, *given.shape[-image:]))


def _call(model: torch.nn.Module, example: Any) -> None:
    if isinstance(example, Mapping):
        model(**example)
    elif isinstance(example, tuple):
        model(*example)
    else:
        model(example)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Sets evaluation mode for a time. It calls no module's ``eval()``, which would drop packed weights."""
    before = {module: module.training for module in model.modules()}
    for module in before:
        module.training = False
    try:
        yield
    finally:
        for module, mode in before.items():
            module.training = mode
