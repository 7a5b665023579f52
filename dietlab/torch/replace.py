"""Replaces the linear layers of a model by those of a study."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from dietlab.study import Study
from dietlab.torch.libraries import library_of, require_served, unserved
from dietlab.torch.linear import Linear
from dietlab.workloads import Dense

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
}
"""PyTorch's functions for the activations of :class:`~dietlab.workloads.Dense`."""

PROBED = 3
"""Rows that a pair of modules is called with, to see whether the second is the first's activation."""


def replace_linears(model: torch.nn.Module, study: Study | str | Path) -> torch.nn.Module:
    """Replaces every linear layer of a model that a study serves, in place, and returns the model.

    An activation behind one in its module (ReLU, GELU) is computed with it, where calling the module shows
    that nothing else is between. Parameters stay the same objects: tied ones stay tied, and optimizers keep
    them.

    Args:
        model: gets :class:`~dietlab.torch.Linear` in place of :class:`torch.nn.Linear`.
        study: of ``Dense``, tuned; or its folder. Every epilogue that the model needs is built once and kept
            there.

    Raises:
        StudyError: if the study is of another operator or processor, or was not tuned.

    Warns:
        of each layer that the study does not serve, by name: it stays PyTorch's.
    """
    opened = study if isinstance(study, Study) else Study.open(study)
    served = require_served(opened, Dense, "linear layers")
    libraries = dict[tuple[bool, str], str]()
    known: dict[int, Linear] = {}
    found = list(linears(model))
    uses = Counter(id(linear) for *_, linear in found)
    for name, parent, attribute, linear in found:
        reason = _unserved(linear, served)
        if reason:
            warnings.warn(f"{name} stays PyTorch's: {reason}", stacklevel=2)
            continue
        if id(linear) not in known:
            # A layer that is used twice may have another activation behind it each time.
            alone = uses[id(linear)] == 1
            activation, after = _activation_behind(parent, attribute, linear) if alone else ("none", "")
            epilogue = linear.bias is not None, activation
            if epilogue not in libraries:
                libraries[epilogue] = library_of(opened, bias=epilogue[0], activation=activation)
            known[id(linear)] = Linear(linear, libraries[epilogue], activation)
            if after:
                setattr(parent, after, torch.nn.Identity())
        setattr(parent, attribute, known[id(linear)])
    return model


def linears(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str, torch.nn.Linear]]:
    """Yields the path, parent and attribute of every linear layer of PyTorch; a shared one each time."""
    for path, parent in model.named_modules():
        for attribute, child in parent._modules.items():  # named_children() leaves repeated ones out
            if type(child) is torch.nn.Linear:
                yield f"{path}.{attribute}".lstrip("."), parent, attribute, child


def _unserved(linear: torch.nn.Linear, work: Dense) -> str:
    """Returns why a study does not serve a layer; empty if it does."""
    if "weight" not in linear._parameters:
        return "its weight is not its parameter (pruned or parametrized)"
    return unserved(linear.weight, work)


def _activation_behind(parent: torch.nn.Module, attribute: str, linear: torch.nn.Linear) -> tuple[str, str]:
    """Returns the name of the activation that the module applies behind one of its layers, and the attribute
    that computes it; ``"none"`` and nothing if there is none that is known."""
    children = list(parent.named_children())
    at = [name for name, _ in children].index(attribute)
    if at + 1 == len(children):
        return "none", ""
    after, module = children[at + 1]
    # A hook on either would see another value, or none.
    if list(module.parameters()) or _hooked(module) or _hooked(linear):
        return "none", ""
    sequence = isinstance(parent, torch.nn.Sequential) or len(children) == 2
    probe = torch.randn(PROBED, linear.in_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        try:
            before = linear(probe)
            found = module(before)
            same = isinstance(parent, torch.nn.Sequential) or torch.equal(parent(probe), found)
        except (TypeError, ValueError, RuntimeError, AttributeError):
            return "none", ""
        if not (sequence and same):
            return "none", ""
        for name, activation in ACTIVATIONS.items():
            if torch.equal(activation(before), found):
                return name, after
    return "none", ""


def _hooked(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
