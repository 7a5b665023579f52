"""Bounds the time of a call, before anything is measured, by the throughputs of a GPU's multiprocessors.

A block walks along the reduction. Each step keeps four units of a multiprocessor busy. The slowest unit
bounds the step, and the other units add a little, depending on how busy they are. Blocks that share a
multiprocessor take turns at these units, and hide each other's latency::

    step(b)  = max(b * busy(math, shared, l2, issue), fetch, alone)         b blocks side by side
    edges    = start + b * store                                            of each wave of blocks
             = start + b * store + issue of other tiles' stores             of all waves, if blocks remain
    seconds  = launch + max(steps, bytes / bandwidth) + edges               of all waves

A program may be faster than this bound: all constants but the rates are estimates of what careful programs
reach. The formulas take sizes only, no micro-kernels or plans, so they also bound tiles of other libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.problem import Workload, precision_of
from dietlab.targets.cuda.ending import places, rounds_of_ending
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.needs import COPY_BYTES
from dietlab.targets.cuda.rates import SHARED_BYTES, SLOTS, GpuRates
from dietlab.targets.cuda.unit import QUAD, WARP, WARP_GROUP, Unit

Numbers = npt.NDArray[Any]
"""Arrays whose shapes broadcast: ``[tiles, 1]`` with ``[shapes]``, or all ``[pairs]``."""


UNIT_NUMBERS: dict[Unit, int] = {"fma": 0, "mma": 1, "wgmma": 2, "tma": 3, "swapped": 4}
"""The numbers of units in :class:`BlockTiles`: float32 threads, single warps on tensor cores, groups of four
warps, such groups with a producer, and these with exchanged operands. From 2 on they have the rates of
``wgmma``, from 3 on bulk copies."""

LAUNCH_SECONDS = 2e-6
"""The seconds between the end of one kernel and the start of the next on a busy stream."""

FETCH_CYCLES = 1200.0
"""The number of cycles that a fetch from L2 or memory takes. All steps that are fetched ahead overlap it, so
each waits for a part. With 900 and less, the bounds of schemes with few stages were below their times on an
H200 (``data/h200``)."""

STEP_CYCLES = 150.0
"""The number of cycles of a block's step in addition to its work: a barrier and the first reads of shared
memory."""

START_CYCLES = 1200.0
"""The number of cycles from a block's start to its first step, and also from its last step to the next
block's start; an estimate."""

CLUSTER_CYCLES = 1000.0
"""The number of cycles that each block of a cluster with a shared reduction waits at barriers. With 1500, the
bounds of float32 tiles with 8 splits were above their times on an H200 (``data/h200``)."""

STORE_INSTRUCTIONS = 4.5
"""The number of instructions for which a thread that remains stops multiplying, for each of its sums: it
rounds, exchanges and stores them (16-bit output, no epilogue). Counted in machine code, nvcc 13.0 for compute
capability 9.0, of 64 and of 128 sums."""

HINDERED = (5.0, 2.0, 3.0)
"""The degree of the norm that combines the cycles of a step's units, for ``fma``, ``mma`` and ``wgmma``. A
large degree is close to the maximum: units work at the same time. A small degree is close to the sum: warps
read, multiply and copy one after the other. Round numbers, chosen on times of an H200 (``data/h200``).
With a producer it is the maximum, since workers only multiply."""

STALLED = 0.5
"""The ratio of the time that a float32 warp waits for its own results to the time in which it issues. Other
warps of its part of the multiprocessor issue meanwhile. Without this ratio, on an H200 (``data/h200``), time
over bound was 13 % higher for float32 tiles with 8 warps on a multiprocessor than for tiles with 16, and 17 %
higher with 16 than with 24."""

BULK_SPEED = 1.4
"""The ratio of the bytes that bulk copies get from L2 in a cycle to the bytes that copies by threads get: 50
to 62 over 40, in steps of small tiles on an H200 (``data/h200``)."""

COPY_INSTRUCTIONS = 2
"""The number of instructions of a thread's copy of :data:`COPY_BYTES`: an address, and the copy."""

BESIDE = (40.0, 40.0, 100.0)
"""The number of instructions of a warp in a step in addition to copies, reads and multiply-adds, for ``fma``,
``mma`` and ``wgmma``: counted in machine code, nvcc 13.0 for compute capability 9.0, main loops of seven
tiles."""

BESIDE_BULK = 60.0
"""The same number with a producer, whose workers compute no addresses; an estimate."""

WAVEFRONTS = 2
"""The number of cycles in which shared memory serves 16 bytes for each lane of a warp, if each lane shares
its address with a neighbour (forums.developer.nvidia.com/t/77228, of compute capability 7.x)."""

PIECE_STEPS, PIECE_BYTES = 16, 32
"""The number of steps of the reduction in one instruction of tensor cores, and of bytes in a row of these
steps."""

GROUP_LINES, GROUP_WIDEST = 64, 256
"""The number of lines of its first operand that one instruction of a group reads (``wgmma.m64nNk16``), and
the most lines of its second."""

WARP_MACS, GROUP_MACS = 16 * 8 * 16, GROUP_LINES * GROUP_WIDEST * 16
"""The number of multiply-adds of one instruction of a warp (``mma.m16n8k16``), and of the largest instruction
of a group. Groups with exchanged operands have a narrow one."""

READ_BYTES = 512
"""The number of bytes that one instruction reads for a warp from shared memory (``ldmatrix.x4``, 16 bytes a
lane)."""

NARROW_BYTES = 128
"""The length of a line in shared memory, in bytes, below which copies to it collide two by two."""

HELD_SHARE = 0.5
"""The share of L2 up to which hot operands stay there entirely. Of operands twice as large nothing stays,
since the last data of a call displaces the first data of the next. An estimate."""


@dataclass(frozen=True)
class BlockTiles:
    """Tiles of thread blocks, as arrays that broadcast.

    Args:
        unit: the number of the unit that multiplies, of :data:`UNIT_NUMBERS`.
        step: the number of steps of the reduction in a stage.
        down, across: the numbers of threads (``fma``), warps (``mma``) or groups of warps along rows and
            columns.
        threads: the number of all threads of the block, including other slices and producers.
        ahead: the number of steps that are fetched while one is computed.
        resident: the number of blocks that fit a multiprocessor.
        splits: the number of blocks that share a tile's reduction.
        itemsize: the number of bytes of an operand's element.
        multicast: the number of neighbouring blocks that share rows. L2 sends these rows once for all.
        ending: the number of blocks that share each tile of the last, partly full wave.
        persistent: whether blocks remain until the launch ends. The first wave starts, and the last one
            stores, while nothing is multiplied.
    """

    unit: Numbers
    rows: Numbers
    cols: Numbers
    step: Numbers
    down: Numbers
    across: Numbers
    threads: Numbers
    ahead: Numbers
    resident: Numbers
    splits: Numbers
    itemsize: Numbers
    multicast: Numbers
    ending: Numbers
    persistent: Numbers

    @property
    def fill(self) -> Numbers:
        """The number of bytes that a step fetches."""
        return np.asarray((self.rows + self.cols) * self.step * self.itemsize)

    @property
    def given(self) -> Numbers:
        """The number of bytes that L2 gives a block for a step."""
        return np.asarray((self.rows / self.multicast + self.cols) * self.step * self.itemsize)

    @property
    def warps(self) -> Numbers:
        return np.asarray(self.threads / WARP)

    @property
    def macs(self) -> Numbers:
        """The number of multiply-adds of a step."""
        return np.asarray(1.0 * self.rows * self.cols * self.step)


class StepCycles(NamedTuple):
    """The cycles of a block's step on each unit: multiply-adds, shared memory, L2, issued instructions."""

    math: Values
    shared: Values
    l2: Values
    issue: Values

    @property
    def most(self) -> Values:
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(*self)))


class BoundSeconds(NamedTuple):
    """The seconds of calls by part: ``steps``; ``memory``, the least time of reading from memory during the
    steps; and ``edges``, the time in which blocks begin, store, and add up the sums of a cluster."""

    steps: Values
    edges: Values
    memory: Values

    @property
    def total(self) -> Values:
        """All seconds of a call, with the launch."""
        return np.asarray(LAUNCH_SECONDS + np.maximum(self.steps, self.memory) + self.edges)


def step_cycles(tiles: BlockTiles, rates: GpuRates) -> StepCycles:
    """Returns the cycles of one step of one block."""
    macs, warps = tiles.macs, tiles.warps
    lines = tiles.rows / tiles.down, tiles.cols / tiles.across
    workers = tiles.down * tiles.across
    # Threads read four steps at a time; warps their rows and columns; groups 64 rows, again for each 64, and
    # all columns, or 64 columns and all rows.
    quads = workers / WARP * tiles.step / QUAD
    pieces = workers * tiles.step / PIECE_STEPS * PIECE_BYTES
    by_threads = quads * WAVEFRONTS * (lines[0] + lines[1])
    by_warps = pieces * (lines[0] + lines[1]) / SHARED_BYTES
    exchanged = tiles.unit == UNIT_NUMBERS["swapped"]
    whole, parted = np.where(exchanged, lines[0], lines[1]), np.where(exchanged, lines[1], lines[0])
    by_groups = pieces * parted / GROUP_LINES * (GROUP_LINES + whole) / SHARED_BYTES
    narrow = np.where(tiles.step * tiles.itemsize < NARROW_BYTES, 2, 1)
    instructions = _by_unit(
        tiles.unit,
        macs / WARP + quads * (lines[0] + lines[1]),
        macs / WARP_MACS + by_warps * SHARED_BYTES / READ_BYTES,
        macs / (GROUP_MACS * np.where(exchanged, whole / GROUP_WIDEST, 1.0)) * WARP_GROUP / WARP,
    )
    # Bulk copies cost a producer few instructions, and workers none.
    bulk = tiles.unit >= UNIT_NUMBERS["tma"]
    copies = np.where(bulk, 0.0, tiles.fill / (COPY_BYTES * WARP) * COPY_INSTRUCTIONS)
    beside = np.where(bulk, BESIDE_BULK, _by_unit(tiles.unit, *BESIDE)) * warps
    return StepCycles(
        np.asarray(macs / _by_unit(tiles.unit, *rates.macs)),
        np.asarray(
            _by_unit(tiles.unit, by_threads, by_warps, by_groups) + tiles.fill / SHARED_BYTES * narrow
        ),
        np.asarray(tiles.given / np.where(bulk, BULK_SPEED, 1.0) / rates.l2_bytes),
        np.asarray((instructions + copies + beside) / SLOTS),
    )


def busy_cycles(cycles: StepCycles, unit: Numbers) -> Values:
    """Returns the cycles for which a step of one block keeps a multiprocessor busy (:data:`HINDERED`)."""
    most, degree = cycles.most, _by_unit(unit, *HINDERED)
    summed = np.add.reduce([(part / most) ** degree for part in np.broadcast_arrays(*cycles)])
    return np.asarray(most * np.where(unit >= UNIT_NUMBERS["tma"], 1.0, summed ** (1 / degree)))


class Pace(NamedTuple):
    """The pace of blocks: the number of cycles that ``each`` block adds to a step, and the ``least`` of a
    step.
    """

    each: Values
    least: Values

    def of(self, blocks: Numbers) -> Values:
        """Returns the cycles in which all ``blocks`` on one multiprocessor take a step."""
        return np.asarray(np.maximum(blocks * self.each, self.least))


def pace(tiles: BlockTiles, rates: GpuRates) -> Pace:
    """Returns the pace of blocks on a multiprocessor.

    A warp issues in one part of the multiprocessor, and multiplies with that part's tensor core. A block with
    fewer warps than parts leaves the other parts to its neighbours. Some parts may have one warp more than
    others. If warps are few, a part idles while they wait for their own results. Steps are fetched while
    others are computed, but warps wait for each other before and after a step.
    """
    cycles = step_cycles(tiles, rates)
    own = np.maximum(cycles.math, cycles.issue)
    warps = tiles.resident * tiles.warps
    stalled = np.where(tiles.unit == UNIT_NUMBERS["fma"], STALLED, 0.0)
    issuing = own * (np.ceil(warps / SLOTS) + stalled) * SLOTS / warps
    alone = own * SLOTS / np.minimum(SLOTS, tiles.warps)
    least = np.maximum(FETCH_CYCLES / tiles.ahead, alone + STEP_CYCLES)
    return Pace(np.asarray(np.maximum(busy_cycles(cycles, tiles.unit), issuing)), np.asarray(least))


def step_flops(tiles: BlockTiles, rates: GpuRates) -> Values:
    """Returns the flop/s of a multiprocessor that is full of such blocks, in the middle of their work."""
    cycles = pace(tiles, rates).of(tiles.resident)
    return np.asarray(2 * tiles.macs * tiles.resident / cycles * rates.hertz)


def memory_seconds(operand_bytes: Numbers, rates: GpuRates, *, hot: bool) -> Values:
    """Returns the seconds to read operands from memory: all operands or, if every call reads the same ones
    (``hot``), the part that L2 does not keep between calls."""
    if rates.memory_bytes is None:
        return np.zeros(np.shape(operand_bytes))
    held = HELD_SHARE * rates.cache_bytes
    lost = np.clip((operand_bytes - held) / held, 0.0, 1.0) if hot else 1.0
    return np.asarray(operand_bytes * lost / rates.memory_bytes)


def cluster_places(tiles: BlockTiles, rates: GpuRates) -> Values:
    """Returns the number of blocks that the GPU holds at once. A cluster must fit whole into a group of
    multiprocessors."""
    cluster = tiles.splits * tiles.multicast * tiles.ending
    return np.asarray(places(cluster, tiles.resident, rates.multiprocessors))


def bound_seconds(
    tiles: BlockTiles, blocks: Numbers, depth: Numbers, memory: Numbers, rates: GpuRates
) -> BoundSeconds:
    """Returns the parts of the seconds of calls.

    Args:
        tiles: for each call, the tallest tile.
        blocks: the number of blocks of each call; if several share a reduction, all count. Those that share
            only the tiles of the last wave count once.
        depth: the number of steps of the whole reduction.
        memory: the least seconds of reading (:func:`memory_seconds`).
    """
    steps = np.ceil(depth / (tiles.step * tiles.splits))
    held = cluster_places(tiles, rates)
    ended = np.where(rounds_of_ending(blocks, held, tiles.ending, steps) > 0, blocks % held, 0)
    whole = np.ceil((blocks - ended) * tiles.resident / held)
    step = pace(tiles, rates)
    waves, walked = _waves(whole, tiles.resident, steps, step)
    together = np.ceil(ended * tiles.ending * tiles.resident / held)
    more, ending = _waves(together, tiles.resident, np.ceil(steps / tiles.ending), step)
    area = tiles.rows * tiles.cols
    shared = CLUSTER_CYCLES + 4 * area / rates.l2_bytes  # float32 sums
    store = area * tiles.itemsize / rates.l2_bytes + np.where(tiles.splits > 1, shared, 0.0)
    starts = np.where(tiles.persistent, np.minimum(waves, 1), waves + more)
    last = np.where(tiles.persistent, np.minimum(whole, tiles.resident), whole + together)
    issue = (whole + together - last) * (area / WARP * STORE_INSTRUCTIONS / SLOTS)
    edges = START_CYCLES * starts + last * store + issue + together * shared
    return BoundSeconds(np.asarray((walked + ending) / rates.hertz), np.asarray(edges / rates.hertz), memory)


def _waves(blocks: Numbers, resident: Numbers, steps: Numbers, step: Pace) -> tuple[Values, Values]:
    """Returns the number of waves, and the cycles of their steps, of the busiest multiprocessor's blocks."""
    waves, left = blocks // resident, blocks % resident
    full, last = step.of(resident), step.of(np.maximum(1, left))
    return np.asarray(waves + (left > 0)), np.asarray(steps * (waves * full + np.where(left > 0, last, 0.0)))


def _by_unit(unit: Numbers, fma: Any, mma: Any, wgmma: Any) -> Values:
    """Returns for each tile the value of its unit."""
    return np.asarray(np.select([unit == 0, unit == 1], [fma, mma], wgmma), np.float64)


SIZES = ("cols", "step", "down", "across", "threads", "ahead", "splits", "multicast", "ending", "persistent")
"""The names of the sizes that :class:`BlockTiles` and micro-kernels have in common."""


def bound_sizes(kernel: CudaMicroKernel) -> dict[str, int]:
    """Returns the sizes of a micro-kernel that the bound needs, apart from its height."""
    return {"unit": UNIT_NUMBERS[kernel.unit], **{name: getattr(kernel, name) for name in SIZES}}


def block_tiles(
    sizes: Mapping[str, Numbers], heights: Numbers, resident: Numbers, workload: Workload
) -> BlockTiles:
    """Returns the tiles of micro-kernels with the given sizes (:func:`bound_sizes`) and heights."""
    known = {name: sizes[name] for name in ("unit", *SIZES)}
    itemsize = np.asarray(precision_of(workload).itemsize)
    return BlockTiles(rows=heights, resident=resident, itemsize=itemsize, **known)
