"""Hand-tuned libraries behind one small interface, in the forms people call them.

A *plain* vendor gets its operands as they are in every call; a *prepacked* one rearranges constant
weights once, outside of what is timed. Work happens in three steps, and only the last is timed::

    vendor = VENDORS["mkl-packed"](threads=1)              # load the library, or say why it is absent
    layer = vendor.prepare(workload, {"w": w}, shape)      # rearrange what is constant
    call = layer.bind({"x": x}, out)                       # resolve pointers, views and arguments
    call()

Several OpenMP runtimes in one process silently put one library on a single thread: run one
vendor a process (:mod:`dietlab.evaluation.contender_worker`).
"""

from __future__ import annotations

from collections.abc import Callable

from dietlab.evaluation.vendors.interface import (
    Call,
    Kind,
    NoFormError,
    Operands,
    PreparedLayer,
    Vendor,
    contender_env,
)
from dietlab.evaluation.vendors.mkl import Mkl, MklPacked
from dietlab.evaluation.vendors.onnx_runtime import OnnxRuntime
from dietlab.evaluation.vendors.openblas import OpenBlas
from dietlab.evaluation.vendors.pytorch import OneDnnPacked, Torch
from dietlab.evaluation.vendors.zendnn import ZenDnn, ZenDnnPacked

VENDORS: dict[str, Callable[[int], Vendor]] = {
    vendor.name: vendor
    for vendor in (OpenBlas, Mkl, MklPacked, Torch, OneDnnPacked, ZenDnn, ZenDnnPacked, OnnxRuntime)
}
"""Vendors by name; called with a number of threads, each loads its library."""

__all__ = [
    "VENDORS",
    "Call",
    "Kind",
    "NoFormError",
    "Operands",
    "PreparedLayer",
    "Vendor",
    "contender_env",
]
