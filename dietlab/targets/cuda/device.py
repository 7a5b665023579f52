"""Measuring on a GPU: TVM's tensors, events on the driver's stream, and a simple machine in its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietlab.machine import Hardware
from dietlab.measure.timing.protocol import GPU_CACHE_STATES
from dietlab.problem import Shape, Workload
from dietlab.targets.cuda.arrays import TvmArrays
from dietlab.targets.cuda.clock import CudaClock, require_gpu
from dietlab.targets.cuda.driver import CudaDriver
from dietlab.targets.cuda.gpu import Gpu
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.synthetic import synthetic_call

CACHE_STATES = GPU_CACHE_STATES
START_SECONDS = 120.0
"""A timing process imports TVM and makes the device's context: a minute on a host that was lent a moment
ago."""


def rotated(workload: Workload) -> tuple[str, ...]:
    """Returns no operand: all rotate."""
    return ()


def options(hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
    """Returns the size of L2."""
    return {"kind": hardware.kind, "l2_bytes": gpu_of(hardware).l2_bytes}, ""


def device(cores: int, options: Mapping[str, Any]) -> Gpu:
    """Returns the first GPU."""
    driver = CudaDriver()
    return Gpu(TvmArrays(driver), CudaClock(driver), int(options["l2_bytes"]))


def require_here(hardware: Hardware) -> None:
    """Checks for a GPU that runs what is compiled for this one."""
    require_gpu(hardware)


def seconds(hardware: Hardware, workload: Workload, scheme: CudaScheme, shape: Shape) -> float:
    """Returns the seconds of a simple GPU."""
    return synthetic_call(hardware, workload, scheme, shape)
