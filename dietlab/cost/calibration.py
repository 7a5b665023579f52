"""Times of whole tables: near what was measured where it was, and elsewhere what that lets expect."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, prod
from statistics import median, median_low
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import ModelError
from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.gaussian_process import GaussianProcess
from dietlab.cost.places import Pairs
from dietlab.measure import Record
from dietlab.problem import Role, Shape, Workload, axis_of
from dietlab.scheme import Scheme, tiling

if TYPE_CHECKING:
    from dietlab.cost.prior import Prior

Values = npt.NDArray[np.float64]

FITS = 16
"""Reweighted fits of the rounds' slowness; each weighs less what the one before left unexplained."""

SHARES, LEFT = (0.5, 1.0), (0.15, 0.3, 0.6)
"""Shares of a prior that are tried, beside none of it, with which a tuning is what it would be without; and
standard deviations of what it leaves."""

EVIDENCE = 5.0
"""The logarithm of how much likelier measurements must be without the prior than with it to set it aside; the
first few say little of either."""

NOISE = 0.01
"""The difference of times, as a logarithm, that no fit should try to explain: 1 %."""


def settled_seconds(workload: Workload, records: Iterable[Record]) -> dict[Program, float]:
    """Returns one time for each program, out of rounds whose machine was quicker or slower.

    Schemes that are one program on a shape share a time, whichever was measured. On each
    shape a time is what the program takes, times how slow its round was for all (``asked_by``):
    records of a round ran in turns. Rounds that have programs in common are compared by these; then
    of two times of a program the lower one counts, and of three the middle one, since disturbances
    only slow down.
    """
    shapes: dict[Shape, dict[Hashable, dict[Hashable, float]]] = {}
    for record in records:
        if record.ok and record.seconds:
            program = program_on(record.scheme, workload, record.shape)
            rounds = shapes.setdefault(record.shape, {}).setdefault(program, {})
            rounds[record.asked_by] = min(record.seconds, rounds.get(record.asked_by, record.seconds))
    return {
        (program, shape): seconds
        for shape, times in shapes.items()
        for program, seconds in _settled(times).items()
    }


@dataclass(frozen=True)
class Measured:
    """Pairs that were measured, each program once: schemes, shapes, settled seconds, and how often each was
    timed, ``[n]``.

    Args:
        programs: what ran, as keys.
    """

    programs: tuple[Program, ...]
    schemes: tuple[Scheme, ...]
    shapes: tuple[Shape, ...]
    seconds: Values
    times: Values

    @classmethod
    def of(cls, workload: Workload, records: Iterable[Record]) -> Measured:
        """Returns the pairs of the successful records.

        Raises:
            ModelError: if there is none.
        """
        records = [record for record in records if record.ok and record.seconds]
        if not records:
            raise ModelError(
                "a cost model is fitted on successful records",
                "none",
                "Tune longer, or look at the reasons in the records.",
            )
        distinct: dict[Program, Record] = {}
        rounds: dict[Program, set[Hashable]] = {}
        for record in records:
            program = program_on(record.scheme, workload, record.shape), record.shape
            distinct.setdefault(program, record)
            rounds.setdefault(program, set()).add(record.asked_by)
        settled = settled_seconds(workload, records)
        return cls(
            tuple(distinct),
            tuple(record.scheme for record in distinct.values()),
            tuple(record.shape for record in distinct.values()),
            np.array([settled[program] for program in distinct]),
            np.array([len(rounds[program]) for program in distinct], np.float64),
        )

    def at(self, numbers: Sequence[int]) -> Measured:
        """Returns some of the pairs."""
        return Measured(
            tuple(self.programs[number] for number in numbers),
            tuple(self.schemes[number] for number in numbers),
            tuple(self.shapes[number] for number in numbers),
            self.seconds[numbers],
            self.times[numbers],
        )


Program = tuple[Hashable, Shape]
"""What runs (:func:`program_on`), and on which shape."""

Times = Mapping[Hashable, Mapping[Hashable, float]]
"""Seconds on one shape by program and round."""


def _settled(times: Times) -> dict[Hashable, float]:
    """Returns the time of each program in a round of mean slowness."""
    slowness = _slowness(tuple(tuple(rounds.items()) for rounds in times.values()))
    return {
        program: median_low([seconds / slowness[name] for name, seconds in rounds.items()])
        for program, rounds in times.items()
    }


@lru_cache(maxsize=1 << 10)  # a round of a tuning measures on a few of all shapes
def _slowness(times: tuple[tuple[tuple[Hashable, float], ...], ...]) -> dict[Hashable, float]:
    """Returns the slowness of each round, 1 on average: least absolute deviations of logarithms, by
    reweighted least squares. The programs' times drop out of the normal equations, of which there is one
    for each round."""
    found = dict.fromkeys(name for rounds in times for name, _ in rounds)
    names = {name: number for number, name in enumerate(found)}
    groups: list[Values] = [
        np.array([(names[name], log(seconds)) for name, seconds in rounds]).T
        for rounds in times
        if len(rounds) > 1
    ]
    added: Values = np.zeros(len(names))
    weights: list[Values] = [np.ones(len(values)) for _, values in groups]
    for _ in range(FITS if groups else 0):
        matrix, right = np.zeros((len(names), len(names))), np.zeros(len(names))
        for (rounds, values), weight in zip(groups, weights, strict=True):
            at = rounds.astype(int)
            share = weight / weight.sum()
            np.add.at(matrix, (at[:, None], at[None, :]), np.diag(weight) - weight[:, None] * share)
            np.add.at(right, at, weight * (values - share @ values))
        added = np.linalg.pinv(matrix, rcond=1e-9, hermitian=True) @ right
        weights = [_weights(values - added[rounds.astype(int)]) for rounds, values in groups]
    return {name: exp(float(added[number])) for name, number in names.items()}


def _weights(own: Values) -> Values:
    """Returns the weights of one program's times, which fall with the distance from their middle."""
    found: Values = 1.0 / np.maximum(np.abs(own - median(own.tolist())), NOISE)
    return found


def program_on(scheme: Scheme, workload: Workload, shape: Shape) -> Hashable:
    """Returns a value that is equal for schemes that run one program on a shape and share its time: those
    with the same tiles, unless the launch reserves what its tallest tile takes."""
    return scheme if scheme.kernel.reserves else tiling(scheme, workload, shape)


def same_work(scheme: Scheme, workload: Workload, shape: Shape) -> Shape:
    """Returns a shape that is equal for those on which a scheme does the same work.

    A launch of a GPU's blocks computes whole tiles: 65 to 128 rows in granules of 64 are the same grid, the
    same tiles and the same steps, and take nearly the same time. What a CPU computes at the end depends on
    each row."""
    rows, granule = axis_of(workload, "rows").name, scheme.kernel.granule
    if (
        not scheme.kernel.reserves
        or tuple(workload.dims) != (rows,)
        or rows in _named(workload, "cols", "depth")
    ):
        return shape
    return Shape.of(**{rows: -(-shape[rows] // granule) * granule})


def _volume(shape: Shape) -> int:
    return prod(shape.to_json().values())


def _named(workload: Workload, *roles: Role) -> tuple[str, ...]:
    return tuple(axis_of(workload, role).name for role in roles)


class Calibration:
    """An adaptation cost and the records that correct it.

    The adaptation cost of a micro-kernel at the processor's peak draws the saw-tooth, and a Gaussian process
    of the ratios of measured times to it says how much slower alike tiles were on alike extents
    (:mod:`dietlab.cost.gaussian_process`): the micro-kernel's own throughput, cache effects, the cost of a
    call. Where a scheme was measured itself, or another that is the same program there, that time counts
    most (:func:`settled_seconds`), the more often it was taken; one measurement may have been lucky. No time
    is below what the processor's peak allows.

    Args:
        cost: draws the saw-tooth.
        records: measured, in the cache state of ``cost``.
        prior: what other records let expect. The process is then of what a share of it leaves, ``share``:
            that of :data:`SHARES` under which the records are most likely.

    Raises:
        ModelError: if no record is successful.
    """

    def __init__(self, cost: AdaptationCost, records: Iterable[Record], prior: Prior | None = None) -> None:
        records = list(records)
        self._cost = cost
        measured = Measured.of(cost.workload, records)
        self._measured_on: dict[Scheme, dict[Shape, None]] = {}
        for record in records:
            if record.ok:
                self._measured_on.setdefault(record.scheme.family, {})[record.shape] = None
        peak = cost.hardware.peak_for(cost.workload.dtype)
        self._peak = 1e9 * peak if peak else np.inf
        schemes, shapes = measured.schemes, measured.shapes
        ratios = np.log(measured.seconds / cost.bound_of(schemes, shapes))
        self._prior = prior if prior and prior.counts(cost.hardware, len(ratios)) else None
        self._pairs = Pairs(cost.workload, schemes, shapes)
        places, times = self._pairs.places, measured.times
        tried = [(GaussianProcess(places, ratios, times), 0.0)]
        if self._prior is not None:
            expected = self._prior.values_of(cost, schemes, shapes)
            for share in SHARES:
                tried.append((GaussianProcess(places, ratios - share * expected, times, LEFT), share))
        self._process, self.share = min(
            tried, key=lambda found: found[0].unlikeliness + (0.0 if found[1] else EVIDENCE)
        )
        self._shapes = measured.shapes
        self._numbers = {program: number for number, program in enumerate(measured.programs)}

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the seconds of a call, ``[schemes, shapes]``."""
        seconds = self._cost.bound(schemes, shapes)
        cores = self._cost.hardware.cores
        least = [self._cost.workload.flops(shape) / (cores * self._peak) for shape in shapes]
        logs = self._process.mean(self._pairs.table(schemes, shapes))
        own, known = self._process.own, self._process.without_noise
        for row, column, number in self._known(schemes, shapes):
            if shapes[column] == self._shapes[number]:
                logs[row, column] += own[number]
            else:  # the same work elsewhere, which extents in the process would make another
                logs[row, column] = known[number]
        if self._prior is not None and self.share:
            logs += self.share * self._prior.values(self._cost, schemes, shapes)
        return np.asarray(np.maximum(seconds * np.exp(logs), least))

    def doubt(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Values:
        """Returns the standard deviation of the logarithms of predictions, ``[schemes, shapes]``; least for
        pairs that were measured often.

        Of many predictions the lowest are those that err most: who picks the least of them must count
        on it.

        Args:
            at: the pairs that are asked for (None: all); what is returned of others says nothing.
        """
        process = self._process
        squares = process.deviation(self._pairs.table(schemes, shapes), at) ** 2
        trust = process.trust
        left = squares + process.pair**2
        for row, column, number in self._known(schemes, shapes):
            known = trust[number]
            left[row, column] = (1 - known) ** 2 * squares[row, column] + (1 - known) * process.pair**2
        return np.asarray(np.sqrt(left))

    def _known(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Iterator[tuple[int, int, int]]:
        """Yields row, column and the number of the measured pair that is the same program, or the same work
        of one (:func:`same_work`)."""
        workload = self._cost.workload
        columns: dict[object, dict[Shape, list[int]]] = {}
        places = {}
        for family in dict.fromkeys(scheme.family for scheme in schemes):
            if family in self._measured_on:  # few of a whole space
                work = family.kernel.reserves, family.kernel.granule  # all that same_work depends on
                if work not in columns:
                    columns[work] = self._by_work(family, shapes)
                places[family] = self._places(family, shapes, columns[work])
        for row, scheme in enumerate(schemes):
            for shape, at in places.get(scheme.family, ()):
                known = self._numbers.get((program_on(scheme, workload, shape), shape))
                if known is not None:
                    yield from ((row, column, known) for column in at)

    def _by_work(self, family: Scheme, shapes: Iterable[Shape]) -> dict[Shape, list[int]]:
        """Returns the numbers of the shapes on which a family does the same work."""
        found: dict[Shape, list[int]] = {}
        for number, shape in enumerate(shapes):
            found.setdefault(same_work(family, self._cost.workload, shape), []).append(number)
        return found

    def _places(
        self, family: Scheme, shapes: Sequence[Shape], columns: Mapping[Shape, list[int]]
    ) -> list[tuple[Shape, list[int]]]:
        """Returns the shapes that a family was measured on, each with the columns whose times it tells: of
        all shapes of the same work, those that it is nearest to.

        Args:
            columns: the columns of the same work.
        """
        measured = list(self._measured_on[family])
        found: dict[Shape, list[int]] = {}
        for work, numbers in self._by_work(family, measured).items():
            known = [measured[number] for number in numbers]
            for column in columns.get(work, ()):
                volume = _volume(shapes[column])
                nearest = min(known, key=lambda other: abs(log(_volume(other) / volume)))
                found.setdefault(nearest, []).append(column)
        return list(found.items())
