"""The learned model's features of a thread block's micro-kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dietlab.machine import Hardware
from dietlab.problem import Workload, precision_of, static_extent
from dietlab.targets.cuda.bound import UNIT_NUMBERS, block_tiles, bound_sizes, pace, step_cycles, step_flops
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import compiled_registers, shared_bytes
from dietlab.targets.cuda.occupancy import blocks_per_sm
from dietlab.targets.cuda.rates import gpu_rates

CUDA_FEATURES = (
    "rows",
    "cols",
    "step",
    "threads",
    "tile_rows",
    "tile_cols",
    "slices",
    "stages",
    "tensor_cores",
    "accumulators",
    "registers_of_most",
    "shared_of_most",
    "blocks_a_multiprocessor",
    "warps_a_multiprocessor",
    "loads_per_multiply_add",
    "flops_per_byte",
    "multiply_adds_a_barrier",
    "copies_a_thread",
    "column_waste",
    "splits",
    "multicast",
    "ending",
    "persistent",
    "resident",
    "bound_gflops",
    "math_of_bound",
)


def cuda_features(
    kernels: Sequence[CudaMicroKernel], workload: Workload, hardware: Hardware
) -> list[list[float]]:
    """Returns a row of :data:`CUDA_FEATURES` for each micro-kernel; none depends on a dynamic dimension."""
    rows = [_sizes(kernel, workload, hardware) for kernel in kernels]
    blocks = [max(1.0, row[CUDA_FEATURES.index("blocks_a_multiprocessor")]) for row in rows]
    bounds = _bounds(kernels, blocks, workload, hardware)
    return [[*row, *bound] for row, bound in zip(rows, bounds, strict=True)]


def _bounds(
    kernels: Sequence[CudaMicroKernel], blocks: Sequence[float], workload: Workload, hardware: Hardware
) -> list[list[float]]:
    """Returns, for each micro-kernel, the bound's GFLOP/s of a full multiprocessor and the share of a step's
    time in which it multiplies."""
    if not kernels:
        return []
    each, rates = [bound_sizes(kernel) for kernel in kernels], gpu_rates(hardware)
    sizes = {name: np.array([one[name] for one in each]) for name in each[0]}
    heights = np.array([kernel.rows for kernel in kernels])
    tiles = block_tiles(sizes, heights, np.array(blocks), workload)
    share = step_cycles(tiles, rates).math * blocks / pace(tiles, rates).of(tiles.resident)
    found: list[list[float]] = np.stack([step_flops(tiles, rates) / 1e9, share], axis=1).tolist()
    return found


def _sizes(kernel: CudaMicroKernel, workload: Workload, hardware: Hardware) -> list[float]:
    """Returns the features that follow from a micro-kernel's sizes alone."""
    gpu, itemsize = gpu_of(hardware), precision_of(workload).itemsize
    registers = compiled_registers(kernel, gpu)
    shared = shared_bytes(kernel, itemsize)
    blocks = blocks_per_sm(gpu, kernel.threads, registers, shared)
    # Waste of dynamic columns depends on the shape; the adaptation cost counts it.
    cols = static_extent(workload, "cols") or kernel.cols
    part = kernel.step // kernel.slices
    return [
        kernel.rows,
        kernel.cols,
        kernel.step,
        kernel.threads,
        kernel.tile_rows,
        kernel.tile_cols,
        kernel.slices,
        kernel.stages,
        UNIT_NUMBERS[kernel.unit],  # trees need only an order
        kernel.accumulators,
        registers / gpu.registers_per_thread,
        shared / gpu.smem_per_block_bytes,
        blocks,
        blocks * kernel.threads / gpu.warp_threads,
        (kernel.tile_rows + kernel.tile_cols) / (kernel.tile_rows * kernel.tile_cols),
        2.0 * kernel.rows * kernel.cols / (itemsize * (kernel.rows / kernel.multicast + kernel.cols)),
        kernel.accumulators * part,
        # A producer copies whole tiles, and a worker nothing.
        0.0
        if kernel.pieces.producers
        else (kernel.rows + kernel.cols) * kernel.step * itemsize / (16 * kernel.threads),
        kernel.cols * -(-cols // kernel.cols) / cols - 1.0,
        kernel.splits,
        kernel.multicast,
        kernel.ending,
        kernel.persistent,
        kernel.resident,
    ]
