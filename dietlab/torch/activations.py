"""Activations that a library computes with the layer before them, known by type and arguments alone."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional

TRANSFORMERS = "transformers.activations"
"""The module of ``transformers`` whose activations are known, by name: it is not imported for them."""

TANH_FORMULAS = ("NewGELUActivation", "FastGELUActivation", "AccurateGELUActivation")
"""Its classes that write GELU's approximation by tanh out; they differ in rounding alone."""


def activation_of(module: object) -> str:
    """Returns which activation of :class:`~dietlab.problem.Dense` a module or function is; ``""`` if none.

    Nothing is called. A class that was derived from a known one may compute something else, and is none.

    Args:
        module: of PyTorch or ``transformers``, or one of PyTorch's functions.
    """
    kind = type(module)
    if kind is torch.nn.ReLU or module is functional.relu or module is torch.relu:
        return "relu"
    if kind is torch.nn.GELU:
        return _gelu(module.approximate)  # type: ignore[attr-defined]
    if module is functional.gelu:
        return _gelu("none")
    if kind.__module__ == TRANSFORMERS:
        return _of_transformers(module)
    return ""


def _gelu(approximate: object) -> str:
    return {"none": "gelu_erf", "tanh": "gelu_tanh"}.get(str(approximate), "")


def _of_transformers(module: object) -> str:
    name = type(module).__name__
    if name in TANH_FORMULAS:
        return "gelu_tanh"
    if name not in ("GELUActivation", "GELUTanh"):
        return ""
    # What both call; they have another form that is written out in Python.
    called = vars(module).get("act")
    if called is functional.gelu:
        return _gelu("none")
    if isinstance(called, partial) and called.func is functional.gelu and not called.args:
        return _gelu(called.keywords.get("approximate")) if set(called.keywords) == {"approximate"} else ""
    return ""
