"""Fusions in a chain: a layer that is computed with the batch norm and the activation after it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from dietlab.torch.activations import activation_of
from dietlab.torch.chains import Step
from dietlab.torch.found import chains_in

NORMED = (torch.nn.Conv1d, torch.nn.Conv2d)
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
"""Batch norms that a convolution's library can compute with it."""


def fusions_in(steps: list[Step]) -> Iterator[tuple[torch.nn.Module, str]]:
    """Yields each module of a chain with a known activation that is computed with it, and that activation
    (``""`` if only a batch norm is).

    A norm in training mode counts: it is computed with the layer from the next ``eval()`` on.
    """
    for at, step in enumerate(steps[:-1]):
        after = at + 1
        normed = isinstance(step, NORMED) and type(steps[after]) in NORMS
        after += normed
        activation = activation_of(steps[after]) if after < len(steps) else ""
        if isinstance(step, torch.nn.Module) and (activation or normed):
            yield step, activation


def norms_in(model: torch.nn.Module) -> Iterator[tuple[str, bool]]:
    """Yields the path of each batch norm that follows a convolution in a chain, and whether it is in
    training mode."""
    names = {id(module): name for name, module in model.named_modules()}
    for _, _, steps in chains_in(model):
        for step, after in pairwise(steps):
            if isinstance(step, NORMED) and type(after) in NORMS:
                yield names[id(after)], after.training and after.running_mean is not None  # type: ignore[attr-defined]
