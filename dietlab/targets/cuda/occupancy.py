"""Computes the occupancy of a CUDA kernel: how many of its blocks one multiprocessor holds, and which limit
bounds them.

The rules are those of NVIDIA's occupancy calculator (CUDA C++ Best Practices Guide, "Calculating
Occupancy"; CUDA C++ Programming Guide, "Compute Capabilities").
"""

from __future__ import annotations

from typing import Literal

from dietlab.base.errors import HardwareError
from dietlab.targets.cuda.limits import GpuLimits

Limiter = Literal["threads", "blocks", "registers", "shared memory"]
LIMITERS: tuple[Limiter, ...] = ("threads", "blocks", "registers", "shared memory")

PARTITIONS = 4
"""The number of parts of a multiprocessor, each with its own warps and registers (compute capability 7.0 and
later)."""


def blocks_per_sm(limits: GpuLimits, threads: int, registers: int, shared_bytes: int) -> int:
    """Returns the number of blocks that one multiprocessor holds at a time; 0 if not even one fits.

    Args:
        threads: the number of threads of a block.
        registers: the number of registers of a thread, as the compiler reports it.
        shared_bytes: the shared memory of a block: what the source declares and what the launch adds. The
            driver is assumed to give shared memory as much as possible of the memory that it shares with L1.

    Raises:
        HardwareError: if a size is negative, or there is no thread.
    """
    return min(block_bounds(limits, threads, registers, shared_bytes).values())


def limiter(limits: GpuLimits, threads: int, registers: int, shared_bytes: int) -> Limiter:
    """Returns the resource that limits the blocks of a multiprocessor. If several resources do, returns the
    first of them in :data:`LIMITERS`, where fixed limits come before limits that the compiler could ease.
    """
    bounds = block_bounds(limits, threads, registers, shared_bytes)
    return min(LIMITERS, key=lambda resource: bounds[resource])


def block_bounds(limits: GpuLimits, threads: int, registers: int, shared_bytes: int) -> dict[Limiter, int]:
    """Returns for each resource of a multiprocessor the number of blocks that it alone has room for."""
    if threads < 1 or registers < 0 or shared_bytes < 0:
        raise HardwareError(
            "a block must have threads, and no negative sizes",
            f"{threads} threads, {registers} registers, {shared_bytes} bytes of shared memory",
        )
    warps = _pieces(threads, limits.warp_threads)
    return {
        "threads": _by_threads(limits, threads, warps),
        "blocks": limits.blocks_per_sm,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared_memory(limits, shared_bytes),
    }


def _by_threads(limits: GpuLimits, threads: int, warps: int) -> int:
    if threads > limits.threads_per_block:
        return 0
    return limits.threads_per_sm // limits.warp_threads // warps


def _by_registers(limits: GpuLimits, warps: int, registers: int) -> int:
    """Returns the number of blocks that registers allow. A warp's registers come in units, from the part of
    the multiprocessor that runs the warp::

        warps of a part = floor(registers of a part / registers of a warp)
        blocks          = floor(parts * warps of a part / warps of a block)

    The hardware also checks that a block fits with its warps rounded up to whole rounds of all parts.
    """
    if registers == 0:
        return limits.blocks_per_sm
    of_warp = _rounded(registers * limits.warp_threads, limits.register_unit)
    of_block = of_warp * _rounded(warps, PARTITIONS)
    if registers > limits.registers_per_thread or of_block > limits.registers_per_block:
        return 0
    return limits.registers_per_sm // PARTITIONS // of_warp * PARTITIONS // warps


def _by_shared_memory(limits: GpuLimits, shared_bytes: int) -> int:
    """Returns the number of blocks that shared memory allows. The driver's part counts for the
    multiprocessor's limit, not for the block's."""
    if shared_bytes > limits.smem_per_block_bytes:
        return 0
    of_block = _rounded(shared_bytes + limits.smem_reserved_bytes, limits.smem_unit_bytes)
    return limits.smem_per_sm_bytes // of_block if of_block else limits.blocks_per_sm


def _pieces(whole: int, piece: int) -> int:
    return -(-whole // piece)


def _rounded(value: int, unit: int) -> int:
    return _pieces(value, unit) * unit
