"""The learned model's features of a scheme, by kind of processor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dietlab.cost.cpu_features import CPU_FEATURES, cpu_features
from dietlab.cost.cuda_features import CUDA_FEATURES, cuda_features
from dietlab.hardware import Hardware
from dietlab.space import CpuMicroKernel, CudaMicroKernel, Scheme
from dietlab.workloads import Workload


def feature_names(hardware: Hardware) -> tuple[str, ...]:
    """Returns the features of schemes on this kind of processor."""
    return CUDA_FEATURES if hardware.kind == "cuda" else CPU_FEATURES


def features(schemes: Sequence[Scheme], workload: Workload, hardware: Hardware) -> npt.NDArray[np.float64]:
    """Returns an array ``[schemes, features]``; no feature depends on a dynamic dimension."""
    rows = [_features(scheme, workload, hardware) for scheme in schemes]
    return np.array(rows, np.float64).reshape(len(schemes), len(feature_names(hardware)))


def _features(scheme: Scheme, workload: Workload, hardware: Hardware) -> list[float]:
    if isinstance(scheme.kernel, CudaMicroKernel):
        return cuda_features(scheme.kernel, workload, hardware)
    assert isinstance(scheme.kernel, CpuMicroKernel)
    return cpu_features(scheme, workload, hardware)
