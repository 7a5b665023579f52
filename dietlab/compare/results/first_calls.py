"""Compares the first call at a shape with the later ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dietlab.base.cards import Listing, seconds_text
from dietlab.compare.results.row import Row

FIRST_CAPTION = "first call at a shape over later ones, in times, with what is prepared for that shape alone"
FIRST_HEADER = ("cache", "contender", "shapes", "median", "most", "most at", "first call", "later ones")


@dataclass(frozen=True)
class FirstCalls:
    """First calls of a contender at shapes that are new to its process.

    Args:
        cache: the cache state of the later calls.
        ratio: the median over shapes of the first call's time over a later call's.
        worst: the row with the greatest ratio.
    """

    cache: str
    contender: str
    shapes: int
    ratio: float
    worst: Row


def first_calls(rows: Iterable[Row]) -> tuple[FirstCalls, ...]:
    """Returns the known first calls by cache state and contender, the greatest ratio first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.correct and row.first_seconds is not None and row.seconds_median > 0:
            found.setdefault((row.cache, row.contender), []).append(row)
    lines = (
        FirstCalls(*key, len(known), median(map(_ratio, known)), max(known, key=_ratio))
        for key, known in found.items()
    )
    return tuple(sorted(lines, key=lambda line: line.ratio, reverse=True))


def _ratio(row: Row) -> float:
    return (row.first_seconds or 0.0) / row.seconds_median


def first_listing(lines: Sequence[FirstCalls]) -> Listing:
    """Returns first calls as a table, one line each."""
    return Listing(FIRST_HEADER, lines, _cells)


def _cells(line: FirstCalls) -> tuple[str, ...]:
    return (
        line.cache,
        line.contender,
        str(line.shapes),
        f"{line.ratio:.2f}x",
        f"{_ratio(line.worst):.2f}x",
        str(line.worst.shape),
        seconds_text(line.worst.first_seconds),
        seconds_text(line.worst.seconds_median),
    )
