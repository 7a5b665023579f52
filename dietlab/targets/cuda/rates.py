"""Rates of a GPU: the work of one multiprocessor in a cycle, from which the bound is computed."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.machine.description import Hardware
from dietlab.targets.cuda.limits import gpu_of

SHARED_BYTES = 128
"""The number of bytes that shared memory gives a multiprocessor in a cycle: 32 banks of 4 (CUDA C Programming
Guide, shared memory, compute capability 5.0 and later)."""

SLOTS = 4
"""The number of instructions that a multiprocessor issues in a cycle, one for each of its parts (CUDA C
Programming Guide, compute capability 7.0 and later)."""

STREAMED = 0.875
"""The share of memory's nominal bandwidth that reading reaches; an estimate."""

UNKNOWN_CLOCK_GHZ, UNKNOWN_TENSOR_MACS, UNKNOWN_L2_BYTES = 1.5, 1024, 24.0
"""Defaults of three rates that do not follow from a GPU's file: the clock, and for one multiprocessor in a
cycle the number of multiply-adds of tensor cores and of bytes from L2. All GPUs since compute capability 7.0
have numbers of this order. Ranks of tiles hardly depend on these defaults."""

HOPPER_WARP_SHARE = 0.62
"""The default of ``warp_share`` for a GPU with ``wgmma``."""


@dataclass(frozen=True)
class GpuRates:
    """The rates of a GPU.

    Args:
        multiprocessors: the number of multiprocessors that a call may use.
        hertz: the number of cycles in a second.
        fma_macs, warp_macs, group_macs: the numbers of multiply-adds of one multiprocessor in a cycle, by
            float32 threads, by single warps on tensor cores and by groups of four warps.
        l2_bytes: the number of bytes from L2 to one multiprocessor in a cycle.
        memory_bytes: the number of bytes from memory to all multiprocessors in a second; None if unknown.
        cache_bytes: the size of L2 in bytes.
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
        """The numbers of multiply-adds in a cycle of ``fma``, ``mma`` and ``wgmma``."""
        return self.fma_macs, self.warp_macs, self.group_macs


def gpu_rates(hardware: Hardware) -> GpuRates:
    """Returns the rates of a GPU. Rates that its file lacks follow from peaks and compute capability."""
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
