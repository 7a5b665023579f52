"""Speedups, regret and the share of the roofline in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING

from dietlab.base.cards import Listing, Quantity
from dietlab.compare.results.row import ContenderInfo, Row, fastest
from dietlab.problem import Shape

if TYPE_CHECKING:
    import pandas as pd

JUDGES = ("best prepacked vendor", "best plain vendor")
"""The groups of vendors that a result is compared with: the first of them that took part."""

SUMMARY_HEADER = ("cache", "contender", "shapes", "geomean", "held-out", "worst", "worst shape")


@dataclass(frozen=True)
class Summary:
    """The speedup of dietlab over one contender (above 1: dietlab is faster).

    Args:
        contender: its name, or one of :data:`JUDGES`.
        cache: the cache state.
        shapes: the number of shapes.
        geomean_speedup: the geometric mean of the speedups over all shapes.
        geomean_speedup_held_out: the same over shapes that tuning did not see; None without any.
        worst_speedup: the least speedup over all shapes.
        worst_shape: the extents, by name, of the shape with the least speedup.
    """

    contender: str
    cache: str
    shapes: int
    geomean_speedup: float
    geomean_speedup_held_out: float | None
    worst_speedup: float
    worst_shape: dict[str, int]

    @classmethod
    def of(cls, contender: str, cache: str, rows: Sequence[Row]) -> Summary:
        """Returns the summary of rows, at least one of which has a speedup."""
        speedups = {
            row: row.speedup for row in rows if row.speedup is not None and math.isfinite(row.speedup)
        }
        worst = min(speedups, key=lambda row: speedups[row])
        held_out = [speedups[row] for row in speedups if row.held_out]
        return cls(
            contender=contender,
            cache=cache,
            shapes=len(speedups),
            geomean_speedup=geometric_mean(speedups.values()),
            geomean_speedup_held_out=geometric_mean(held_out) if held_out else None,
            worst_speedup=speedups[worst],
            worst_shape=worst.shape.to_json(),
        )


def groups(rows: Iterable[Row], contenders: Iterable[ContenderInfo], maker: str) -> dict[str, list[Row]]:
    """Returns the right rows of one cache state that have a speedup, by contender, without the ``maker``.
    Each of the :data:`JUDGES` has, for each shape, the row of its fastest vendor."""
    kinds = {contender.name: contender.kind for contender in contenders}
    counted = [row for row in rows if row.speedup is not None and row.correct]
    found: dict[str, list[Row]] = {}
    for row in counted:
        if row.contender != maker:
            found.setdefault(row.contender, []).append(row)
    for kind, name in zip(("prepacked", "plain"), JUDGES, strict=True):
        if best := fastest([row for row in counted if kinds.get(row.contender) == kind]):
            found[name] = best
    return found


def quality(ours: Sequence[Row]) -> dict[str, float]:
    """Returns the known figures of our right results, in percent: mean and worst regret, median roofline
    share."""
    lost = [100 * row.regret for row in ours if row.regret is not None]
    held_out = [100 * row.regret for row in ours if row.held_out and row.regret is not None]
    shares = [100 * row.roofline for row in ours if row.roofline is not None]
    found = {
        **({"mean_regret_percent": fmean(lost)} if lost else {}),
        **({"held_out_mean_regret_percent": fmean(held_out)} if held_out else {}),
        **({"worst_regret_percent": max(lost)} if lost else {}),
        **({"median_roofline_percent": median(shares)} if shares else {}),
    }
    return {name: round(value, 2) for name, value in found.items()}


def summaries_frame(lines: Sequence[Summary]) -> pd.DataFrame:
    """Returns the summaries as a table, one row each."""
    import pandas as pd

    names = [field.name for field in fields(Summary)]
    rows = [{**asdict(line), "worst_shape": str(Shape.from_json(line.worst_shape))} for line in lines]
    # Without a type, pandas 3 takes a column of None for text, also when numbers of other studies join it.
    return pd.DataFrame(rows, columns=names).astype({"geomean_speedup_held_out": float})


def quality_listing(found: Mapping[str, Mapping[str, float]]) -> Listing:
    """Returns the :func:`quality` by cache state as a table, one figure a line."""
    items = [
        (cache, name.replace("_", " "), n) for cache, values in found.items() for name, n in values.items()
    ]
    return Listing(("cache", "figure", "value"), items)


def headline(lines: Sequence[Summary]) -> list[Quantity]:
    """Returns the geometric mean and the least speedup over the best vendors; without vendors, over the first
    contender."""
    best = [line for line in lines if line.contender.startswith("best")]
    return [
        quantity
        for line in (best or lines)[:1]
        for quantity in (
            Quantity(f"{line.geomean_speedup:.2f}x", f"over {line.contender} ({line.cache} cache)"),
            Quantity(f"{line.worst_speedup:.2f}x", "at worst"),
        )
    ]


def summary_listing(lines: Sequence[Summary]) -> Listing:
    """Returns the summaries as a table, one line each."""
    return Listing(SUMMARY_HEADER, lines, summary_cells)


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
