"""Contenders on a GPU. Each works on PyTorch's tensors in a separate process, and answers the requests of
:mod:`dietlab.measure.timing.bench`, as those on a CPU do. Importing this package loads no library of a GPU.

==================  =========  =====================================================================
contender           kind       what it is
==================  =========  =====================================================================
``cublas``          plain      PyTorch's ``mm``, ``addmm`` or ``bmm``
``cublaslt``        plain      the same through cuBLASLt, which takes its heuristic's first choice
``cublaslt-tuned``  tuned      cuBLASLt with the fastest of its heuristic's list, for each shape
``cudnn``           plain      PyTorch's convolution, channels last: cuDNN's heuristic
``cudnn-tuned``     tuned      PyTorch's convolution with the fastest of cuDNN's algorithms for each size
``torch-compile``   compiled   one program for all lengths, out of Inductor
``triton``          tuned      the blocked product of Triton's tutorial, its configurations tried for each
                               shape
``ansor``           scheduler  MetaSchedule's best program for each shape that was tuned; no bfloat16
==================  =========  =====================================================================

float32 is multiplied as float32: TF32 is off everywhere.
"""

from __future__ import annotations

import subprocess
from typing import Any

from dietlab.compare.target import WorkerModule
from dietlab.compare.vendor import defaults, vendors
from dietlab.lower.compiler import require_linker
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import NoFormError
from dietlab.problem import Shape, Workload
from dietlab.targets.cuda.contenders.cublaslt import TunedCublasLt
from dietlab.targets.cuda.contenders.pytorch import Compiled, Cudnn, CudnnTuned, EagerCublas, EagerCublasLt
from dietlab.targets.cuda.contenders.triton_matmul import TritonMatmul
from dietlab.targets.cuda.driver import require_gpu
from dietlab.targets.cuda.lowering.nvcc import require_compiler

VENDORS = vendors(
    "a contender on a GPU",
    "dietlab.vendors.cuda",
    (EagerCublas, EagerCublasLt, TunedCublasLt, Cudnn, CudnnTuned, Compiled, TritonMatmul),
    "a GpuSetting",
)
"""The contenders other than dietlab's libraries, by name. Each is made with a
:class:`~dietlab.targets.cuda.contenders.tensors.GpuSetting`."""

DEFAULTS = defaults(VENDORS)

WORKER = WorkerModule("dietlab.targets.cuda.contenders.worker", 400.0)
"""The worker of all contenders, and the longest that a request may take, in seconds: a first call that
compiles takes minutes."""

QUERY = {
    "GPU": "name",
    "NVIDIA driver": "driver_version",
    "highest SM clock": "clocks.max.sm",
    "highest memory clock": "clocks.max.memory",
    "power limit": "power.limit",
}
"""Facts about a GPU that accompany its measurements, and their names in ``nvidia-smi --help-query-gpu``."""

SMI_SECONDS = 20.0
"""The longest that ``nvidia-smi`` may take, in seconds."""

ANSOR_DTYPES = ("float32", "float16")
"""Types with rules for their units: TVM's rules for tensor cores know no bfloat16."""


def facts(command: str = "nvidia-smi") -> dict[str, str]:
    """Returns the driver, the highest clocks and the power limit of the first GPU, with their units; empty
    without ``nvidia-smi``."""
    query = [command, f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader", "--id=0"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in found.stdout.split(",")]
    return dict(zip(QUERY, values, strict=True)) if len(values) == len(QUERY) else {}


def require_form(workload: Workload) -> None:
    """Checks the type."""
    if workload.dtype not in ANSOR_DTYPES:
        raise NoFormError(
            f"MetaSchedule needs operands of type {' or '.join(ANSOR_DTYPES)} on a GPU",
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
    """Returns MetaSchedule's rules for CUDA; their candidates are timed as dietlab's are."""
    from dietlab.targets.cuda.ansor import GpuPlatform, timer_for

    return GpuPlatform.open(workload, hardware, shape, timer_for(workload, hardware, timer))
