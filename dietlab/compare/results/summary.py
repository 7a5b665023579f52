"""A table in a few lines, each with its interval, its worst shape and its target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietlab.base.statistics import Values, bootstrap, mean_interval
from dietlab.compare.results.criteria import (
    LOWER_IS_BETTER,
    STUDY_MEASURES,
    Criterion,
    Measure,
    Statistic,
    criteria_of,
)
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.samples import Block, Reports, Sample, blocks, counts, samples
from dietlab.machine.target import hardware_target
from dietlab.problem import Shape

KIB, GB = 1024, 1e9

UNITS = {
    "x": ("ratio", 1.0),
    "%": ("share", 0.01),
    "s": ("s", 1.0),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "GB": ("bytes", GB),
    "KiB": ("bytes", float(KIB)),
    "": ("count", 1.0),
}
"""For each unit of a criterion: the unit in tables, and the size of the criterion's unit in it."""


@dataclass(frozen=True)
class Line:
    """The value of one criterion on a number of threads in one cache state.

    Args:
        criterion: the question.
        threads: the number of cores that were used; 1 on a GPU, which is used as a whole.
        cache: the cache state; empty for measures of a whole study.
        workloads: names of the workloads that count.
        shapes: the number of values: one for each shape, layer or study.
        value, low, high: the statistic in the criterion's unit, and its 95 % interval from resampling shapes
            (None for extremes and sums, for which resampling gives no interval).
        met: whether the target is met; None without one, or if too little was measured.
        worst: the least favourable value.
        ceiling: for speedups and prime lengths, the statistic if ours ran at the roofline on every shape.
    """

    criterion: Criterion
    threads: int
    cache: str
    workloads: tuple[str, ...]
    shapes: int
    value: float
    low: float | None
    high: float | None
    met: bool | None
    worst: Sample
    ceiling: float | None = None

    @property
    def used(self) -> str:
        """The cores or the GPU that a call uses: ``"one core"``, ``"2 cores"``, ``"one GPU"``."""
        return hardware_target(self.criterion.of.processor).LIMITS.used(self.threads)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of :meth:`ResultTable.summary_frame`, with numbers in ``unit``."""
        criterion = self.criterion
        unit, factor = UNITS[criterion.unit]
        numbers = {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "target": criterion.target.bound[1] if criterion.target and self.met is not None else None,
            "worst": self.worst.value,
            "ceiling": self.ceiling,
        }
        return {
            "what": criterion.what,
            "measure": criterion.measure,
            "statistic": criterion.statistic,
            "threads": self.threads,
            "cache": self.cache,
            "shapes": self.shapes,
            "unit": unit,
            "better": "lower" if criterion.measure in LOWER_IS_BETTER else "higher",
            **{name: None if value is None else factor * value for name, value in numbers.items()},
            "met": self.met,
            "worst_workload": self.worst.workload,
            "worst_T": self.worst.length or None,
            "worst_layer": str(self.worst.shape.without(LENGTH)),
        }

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or an empty text without a target."""
        return "" if self.met is None else "met" if self.met else "missed"


def summarise(table: Reports, criteria: Sequence[Criterion] | None = None) -> tuple[Line, ...]:
    """Returns a line for each criterion, number of threads and cache state, with all workloads together. What
    was not measured has no line.

    Args:
        table: results of a suite.
        criteria: the questions (default: those of the table's suite).
    """
    groups: dict[tuple[int, str], list[Block]] = {}
    for block in blocks(table):
        groups.setdefault((block.report.threads, block.cache), []).append(block)
    return tuple(
        line_of(criterion, threads, cache, found, table.suite)
        for criterion in (criteria_of(table.suite) if criteria is None else criteria)
        for (threads, cache), found in _found(criterion, table.reports, groups)
        if found
    )


def _found(
    criterion: Criterion, reports: Sequence[Report], groups: Mapping[tuple[int, str], Sequence[Block]]
) -> Iterator[tuple[tuple[int, str], list[Sample]]]:
    """Yields the values by threads and cache state. The cache state is empty for whole studies."""
    if criterion.measure in STUDY_MEASURES:
        for threads in sorted({report.threads for report in reports if report.rows}):
            yield (threads, ""), list(study_samples(criterion, reports, threads))
    else:
        for place, members in sorted(groups.items()):
            yield place, [sample for block in members for sample in samples(criterion, block)]


def by_workload(table: Reports, criteria: Sequence[Criterion] | None = None) -> tuple[Line, ...]:
    """Returns a line for each workload and each criterion that is about shapes.

    Args:
        table: results of a suite.
        criteria: the questions (default: those of the table's suite).
    """
    criteria = criteria_of(table.suite) if criteria is None else criteria
    return tuple(
        line_of(criterion, block.report.threads, block.cache, found, table.suite)
        for block in blocks(table)
        for criterion in criteria
        if criterion.measure not in STUDY_MEASURES
        if (found := samples(criterion, block))
    )


def study_samples(criterion: Criterion, reports: Iterable[Report], threads: int) -> Iterator[Sample]:
    """Yields one value for each study that was tuned and built."""
    for report in reports:
        if report.threads == threads and report.complete and counts(criterion, report):
            value = study_value(criterion.measure, report)
            if value is not None:
                yield Sample(report.name, Shape(()), value)


def study_value(measure: Measure, report: Report) -> float | None:
    """Returns a measure of a whole study; None if its report does not have it."""
    if measure == "wrong":
        wrong = report.library.get("lengths_wrong", report.library.get("shapes_wrong"))
        return None if wrong is None else float(len(wrong))
    part, name, scale = STUDY_VALUES[measure]
    value = getattr(report, part).get(name)
    return None if value is None else value / scale


STUDY_VALUES: Mapping[Measure, tuple[str, str, float]] = {
    "tuning": ("tuning", "total_seconds", 1.0),
    "trials": ("tuning", "trials", 1.0),
    "measurements": ("tuning", "measurements", 1.0),
    "memory": ("tuning", "peak_bytes", GB),
    "kernels": ("library", "kernels", 1.0),
    "code": ("library", "bytes", KIB),
    "dispatch": ("library", "dispatch_ns", 1.0),
    "call": ("library", "python_call_us", 1.0),
}
"""For each measure of a whole study: the report's field, the key in the field, and a divisor of the value."""


def line_of(criterion: Criterion, threads: int, cache: str, found: Sequence[Sample], suite: str = "") -> Line:
    """Returns the line of one or more values."""
    found = layer_means(found) if criterion.by_layer else found
    value = over(criterion.statistic, found)
    low, high = interval(criterion.statistic, np.array([sample.value for sample in found]))
    workloads = tuple(dict.fromkeys(sample.workload for sample in found))
    target = criterion.target
    judged = target is not None and target.holds(threads, cache, suite)
    # A sum over too few workloads proves nothing, unless it exceeds the limit already.
    if target and len(workloads) < target.needs and target.met(value):
        judged = False
    furthest = max if criterion.measure in LOWER_IS_BETTER else min
    return Line(
        criterion,
        threads,
        cache,
        workloads,
        len(found),
        value,
        low,
        high,
        criterion.met(value) if judged else None,
        furthest(found, key=lambda sample: sample.value),
        ceiling_of(criterion.statistic, found),
    )


def layer_means(found: Iterable[Sample]) -> list[Sample]:
    """Returns one value for each workload and layer: the geometric mean over its lengths. The value's ceiling
    is the geometric mean of their ceilings."""
    groups: dict[tuple[str, Shape], list[Sample]] = {}
    for sample in found:
        groups.setdefault((sample.workload, sample.shape.without(LENGTH)), []).append(sample)
    return [
        Sample(workload, layer, over("geomean", members), ceiling_of("geomean", members))
        for (workload, layer), members in groups.items()
    ]


def over(statistic: Statistic, found: Iterable[Sample]) -> float:
    """Returns the statistic of one or more values."""
    return float(STATISTICS[statistic](np.array([sample.value for sample in found])))


def ceiling_of(statistic: Statistic, found: Sequence[Sample]) -> float | None:
    """Returns the statistic of the ceilings; None if one of them is unknown."""
    known = [sample.ceiling for sample in found if sample.ceiling is not None]
    return float(STATISTICS[statistic](np.array(known))) if len(known) == len(found) else None


STATISTICS: Mapping[Statistic, Callable[[Values], float]] = {
    "geomean": lambda values: float(np.exp(np.log(values).mean())),
    "mean": lambda values: float(values.mean()),
    "p99": lambda values: float(np.quantile(values, 0.99)),
    "worst": lambda values: float(values.min()),
    "most": lambda values: float(values.max()),
    "total": lambda values: float(values.sum()),
}


def interval(statistic: Statistic, values: Values, seed: int = 0) -> tuple[float | None, float | None]:
    """Returns the 95 % bootstrap interval (percentile method) over shapes of a mean or a geometric mean; no
    interval for others, since resampling shapes says nothing of an extreme and little of a far percentile."""
    if statistic not in ("geomean", "mean") or len(values) < 2:
        return None, None
    if statistic == "mean":
        return mean_interval(values, seed)
    return bootstrap(np.log(values), lambda drawn: np.exp(drawn.mean(axis=1)), seed)
