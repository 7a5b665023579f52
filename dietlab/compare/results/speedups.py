"""Speedups, regret and the share of the roofline in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dietlab.compare.results.row import Row

JUDGES = ("best prepacked vendor", "best plain vendor")
"""Contenders that a result is judged by: the first of them that took part."""

SUMMARY_HEADER = ("cache", "contender", "shapes", "geomean", "held-out", "worst", "worst shape")


@dataclass(frozen=True)
class Summary:
    """The speedup of dietlab over one contender (above 1: dietlab is faster).

    Args:
        contender: its name, or ``best-prepacked`` or ``best-plain``.
        cache: the cache state.
        shapes: the number of shapes.
        geomean_speedup: the geometric mean over all of them.
        geomean_speedup_held_out: the same over those that tuning did not see; None if there are none.
        worst_speedup: the least of all.
        worst_shape: where that is, extents by name.
    """

    contender: str
    cache: str
    shapes: int
    geomean_speedup: float
    geomean_speedup_held_out: float | None
    worst_speedup: float
    worst_shape: dict[str, int]


def summarise(contender: str, cache: str, rows: Sequence[Row]) -> Summary:
    """Returns the geometric mean and worst case of the speedups in ``rows`` (at least one)."""
    speedups = {row: row.speedup for row in rows if row.speedup is not None and math.isfinite(row.speedup)}
    worst = min(speedups, key=lambda row: speedups[row])
    held_out = [speedups[row] for row in speedups if row.held_out]
    return Summary(
        contender=contender,
        cache=cache,
        shapes=len(speedups),
        geomean_speedup=geometric_mean(speedups.values()),
        geomean_speedup_held_out=geometric_mean(held_out) if held_out else None,
        worst_speedup=speedups[worst],
        worst_shape=worst.shape.to_json(),
    )


def quality(ours: Sequence[Row]) -> dict[str, float]:
    """Returns regret and roofline share of our right results, as percentages."""
    regrets = {
        "mean_regret_percent": [r.regret for r in ours if r.regret is not None],
        "held_out_mean_regret_percent": [r.regret for r in ours if r.held_out and r.regret is not None],
    }
    found = {name: 100 * fmean(values) for name, values in regrets.items() if values}
    if regrets["mean_regret_percent"]:
        found["worst_regret_percent"] = 100 * max(regrets["mean_regret_percent"])
    shares = [row.roofline for row in ours if row.roofline is not None]
    if shares:
        found["median_roofline_percent"] = 100 * median(shares)
    return {name: round(value, 2) for name, value in found.items()}


def summary_cells(line: Summary) -> tuple[str, ...]:
    """Returns the cells below ``SUMMARY_HEADER``."""
    held_out = line.geomean_speedup_held_out
    return (
        line.cache,
        line.contender,
        str(line.shapes),
        f"{line.geomean_speedup:.2f}x",
        "-" if held_out is None else f"{held_out:.2f}x",
        f"{line.worst_speedup:.2f}x",
        ",".join(f"{name}={extent}" for name, extent in line.worst_shape.items()) or "-",
    )
