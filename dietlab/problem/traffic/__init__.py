"""Recorded and assumed distributions of one dynamic extent: tables of how often each extent occurs.

Sources and licences are in the tables' headers and in ``data/traffic/README.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeVar

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import as_extent

Lengths = str | Mapping[int, float] | Iterable[int]
"""Ways to give lengths: the name of a table, a mapping from lengths to weights (on any positive scale), or a
list of lengths."""

Count = TypeVar("Count", int, float)

TABLES = ("uniform", "paper", "bert", "serving", "speech")
COLUMNS = "extent,count"


@dataclass(frozen=True)
class Table:
    """Counts of each extent (1 or more) in recorded traffic; ``origin`` is the header of the file."""

    name: str
    origin: str
    counts: Mapping[int, int]

    def within(self, low: int, high: int) -> tuple[dict[int, int], float]:
        """Returns the counts of extents in ``low..high``, and the share of the traffic outside."""
        inside = {extent: count for extent, count in self.counts.items() if low <= extent <= high}
        return inside, 1 - sum(inside.values()) / sum(self.counts.values())


def read_table(name: str) -> Table:
    """Returns one of :data:`TABLES`.

    Raises:
        WorkloadError: for another name.
    """
    if name not in TABLES:
        raise WorkloadError(f"a table of traffic is one of {', '.join(TABLES)}", repr(name))
    return parse_table(name, (files(__name__) / f"{name}.csv").read_text(encoding="utf-8"))


def parse_table(name: str, text: str) -> Table:
    """Parses the text of a table: comments, the names of the columns, then a row for each extent.

    Raises:
        WorkloadError: if a row or the columns are wrong.
    """
    lines = text.splitlines()
    header = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    columns, *rows = [line for line in lines if not line.startswith("#")] or [""]
    try:
        counts = {int(extent): int(count) for extent, count in (row.split(",") for row in rows)}
    except ValueError as error:
        raise WorkloadError("a row of a table of traffic reads EXTENT,COUNT", f"{name}: {error}") from None
    if columns != COLUMNS or not counts or len(counts) != len(rows) or min(*counts, *counts.values()) < 1:
        rule = f"a table of traffic needs the columns {COLUMNS} and distinct extents and counts of 1 or more"
        raise WorkloadError(rule, name)
    return Table(name, " ".join(header), counts)


def weights_of(lengths: Lengths) -> dict[int, float]:
    """Returns the weight of each length: its count in the table, its given weight, or how often it is listed.

    Raises:
        WorkloadError: for an unknown table, no lengths, a length that is no int of 1 or more, or a weight
            that is not positive and finite.
    """
    if isinstance(lengths, str):
        return dict(read_table(lengths).counts)
    weights = dict[int, float]()
    for length in lengths:
        extent = as_extent(length)
        weight = lengths[length] if isinstance(lengths, Mapping) else weights.get(extent, 0) + 1
        if not (weight > 0 and math.isfinite(weight)):
            raise WorkloadError("every length must have a positive, finite weight", f"{weight} for {extent}")
        weights[extent] = weight
    if not weights:
        rule = "traffic needs at least one length"
        raise WorkloadError(rule, "none", f"For example [1, 16, 128], or a table: {', '.join(TABLES)}.")
    return weights


def aggregated(counts: Mapping[int, Count], groups: int) -> dict[int, Count]:
    """Merges neighbouring extents into at most ``groups`` groups, and adds up each group's counts.

    The cheapest pair of neighbouring groups is merged first: by Ward's criterion on the logarithm, groups of
    counts ``a``, ``b`` and mean logarithms ``p``, ``q`` cost ``a b / (a + b) (p - q)**2``. So small and large
    extents are thinned equally and frequent ones stay apart. A group is represented by the member nearest to
    its mean extent, which nearly keeps the mean of the table.

    Raises:
        WorkloadError: if ``groups`` is below 1.
    """
    if groups < 1:
        raise WorkloadError(
            "traffic must be aggregated to one shape or more", groups, "For example 8 (serving:8)."
        )
    clusters = [[extent] for extent in sorted(counts)]
    weights = [float(counts[extent]) for extent in sorted(counts)]
    centres = [math.log(extent) for extent in sorted(counts)]
    costs = [_merge_cost(weights, centres, i) for i in range(len(clusters) - 1)]
    while len(clusters) > groups:
        i = min(range(len(costs)), key=costs.__getitem__)
        total = weights[i] + weights[i + 1]
        centres[i : i + 2] = [(weights[i] * centres[i] + weights[i + 1] * centres[i + 1]) / total]
        weights[i : i + 2] = [total]
        clusters[i : i + 2] = [clusters[i] + clusters[i + 1]]
        del costs[i]
        for j in (i - 1, i):
            if 0 <= j < len(costs):
                costs[j] = _merge_cost(weights, centres, j)
    return {_representative(members, counts): sum(counts[t] for t in members) for members in clusters}


def _merge_cost(weights: list[float], centres: list[float], i: int) -> float:
    a, b = weights[i], weights[i + 1]
    return a * b / (a + b) * (centres[i] - centres[i + 1]) ** 2


def _representative(members: list[int], counts: Mapping[int, Count]) -> int:
    mean = sum(t * counts[t] for t in members) / sum(counts[t] for t in members)
    return min(members, key=lambda t: (abs(t - mean), t))
