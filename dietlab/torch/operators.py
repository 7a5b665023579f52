"""Registers the operators ``torch.ops.dietlab.linear``, ``.grouped_linear`` and ``.batch_matmul``, and for
comparison ``.static_linear``. They are in C++; ``torch.compile`` and ``torch.export`` keep them whole."""

from __future__ import annotations

import torch

from dietlab.torch.extension import extension

SOURCE = "operators.cpp"


def register_operators() -> None:
    """Makes the operators of tuned libraries known to PyTorch, unless they are.

    Raises:
        MissingDependencyError: if they must be compiled and that fails.
    """
    _register("linear", SOURCE)


def register_static_linear() -> None:
    """Makes the operator of programs that were tuned for one number of rows known to PyTorch, unless it is.

    Raises:
        MissingDependencyError: if it must be compiled and that fails.
    """
    _register("static_linear", "static_linear.cpp")


def _register(operator: str, source: str) -> None:
    if not hasattr(torch.ops.dietlab, operator):
        torch.ops.load_library(extension(source))


register_operators()
