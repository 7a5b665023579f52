"""The space of a GPU: tiles of thread blocks."""

from __future__ import annotations

from dietlab.space import CudaMicroKernel, cuda_limits
from dietlab.space.cuda_space import cuda_candidates
from dietlab.workloads import Workload

KERNEL = CudaMicroKernel
candidates, limits = cuda_candidates, cuda_limits


def pads(workload: Workload) -> bool:
    """Returns True: every operand is copied to shared memory, and filled with zeros there."""
    return True
