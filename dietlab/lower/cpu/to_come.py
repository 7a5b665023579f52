"""What the tiles of a cover ask for ahead: weights of the column tile to come, or a batch's next product."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cpu.ahead import Stream, ask_for_next_product
from dietlab.lower.cpu.cover import Cover
from dietlab.lower.cpu.vectors import int64

ASKED_FOR = 1.2
"""From how many rows on all that comes next is asked for, over :attr:`Geometry.balance`."""


def lines_to_ask(cover: Cover, jo: Any) -> Any:
    """Where in the weights of the column tile to come this row tile begins to ask: behind the lines that the
    tiles before it in the pass ask for, each in as many iterations.

    A single row tile uses weights as fast as memory brings them. The hardware, which follows what is read, is
    then quicker alone: such a tile asks for its own first lines, which are on their way.
    """
    kernel = cover.kernel
    iterations = tirx.truncdiv(int64(kernel.block or cover.depth), int64(kernel.unroll))
    before = tirx.truncdiv((cover.row_tile - cover.first_tile) * iterations, sharers(cover))
    lines = before * (kernel.unroll if kernel.block else kernel.unroll * cover.panels)
    column, begin = _to_come(cover, jo)
    to_come, own = (
        tile * cover.tile_floats + steps * cover.geometry.lanes
        for tile, steps in ((column, begin + lines), (jo, cover.begin))
    )
    offset = T.if_then_else(_alone(cover), int64(own), to_come)
    return cover.operands.w.access_ptr("r", offset=offset)


def sharers(cover: Cover) -> Any:
    """One iteration of so many asks for lines, since the row tiles share them. A single tile does so once.

    Few rows use weights faster than memory brings them, and what is asked for comes slower than what the
    hardware fetches by itself. They ask for a part in proportion, the first lines of the column tile; the
    first of the row tiles to come has the others fetched for it. (The first lines of a reduction's block are
    of all its panels: when they end, the hardware would have to begin with all others at once.)
    """
    tiles, alone = int64(cover.pass_tiles), int64(cover.kernel.block or cover.depth)
    if not cover.kernel.block:
        all_from = int(ASKED_FOR * cover.geometry.balance)
        tiles = tirx.max(tiles, tirx.truncdiv(tiles * all_from, tirx.max(int64(cover.size), int64(1))))
    return T.if_then_else(_alone(cover), alone, tiles)


def _alone(cover: Cover) -> Any:
    return int64(cover.pass_tiles) == 1


def _to_come(cover: Cover, jo: Any) -> tuple[Any, Any]:
    """The column tile that a core computes after ``jo``, and the first step of its reduction: behind the last
    one of a pass comes the first one of the next row block, or of the reduction's next block. The very last
    asks for its own weights, which are there."""
    first, end = cover.columns or (0, cover.column_tiles)
    inside, rows_left = jo + 1 < end, cover.first_tile + cover.pass_tiles < cover.row_tiles
    behind = T.if_then_else(rows_left, int64(first), int64(jo))
    begin: Any = int64(cover.begin)
    if cover.kernel.block:
        part_left = cover.begin + cover.kernel.block < cover.depth
        behind = T.if_then_else(part_left, int64(first), behind)
        stays = tirx.any(inside, rows_left, tirx.Not(part_left))
        begin = T.bind(T.if_then_else(stays, begin, cover.begin + cover.kernel.block))
    return T.bind(T.if_then_else(inside, jo + 1, behind)), begin


def streams(cover: Cover) -> tuple[Stream, ...]:
    """What a plan of a batch asks for ahead."""
    if not cover.kernel.ahead:
        return ()
    operands, lanes = cover.operands, cover.geometry.lanes
    pieces = T.bind(cover.column_tiles * (pieces_before(cover) + cover.row_tiles))
    sizes = (
        (operands.x, cover.size * cover.depth),
        (operands.w, cover.cols * cover.depth),
        (operands.y, cover.size * cover.cols),
    )
    return tuple(Stream.of(buffer, floats, pieces, lanes) for buffer, floats in sizes)


def ask_next_product(cover: Cover, jo: Any, piece: Any) -> None:
    """For piece ``piece`` of column tile ``jo``."""
    if cover.streams:
        number = jo * (pieces_before(cover) + cover.row_tiles) + piece
        ask_for_next_product(cover.streams, cover.batch, number, cover.geometry.lanes)


def pieces_before(cover: Cover) -> int:
    """Panels that are transposed before the row tiles of one column tile."""
    return cover.panels if cover.transposes else 0
