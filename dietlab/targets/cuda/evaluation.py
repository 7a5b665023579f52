"""Evaluation on a GPU: NVIDIA's libraries through PyTorch, Triton, and MetaSchedule."""

from __future__ import annotations

from typing import Any

from dietlab.evaluation.gpu import GPU_VENDORS
from dietlab.evaluation.gpu import WORKER as MODULE
from dietlab.evaluation.gpu.machine import machine_facts
from dietlab.evaluation.target import WorkerModule
from dietlab.hardware import Hardware
from dietlab.lower.compiler import require_linker
from dietlab.lower.cuda.nvcc import require_compiler
from dietlab.shapes import Shape
from dietlab.timing.contender import NoFormError
from dietlab.timing.cuda_clock import require_gpu
from dietlab.workloads import Workload

VENDORS = GPU_VENDORS
WORKER = WorkerModule(MODULE, 400.0)
"""The first call of a contender that compiles takes minutes."""

ANSOR_DTYPES = ("float32", "float16")
"""TVM's rules for tensor cores know no bfloat16; without them halves would be no baseline."""


def facts() -> dict[str, str]:
    """Returns the driver, the highest clocks and the power limit."""
    return machine_facts()


def require_form(workload: Workload) -> None:
    """Checks the type."""
    if workload.dtype not in ANSOR_DTYPES:
        raise NoFormError(
            f"MetaSchedule has rules for {' and '.join(ANSOR_DTYPES)} on a GPU",
            workload.dtype,
            "Compare with the other contenders.",
        )


def ansor_tools(hardware: Hardware, timer: str | None) -> dict[str, str]:
    """Returns the version of NVIDIA's compiler."""
    if timer is None:
        require_gpu(hardware)
    require_linker()
    return {"CUDA compiler": require_compiler().version().strip().splitlines()[-1]}


def ansor_platform(workload: Workload, hardware: Hardware, shape: Shape, timer: str) -> Any:
    """Returns MetaSchedule's rules for CUDA, whose candidates are timed as ours are."""
    from dietlab.evaluation.ansor_gpu import GpuPlatform, timer_for

    return GpuPlatform.open(workload, hardware, shape, timer_for(workload, hardware, timer))
