"""The thread-block tiles that fit a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dietlab.hardware import Hardware
from dietlab.space.cuda_kernel import FRAGMENT, WARP, CudaMicroKernel, Unit
from dietlab.space.limit import Limit
from dietlab.space.micro_kernel import Edge
from dietlab.workloads import Workload, largest, require_dtype

STEPS: dict[Unit, tuple[int, ...]] = {"fma": (8, 16, 32), "mma": (32, 64)}
STAGES = (2, 3, 4)
SLICES = (1, 2, 4)

THREADS_DOWN, THREADS_ACROSS = (4, 8, 16), (8, 16, 32)
"""Threads of a tile: a warp's are 4 rows of 8, whose reads of shared memory meet no conflict."""

WARPS_DOWN, WARPS_ACROSS = (1, 2, 4), (1, 2, 4)
TILE_ROWS, TILE_COLS = (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 4, 6, 8)
"""Rows and columns of one thread's tile."""

WARP_ROWS, WARP_COLS = (16, 32, 48, 64), (16, 32, 64)
"""Rows and columns of one warp's tile on tensor cores."""

BOOKKEEPING = 32
"""Registers of a thread that hold neither sums nor operands: addresses, predicates, counters. An estimate;
what the compiler really used stands in each record."""

ROW_PAD_BYTES = 16
"""What separates rows in shared memory, so that eight neighbouring rows lie in different banks."""

ASYNCHRONOUS = (8, 0)
"""The first compute capability with copies that pass the registers by (cp.async)."""


def cuda_candidates(
    workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]
) -> Iterator[CudaMicroKernel]:
    """Every tile of every arrangement of workers, on the unit that the operands' type has."""
    unit: Unit = "fma" if workload.dtype == "float32" else "mma"
    if unit == "fma":
        arrangements = product(THREADS_DOWN, THREADS_ACROSS, TILE_ROWS, TILE_COLS)
    else:
        arrangements = product(WARPS_DOWN, WARPS_ACROSS, WARP_ROWS, WARP_COLS)
    for (down, across, rows, cols), step, slices, stages, edge in product(
        arrangements, STEPS[unit], SLICES, STAGES, edges
    ):
        if step % (slices * (FRAGMENT if unit == "mma" else 4)) == 0:
            yield CudaMicroKernel(down * rows, across * cols, step, down, across, slices, stages, unit, edge)


def cuda_limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """What bounds a thread block's micro-kernel, in the order in which it is checked."""
    gpu = hardware.gpu
    itemsize = require_dtype(workload.dtype).itemsize
    capability = tuple(int(part) for part in gpu.compute_capability.split("."))
    cols = largest(workload, "cols")
    narrow = 2 * THREADS_ACROSS[0] if workload.dtype == "float32" else FRAGMENT
    return (
        Limit(
            "tensor cores multiply 16 x 16 by 16 x 8 from compute capability 8.0 on", 0, "too old",
            lambda k: int(k.unit == "mma" and capability < ASYNCHRONOUS),
        ),
        Limit("a block's threads fit it", gpu.threads_per_block, "threads", lambda k: k.threads),
        Limit("a block has two warps or more", -2 * WARP, "threads missing", lambda k: -k.threads),
        Limit(
            "a thread's sums and operands fit its registers", gpu.registers_per_thread, "registers",
            thread_registers,
        ),
        Limit(
            "all threads' registers fit the block", gpu.registers_per_block, "registers",
            lambda k: min(thread_registers(k), gpu.registers_per_thread) * k.threads,
        ),
        Limit(
            "the stages fit shared memory", gpu.smem_per_block_bytes, "bytes",
            lambda k: shared_bytes(k, itemsize),
        ),
        Limit(
            "copies without cp.async go through registers: two stages at most", 2, "stages",
            lambda k: k.stages if capability < ASYNCHRONOUS else 0,
        ),
        Limit(
            "a thread reuses what it reads", 3, "vectors read for four steps of multiply-adds",
            lambda k: 4 * (k.tile_rows + k.tile_cols) / k.accumulators if k.unit == "fma" else 0,
        ),
        Limit(
            "a fetch occupies most threads", 0, "threads idle beyond half",
            lambda k: k.threads / 2 - (k.rows + k.cols) * k.step * itemsize / 16,
        ),
        Limit(
            "the tile is at most twice as wide as the output, or the narrowest", max(2 * cols, narrow),
            "columns",
            lambda k: k.cols,
        ),
    )  # fmt: skip


def thread_registers(kernel: CudaMicroKernel) -> int:
    """Registers that one thread needs at least: sums, one step's operands, bookkeeping."""
    if kernel.unit == "mma":
        operands = (kernel.tile_rows // FRAGMENT) * 4 + (kernel.tile_cols // 8) * 2
    else:
        operands = 4 * (kernel.tile_rows + kernel.tile_cols)
    return kernel.accumulators + operands + BOOKKEEPING


def shared_bytes(kernel: CudaMicroKernel, itemsize: int) -> int:
    """Shared memory of one block: the stages or, at the end, the slices' sums, whichever is more.

    Enough whichever way ``w`` lies: in as many lines as the tile has columns, or as a step has steps.
    """
    elements = (kernel.rows + kernel.cols) * kernel.step
    stage = elements * itemsize + (kernel.rows + max(kernel.cols, kernel.step)) * ROW_PAD_BYTES
    sums = 4 * kernel.rows * kernel.cols * (kernel.slices - 1)
    return max(kernel.stages * stage, sums)
