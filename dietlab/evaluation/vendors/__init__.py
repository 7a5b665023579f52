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

from dietlab.contracts import shown
from dietlab.errors import MeasureError
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
from dietlab.evaluation.vendors.open_vino import OpenVino
from dietlab.evaluation.vendors.openblas import OpenBlas
from dietlab.evaluation.vendors.pytorch import OneDnnPacked, Torch
from dietlab.evaluation.vendors.zendnn import ZenDnn, ZenDnnPacked
from dietlab.registry import Registry

NAMES_OF_OURS = ("dietlab", "library", "libraries", "ansor", "largest-shape", "oracle")
"""Contenders that are no vendors."""


def _vendor(name: str, value: object) -> Callable[[int], Vendor]:
    if not callable(value) or (isinstance(value, type) and not hasattr(value, "prepare")):
        remedy = f"Enter {type(value).__name__} itself." if hasattr(value, "prepare") else ""
        raise MeasureError(
            f"the contender {name} is entered as a class with prepare, made with a number of threads",
            shown(value),
            remedy,
        )
    return value


VENDORS: Registry[Callable[[int], Vendor]] = Registry(
    "a contender",
    "dietlab.vendors",
    {
        vendor.name: vendor
        for vendor in (
            *(OpenBlas, Mkl, MklPacked, Torch, OneDnnPacked, ZenDnn, ZenDnnPacked),
            *(OnnxRuntime, OpenVino),
        )
    },
    _vendor,
    MeasureError,
    reserved=NAMES_OF_OURS,
    travels=True,
)
"""Vendors by name; called with a number of threads, each loads its library. ``VENDORS["mine"] = Mine`` enters
a class of your own, in this process and in those that it starts."""

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
