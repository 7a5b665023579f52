"""Predicts seconds for all schemes and shapes; near a measurement the prediction follows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log, prod

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values, in_single_precision
from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.gaussian_process import GaussianProcess
from dietlab.cost.measured import Measured, program_on, same_work
from dietlab.cost.places import Pairs
from dietlab.cost.prior import Prior
from dietlab.measure import Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme

SHARES = 0.5, 1.0
"""The weights of the prior to try. The weight 0 is always tried too, and predicts as without a prior."""

LEFT = 0.15, 0.3, 0.6
"""The standard deviations to try for the logarithms of a prior's errors that depend on parameters and
extents."""

EVIDENCE = 5.0
"""The log-likelihood ratio above which the prior is dropped: a few measurements should not suffice for
that."""


class Calibration:
    """An adaptation cost and the records that correct it.

    The adaptation cost of a micro-kernel at the processor's peak gives the saw-tooth. A Gaussian process
    (:mod:`dietlab.cost.gaussian_process`) predicts the ratio of measured times to this cost from similar
    tiles and extents: the micro-kernel's own throughput, cache effects, the cost of a call. The measured time
    of the scheme itself, or of another scheme that runs the same program on the shape, counts most
    (:func:`~dietlab.cost.measured.settled_seconds`). Its weight grows with the number of measurements, since
    one may have been lucky. No predicted time is below the processor's peak.

    Args:
        records: the records that were measured in the cache state of ``cost``.
        prior: a model of other records. The process then predicts logarithms less ``share`` times the
            prior's; ``share`` is 0 or the value of :data:`SHARES` under which the records are most likely.

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
        return np.asarray(np.maximum(in_single_precision(seconds * np.exp(logs)), least))

    def doubt(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Values:
        """Returns the standard deviation of the logarithms of predictions, ``[schemes, shapes]``. The doubt
        is least for pairs that were measured often.

        The lowest of many predictions tend to be too low, so a choice of the lowest must allow for the doubt.

        Args:
            at: the pairs to compute (None: all); the values of others mean nothing.
        """
        process = self._process
        squares = process.deviation(self._pairs.table(schemes, shapes), at) ** 2
        trust = process.trust
        left = squares + process.pair**2
        for row, column, number in self._known(schemes, shapes):
            known = trust[number]
            left[row, column] = (1 - known) ** 2 * squares[row, column] + (1 - known) * process.pair**2
        return in_single_precision(np.sqrt(left))

    def _known(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Iterator[tuple[int, int, int]]:
        """Yields ``(row, column, number)`` for each pair of the table whose program was measured. ``number``
        is the index of the measured pair with this program, on the same shape or on a shape of the same work
        (:func:`~dietlab.cost.measured.same_work`)."""
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
        """Returns the indices of shapes, grouped by the work that a family does on each shape."""
        found: dict[Shape, list[int]] = {}
        for number, shape in enumerate(shapes):
            found.setdefault(same_work(family, self._cost.workload, shape), []).append(number)
        return found

    def _places(
        self, family: Scheme, shapes: Sequence[Shape], columns: Mapping[Shape, list[int]]
    ) -> list[tuple[Shape, list[int]]]:
        """Returns the shapes that a family was measured on, each with the columns that use the times on this
        shape: the columns of the same work for which no other measured shape is nearer."""
        measured = list(self._measured_on[family])
        found: dict[Shape, list[int]] = {}
        for work, numbers in self._by_work(family, measured).items():
            known = [measured[number] for number in numbers]
            for column in columns.get(work, ()):
                volume = _volume(shapes[column])
                nearest = min(known, key=lambda other: abs(log(_volume(other) / volume)))
                found.setdefault(nearest, []).append(column)
        return list(found.items())


def _volume(shape: Shape) -> int:
    return prod(shape.to_json().values())
