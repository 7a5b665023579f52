"""A simple GPU that stands in for a real one in tests and lessons.

It differs from the bound that the search begins with (``dietlab/targets/cuda/bound.py``), so that the bound
is not judged by itself: the constants differ, all units hinder each other in the same way, clusters lie in no
groups, and each micro-kernel deviates at random. Without this deviation, times rank as those of an H200
(``data/h200``; Spearman's rank correlation over the schemes of a shape, mean over the shapes): 0.8 and more
in bfloat16, 0.7 and more in float32 (``tests/test_cuda_synthetic.py``).
"""

from __future__ import annotations

import hashlib
from math import ceil, exp
from statistics import NormalDist

from dietlab.machine import Hardware
from dietlab.problem import Shape, Workload, extents, precision_of
from dietlab.scheme import plan_on
from dietlab.targets.cuda.ending import places_for, rounds_of_ending
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import compiled_registers, shared_bytes
from dietlab.targets.cuda.occupancy import blocks_per_sm
from dietlab.targets.cuda.unit import PIECES, Unit

LAUNCH_SECONDS = 4e-6
"""The seconds of a call in addition to its blocks; an empty kernel on an H200 takes a little less."""

CLOCK_GHZ, PEAK_GFLOPS, L2_BYTES, DRAM_GBPS = 1.5, 100.0, 24.0, 1000.0
"""Defaults for a GPU whose file does not say: its clock, the peak of one multiprocessor, the bytes that L2
gives one multiprocessor in a cycle, and memory's bandwidth."""

REACHED: dict[Unit, float] = {"fma": 0.72, "mma": 0.7, "wgmma": 0.6, "tma": 0.92, "swapped": 0.92}
"""The share of the peak that multiply-adds alone would reach, by unit; roughly those of an H200, as are all
constants here; ``swapped`` has an estimate."""

OUTDATED = 0.4
"""The share of :data:`REACHED` that ``mma`` reaches on a GPU with ``wgmma``."""

DEGREE = 6.0
"""The degree of the norm that combines the cycles of units that work at the same time: the maximum, and a
little of the others."""

SHARED_BYTES, L2_SHARE, ISSUED, STORED_BYTES, MEMORY_SHARE = 128.0, 1.4, 3.4, 14.0, 0.8
"""Five rates. Four are of a multiprocessor in a cycle: the bytes of shared memory, the bytes from L2 over
those in the GPU's file, the instructions issued, and the bytes of the output stored. The fifth is the share
of memory's bandwidth that is reached."""

STORE_INSTRUCTIONS = 5.0
"""The number of instructions of a thread that remains for each of its sums, between two tiles."""

FETCH_CYCLES, BARRIER_CYCLES, START_CYCLES, CLUSTER_CYCLES = 1000.0, 60.0, 2600.0, 500.0
"""The numbers of cycles of a fetch (which the steps ahead share), of a step's barrier, of a block's start and
end, and of the barriers of blocks that share a reduction."""

DEVIATION = 0.06
"""The standard deviation of the logarithm of a micro-kernel's time over the time that follows from its
sizes."""


def synthetic_call(
    hardware: Hardware, workload: Workload, scheme: CudaScheme, shape: Shape, deviation: float = DEVIATION
) -> float:
    """Returns the seconds of a launch, plus the seconds of all blocks of a multiprocessor or of reading the
    operands from memory, whichever is longer.
    """
    sizes, itemsize = extents(workload, shape), precision_of(workload).itemsize
    plan, kernel = plan_on(scheme, workload, shape), scheme.kernel
    rows = max((region.kernel.rows for region in plan.regions), default=0)
    tiles = plan.tiles * ceil(sizes["cols"] / kernel.cols) * sizes["batch"]
    steps = ceil(sizes["depth"] / (kernel.step * kernel.splits))
    busy, waiting = _step(kernel, rows, hardware, itemsize)
    held = places_for(kernel, hardware, itemsize)
    ended = tiles % held if rounds_of_ending(tiles, held, kernel.ending, steps) else 0
    registers = compiled_registers(kernel, gpu_of(hardware))
    resident = blocks_per_sm(gpu_of(hardware), kernel.threads, registers, shared_bytes(kernel, itemsize))
    cycles = 0.0
    for blocks, own_steps, sharing in (
        ((tiles - ended) * kernel.splits, steps, kernel.splits),
        (ended * kernel.ending, ceil(steps / kernel.ending), kernel.ending),
    ):
        stored = rows * kernel.cols * (itemsize + (4 if sharing > 1 else 0)) / STORED_BYTES
        edge = START_CYCLES + (CLUSTER_CYCLES if sharing > 1 else 0)
        waves, left = divmod(ceil(blocks / hardware.cores), max(1, resident))
        for beside, times in ((max(1, resident), waves), (left, min(1, left))):
            cycles += times * (edge + own_steps * _together(beside * busy, waiting) + beside * stored)
            if kernel.persistent:  # all edges but the last are hidden, apart from their instructions
                hidden = times - min(times, int(left in (0, beside)))
                issued = rows * kernel.cols * STORE_INSTRUCTIONS / (32 * ISSUED)
                cycles -= hidden * (edge + beside * (stored - issued))
    computing = cycles / (1e9 * (gpu_of(hardware).clock_ghz or CLOCK_GHZ))
    moving = workload.bytes(shape) / (MEMORY_SHARE * 1e9 * (hardware.dram_gbps or DRAM_GBPS))
    return LAUNCH_SECONDS + max(computing * exp(deviation * _own(kernel.key)), moving)


def _step(kernel: CudaMicroKernel, rows: int, hardware: Hardware, itemsize: int) -> tuple[float, float]:
    """Returns two numbers of cycles: for which a block's step keeps a multiprocessor busy, and for which the
    step waits.
    """
    gpu, unit = gpu_of(hardware), kernel.unit
    workers, warps = kernel.down * kernel.across, kernel.threads / 32
    peak = hardware.peak_for(next(iter(PIECES[unit].types))) or PEAK_GFLOPS
    reached = REACHED[unit] * (OUTDATED if unit == "mma" and gpu.warp_groups else 1.0)
    macs, down, across = rows * kernel.cols * kernel.step, rows / kernel.down, kernel.cols / kernel.across
    math = 2 * macs * (gpu.clock_ghz or CLOCK_GHZ) / (reached * peak)
    bytes_of_line = kernel.step * itemsize
    # A float32 thread reads 16 bytes at a time, beside neighbours of the same address; a group reads its
    # columns again for each 64 rows, or its rows for each 64 columns.
    lines = {"fma": workers / 2 * (down + across) / 4, "mma": workers * (down + across)}
    lines["swapped"] = workers * across / 64 * (64 + down)
    read = bytes_of_line * lines.get(unit, workers * down / 64 * (64 + across))
    filled = bytes_of_line * (rows + kernel.cols)
    given = bytes_of_line * (rows / kernel.multicast + kernel.cols)
    counts = {"fma": macs / 32 + read / 256, "mma": macs / 2048 + read / 512, "swapped": macs / (256 * down)}
    instructions = counts.get(unit, macs / 65536)
    copies = 0.0 if kernel.pieces.producers else filled / 170
    busy = _together(
        math,
        (read + filled) / SHARED_BYTES,
        given / (L2_SHARE * (gpu.l2_bytes_cycle or L2_BYTES)),
        (instructions + copies + 50 * warps) / ISSUED,
    )
    idle_parts = math * (4 / min(4, warps) - 1)
    return busy, FETCH_CYCLES / kernel.ahead + BARRIER_CYCLES + idle_parts


def _together(*cycles: float) -> float:
    return float(sum(cycle**DEGREE for cycle in cycles) ** (1 / DEGREE))


def _own(key: str) -> float:
    """Returns a standard normal number that depends on the key alone."""
    part = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")
    return NormalDist().inv_cdf((part + 0.5) / 2**48)
