"""Prefetches of data that the hardware alone would fetch too late: the next panel of packed weights, or a
batch's next product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.loop_nest import Position, RowBlock, Tiling
from dietlab.targets.cpu.lowering.tir import L2, int64, most, prefetch
from dietlab.targets.cpu.units import WORD_BYTES


@dataclass(frozen=True)
class Stream:
    """An operand of a batch, whose products lie one after the other in memory.

    Args:
        floats: the number of elements of one product.
        distance: the distance from the computed product to the prefetched one, in elements.
        lines: the number of cache lines of one product.
        share: the number of lines that each piece of a product's work prefetches.
    """

    buffer: Any
    floats: Any
    distance: Any
    lines: Any
    share: Any

    @classmethod
    def of(cls, buffer: Any, floats: Any, pieces: Any, lanes: int, least_bytes: int) -> Stream:
        """Computes the values that all products share, once a call: divisions cost more than a tile."""
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


@dataclass(frozen=True)
class NextProduct:
    """The operands of a batch that its plan prefetches (perhaps none). Each piece of work prefetches a share.
    ``pieces`` is the number of pieces of a column tile: its transposed panels and its row tiles."""

    streams: tuple[Stream, ...] = ()
    pieces: Any = 0
    lanes: int = 0

    @classmethod
    def of(cls, tiling: Tiling) -> NextProduct:
        if not tiling.kernel.ahead:
            return cls()
        operands, lanes = tiling.operands, tiling.geometry.lanes
        pieces = tiling.transposed_panels + tiling.row_tiles
        in_all = T.bind(tiling.column_tiles * pieces)
        sizes = (
            (operands.x, tiling.rows * tiling.depth),
            (operands.w, tiling.cols * tiling.depth),
            (operands.y, tiling.rows * tiling.cols),
        )
        least = tiling.geometry.lowering.least_ahead_bytes
        found = tuple(Stream.of(buffer, floats, in_all, lanes, least) for buffer, floats in sizes)
        return cls(found, pieces, lanes)

    def prefetch(self, batch: Any, column_tile: Any, piece: Any) -> None:
        """Prefetches a share of the next product while a piece of a column tile is computed.

        For example, for two column tiles of one panel and one row tile each (a prefetch beyond the last
        product does no harm)::

            before                          after
            for jo in range(2):             for jo in range(2):
              transpose panel jo              prefetch share 2 * jo of 4;      transpose panel jo
              tile(x, w, y)                   prefetch share 2 * jo + 1 of 4;  tile(x, w, y)

        All shares at once would fill the queue of misses, which the panel and the tile need too.
        """
        for stream in self.streams:
            stream.prefetch_share(batch, column_tile * self.pieces + piece, self.lanes)


@dataclass(frozen=True)
class NextPanel:
    """The packed weights that the row tiles of a pass prefetch for the next pass.

    Args:
        lines: an array that begins at this row tile's first prefetched line.
        line: the number of elements of a cache line.
        vectors: the number of lines that one step of a tile reads.
        apart: the distance from panel to panel in elements, if a K-block of each panel is read; None if
            panels are read whole.
    """

    lines: Any
    line: Any
    vectors: int
    apart: int | None

    @classmethod
    def of(cls, ahead: Any, tiles: Any, lanes: int, vectors: int, apart: int | None) -> NextPanel:
        # The compiler does not know that a pass has a tile, so it multiplies by the line's length. That
        # delays a prefetch by a few cycles. Without the delay it would take the places of the step's own
        # loads in the queue of misses: 475 instead of 425 us for 2 rows by 2304 x 768 weights from memory.
        line = T.bind(tirx.min(int64(lanes), tiles * lanes))
        return cls(T.decl_buffer((1,), data=ahead), line, vectors, apart)

    def prefetch(self, step: Any) -> None:
        """Prefetches as many lines as a step of a tile reads."""
        for j in range(self.vectors):
            at = (step * self.vectors + j) * self.line
            prefetch(self.lines, at if self.apart is None else j * self.apart + step * self.line, L2)


def first_prefetched_line(tiling: Tiling, at: Position) -> Any:
    """Returns a pointer to the first line of the next column tile's weights that this row tile prefetches.

    This line follows the lines of the pass's earlier row tiles, which all prefetch in the same number of
    iterations. A single row tile prefetches its own first lines once; the hardware is fetching them already
    (:attr:`Lowering.single_tile_own_lines`).
    """
    kernel = tiling.kernel
    iterations = tirx.truncdiv(int64(kernel.block or tiling.depth), int64(kernel.unroll))
    before = tirx.truncdiv((at.row_tile - at.block.first) * iterations, prefetching_tiles(tiling, at.block))
    lines = before * (kernel.unroll if kernel.block else kernel.unroll * tiling.panels)
    column, begin = _next_column_tile(tiling, at)
    following, own = (
        tiling.packed_at(at.batch) + tile * tiling.tile_floats + steps * tiling.geometry.lanes
        for tile, steps in ((column, begin + lines), (at.column_tile, at.begin))
    )
    offset = _if_alone(tiling, at.block, int64(own), following)
    return tiling.operands.w.access_ptr("r", offset=offset)


def prefetching_tiles(tiling: Tiling, block: RowBlock) -> Any:
    """Returns the period, in iterations, at which a row tile prefetches: the tiles of a pass share the lines.
    A single tile prefetches once.

    Few rows use weights faster than memory delivers them, and prefetched lines arrive later than those that
    the hardware's prefetcher fetches by itself. So a pass of few rows prefetches only the first lines of the
    next column tile, in proportion to its rows, and leaves the others to the hardware. (Not with K-blocks:
    the first lines belong to all panels, and the hardware would have to begin all of them at once.)
    """
    kernel, geometry = tiling.kernel, tiling.geometry
    tiles, alone = int64(block.tiles), int64(most(1, kernel.block or tiling.depth))
    if not kernel.block:
        all_from = int(geometry.lowering.prefetch_all_from * geometry.balance)
        tiles = tirx.max(tiles, tirx.truncdiv(tiles * all_from, tirx.max(int64(tiling.rows), int64(1))))
    return _if_alone(tiling, block, alone, tiles)


def _if_alone(tiling: Tiling, block: RowBlock, alone: Any, other: Any) -> Any:
    """Returns the first value for a pass of a single row tile that prefetches its own lines, else the
    second."""
    if not tiling.geometry.lowering.single_tile_own_lines:
        return other
    return T.if_then_else(int64(block.tiles) == 1, alone, other)


def _next_column_tile(tiling: Tiling, at: Position) -> tuple[Any, Any]:
    """Returns the column tile that a core computes after this one, and the first step of its K-block.

    After the last column tile of a pass comes the first one of the next row block, or of the next K-block.
    The very last one prefetches its own weights, which are in cache.
    """
    (first, end), kernel = at.columns, tiling.kernel
    inside = at.column_tile + 1 < end
    rows_left = at.block.first + at.block.tiles < tiling.row_tiles
    behind = T.if_then_else(rows_left, int64(first), int64(at.column_tile))
    begin: Any = int64(at.begin)
    if kernel.block:
        part_left = at.begin + kernel.block < tiling.depth
        behind = T.if_then_else(part_left, int64(first), behind)
        stays = tirx.any(inside, rows_left, tirx.Not(part_left))
        begin = T.bind(T.if_then_else(stays, begin, at.begin + kernel.block))
    return T.bind(T.if_then_else(inside, at.column_tile + 1, behind)), begin
