"""Registers the operators ``torch.ops.dietlab.linear``, ``.packed_linear``, ``.grouped_linear``,
``.batch_matmul`` and ``.convolution``, and for comparison ``.static_linear``. They are written in C++;
``torch.compile`` and ``torch.export`` treat each as one operator."""

from __future__ import annotations

import ctypes
import os

import torch

from dietlab.torch.extension import extension
from dietlab.tuning import load

SOURCE = "operators.cpp"


def register_operators() -> None:
    """Registers the operators of tuned libraries with PyTorch, on first use.

    Raises:
        MissingDependencyError: if they must be compiled and that fails.
    """
    _register("linear", SOURCE)
    torch.ops.dietlab.check_with(ctypes.cast(_CHECK, ctypes.c_void_p).value)


def register_static_linear() -> None:
    """Registers the operator of programs tuned for one number of rows with PyTorch, on first use.

    Raises:
        MissingDependencyError: if it must be compiled and that fails.
    """
    _register("static_linear", "static_linear.cpp")


def _check(folder: bytes, reason: int, size: int) -> None:
    """Writes the error of :func:`dietlab.load` to ``reason`` if a library cannot run here; else nothing."""
    try:
        load(os.fsdecode(folder))
    except Exception as error:  # C++ cannot pass errors on: after any error the library stays closed
        said = (str(error) or repr(error)).encode()[: size - 1].decode(errors="ignore").encode()
        ctypes.memmove(reason, said + b"\0", len(said) + 1)


_CHECK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)(_check)
"""``Check`` of ``operators.cpp``; it must live as long as the operators."""


def _register(operator: str, source: str) -> None:
    if not hasattr(torch.ops.dietlab, operator):
        torch.ops.load_library(extension(source))


register_operators()
