"""Asking for operands before they are needed, where the hardware alone would fetch them too late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cpu.geometry import FLOAT_BYTES
from dietlab.lower.cpu.vectors import L2, int64, prefetch

LEAST_BYTES = 8 << 10
"""How far ahead of a product its operands are asked for at least: what memory delivers while one of its
lines is on its way, several times over. The next product alone can be less."""


@dataclass(frozen=True)
class Stream:
    """An operand of a batch, whose products are contiguous.

    Args:
        floats: elements of one product.
        distance: elements from a product to the one asked for while it is computed.
        lines: cache lines of one product; each of its pieces asks for ``share`` of them.
    """

    buffer: Any
    floats: Any
    distance: Any
    lines: Any
    share: Any

    @classmethod
    def of(cls, buffer: Any, floats: Any, pieces: Any, lanes: int) -> Stream:
        """Computes what is the same for all products, once a call: divisions cost more than a tile."""
        floats = T.bind(int64(floats))
        lines = T.bind(tirx.truncdiv(floats + (lanes - 1), int64(lanes)))
        share = T.bind(tirx.truncdiv(lines + pieces - 1, pieces))
        distance = T.bind(tirx.max(floats, int64(LEAST_BYTES // FLOAT_BYTES)))
        return cls(buffer, floats, distance, lines, share)


def ask_for_next_product(streams: tuple[Stream, ...], batch: Any, piece: Any, lanes: int) -> None:
    """Asks for a share of a product to come while one piece of this one is computed.

    Draws, for two column tiles of one panel and one row tile each (beyond the last product asking does
    no harm)::

        before                          after
        for jo in range(2):             for jo in range(2):
          transpose panel jo              ask for share 2 * jo of 4;      transpose panel jo
          tile(x, w, y)                   ask for share 2 * jo + 1 of 4;  tile(x, w, y)

    All at once would fill the queue of misses that the panel and the tile need too.
    """
    for stream in streams:
        first = T.bind(tirx.min(piece * stream.share, stream.lines))
        last = T.bind(tirx.min(first + stream.share, stream.lines))
        begin = T.bind(batch * stream.floats + stream.distance)
        with T.serial(first, last) as line:
            prefetch(stream.buffer, begin + line * lanes, L2)


@dataclass(frozen=True)
class NextPanel:
    """The packed weights that the tiles to come read.

    Args:
        lines: where this row tile begins to ask.
        line: elements of a cache line.
        vectors: lines that one step of a tile reads.
        apart: elements from panel to panel, if only a block of each is read; None if all is.
    """

    lines: Any
    line: Any
    vectors: int
    apart: int | None

    @classmethod
    def of(cls, ahead: Any, tiles: Any, lanes: int, vectors: int, apart: int | None) -> NextPanel:
        # The compiler cannot know that a pass has a tile, and multiplies by the line's length. What is asked
        # for thus comes a few cycles behind what the step itself reads. At once it would take the places in
        # the queue of misses first: 475 instead of 425 us for 2 rows by 2304 x 768 weights from memory.
        line = T.bind(tirx.min(int64(lanes), tiles * lanes))
        return cls(T.decl_buffer((1,), data=ahead), line, vectors, apart)

    def ask(self, step: Any) -> None:
        """As many lines as a step of a tile reads."""
        for j in range(self.vectors):
            at = (step * self.vectors + j) * self.line
            prefetch(self.lines, at if self.apart is None else j * self.apart + step * self.line, L2)
