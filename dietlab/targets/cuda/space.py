"""The space of a GPU: the thread-block tiles that fit it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import ceil

from dietlab.machine import Hardware
from dietlab.problem import (
    Role,
    Workload,
    batched,
    gathered,
    largest,
    precision_of,
    static_extent,
)
from dietlab.scheme.micro_kernel import Edge
from dietlab.scheme.scheme import Scheme
from dietlab.scheme.target import Limit
from dietlab.targets.cuda.ending import places_for
from dietlab.targets.cuda.kernel import CLUSTER, CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import (
    LONGEST_LINE,
    held_registers,
    launched_registers,
    shared_bytes,
    thread_registers,
    windows_of,
)
from dietlab.targets.cuda.ring import described, missing_registers
from dietlab.targets.cuda.unit import GROUPED, PIECES, WARP, Unit

STEPS: dict[Unit, tuple[int, ...]] = {
    "fma": (8, 16, 32),
    "mma": (32, 64),
    "wgmma": (64, 128),
    "tma": (64,),
    "swapped": (64, 128),
}
STAGES: dict[Unit, tuple[int, ...]] = {
    "fma": (2, 3, 4),
    "mma": (2, 3, 4),
    "wgmma": (3, 4, 5),
    "tma": (4, 6, 8, 12, 16),
    "swapped": (4, 6, 8, 12, 16),
}
SHARES = ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (1, 8))
"""The numbers of slices of a block, and of blocks of a cluster, that share a tile's reduction. One of the two
is always 1: either alone makes up for too few tiles."""

MULTICAST = (1, 2, 4)
"""The numbers of blocks of a cluster that share the rows of ``x``."""

ENDING = (1, 2, 4)
"""The numbers of blocks of a cluster that share the tiles of the last wave."""

LEAST_REMAINING = 64 * 128
"""The least number of elements of a tile whose blocks remain. Of smaller tiles a multiprocessor holds several
blocks, some of which multiply while others start and store. An estimate that no GPU has timed."""

RESIDENT = (1, 2)

THREADS_DOWN, THREADS_ACROSS = (4, 8, 16), (8, 16, 32)
"""The numbers of threads down and across a tile: a warp has 4 rows of 8, which read shared memory without
conflicts."""

WARPS_DOWN, WARPS_ACROSS = (1, 2, 4), (1, 2, 4)
TILE_ROWS, TILE_COLS = (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 4, 6, 8, 16)
"""The numbers of rows and columns of one thread's tile."""

MOST_SUMS, WIDEST, WIDEST_STEP = 64, (8, 16), 8
"""The most sums of a float32 thread; the one larger tile, whose blocks have half as many threads, so that two
of 128 x 128 fit a multiprocessor; and the steps of its stages: with 16, its loop has 35 KiB of machine code,
and loops of more than 28 KiB were slow on an H200 (docs/gpu.md)."""

WARP_ROWS, WARP_COLS = (16, 32, 48, 64), (16, 32, 64)
"""The numbers of rows and columns of one warp's tile on tensor cores."""

GROUPS_DOWN, GROUPS_ACROSS = (1, 2), (1, 2)
GROUP_ROWS, GROUP_COLS = (64, 128), (32, 64, 96, 128, 192, 256)
"""The numbers of rows and columns of the tile of four warps that multiply together."""

FEW_ROWS, MANY_COLS = (8, 16, 24, 32, 48, 64), (64, 128, 256)
"""The numbers of rows and columns of the tile of four warps that multiply together with exchanged operands.
From 64 rows on, an instruction is full without the exchange, and granules of 8 rows cost a library many
heights."""

ARRANGEMENTS: dict[Unit, tuple[tuple[int, ...], ...]] = {
    "fma": (THREADS_DOWN, THREADS_ACROSS, TILE_ROWS, TILE_COLS),
    "mma": (WARPS_DOWN, WARPS_ACROSS, WARP_ROWS, WARP_COLS),
    "wgmma": (GROUPS_DOWN, GROUPS_ACROSS, GROUP_ROWS, GROUP_COLS),
    "tma": (GROUPS_DOWN, GROUPS_ACROSS, GROUP_ROWS, GROUP_COLS),
    "swapped": ((1,), GROUPS_ACROSS, FEW_ROWS, MANY_COLS),
}
"""The values of four sizes by unit: workers down, workers across, rows of a worker's tile, columns of a
worker's tile."""

MOST_HELD = 32
"""The most registers of a thread that hold copies while ``wgmma`` computes. With more copies, and their
addresses, registers spill: the sums must stay while the tensor cores add to them."""

LINES: tuple[Role, ...] = ("cols", "depth")
"""The roles whose extents are those of an operand's lines."""

MOST_BATCHES = 65535
"""The most blocks of a grid along its second axis (CUDA C Programming Guide, technical specifications)."""


def candidates(
    workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]
) -> Iterator[Scheme[CudaMicroKernel]]:
    """Yields every tile of every arrangement of workers, on the units for the operands' type."""
    shares = SHARES if gpu_of(hardware).clusters else [share for share in SHARES if share[1] == 1]
    tried = units(workload, hardware)
    if gathered(workload) and "wgmma" in tried:
        tried = (*tried, "tma")  # a limit refuses them, and gives the reason
    for unit in tried:
        for (down, across, rows, cols), step, (slices, splits), stages in product(
            product(*ARRANGEMENTS[unit]), STEPS[unit], shares, STAGES[unit]
        ):
            if step % (slices * PIECES[unit].steps) or (PIECES[unit].producers and slices > 1):
                continue
            if unit == "fma" and not _few_sums(rows, cols, step):
                continue
            kernel = CudaMicroKernel(
                down * rows, across * cols, step, down, across, slices, stages, unit, splits
            )
            few = RESIDENT if bounded(kernel, hardware) else RESIDENT[:1]
            for shared, resident, edge in product(_launches(kernel), few, edges):
                yield Scheme(replace(shared, resident=resident), edge)


def _launches(kernel: CudaMicroKernel) -> list[CudaMicroKernel]:
    """Returns the micro-kernel with each way to launch its blocks: some share rows, some the tiles of the
    last wave, and some remain."""
    if kernel.unit != "tma" or kernel.splits > 1:
        return [kernel]
    shared = [replace(kernel, multicast=blocks) for blocks in MULTICAST]
    ended = [replace(kernel, ending=blocks) for blocks in ENDING[1:]]
    return [*shared, *ended, replace(kernel, persistent=True)]


def _few_sums(rows: int, cols: int, step: int) -> bool:
    """Returns whether a float32 thread's tile has few sums, or is the widest one."""
    return rows * cols <= MOST_SUMS if cols < WIDEST[1] else (rows, cols) == WIDEST and step == WIDEST_STEP


def units(workload: Workload, hardware: Hardware) -> tuple[Unit, ...]:
    """Returns the units for a type of operands. Single warps waste less on few rows than groups of warps,
    which compute 64 rows at a time, unless their operands are exchanged."""
    if workload.dtype in PIECES["fma"].types:
        return ("fma",)
    if not gpu_of(hardware).warp_groups:
        return ("mma",)
    return ("mma", "wgmma", "swapped", "tma") if described(workload) else ("mma", "wgmma")


def bounded(kernel: CudaMicroKernel, hardware: Hardware) -> bool:
    """Returns whether two blocks may fail to fit a multiprocessor if the compiler's registers are not
    limited."""
    gpu = gpu_of(hardware)
    return 2 * kernel.threads * gpu.registers_per_thread > gpu.registers_per_sm


def limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """Returns the limits of a thread block's micro-kernel, in the order in which they are checked."""
    gpu = gpu_of(hardware)
    itemsize = precision_of(workload).itemsize
    cols = largest(workload, "cols")
    narrow = 2 * THREADS_ACROSS[0] if "fma" in units(workload, hardware) else PIECES["mma"].cols
    groups = batched(workload) and any(windows_of(workload))
    dynamic = [role for role in LINES if static_extent(workload, role) is None]
    longest = max((largest(workload, role) for role in dynamic), default=0)
    ranges = sum(len(a.dims) for a in workload.axes if a.role in ("cols", "depth") and windows_of(workload))
    return (
        _limit(
            "all channels of a convolution are one group",
            0,
            "more groups",
            lambda k: largest(workload, "batch") - 1 if groups else 0,
        ),
        _limit("a convolution's channels are numbers (a CPU serves ranges)", 0, "ranges", lambda k: ranges),
        _limit(
            f"the micro-kernel's unit multiplies {workload.dtype}",
            0,
            "other units",
            lambda k: int(workload.dtype not in k.pieces.types),
        ),
        _limit(
            "tensor cores multiply 16 x 16 by 16 x 8 from compute capability 8.0 on",
            0,
            "too old",
            lambda k: int(k.unit == "mma" and not gpu.asynchronous),
        ),
        _limit(
            "groups of warps multiply from shared memory at compute capability 9.0",
            0,
            "other GPU",
            lambda k: int(k.unit in GROUPED and not gpu.warp_groups),
        ),
        _limit(
            "bulk copies of what a kernel covers need descriptors of images (im2col), which are not made"
            if gathered(workload)
            else "bulk copies bring tiles of one matrix whose lines begin at multiples of 16 bytes",
            0,
            "no descriptors",
            lambda k: int(k.pieces.producers > 0 and not described(workload)),
        ),
        _limit(
            "what a producer gives leaves room for the workers' sums",
            0,
            "registers missing",
            lambda k: missing_registers(k, thread_registers(k)) if k.pieces.producers else 0,
        ),
        _limit(
            "batches lie along the second axis of the grid",
            MOST_BATCHES,
            "batches",
            lambda k: largest(workload, "batch") if batched(workload) else 1,
        ),
        _limit(
            "lines of dynamic length have 2^22 elements at most",
            LONGEST_LINE,
            "elements",
            lambda k: longest,
        ),
        _limit("a block's threads fit it", gpu.threads_per_block, "threads", lambda k: k.threads),
        _limit("a block has two warps or more", -2 * WARP, "threads missing", lambda k: -k.threads),
        _limit(
            "a thread's sums, operands and copies fit its registers",
            gpu.registers_per_thread,
            "registers",
            lambda k: thread_registers(k) + held_registers(k, workload, gpu) if not k.pieces.producers else 0,
        ),
        _limit(
            "what a group of warps copies through registers leaves room for sums",
            MOST_HELD,
            "registers",
            lambda k: held_registers(k, workload, gpu) if k.unit == "wgmma" else 0,
        ),
        _limit(
            "all threads' registers fit the block",
            gpu.registers_per_block,
            "registers",
            lambda k: launched_registers(k, gpu) * k.threads,
        ),
        _limit(
            "resident blocks' registers fit the multiprocessor",
            gpu.registers_per_sm,
            "registers",
            lambda k: k.resident * launched_registers(k, gpu) * k.threads if k.resident > 1 else 0,
        ),
        _limit(
            "resident blocks fit the multiprocessor",
            gpu.threads_per_sm,
            "threads",
            lambda k: k.resident * k.threads,
        ),
        _limit(
            "resident blocks' shared memory fits the multiprocessor",
            gpu.smem_per_sm_bytes,
            "bytes",
            lambda k: k.resident * (shared_bytes(k, itemsize) + gpu.smem_reserved_bytes),
        ),
        _limit(
            "blocks share a reduction or rows in clusters, from compute capability 9.0 on",
            CLUSTER if gpu.clusters else 1,
            "blocks",
            lambda k: k.cluster,
        ),
        _limit(
            "blocks that share rows lie side by side: the output has whole clusters of columns",
            0,
            "columns left over",
            lambda k: 0 if k.multicast == 1 else columns_left(workload, k),
        ),
        _limit(
            "tiles of blocks that remain are large",
            0,
            "elements missing",
            lambda k: LEAST_REMAINING - k.rows * k.cols if k.persistent else 0,
        ),
        _limit(
            "blocks that remain have a second tile",
            0,
            "tiles missing",
            lambda k: places_for(k, hardware, itemsize) + 1 - _tiles(workload, k) if k.persistent else 0,
        ),
        _limit(
            "each block of a cluster has two steps or more",
            largest(workload, "depth"),
            "deep",
            lambda k: 2 * k.sharing * k.step if k.sharing > 1 else 0,
        ),
        _limit(
            "the stages fit shared memory",
            gpu.smem_per_block_bytes,
            "bytes",
            lambda k: shared_bytes(k, itemsize),
        ),
        _limit(
            "copies without cp.async go through registers: two stages at most",
            2,
            "stages",
            lambda k: 0 if gpu.asynchronous else k.stages,
        ),
        _limit(
            "a thread reuses what it reads",
            3,
            "vectors read for four steps of multiply-adds",
            lambda k: 4 * (k.tile_rows + k.tile_cols) / k.accumulators if k.unit == "fma" else 0,
        ),
        _limit(
            "a fetch occupies most threads",
            0,
            "threads idle beyond half",
            lambda k: k.threads / 2 - (k.rows + k.cols) * k.step * itemsize / 16,
        ),
        _limit(
            "the tile is at most twice as wide as the output, or the narrowest",
            max(2 * cols, narrow),
            "columns",
            lambda k: k.cols,
        ),
    )


def _limit(reason: str, most: float, unit: str, measure: Callable[[CudaMicroKernel], float]) -> Limit:
    """Returns a limit on the micro-kernel of a scheme."""
    return Limit(reason, most, unit, lambda scheme: measure(scheme.kernel))


def _tiles(workload: Workload, kernel: CudaMicroKernel) -> int:
    """Returns the most tiles of a product."""
    rows, cols = largest(workload, "rows"), largest(workload, "cols")
    return ceil(rows / kernel.rows) * ceil(cols / kernel.cols)


def columns_left(workload: Workload, kernel: CudaMicroKernel) -> int:
    """Returns the number of columns of the output that whole clusters leave over; 1 if their number is
    dynamic.
    """
    cols = static_extent(workload, "cols")
    return 1 if cols is None else cols % (kernel.cols * kernel.multicast)


KERNEL = CudaMicroKernel


def pads(workload: Workload) -> bool:
    """Returns True: every operand is copied to shared memory, with zeros beyond its end."""
    return True
