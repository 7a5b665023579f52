"""Speedups in a few numbers: over all shapes, by layer and by length."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING

from dietlab.shapes import Shape

if TYPE_CHECKING:
    from dietlab.evaluation.report import Row

JUDGES = ("best prepacked vendor", "best plain vendor")
"""Contenders that a result is judged by: the first of them that took part."""

BOUND = "oracle"
"""The contender that is a bound, and stands beside the judge."""

LENGTHS_ALONE = 12
"""The most lengths with a line each; more of them share one from each power of two to the next."""

SUMMARY_HEADER = ("cache", "contender", "shapes", "geomean", "held-out", "worst", "worst shape")


@dataclass(frozen=True)
class Summary:
    """The speedup of dietlab over one contender (above 1: dietlab is faster)."""

    contender: str
    cache: str
    shapes: int
    geomean_speedup: float
    geomean_speedup_held_out: float | None
    worst_speedup: float
    worst_shape: dict[str, int]


@dataclass(frozen=True)
class Part:
    """The speedup over one contender on a part of the shapes.

    Args:
        where: the layer, as in ``"K=768,N=2304"``, or the lengths, as in ``"T=5..8"``.
        columns: the same as numbers: an extent by dimension, or ``low_T`` and ``high_T`` (both included).
        held_out: whether every shape of the part was held out from tuning.
    """

    where: str
    columns: Mapping[str, int]
    held_out: bool
    summary: Summary


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


def part_header(what: str) -> tuple[str, ...]:
    """Returns the header of a table of parts, called ``what``: ``layer`` or ``length``."""
    return (*SUMMARY_HEADER[:2], what, *SUMMARY_HEADER[2:])


def part_cells(part: Part) -> tuple[str, ...]:
    """Returns the cells below :func:`part_header`."""
    cells = summary_cells(part.summary)
    return (*cells[:2], part.where, *cells[2:])
