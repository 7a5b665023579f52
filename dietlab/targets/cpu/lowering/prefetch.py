"""Prefetches operands that the hardware alone would fetch too late: the next panel of packed weights, or a
batch's next product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS
from dietlab.targets.cpu.lowering.loop_nest import LoopNest
from dietlab.targets.cpu.lowering.tir import L2, int64, most, prefetch
from dietlab.targets.cpu.units import WORD_BYTES


@dataclass(frozen=True)
class Stream:
    """An operand of a batch, whose products lie one after the other in memory.

    Args:
        floats: elements of one product.
        distance: elements from a product to the one that is prefetched while it is computed.
        lines: cache lines of one product; each piece of its work prefetches ``share`` of them.
    """

    buffer: Any
    floats: Any
    distance: Any
    lines: Any
    share: Any

    @classmethod
    def of(cls, buffer: Any, floats: Any, pieces: Any, lanes: int, least_bytes: int) -> Stream:
        """Computes once a call what all products have in common: divisions cost more than a tile."""
        floats = T.bind(int64(floats))
        lines = T.bind(tirx.truncdiv(floats + (lanes - 1), int64(lanes)))
        share = T.bind(tirx.truncdiv(lines + pieces - 1, pieces))
        distance = T.bind(tirx.max(floats, int64(least_bytes // WORD_BYTES)))
        return cls(buffer, floats, distance, lines, share)

    def prefetch_share(self, batch: Any, piece: Any, lanes: int) -> None:
        """Prefetches the lines of the next product that belong to one piece of this product's work."""
        first = T.bind(tirx.min(piece * self.share, self.lines))
        last = T.bind(tirx.min(first + self.share, self.lines))
        begin = T.bind(batch * self.floats + self.distance)
        with T.serial(first, last) as line:
            prefetch(self.buffer, begin + line * lanes, L2)


def streams(nest: LoopNest) -> tuple[Stream, ...]:
    """Returns the operands of a batch that its plan prefetches; none if its micro-kernel does not."""
    if not nest.kernel.ahead:
        return ()
    operands, lanes = nest.operands, nest.geometry.lanes
    pieces = T.bind(nest.column_tiles * (pieces_before(nest) + nest.row_tiles))
    sizes = (
        (operands.x, nest.rows * nest.depth),
        (operands.w, nest.cols * nest.depth),
        (operands.y, nest.rows * nest.cols),
    )
    least = nest.geometry.lowering.least_ahead_bytes
    return tuple(Stream.of(buffer, floats, pieces, lanes, least) for buffer, floats in sizes)


def prefetch_next_product(nest: LoopNest, jo: Any, piece: Any) -> None:
    """Prefetches a share of the next product while piece ``piece`` of column tile ``jo`` is computed.

    Draws, for two column tiles of one panel and one row tile each (a prefetch beyond the last product does
    no harm)::

        before                          after
        for jo in range(2):             for jo in range(2):
          transpose panel jo              prefetch share 2 * jo of 4;      transpose panel jo
          tile(x, w, y)                   prefetch share 2 * jo + 1 of 4;  tile(x, w, y)

    All shares at once would fill the queue of misses, which the panel and the tile need too.
    """
    number = jo * (pieces_before(nest) + nest.row_tiles) + piece
    for stream in nest.streams:
        stream.prefetch_share(nest.batch, number, nest.geometry.lanes)


def pieces_before(nest: LoopNest) -> int:
    """Returns the panels that are transposed before the row tiles of one column tile."""
    return nest.panels if nest.transposes else 0


@dataclass(frozen=True)
class NextPanel:
    """The packed weights that the row tiles of a pass prefetch for the pass after it.

    Args:
        lines: where this row tile's prefetches begin.
        line: elements of a cache line.
        vectors: lines that one step of a tile reads.
        apart: elements from panel to panel, if only a K-block of each is read; None if all of it is.
    """

    lines: Any
    line: Any
    vectors: int
    apart: int | None

    @classmethod
    def of(cls, ahead: Any, tiles: Any, lanes: int, vectors: int, apart: int | None) -> NextPanel:
        # The compiler cannot know that a pass has a tile, and multiplies by the line's length. So a prefetch
        # issues a few cycles after the step's own loads. Without the delay it would take their places in the
        # queue of misses: 475 instead of 425 us for 2 rows by 2304 x 768 weights from memory.
        line = T.bind(tirx.min(int64(lanes), tiles * lanes))
        return cls(T.decl_buffer((1,), data=ahead), line, vectors, apart)

    def prefetch(self, step: Any) -> None:
        """Prefetches as many lines as a step of a tile reads."""
        for j in range(self.vectors):
            at = (step * self.vectors + j) * self.line
            prefetch(self.lines, at if self.apart is None else j * self.apart + step * self.line, L2)


def first_prefetched_line(nest: LoopNest, jo: Any) -> Any:
    """Returns where in the next column tile's weights this row tile's prefetches begin.

    They follow the lines that the earlier row tiles of the pass prefetch, each in as many iterations. A
    single row tile prefetches its own first lines, which are on their way already, once
    (:attr:`Lowering.single_tile_own_lines`).
    """
    kernel = nest.kernel
    iterations = tirx.truncdiv(int64(kernel.block or nest.depth), int64(kernel.unroll))
    before = tirx.truncdiv((nest.row_tile - nest.first_tile) * iterations, prefetching_tiles(nest))
    lines = before * (kernel.unroll if kernel.block else kernel.unroll * nest.panels)
    column, begin = _next_column_tile(nest, jo)
    following, own = (
        HEADER_FLOATS + tile * nest.tile_floats + steps * nest.geometry.lanes
        for tile, steps in ((column, begin + lines), (jo, nest.begin))
    )
    offset = _if_alone(nest, int64(own), following)
    return nest.operands.w.access_ptr("r", offset=offset)


def prefetching_tiles(nest: LoopNest) -> Any:
    """Returns the period, in iterations, at which a row tile prefetches: the tiles of a pass share the lines.
    A single tile prefetches once.

    Few rows use weights faster than memory delivers them, and prefetched lines arrive later than those that
    the hardware's prefetcher fetches by itself. A pass of few rows prefetches a part in proportion, the first
    lines of the column tile; the first of the next row tiles leaves the others to the hardware. (The first
    lines of a K-block belong to all its panels: when they end, the hardware would have to begin with all
    others at once.)
    """
    tiles, alone = int64(nest.pass_tiles), int64(most(1, nest.kernel.block or nest.depth))
    if not nest.kernel.block:
        all_from = int(nest.geometry.lowering.prefetch_all_from * nest.geometry.balance)
        tiles = tirx.max(tiles, tirx.truncdiv(tiles * all_from, tirx.max(int64(nest.rows), int64(1))))
    return _if_alone(nest, alone, tiles)


def _if_alone(nest: LoopNest, alone: Any, other: Any) -> Any:
    """Returns the first value for a pass of a single row tile that prefetches its own lines, else the
    second."""
    if not nest.geometry.lowering.single_tile_own_lines:
        return other
    return T.if_then_else(int64(nest.pass_tiles) == 1, alone, other)


def _next_column_tile(nest: LoopNest, jo: Any) -> tuple[Any, Any]:
    """Returns the column tile that a core computes after ``jo``, and the first step of its K-block.

    After the last column tile of a pass comes the first one of the next row block, or of the next K-block.
    The very last one prefetches its own weights, which are in cache.
    """
    first, end = nest.columns or (0, nest.column_tiles)
    inside, rows_left = jo + 1 < end, nest.first_tile + nest.pass_tiles < nest.row_tiles
    behind = T.if_then_else(rows_left, int64(first), int64(jo))
    begin: Any = int64(nest.begin)
    if nest.kernel.block:
        part_left = nest.begin + nest.kernel.block < nest.depth
        behind = T.if_then_else(part_left, int64(first), behind)
        stays = tirx.any(inside, rows_left, tirx.Not(part_left))
        begin = T.bind(T.if_then_else(stays, begin, nest.begin + nest.kernel.block))
    return T.bind(T.if_then_else(inside, jo + 1, behind)), begin
