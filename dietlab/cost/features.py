"""The learned model's features of a micro-kernel, by kind of processor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dietlab.cost.cpu_features import CPU_FEATURES, cpu_features
from dietlab.cost.cuda_features import CUDA_FEATURES, cuda_features
from dietlab.hardware import Hardware
from dietlab.space import CpuMicroKernel, CudaMicroKernel, MicroKernel
from dietlab.workloads import Workload


def feature_names(hardware: Hardware) -> tuple[str, ...]:
    """Returns the features of micro-kernels on this kind of processor."""
    return CUDA_FEATURES if hardware.kind == "cuda" else CPU_FEATURES


def features(
    kernels: Sequence[MicroKernel], workload: Workload, hardware: Hardware
) -> npt.NDArray[np.float64]:
    """Returns an array ``[micro-kernels, features]``; no feature depends on a dynamic dimension."""
    rows = [_features(kernel, workload, hardware) for kernel in kernels]
    return np.array(rows, np.float64).reshape(len(kernels), len(feature_names(hardware)))


def _features(kernel: MicroKernel, workload: Workload, hardware: Hardware) -> list[float]:
    if isinstance(kernel, CudaMicroKernel):
        return cuda_features(kernel, workload, hardware)
    assert isinstance(kernel, CpuMicroKernel)
    return cpu_features(kernel, workload, hardware)
