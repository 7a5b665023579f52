"""Hand-tuned libraries behind one small interface, in the forms people call them.

A *plain* vendor gets its operands as they are in every call; a *prepacked* one rearranges constant
weights once, outside of what is timed. Work happens in three steps, and only the last is timed::

    vendor = VENDORS["mkl-packed"](threads=1)              # load the library, or say why it is absent
    layer = vendor.prepare(workload, {"w": w}, shape)      # rearrange what is constant
    call = layer.bind({"x": x}, out)                       # resolve pointers, views and arguments
    call()

Several OpenMP runtimes in one process silently put one library on a single thread: run one
vendor a process (:mod:`dietlab.targets.cpu.contenders.worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dietlab.base.contracts import shown
from dietlab.base.errors import MeasureError
from dietlab.base.registry import Registry
from dietlab.compare.target import BOUNDS, WorkerModule
from dietlab.compare.vendor import Vendor
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import NoFormError
from dietlab.problem import Shape, Workload
from dietlab.targets.cpu.contenders.mkl import Mkl, MklPacked
from dietlab.targets.cpu.contenders.onnx_runtime import OnnxRuntime
from dietlab.targets.cpu.contenders.open_vino import OpenVino
from dietlab.targets.cpu.contenders.openblas import OpenBlas
from dietlab.targets.cpu.contenders.pytorch import OneDnnPacked, Torch
from dietlab.targets.cpu.contenders.zendnn import ZenDnn, ZenDnnPacked

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

DEFAULTS = tuple(name for name in VENDORS.own if name != "torch")
"""All vendors but PyTorch's operators, which multiply with MKL."""

CONTENDERS = (*VENDORS, *BOUNDS)
"""The contenders of an evaluation on a CPU."""

WORKER = WorkerModule("dietlab.targets.cpu.contenders.worker", 120.0)


def facts() -> dict[str, str]:
    """Returns nothing: the description of the CPU has all."""
    return {}


def require_form(workload: Workload) -> None:
    """Checks that weights are constant, and that no residual or GELU follows."""
    epilogue = workload.epilogue
    if "w" not in workload.constants or epilogue.residual or epilogue.activation not in ("none", "relu"):
        raise NoFormError(
            "per-shape tuning on a CPU has constant weights, no residual and no GELU",
            workload,
            "Compare with the vendors.",
        )


def ansor_tools(hardware: Hardware, timer: str | None) -> dict[str, str]:
    """Returns nothing: TVM brings its compiler."""
    return {}


def ansor_platform(workload: Workload, hardware: Hardware, shape: Shape, timer: str) -> Any:
    """Returns MetaSchedule's rules for vector instructions, with its own timer."""
    from dietlab.targets.cpu.ansor import CpuPlatform

    return CpuPlatform.open(workload, hardware, shape)
