"""The space of a CPU: register tiles."""

from __future__ import annotations

from dietlab.space import CpuMicroKernel, cpu_limits
from dietlab.space.cpu_space import cpu_candidates
from dietlab.workloads import Workload, static_extent

KERNEL = CpuMicroKernel
candidates, limits = cpu_candidates, cpu_limits


def pads(workload: Workload) -> bool:
    """Returns whether the reduction axis is static: a copy of the edge tile needs that."""
    return static_extent(workload, "depth") is not None
