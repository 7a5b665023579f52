"""Evaluation on a CPU: the vendors' libraries, and MetaSchedule with weights in a layout of its choice."""

from __future__ import annotations

from typing import Any

from dietlab.evaluation.target import WorkerModule
from dietlab.evaluation.vendors import VENDORS as VENDORS
from dietlab.hardware import Hardware
from dietlab.shapes import Shape
from dietlab.timing.contender import NoFormError
from dietlab.workloads import Workload

WORKER = WorkerModule("dietlab.evaluation.contender_worker", 120.0)


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
    from dietlab.evaluation.ansor_cpu import CpuPlatform

    return CpuPlatform.open(workload, hardware, shape)
