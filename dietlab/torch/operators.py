"""Registers the operators ``torch.ops.dietlab.linear``, ``.packed_linear``, ``.grouped_linear``,
``.batch_matmul`` and ``.convolution``, and for comparison ``.static_linear``. ``torch.compile`` and
``torch.export`` treat each as one operator.

They are written in C++; the kernel of ``linear`` for a GPU is Python's. Without a C++ compiler, Python
defines them, and only libraries for a GPU can be called.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from dietlab.base.errors import DietlabError, MissingDependencyError
from dietlab.torch.extension import extension
from dietlab.torch.gpu_linear import linear_on_gpu
from dietlab.torch.python_operators import define_operators
from dietlab.tuning import load

SOURCE = "operators.cpp"

CPU = "cpu"
"""The kind of processor whose libraries the operators of C++ call."""

_kept: list[Any] = []
"""What must live as long as the operators: libraries of registrations, and without a compiler its error."""


def register_operators() -> None:
    """Registers the operators of tuned libraries with PyTorch, on first use."""
    try:
        _register("linear", SOURCE)
        torch.ops.dietlab.check_with(ctypes.cast(_CHECK, ctypes.c_void_p).value)
    except MissingDependencyError as error:
        _kept.extend((error, define_operators(error)))
    kernels = torch.library.Library("dietlab", "IMPL")
    kernels.impl("linear", linear_on_gpu, "CUDA")
    _kept.append(kernels)


def require_compiled() -> None:
    """Checks that the operators of C++ are there, which call libraries for a CPU.

    Raises:
        MissingDependencyError: if they had to be compiled and that failed.
    """
    for kept in _kept:
        if isinstance(kept, DietlabError):
            raise kept


def register_static_linear() -> None:
    """Registers the operator of programs tuned for one number of rows with PyTorch, on first use.

    Raises:
        MissingDependencyError: if it must be compiled and that fails.
    """
    _register("static_linear", "static_linear.cpp")


def _check(folder: bytes, reason: int, size: int) -> None:
    """Writes to ``reason`` why a library cannot be called here on tensors of the CPU: the error of
    :func:`dietlab.load`, or that it is for a GPU. Writes nothing if it can."""
    try:
        hardware = load(os.fsdecode(folder)).manifest["hardware"]
        if hardware["kind"] == CPU:
            return
        why = f"weights on the CPU, and a library for {hardware['name']}."
    except Exception as error:  # C++ cannot pass errors on: after any error the library stays closed
        why = str(error) or repr(error)
    said = why.encode()[: size - 1].decode(errors="ignore").encode()
    ctypes.memmove(reason, said + b"\0", len(said) + 1)


_CHECK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)(_check)
"""``Check`` of ``operators.cpp``; it must live as long as the operators."""


def _register(operator: str, source: str) -> None:
    if not hasattr(torch.ops.dietlab, operator):
        torch.ops.load_library(extension(source))


register_operators()
