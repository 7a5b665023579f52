"""The table in a few lines: each with its interval, its worst shape, and whether it is what it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import bootstrap, mean_interval
from dietlab.compare.results.criteria import (
    LOWER_IS_BETTER,
    STUDY_MEASURES,
    Criterion,
    Measure,
    Statistic,
    criteria_of,
)
from dietlab.compare.results.report import Report
from dietlab.compare.results.samples import Block, Sample, blocks, counts, samples
from dietlab.compare.results.table import LENGTH, ResultTable
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
"""A criterion's unit as tables have it, and how many of that it is."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One criterion on some threads in one cache state.

    Args:
        criterion: the question.
        threads: cores that were used; 1 on a GPU, which is used as a whole.
        cache: empty where there is none (tuning, code).
        workloads: what it is about.
        shapes: how many values it is made of: shapes, layers or studies.
        value, low, high: the statistic in the criterion's unit, and its 95 % interval from resampling
            shapes (None where that says nothing: extremes and sums).
        met: whether the target is reached; None where there is none, or too little was measured.
        worst: the shape that is furthest on the wrong side; a whole study has no dimension.
        ceiling: of speedups and prime lengths, what the statistic would be if ours ran at the roofline on
            every shape.
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
        return hardware_target(self.criterion.processor).LIMITS.used(self.threads)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of :meth:`ResultTable.summary_frame`: numbers in ``unit``; None where there is none."""
        criterion = self.criterion
        unit, factor = UNITS[criterion.unit]
        target = criterion.at_most if criterion.at_least is None else criterion.at_least
        numbers = {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "target": None if self.met is None else target,
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
        """``met``, ``missed``, or nothing without a target."""
        return "" if self.met is None else "met" if self.met else "missed"


def summarise(table: ResultTable, criteria: Sequence[Criterion] | None = None) -> tuple[Line, ...]:
    """Returns every criterion (default: of the table's suite) that is meant for a study's kind of processor,
    on every number of threads and in every cache state, all its workloads together; what was not measured has
    no line.

    Args:
        table: results of a suite.
        criteria: questions that are answered (default: those of the table's suite).
    """
    criteria = criteria_of(suite_of(table)) if criteria is None else criteria
    groups: dict[tuple[int, str], list[Block]] = {}
    for block in blocks(table):
        groups.setdefault((block.report.threads, block.cache), []).append(block)
    return tuple(line for criterion in criteria for line in _lines(criterion, table, groups))


def _lines(
    criterion: Criterion, table: ResultTable, groups: Mapping[tuple[int, str], Sequence[Block]]
) -> Iterator[Line]:
    if criterion.measure in STUDY_MEASURES:
        for threads in table.threads:
            found = list(study_samples(criterion, table.reports, threads))
            if found:
                yield line_of(criterion, threads, "", found, suite_of(table))
        return
    for (threads, cache), members in sorted(groups.items()):
        found = [sample for block in members for sample in samples(criterion, block)]
        if found:
            yield line_of(criterion, threads, cache, found, suite_of(table))


def suite_of(table: ResultTable) -> str:
    """Returns the name of the suite; empty for a table that does not tell."""
    return str(table.about.get("suite", ""))


def by_workload(table: ResultTable, criteria: Sequence[Criterion] | None = None) -> tuple[Line, ...]:
    """Returns the criteria that look at shapes (default: of the table's suite), for each workload by
    itself.

    Args:
        table: results of a suite.
        criteria: questions that are answered (default: those of the table's suite).
    """
    criteria = criteria_of(suite_of(table)) if criteria is None else criteria
    return tuple(
        line_of(criterion, block.report.threads, block.cache, found, suite_of(table))
        for block in blocks(table)
        for criterion in criteria
        if criterion.measure not in STUDY_MEASURES
        if (found := samples(criterion, block))
    )


def study_samples(criterion: Criterion, reports: Iterable[Report], threads: int) -> Iterator[Sample]:
    """Returns one value for each study that was tuned and built."""
    for report in reports:
        if report.threads == threads and report.complete and counts(criterion, report):
            value = STUDY_VALUES[criterion.measure](report)
            if value is not None:
                yield Sample(report.name, Shape(()), value)


def _wrong(report: Report) -> float | None:
    """Lengths or shapes with a wrong result; None where none was called."""
    wrong = report.library.get("lengths_wrong", report.library.get("shapes_wrong"))
    return None if wrong is None else float(len(wrong))


def _tuned(name: str, scale: float, report: Report) -> float | None:
    """Returns a fact of tuning in units of ``scale``; None where it was not kept."""
    return _scaled(report.tuning.get(name), scale)


def _built(name: str, scale: float, report: Report) -> float | None:
    """Returns a fact of the library in units of ``scale``; None where it was not kept."""
    return _scaled(report.library.get(name), scale)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


STUDY_VALUES: Mapping[Measure, Callable[[Report], float | None]] = {
    "tuning": partial(_tuned, "total_seconds", 1.0),
    "trials": partial(_tuned, "trials", 1.0),
    "measurements": partial(_tuned, "measurements", 1.0),
    "memory": partial(_tuned, "peak_bytes", GB),
    "kernels": partial(_built, "kernels", 1.0),
    "code": partial(_built, "bytes", KIB),
    "dispatch": partial(_built, "dispatch_ns", 1.0),
    "call": partial(_built, "python_call_us", 1.0),
    "wrong": _wrong,
}


def line_of(criterion: Criterion, threads: int, cache: str, found: Sequence[Sample], suite: str = "") -> Line:
    """Returns the line that summarises some values (at least one) of a suite."""
    found = layer_means(found) if criterion.by_layer else found
    value = over(criterion.statistic, found)
    low, high = interval(criterion.statistic, np.array([sample.value for sample in found]))
    workloads = tuple(dict.fromkeys(sample.workload for sample in found))
    # A sum over some of the workloads says nothing against its limit, unless it is beyond it already.
    judged = bool(criterion.target) and _holds(criterion, threads, cache, suite)
    if len(workloads) < criterion.needs and criterion.met(value):
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
    """Returns one value for each workload and layer: the geometric mean over its lengths, likewise of the
    ceilings, which are missing where one of them is."""
    groups: dict[tuple[str, Shape], list[Sample]] = {}
    for sample in found:
        groups.setdefault((sample.workload, sample.shape.without(LENGTH)), []).append(sample)
    return [
        Sample(workload, layer, over("geomean", members), ceiling_of("geomean", members))
        for (workload, layer), members in groups.items()
    ]


def over(statistic: Statistic, found: Iterable[Sample]) -> float:
    """Returns the statistic of some values, at least one."""
    return float(STATISTICS[statistic](np.array([sample.value for sample in found])))


def ceiling_of(statistic: Statistic, found: Sequence[Sample]) -> float | None:
    """Returns the statistic of the ceilings; None if one of them is not known."""
    known = [sample.ceiling for sample in found if sample.ceiling is not None]
    return float(STATISTICS[statistic](np.array(known))) if len(known) == len(found) else None


def _holds(criterion: Criterion, threads: int, cache: str, suite: str) -> bool:
    """Returns whether the target is meant for these threads, this cache state and this suite."""
    return (
        (not criterion.caches or cache in criterion.caches)
        and (not criterion.threads or threads in criterion.threads)
        and (not criterion.suites or suite in criterion.suites)
    )


STATISTICS: Mapping[Statistic, Callable[[Values], float]] = {
    "geomean": lambda values: float(np.exp(np.log(values).mean())),
    "mean": lambda values: float(values.mean()),
    "p99": lambda values: float(np.quantile(values, 0.99)),
    "worst": lambda values: float(values.min()),
    "most": lambda values: float(values.max()),
    "total": lambda values: float(values.sum()),
}


def interval(statistic: Statistic, values: Values, seed: int = 0) -> tuple[float | None, float | None]:
    """Returns the 95 % bootstrap interval (percentile method) over shapes of a mean or a geometric mean.

    Resampling shapes says how much the line depends on which lengths were measured; it says nothing
    about an extreme, and next to nothing about a far percentile.
    """
    if statistic not in ("geomean", "mean") or len(values) < 2:
        return None, None
    if statistic == "mean":
        return mean_interval(values, seed)
    return bootstrap(np.log(values), lambda drawn: np.exp(drawn.mean(axis=1)), seed)
