"""Rates: the work of one multiprocessor of a GPU in a cycle, as the bound of a block of threads counts it."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.machine.description import Hardware
from dietlab.targets.cuda.limits import gpu_of

SHARED_BYTES = 128
"""Bytes that shared memory gives a multiprocessor in a cycle: 32 banks of 4 (CUDA C Programming Guide, shared
memory, compute capability 5.0 and later)."""

SLOTS = 4
"""Instructions that a multiprocessor issues in a cycle, one for each of its parts (CUDA C Programming Guide,
compute capability 7.0 and later)."""

STREAMED = 0.875
"""The share of the nominal bandwidth of memory that reading reaches; an estimate."""

UNKNOWN_CLOCK_GHZ, UNKNOWN_TENSOR_MACS, UNKNOWN_L2_BYTES = 1.5, 1024, 24.0
"""What counts for a GPU whose file says nothing from which it would follow: of the order of all since compute
capability 7.0. Ranks of tiles hardly depend on it."""

HOPPER_WARP_SHARE = 0.62
"""``warp_share`` of a GPU that multiplies by groups of warps, too, where its file does not say."""


@dataclass(frozen=True)
class GpuRates:
    """The rates of a GPU.

    Args:
        multiprocessors: that a call may use.
        hertz: cycles in a second.
        fma_macs, warp_macs, group_macs: multiply-adds of one multiprocessor in a cycle, by float32 threads,
            by single warps on tensor cores and by groups of four warps.
        l2_bytes: that L2 gives one multiprocessor in a cycle.
        memory_bytes: that memory gives all in a second; None if unknown.
        cache_bytes: that L2 holds.
    """

    multiprocessors: int
    hertz: float
    fma_macs: float
    warp_macs: float
    group_macs: float
    l2_bytes: float
    memory_bytes: float | None
    cache_bytes: int

    @property
    def macs(self) -> tuple[float, float, float]:
        """Multiply-adds in a cycle of ``fma``, ``mma`` and ``wgmma``."""
        return self.fma_macs, self.warp_macs, self.group_macs


def gpu_rates(hardware: Hardware) -> GpuRates:
    """Returns the rates of a GPU; what its file does not say follows from peaks and compute capability."""
    gpu = gpu_of(hardware)
    clock = gpu.clock_ghz or (hardware.peak_gflops or 0) / (2 * gpu.float32_lanes) or UNKNOWN_CLOCK_GHZ
    tensor = gpu.tensor_macs or (gpu.half_gflops or 0) / (2 * clock) or UNKNOWN_TENSOR_MACS
    share = gpu.warp_share or (HOPPER_WARP_SHARE if gpu.warp_groups else 1.0)
    return GpuRates(
        multiprocessors=hardware.cores,
        hertz=1e9 * clock,
        fma_macs=gpu.float32_lanes,
        warp_macs=tensor * share,
        group_macs=tensor,
        l2_bytes=gpu.l2_bytes_cycle or UNKNOWN_L2_BYTES,
        memory_bytes=STREAMED * 1e9 * hardware.dram_gbps if hardware.dram_gbps else None,
        cache_bytes=gpu.l2_bytes,
    )
