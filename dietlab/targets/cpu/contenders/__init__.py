"""Hand-tuned libraries behind one small interface, in the forms in which users call them.

A *plain* vendor takes its operands as they are in every call; a *prepacked* one rearranges constant weights
once, outside of the timed call. A call takes three steps; only the last one is timed::

    vendor = VENDORS["mkl-packed"](threads=1)              # load the library, or say why it is absent
    layer = vendor.prepare(workload, {"w": w}, shape)      # rearrange what is constant
    call = layer.bind({"x": x}, out)                       # resolve pointers, views and arguments
    call()

A class raises :class:`MissingDependencyError` where its library is absent. Several OpenMP runtimes in one
process silently put one library on a single thread: run one vendor a process
(:mod:`dietlab.targets.cpu.contenders.worker`).
"""

from __future__ import annotations

from typing import Any

from dietlab.compare.target import BOUNDS, WorkerModule
from dietlab.compare.vendor import defaults, vendors
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import NoFormError
from dietlab.problem import Shape, Workload, precision_of
from dietlab.targets.cpu.contenders.im2col import Im2col
from dietlab.targets.cpu.contenders.mkl import Mkl, MklPacked
from dietlab.targets.cpu.contenders.onnx_runtime import OnnxRuntime
from dietlab.targets.cpu.contenders.open_vino import OpenVino
from dietlab.targets.cpu.contenders.openblas import OpenBlas
from dietlab.targets.cpu.contenders.pytorch import OneDnnAnySize, OneDnnPacked, Torch
from dietlab.targets.cpu.contenders.xnnpack import Xnnpack
from dietlab.targets.cpu.contenders.zendnn import ZenDnn, ZenDnnPacked

VENDORS = vendors(
    "a contender",
    "dietlab.vendors",
    (
        OpenBlas,
        Mkl,
        MklPacked,
        Torch,
        OneDnnPacked,
        OneDnnAnySize,
        Im2col,
        ZenDnn,
        ZenDnnPacked,
        OnnxRuntime,
        OpenVino,
        Xnnpack,
    ),
    "a number of threads",
)
"""Vendor classes by name; each loads its library when it is called with a number of threads.
``VENDORS["mine"] = Mine`` adds a class of your own, in this process and in those that it starts."""

DEFAULTS = defaults(VENDORS)

CONTENDERS = (*VENDORS, *BOUNDS)
"""The contenders of an evaluation on a CPU."""

WORKER = WorkerModule("dietlab.targets.cpu.contenders.worker", 120.0)


def facts() -> dict[str, str]:
    """Returns nothing: the description of the CPU has all facts."""
    return {}


def require_form(workload: Workload) -> None:
    """Checks that weights are constant, that sums have no scales, and that no residual or GELU follows."""
    epilogue = workload.epilogue
    if precision_of(workload).scaled:
        rule = "per-shape tuning on a CPU needs operands whose sums have no scales"
        raise NoFormError(rule, workload, "Compare with onednn-packed.")
    if "w" not in workload.constants or epilogue.residual or epilogue.activation not in ("none", "relu"):
        raise NoFormError(
            "per-shape tuning on a CPU needs constant weights, no residual and no GELU",
            workload,
            "Compare with the vendors.",
        )


def ansor_tools(hardware: Hardware, timer: str | None) -> dict[str, str]:
    """Returns nothing: TVM brings its compiler."""
    return {}


def ansor_platform(workload: Workload, hardware: Hardware, shape: Shape, timer: str) -> Any:
    """Returns the platform of one shape, with MetaSchedule's rules for vector instructions and its own
    timer."""
    from dietlab.targets.cpu.ansor import CpuPlatform

    return CpuPlatform.open(workload, hardware, shape)
