"""Computes the measures of the summary for each workload and shape.

==============  ==========================================================================================
measure         value of a shape
==============  ==========================================================================================
prepacked       time of the fastest prepacked vendor over ours
plain           time of the fastest plain vendor over ours
a contender     its time over ours: ``ansor`` is the program tuned for this one shape, ``own`` the library
                tuned for this one layer
regret          time of our plan over that of the fastest plan, minus 1, in percent
held-out        regret of shapes that tuning did not see
padding         executed over useful multiply-adds of the serving trace, all its measured lengths together
peak            our GFLOP/s over the FMA peak of the cores used, in percent
prime           for a prime T: our throughput over that at the faster of the two neighbouring multiples of 8
cores           our time on one core over ours on several
incorrect       1 if our result was wrong or there was none, 0 if it was right
==============  ==========================================================================================

Wrong results count only in ``incorrect``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from dietlab.compare.results.bounds import Bound, bound_of
from dietlab.compare.results.criteria import Criterion, Measure
from dietlab.compare.results.policies import padding_over
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH, Row, length_of
from dietlab.compare.results.speedups import JUDGES
from dietlab.problem import Shape, Workload
from dietlab.problem.convolution import Convolution
from dietlab.problem.traffic import read_table

STEP = 8
"""The step of T: a prime length is compared with the multiples of this step below and above."""

TRACE = "serving"
TRACED = 0.5
"""The least share of the trace's calls whose lengths must be measured. Fewer do not represent the trace."""

SHOWN = (1, 8, 16, 32, 64, 128, 512, 2048)
"""Lengths whose bounds are shown."""


@dataclass(frozen=True)
class Sample:
    """The value of one shape. The shape of a layer has no length, and that of a whole study no dimension.

    ``ceiling`` is the value that a speedup or a prime length would have if our library ran at the roofline;
    None if unknown.
    """

    workload: str
    shape: Shape
    value: float
    ceiling: float | None = None

    @property
    def length(self) -> int:
        """The extent of T; 0 for a layer or a study."""
        return length_of(self.shape)


class Reports(Protocol):
    """A table of reports of several studies: a :class:`~dietlab.compare.results.ResultTable`."""

    @property
    def reports(self) -> tuple[Report, ...]: ...

    @property
    def suite(self) -> str: ...


@dataclass(frozen=True)
class Block:
    """The results of one workload on a number of threads in one cache state. ``alone`` is the report of the
    same workload on one core, if there is one."""

    report: Report
    cache: str
    alone: Report | None = None

    @cached_property
    def rows(self) -> Mapping[Shape, Mapping[str, Row]]:
        """The correct rows by shape and contender."""
        found: dict[Shape, dict[str, Row]] = {}
        for row in self.report.rows:
            if row.correct and row.cache == self.cache:
                found.setdefault(row.shape, {})[row.contender] = row
        return found

    @cached_property
    def ours(self) -> Mapping[Shape, Row]:
        """The correct rows of the report's maker by shape."""
        return {row.shape: row for row in self.report.ours if row.correct and row.cache == self.cache}

    @cached_property
    def groups(self) -> Mapping[str, Sequence[Row]]:
        """Rows by contender and for the best vendors (:meth:`Report.groups`)."""
        return self.report.groups(self.cache)


def blocks(table: Reports) -> tuple[Block, ...]:
    """Returns the blocks of a table, ordered by workload, threads and cache state."""
    reports = sorted(table.reports, key=lambda report: (report.name, report.threads))
    alone = {report.name: report for report in reports if report.threads == 1}
    return tuple(
        Block(report, cache, alone.get(report.name)) for report in reports for cache in sorted(report.caches)
    )


def counts(criterion: Criterion, report: Report) -> bool:
    """Returns whether a study belongs to a line of the summary."""
    wanted, operator = criterion.of, report.operator
    return (
        report.processor.kind == wanted.processor
        and operator.operator.startswith(wanted.operators)
        and (not wanted.dtypes or operator.dtype in wanted.dtypes)
        and all(report.workload.get(name) == extent for name, extent in wanted.dims)
        and wanted.kernels in ("", kernels_of(operator))
    )


def kernels_of(workload: Workload) -> str:
    """Returns the class of an operator's kernel: ``1x1``, ``3x3``, ``3`` (over a sequence), or ``depthwise``;
    empty without a kernel."""
    if not isinstance(workload, Convolution):
        return ""
    return "depthwise" if workload.depthwise else "x".join(map(str, workload.kernel))


def samples(criterion: Criterion, block: Block) -> list[Sample]:
    """Returns the value of every shape of a block that counts for a criterion."""
    if not counts(criterion, block.report):
        return []
    low, high = criterion.of.lengths
    values = MEASURES.get(criterion.measure, partial(_over, criterion.measure))(block)
    return [
        Sample(block.report.name, shape, value, _ceiling(criterion, block, shape, value))
        for shape, value in values
        if not length_of(shape) or low <= length_of(shape) <= high
    ]


def _ceiling(criterion: Criterion, block: Block, shape: Shape, value: float) -> float | None:
    looked_at = (shape, *_multiples_beside(shape)) if criterion.measure == "prime" else (shape,)
    found = [_bound(block, other) for other in looked_at if other in block.ours]
    known = [bound for bound in found if bound is not None]
    if len(known) < len(looked_at):
        return None
    if criterion.measure == "prime":
        return _over_faster(*(bound.flops / bound.roofline.least_seconds(bound.cache) for bound in known))
    return value / known[0].share if criterion.compares else None


def _bound(block: Block, shape: Shape) -> Bound | None:
    return bound_of(block.report, block.cache, block.ours[shape])


def bounds(table: Reports, lengths: tuple[int, ...] = SHOWN) -> Iterator[Bound]:
    """Yields the bounds of our rows at some lengths and of all images, for processors whose peaks are
    known."""
    for block in blocks(table):
        for shape in sorted(shape for shape in block.ours if length_of(shape) in (0, *lengths)):
            bound = _bound(block, shape)
            if bound is not None:
                yield bound


Values = Iterator[tuple[Shape, float]]


def _over(contender: str, block: Block) -> Values:
    for row in block.groups.get(contender, ()):
        if row.speedup:
            yield row.shape, row.speedup


def _regret(block: Block, held_out_only: bool = False) -> Values:
    for shape, row in block.ours.items():
        if row.regret is not None and (row.held_out or not held_out_only):
            yield shape, 100 * row.regret


def _padding(block: Block) -> Values:
    """Yields one value for all lengths, weighted by their calls in the trace."""
    trace, weights, waste = read_table(TRACE).counts, dict[Shape, float](), dict[Shape, float]()
    for shape, row in block.ours.items():
        if row.padding_waste is not None and shape[LENGTH] in trace:
            weights[shape], waste[shape] = trace[shape[LENGTH]], row.padding_waste
    if sum(weights.values()) >= TRACED * sum(trace.values()):
        plans, *_ = padding_over(block.report.operator, weights, waste)
        yield Shape(()), plans.ratio


def _peak(block: Block) -> Values:
    processor, dtype = block.report.processor, block.report.operator.dtype
    peak = processor.cores * (processor.peak_for(dtype) or 0.0)
    for shape, row in block.ours.items():
        if peak:
            yield shape, 100 * row.gflops / peak


def _prime(block: Block) -> Values:
    ours = block.ours
    for shape in ours:
        below, above = _multiples_beside(shape)
        if is_prime(shape[LENGTH]) and below in ours and above in ours:
            yield shape, _over_faster(ours[shape].gflops, ours[below].gflops, ours[above].gflops)


def _over_faster(throughput: float, *others: float) -> float:
    return throughput / max(others)


def _cores(block: Block) -> Values:
    if block.report.threads == 1:
        return
    alone = Block(block.alone, block.cache).ours if block.alone else {}
    for shape, row in block.ours.items():
        if shape in alone:
            yield shape, alone[shape].seconds_median / row.seconds_median


def _incorrect(block: Block) -> Values:
    yield from dict.fromkeys(block.ours, 0.0).items()
    for row in block.report.ours:
        if row.cache == block.cache and not row.correct:
            yield row.shape, 1.0


MEASURES: Mapping[Measure, Callable[[Block], Values]] = {
    "prepacked": partial(_over, JUDGES[0]),
    "plain": partial(_over, JUDGES[1]),
    "regret": _regret,
    "held-out": partial(_regret, held_out_only=True),
    "padding": _padding,
    "peak": _peak,
    "prime": _prime,
    "cores": _cores,
    "incorrect": _incorrect,
}
"""Functions of the measures by name. A contender's name is a measure too, but has no entry."""


def _multiples_beside(shape: Shape) -> tuple[Shape, Shape]:
    """Returns the shapes of the same layer with the multiples of ``STEP`` below and above the length."""
    below, layer = shape[LENGTH] // STEP * STEP, shape.without(LENGTH).to_json()
    return Shape.of(**layer, **{LENGTH: below}), Shape.of(**layer, **{LENGTH: below + STEP})


def is_prime(number: int) -> bool:
    """Returns whether a length is prime, by trial division: lengths are small."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
