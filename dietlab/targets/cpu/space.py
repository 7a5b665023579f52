"""The space of a CPU: the register tiles that fit it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dietlab.machine import Hardware
from dietlab.problem import (
    NO_EPILOGUE,
    Workload,
    axes_of,
    batched,
    channelwise,
    gathered,
    largest,
    precision_of,
    smallest,
    static_extent,
)
from dietlab.problem.dims import Window
from dietlab.scheme.micro_kernel import ORDERS, Edge
from dietlab.scheme.scheme import Scheme
from dietlab.scheme.target import Limit
from dietlab.targets.cpu.kernel import TILE_REGISTERS, Along, CpuMicroKernel
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.units import UNITS, WORD_BYTES

UNROLLS = (1, 2, 4, 8)
"""The numbers of multiply-add instructions for each accumulator in one iteration of the inner loop."""

MATRIX_UNROLLS = (1, 2)
"""The same for a matrix unit, whose instruction takes many steps, so that the loop's overhead is small."""

PREFETCHES = ((0, False), (16, False), (0, True))
"""Prefetch distances into L1, in steps, and whether the next panel of packed weights, or a batch's next
product, is prefetched into L2."""

FAR = (64, False)
"""A prefetch of packed weights far ahead, so that memory works while few rows are computed. On a Xeon with
AMX, 14 rows in tiles of 32 columns take 11 to 27 % less time than at 16 steps, 24 rows in tiles of 48 columns
take 2 to 11 % less, and 1 to 5 rows take about as long. Half and twice the distance differ by up to 9 %."""

OWN_AND_NEXT = (24, True)
"""A prefetch of packed weights for processors whose hardware brings a tile's own lines to L1 too late. On a
Xeon with AMX, 1 to 5 rows by 2304 x 768 weights take 4 to 11 % less time than without prefetch. On a Zen 4,
whose hardware is quicker alone, 3 rows take 15 to 29 % more. The search decides."""

BLOCKS = (256, 512, 1024)
"""The numbers of steps of a K-block, where they divide the reduction. A block's part of the input stays in L1
or L2 while weights stream past it. With weights from memory, 24 rows by 2304 x 768 weights take 15 % less
time, and 24 rows by 768 x 3072 weights take a third less."""

MAX_VECTORS = 8
"""The width of the widest tile, in vectors: with 32 registers, a tile of 8 has room for two rows."""

FMA_LATENCY = 4
"""The number of cycles until a multiply-add's result can be used (4 from Skylake and Zen 2 on, per the
vendors' optimization manuals): with fewer accumulators than that, multiply-adds wait."""

MOST_VARIANTS = 24
"""The largest number of loops in the code of a tile that reads an image in place, for the ends of a line: a
kernel of 7 elements with as many zeros as keep the size has 19 of them, of 3 elements 5. Larger kernels copy
rows."""

L2_SHARE = 3 / 4
"""Largest share of L2 for a stationary operand: the rest is for what streams past it."""

STACK_BYTES = 4 << 20
"""The largest size of weights that are transposed on the fly on a core's stack, in bytes; a stack commonly
has 8 MiB."""


def candidates(
    workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]
) -> Iterator[Scheme[CpuMicroKernel]]:
    """Yields every register tile up to the size of the register file, with every value of the other
    parameters, in every loop order."""
    lanes, registers = cpu_of(hardware).lanes, cpu_of(hardware).vector_registers
    # Without a unit for this type, fma's tiles are candidates, so that a limit gives the reason.
    known = cpu_of(hardware).units(workload.dtype) or ("fma",)
    # A library packs weights in one layout: that of the fastest unit.
    units = [unit for unit in known if UNITS[unit].layout == UNITS[known[0]].layout]
    # Vectors run along the depth only where it is contiguous in the weights.
    axes: tuple[Along, ...] = ("cols", "depth") if workload.weights == "transposed" else ("cols",)
    sizes = list(product(range(1, registers + 1), range(1, MAX_VECTORS + 1)))
    tiles = list(product(range(1, TILE_REGISTERS), range(1, TILE_REGISTERS)))
    for unit in units:
        facts = UNITS[unit]
        counts, unrolls = (tiles, MATRIX_UNROLLS) if facts.matrix else (sizes, UNROLLS)
        on_lines = (False, True) if gathered(workload) and unit == "fma" else (False,)
        for (groups, vectors), unroll, order, (steps, ahead, block), edge, along, lined in product(
            counts, unrolls, ORDERS, streams(workload), edges, axes, on_lines
        ):
            rows, cols = groups * facts.tile_rows, vectors * lanes if along == "cols" else vectors
            tile = rows, cols, unroll * facts.tile_steps
            yield Scheme(CpuMicroKernel(*tile, steps, ahead, along, block, unit, lined), edge, order)


def streams(workload: Workload) -> tuple[tuple[int, bool, int], ...]:
    """Returns the access patterns. Each has three values: the prefetch distance into L1 in steps, whether the
    next panel is prefetched into L2, and the K-block."""
    if channelwise(workload):
        return ((0, False, 0),)
    if _varying_batch(workload):
        return tuple((*prefetch, 0) for prefetch in PREFETCHES)
    depth, static = largest(workload, "depth"), static_extent(workload, "depth") is not None
    parts = [block for block in BLOCKS if block < depth and not (static and depth % block)]
    cut = workload.weights == "packed" and not precision_of(workload).narrow and not gathered(workload)
    # see layout_limits()
    blocks = (0, *(parts if cut else ()))
    own = (*PREFETCHES, *([FAR] if workload.weights == "packed" else ()))
    return (*((*prefetch, 0) for prefetch in own), *((*OWN_AND_NEXT, block) for block in blocks))


def _varying_batch(workload: Workload) -> bool:
    """Returns whether a call brings the weights of several products, which cores divide among them."""
    return batched(workload) and workload.weights != "packed"


def limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """Returns the limits of a register tile, in the order in which they are checked."""
    cpu = cpu_of(hardware)
    lanes = cpu.lanes
    return (
        Limit(
            f"the micro-kernel's unit multiplies {workload.dtype} on this processor",
            0,
            "other units",
            lambda s: int(s.kernel.unit not in cpu.units(workload.dtype)),
        ),
        *_type_limits(workload),
        Limit(
            "accumulators and operands fit the vector registers",
            cpu.vector_registers,
            "registers",
            lambda s: 0 if s.kernel.facts.matrix else s.kernel.registers(lanes),
        ),
        Limit(
            "accumulators and operands fit AMX's tile registers",
            TILE_REGISTERS,
            "registers",
            lambda s: s.kernel.registers(lanes) if s.kernel.facts.matrix else 0,
        ),
        Limit(
            "accumulators hide the latency of a multiply-add",
            0,
            "idle cycles a step",
            lambda s: FMA_LATENCY - s.rows * s.kernel.vectors(lanes),
        ),
        *layout_limits(workload),
        *_size_limits(workload, hardware),
    )


def _type_limits(workload: Workload) -> tuple[Limit, ...]:
    """Returns the limits of operators that only float32's unit computes, whatever the tile."""
    forms = {
        "a depthwise convolution is of float32 on a CPU": channelwise(workload),
        "a range of depths (K, or input channels) is of float32 on a CPU": (
            static_extent(workload, "depth") is None
        ),
    }
    return tuple(
        Limit(reason, 0, "other types", lambda s: int(s.kernel.unit != "fma"))
        for reason, found in forms.items()
        if found
    )


def layout_limits(workload: Workload) -> tuple[Limit, ...]:
    """Returns the limits that the layout of the weights sets; beyond them there is no program."""
    packed, transposed = workload.weights == "packed", workload.weights == "transposed"
    static_depth = static_extent(workload, "depth") is not None
    in_batch, copied, own = _varying_batch(workload), gathered(workload), channelwise(workload)
    return (
        Limit(
            f"a unit that multiplies {workload.dtype} is the micro-kernel's",
            0,
            "other types",
            lambda s: int(s.kernel.facts.dtype != workload.dtype),
        ),
        Limit(
            "what is prefetched is a packed panel that stays, or the next product of a batch",
            0,
            "panels ahead",
            lambda s: int(s.kernel.ahead and not (in_batch or (packed and s.order == "ws"))),
        ),
        Limit(
            "weights that vary and lie in rows are stationary",
            0,
            "passes over them",
            lambda s: int(transposed and s.order != "ws"),
        ),
        Limit(
            "dot products are composed, read both operands in order and leave no epilogue",
            0,
            "exceptions",
            lambda s: (
                (s.kernel.along == "depth")
                * ((not s.composed) + (s.kernel.prefetch > 0) + (workload.epilogue != NO_EPILOGUE))
            ),
        ),
        Limit(
            "K-blocks are of packed, stationary weights under composed tiles",
            0,
            "exceptions",
            lambda s: (s.kernel.block > 0) * ((not packed) + (s.order != "ws") + (not s.composed)),
        ),
        Limit(
            "rows that are copied from an image are whole, under composed tiles of vectors",
            0,
            "exceptions",
            lambda s: copied * ((s.kernel.block > 0) + (not s.composed) + s.kernel.facts.matrix),
        ),
        Limit(
            "rows that are copied from an image, not read in place, have a length known beforehand",
            0,
            "copies",
            lambda s: int(copied and not static_depth and not s.kernel.lines),
        ),
        Limit(
            "tiles on a line read an image in place, in float32 and composed, without fetching a next panel",
            0,
            "exceptions",
            lambda s: (
                s.kernel.lines * ((not copied) + s.kernel.ahead + (not s.composed) + (s.kernel.unit != "fma"))
            ),
        ),
        Limit(
            "the ends of a line have few variants of code",
            MOST_VARIANTS,
            "loops",
            lambda s: s.kernel.lines * _end_loops(workload),
        ),
        Limit(
            "columns with their own input channels have composed tiles of float32, which no loop unrolls",
            0,
            "exceptions",
            lambda s: (
                own * ((s.kernel.unroll > 1) + (s.kernel.prefetch > 0) + s.kernel.ahead)
                + own * ((s.kernel.block > 0) + (not s.composed) + (s.kernel.unit != "fma"))
            ),
        ),
        Limit(
            "weights of less than 32 bits are packed, along a depth known beforehand, under composed tiles",
            0,
            "exceptions",
            lambda s: (
                (s.kernel.unit != "fma")
                * ((not packed) + (not static_depth) + (not s.composed) + (s.kernel.block > 0))
            ),
        ),
        Limit(
            "a matrix unit's instructions fill the reduction",
            0,
            "elements beyond",
            lambda s: (static_extent(workload, "depth") or 0) % s.kernel.depth_multiple,
        ),
        Limit(
            "a padded copy has a size known beforehand",
            0,
            "copies",
            lambda s: int(s.edge == "padded" and s.rows > 1 and not static_depth),
        ),
    )


def _end_loops(workload: Workload) -> int:
    """Returns the number of loops in a tile's code for the ends of a convolution's lines: for each of the
    kernel's elements along a line, one for each number of pixels at which it can lie beyond each end."""
    *_, last = axes_of(workload, "rows")
    if not isinstance(last.extent, Window):
        return 0
    ends = map(last.extent.beyond, range(last.extent.kernel))
    return sum((before + 1) * (after + 1) for before, after in ends)


def _size_limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """Returns the limits that extents and caches set; a dynamic extent counts with its largest value."""
    cpu, lanes = cpu_of(hardware), cpu_of(hardware).lanes
    cols, depth = (largest(workload, role) for role in ("cols", "depth"))
    transposed = workload.weights == "transposed"
    # With a dynamic depth the panels of some shapes may fit: those of the least depth.
    least_depth = smallest(workload, "depth")
    padded_cols = -(-cols // lanes) * lanes
    # More cores than vectors of columns idle, whatever the tile. Products of a batch are not divided.
    busy_cores = min(hardware.cores, padded_cols // lanes) if not _varying_batch(workload) else 1
    return (
        Limit("the tile is no wider than the output", padded_cols, "columns", lambda s: s.cols),
        Limit(
            "every core gets a panel of weights",
            padded_cols,
            "columns",
            lambda s: (busy_cores - 1) * s.cols + lanes,
        ),
        Limit(
            "the reduction axis fills an unrolled step",
            depth,
            "steps",
            lambda s: (
                (s.kernel.unroll - 1) * (lanes if s.kernel.along == "depth" else s.kernel.facts.per_step) + 1
            ),
        ),
        Limit(
            "a stationary panel of weights fits L2",
            cpu.l2_bytes * L2_SHARE,
            "bytes",
            lambda s: (
                (s.order == "ws" and s.cols > lanes)
                * (s.cols * (s.kernel.block or -(-least_depth // s.kernel.facts.per_step)) * WORD_BYTES)
            ),
        ),
        Limit(
            "a panel transposed on the fly fits the stack",
            STACK_BYTES,
            "bytes",
            lambda s: s.cols * depth * WORD_BYTES if transposed and s.kernel.along == "cols" else 0,
        ),
        Limit(
            "the padded copy of the edge tile fits half of L2",
            cpu.l2_bytes / 2,
            "bytes",
            lambda s: s.rows * depth * WORD_BYTES if s.edge == "padded" and s.rows > 1 else 0,
        ),
    )


KERNEL = CpuMicroKernel


def pads(workload: Workload) -> bool:
    """Returns whether the reduction axis is static: a copy of the edge tile needs that."""
    return static_extent(workload, "depth") is not None
