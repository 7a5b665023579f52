"""Sums times over a trace. The sum is the cost of all calls; a mean of ratios is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dietlab.compare.results.parts import BOUND
from dietlab.compare.results.row import Row
from dietlab.problem import Shape


@dataclass(frozen=True)
class TraceTime:
    """One contender's time over a trace, in one cache state.

    Args:
        share: the weight of the shapes that the contender has a time for (1: all).
        seconds: the seconds of a mean call on these shapes: the sum of weight times median, over ``share``.
        speedup: the contender's seconds over ours on these shapes (above 1: ours is faster); None for ours.
    """

    contender: str
    cache: str
    share: float
    seconds: float
    speedup: float | None


def trace_times(
    cache: str,
    maker: str,
    ours: Sequence[Row],
    others: Mapping[str, Sequence[Row]],
    weights: Mapping[Shape, float],
) -> Iterator[TraceTime]:
    """Yields the times in one cache state: the time of ``maker``, then the times of ``others`` by name. Each
    time covers the shapes on which the contender and ``ours`` have right results; a contender without such
    shapes is left out. The oracle's time is our time over one plus the regret: its plan was timed in turns
    with ours, its library was not."""
    mine = _seconds(row for row in ours if row.cache == cache)
    for name, rows in {maker: ours, **others}.items():
        theirs = mine if name == maker else _bound(mine, rows) if name == BOUND else _seconds(rows)
        common = [shape for shape in theirs if shape in mine and shape in weights]
        share = math.fsum(weights[shape] for shape in common)
        if share:
            total = math.fsum(weights[shape] * theirs[shape] for shape in common)
            ours_total = math.fsum(weights[shape] * mine[shape] for shape in common)
            speedup = None if name == maker else total / ours_total
            yield TraceTime(name, cache, share, total / share, speedup)


def _bound(mine: Mapping[Shape, float], rows: Iterable[Row]) -> dict[Shape, float]:
    return {row.shape: mine[row.shape] * row.speedup for row in rows if row.shape in mine and row.speedup}


def _seconds(rows: Iterable[Row]) -> dict[Shape, float]:
    return {row.shape: row.seconds_median for row in rows if row.correct and row.seconds_median > 0}
