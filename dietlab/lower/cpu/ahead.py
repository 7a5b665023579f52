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


def ask_for_next_panel(lines: Any, step: Any, vectors: int, stride: Any, apart: int | None = None) -> None:
    """As many lines of the next panel as a step of a tile reads of the current one, ``stride`` elements
    apart: of a panel with n row tiles each asks for 1/n of the next one. Where only a block of each panel
    is read, these lie ``apart`` elements from each other."""
    for j in range(vectors):
        offset = (step * vectors + j) * stride if apart is None else j * apart + step * stride
        prefetch(lines, offset, L2)
