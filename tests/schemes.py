"""Schemes of made-up micro-kernels, in few words."""

from __future__ import annotations

from typing import Any

from dietlab.scheme import Edge, Order, Scheme
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme


def cpu_scheme(
    rows: int,
    cols: int,
    unroll: int = 1,
    order: Order = "ws",
    prefetch: int = 0,
    edge: Edge = "padded",
    ahead: bool = False,
    along: Any = "cols",
    block: int = 0,
    unit: Any = "fma",
    lines: bool = False,
) -> CpuScheme:
    """Returns a scheme of a register tile."""
    kernel = CpuMicroKernel(rows, cols, unroll, prefetch, ahead, along, block, unit, lines)
    return Scheme(kernel, edge, order)


def cuda_scheme(*sizes: int, edge: Edge = "padded", **others: Any) -> CudaScheme:
    """Returns a scheme of a thread block's tile; ``sizes`` and ``others`` are the micro-kernel's."""
    return Scheme(CudaMicroKernel(*sizes, **others), edge)
