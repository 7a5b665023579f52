"""The learned model's features of a thread block's micro-kernel."""

from __future__ import annotations

from dietlab.hardware import Hardware
from dietlab.hardware.occupancy import blocks_per_sm
from dietlab.space import CudaMicroKernel, Unit, compiled_registers, shared_bytes
from dietlab.workloads import Workload, require_dtype, static_extent

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
    "resident",
)

TENSOR_CORES: dict[Unit, int] = {"fma": 0, "mma": 1, "wgmma": 2, "tma": 3}
"""The feature's value by unit: no tensor cores, single warps, groups of four warps, such with a
producer. Trees need only an order."""


def cuda_features(kernel: CudaMicroKernel, workload: Workload, hardware: Hardware) -> list[float]:
    """Returns one number for each of :data:`CUDA_FEATURES`; none depends on a dynamic dimension."""
    gpu, itemsize = hardware.gpu, require_dtype(workload.dtype).itemsize
    registers = compiled_registers(kernel, gpu)
    shared = shared_bytes(kernel, itemsize)
    blocks = blocks_per_sm(gpu, kernel.threads, registers, shared)
    # Dynamic columns are wasted as the shape has it, which the adaptation cost counts.
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
        TENSOR_CORES[kernel.unit],
        kernel.accumulators,
        registers / gpu.registers_per_thread,
        shared / gpu.smem_per_block_bytes,
        blocks,
        blocks * kernel.threads / gpu.warp_threads,
        (kernel.tile_rows + kernel.tile_cols) / (kernel.tile_rows * kernel.tile_cols),
        2.0 * kernel.rows * kernel.cols / (itemsize * (kernel.rows + kernel.cols)),
        kernel.accumulators * part,
        # A producer's copies are of whole tiles: none is a worker's.
        0.0
        if kernel.pieces.producers
        else (kernel.rows + kernel.cols) * kernel.step * itemsize / (16 * kernel.threads),
        kernel.cols * -(-cols // kernel.cols) / cols - 1.0,
        kernel.splits,
        kernel.resident,
    ]
