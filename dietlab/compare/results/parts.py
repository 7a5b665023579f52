"""Speedups by layer and by length."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dietlab.compare.results.speedups import JUDGES, SUMMARY_HEADER, Summary, summarise, summary_cells
from dietlab.problem import Shape

if TYPE_CHECKING:
    from dietlab.compare.results.row import Row

BOUND = "oracle"
"""The contender that is a bound, and stands beside the judge."""

LENGTHS_ALONE = 12
"""The most lengths with a line each; more of them share one from each power of two to the next."""


@dataclass(frozen=True)
class Part:
    """The speedup over one contender on a part of the shapes.

    Args:
        where: the layer, as in ``"K=768,N=2304"``, or the lengths, as in ``"T=5..8"``.
        columns: the same as numbers: an extent by dimension, or ``low_T`` and ``high_T`` (both included).
        held_out: whether every shape of the part was held out from tuning.
        summary: the speedups over the part's shapes.
    """

    where: str
    columns: Mapping[str, int]
    held_out: bool
    summary: Summary


Place = tuple[str, Mapping[str, int]]
"""A part's name and its columns."""


def parts(contender: str, cache: str, rows: Sequence[Row], place: Callable[[Shape], Place]) -> Iterator[Part]:
    """Yields a summary of the rows at each place, in ascending order of the columns."""
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        if row.speedup is None or not math.isfinite(row.speedup):
            continue
        found.setdefault(tuple(place(row.shape)[1].values()), []).append(row)
    for _, some in sorted(found.items()):
        where, columns = place(some[0].shape)
        held_out = all(row.held_out for row in some)
        yield Part(where, columns, held_out, summarise(contender, cache, some))


def layer_place(length: str) -> Callable[[Shape], Place]:
    """Returns a function from a shape to its layer: all extents but that of ``length``."""

    def place(shape: Shape) -> Place:
        layer = shape.without(length)
        return str(layer), layer.to_json()

    return place


def length_place(length: str, lengths: Collection[int]) -> Callable[[Shape], Place]:
    """Returns a function from a shape to its length, or to the powers of two that its length lies between if
    there are more than :data:`LENGTHS_ALONE`."""
    alone = len(lengths) <= LENGTHS_ALONE

    def place(shape: Shape) -> Place:
        extent = shape[length]
        high = extent if alone else 1 << (extent - 1).bit_length()
        low = extent if alone else high // 2 + 1
        where = f"{length}={low}" if low == high else f"{length}={low}..{high}"
        return where, {f"low_{length}": low, f"high_{length}": high}

    return place


def judged(found: Sequence[Part]) -> tuple[Part, ...]:
    """Returns for each cache state the parts against the judge, then those against the bound; against
    everybody if neither took part."""
    names = {part.summary.contender for part in found}
    judge = next((name for name in JUDGES if name in names), None)
    chosen = names & {judge, BOUND} or names
    caches = list(dict.fromkeys(part.summary.cache for part in found))
    some = (part for part in found if part.summary.contender in chosen)
    return tuple(sorted(some, key=lambda p: (caches.index(p.summary.cache), p.summary.contender == BOUND)))


def part_header(what: str) -> tuple[str, ...]:
    """Returns the header of a table of parts, called ``what``: ``layer`` or ``length``."""
    return (*SUMMARY_HEADER[:2], what, *SUMMARY_HEADER[2:])


def part_cells(part: Part) -> tuple[str, ...]:
    """Returns the cells below :func:`part_header`."""
    cells = summary_cells(part.summary)
    return (*cells[:2], part.where, *cells[2:])
