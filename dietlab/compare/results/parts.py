"""Speedups by layer and by length."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dietlab.base.cards import Listing
from dietlab.compare.results.row import Row
from dietlab.compare.results.speedups import JUDGES, SUMMARY_HEADER, Summary, summary_cells
from dietlab.problem import Shape

BOUND = "oracle"
"""The contender that is a bound; tables show it beside the best vendor."""

LENGTHS_ALONE = 12
"""The largest number of lengths that get a line each. More lengths share lines, one from each power of two to
the next."""


@dataclass(frozen=True)
class Part:
    """The speedup over one contender on a part of the shapes.

    Args:
        where: the layer, as in ``"K=768,N=2304"``, or the lengths, as in ``"T=5..8"``.
        columns: the same as numbers: extents by dimension, or ``low_T`` and ``high_T`` (both included).
        held_out: whether tuning saw none of the part's shapes.
        summary: the speedups on the part's shapes.
    """

    where: str
    columns: Mapping[str, int]
    held_out: bool
    summary: Summary


Place = Callable[[Shape], tuple[str, Mapping[str, int]]]
"""Returns the name and the columns of the part that a shape belongs to."""


def by_place(rows: Iterable[Row], place: Place) -> dict[str, list[Row]]:
    """Returns the rows by the name of their part, in ascending order of the columns."""
    found: dict[tuple[tuple[int, ...], str], list[Row]] = {}
    for row in rows:
        where, columns = place(row.shape)
        found.setdefault((tuple(columns.values()), where), []).append(row)
    return {where: some for (_, where), some in sorted(found.items(), key=lambda item: item[0])}


def parts(compared: Iterable[tuple[str, str, Sequence[Row]]], place: Place) -> tuple[Part, ...]:
    """Returns the parts of each cache state and contender, in ascending order of the columns."""
    found = []
    for cache, contender, rows in compared:
        finite = (row for row in rows if row.speedup is not None and math.isfinite(row.speedup))
        for where, some in by_place(finite, place).items():
            held_out = all(row.held_out for row in some)
            columns = place(some[0].shape)[1]
            found.append(Part(where, columns, held_out, Summary.of(contender, cache, some)))
    return tuple(found)


def layer_place(length: str) -> Place:
    """Returns a function that places shapes by layer: by all extents but ``length``'s."""

    def place(shape: Shape) -> tuple[str, Mapping[str, int]]:
        layer = shape.without(length)
        return str(layer), layer.to_json()

    return place


def length_place(length: str, lengths: Collection[int] = ()) -> Place:
    """Returns a function that places shapes by length, or by powers of two for more than
    :data:`LENGTHS_ALONE`."""
    alone = len(lengths) <= LENGTHS_ALONE

    def place(shape: Shape) -> tuple[str, Mapping[str, int]]:
        extent = shape[length]
        high = extent if alone else 1 << (extent - 1).bit_length()
        low = extent if alone else high // 2 + 1
        where = f"{length}={low}" if low == high else f"{length}={low}..{high}"
        return where, {f"low_{length}": low, f"high_{length}": high}

    return place


def judged(found: Sequence[Part]) -> tuple[Part, ...]:
    """Returns for each cache state the parts against the best vendor, then those against the bound; all parts
    if neither took part."""
    names = {part.summary.contender for part in found}
    judge = next((name for name in JUDGES if name in names), None)
    chosen = names & {judge, BOUND} or names
    caches = list(dict.fromkeys(part.summary.cache for part in found))
    some = (part for part in found if part.summary.contender in chosen)
    return tuple(sorted(some, key=lambda p: (caches.index(p.summary.cache), p.summary.contender == BOUND)))


def part_listing(what: str, found: Sequence[Part]) -> Listing:
    """Returns the :func:`judged` parts as a table; ``what`` is ``layer`` or ``length``."""
    return Listing((*SUMMARY_HEADER[:2], what, *SUMMARY_HEADER[2:]), judged(found), _cells)


def _cells(part: Part) -> tuple[str, ...]:
    cells = summary_cells(part.summary)
    return (*cells[:2], part.where, *cells[2:])
