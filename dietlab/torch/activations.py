"""Activations that a library can compute with the layer before them, recognised by type and arguments
only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import _AttrProxy
from torch.nn import functional

APPLY: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
}
"""PyTorch's functions for the activations of :class:`~dietlab.problem.Dense`."""

TRANSFORMERS = "transformers.activations"
"""The module of ``transformers`` whose activations are recognised by their names, without importing it."""

TANH_FORMULAS = ("NewGELUActivation", "FastGELUActivation", "AccurateGELUActivation")
"""Classes of that module that compute GELU's tanh approximation in Python; they differ only in rounding."""


def class_of(module: object) -> type:
    """Returns a module's class. While PyTorch exports a model (2.13), a module that the model calls several
    times is seen through a proxy, whose class derives from the proxies' and the module's."""
    kind = type(module)
    return kind.__bases__[-1] if issubclass(kind, _AttrProxy) else kind


def activation_of(module: object) -> str:
    """Returns the activation of :class:`~dietlab.problem.Dense` that a module or function computes; ``""`` if
    none. Nothing is called. A class derived from a known one may compute something else, and counts as none.
    """
    kind = class_of(module)
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
    # The function that both call; it can also be one written in Python, which is not recognised.
    called = vars(module).get("act")
    if called is functional.gelu:
        return _gelu("none")
    if isinstance(called, partial) and called.func is functional.gelu and not called.args:
        return _gelu(called.keywords.get("approximate")) if set(called.keywords) == {"approximate"} else ""
    return ""
