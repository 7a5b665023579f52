"""Sums times over a trace: the sum is what all calls cost, and a mean of ratios is not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dietlab.problem import Shape

if TYPE_CHECKING:
    from dietlab.compare.results.row import Row


@dataclass(frozen=True)
class TraceTime:
    """One contender over a trace, in one cache state.

    ``seconds`` is the mean call of the trace: the sum of weight times median over the shapes that
    the contender has a time for, over their weight, which is ``share`` (1: it has all of them).
    ``speedup`` is that over ours on the same shapes (above 1: ours is faster); None for ours.
    """

    contender: str
    cache: str
    share: float
    seconds: float
    speedup: float | None


def trace_time(
    contender: str, cache: str, rows: Sequence[Row], weights: Mapping[Shape, float], ours: Sequence[Row]
) -> TraceTime | None:
    """Returns a contender's ``rows`` and ``ours`` of one cache state, summed by weight over the shapes that
    both were right on; None if there are none."""
    mine, theirs = _seconds(ours), _seconds(rows)
    common = [shape for shape in theirs if shape in mine and shape in weights]
    share = math.fsum(weights[shape] for shape in common)
    if not share:
        return None
    theirs_total = math.fsum(weights[shape] * theirs[shape] for shape in common)
    ours_total = math.fsum(weights[shape] * mine[shape] for shape in common)
    speedup = None if rows is ours else theirs_total / ours_total
    return TraceTime(contender, cache, share, theirs_total / share, speedup)


def _seconds(rows: Sequence[Row]) -> dict[Shape, float]:
    return {row.shape: row.seconds_median for row in rows if row.correct and row.seconds_median > 0}
