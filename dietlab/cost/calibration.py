"""Predictions corrected by what was measured: the model fills in between measured shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from statistics import median, median_low

import numpy as np
import numpy.typing as npt

from dietlab.cost.model import CostModel
from dietlab.measure import Record
from dietlab.plans import tiling
from dietlab.shapes import Shape
from dietlab.space import Scheme
from dietlab.workloads import Workload

Values = npt.NDArray[np.float64]

DOUBT_A_STEP = 0.05
"""The uncertainty of a prediction, as a logarithm of time, for each factor of e in flops between a shape
and the nearest one on which the plan or its family was measured."""

STRANGER = 0.03
"""The further uncertainty, as a logarithm of time, of a plan that was never measured itself."""

MOST_DOUBT = 0.3
"""The most uncertainty of a prediction, as a logarithm of time: 35 %."""


FITS = 16
"""Reweighted fits of the rounds' slowness; each weighs less what the one before left unexplained."""

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


Program = tuple[Hashable, Shape]
"""What runs (:func:`program_on`), and on which shape."""

Times = Mapping[Hashable, Mapping[Hashable, float]]
"""Seconds on one shape by program and round."""


def _settled(times: Times) -> dict[Hashable, float]:
    """Returns the time of each program in a round of mean slowness."""
    slowness = _slowness(times)
    return {
        program: median_low([seconds / slowness[name] for name, seconds in rounds.items()])
        for program, rounds in times.items()
    }


def _slowness(times: Times) -> dict[Hashable, float]:
    """Returns the slowness of each round, 1 on average: least absolute deviations of logarithms, by
    reweighted least squares. The programs' times drop out of the normal equations, of which there is one
    for each round."""
    found = dict.fromkeys(name for rounds in times.values() for name in rounds)
    names = {name: number for number, name in enumerate(found)}
    groups: list[Values] = [
        np.array([(names[name], log(seconds)) for name, seconds in rounds.items()]).T
        for rounds in times.values()
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


class Calibration:
    """A cost model and the records that correct it.

    Where a scheme was measured on a shape, or another that is the same program there, that time
    stands (:func:`settled_seconds`). Elsewhere its prediction is multiplied by the ratio of measured to
    predicted time of its family (those that differ from it in height and edge only), interpolated between
    shapes (:func:`_interpolated`), times how much it deviates from its family where it was measured itself:
    one measurement at an end of the range says nothing about the other end. The adaptation cost draws the
    saw-tooth; the ratio corrects what no model knows (cache effects, the cost of a call).
    """

    def __init__(self, model: CostModel, records: Iterable[Record]) -> None:
        records = [record for record in records if record.ok and record.seconds]
        workload = model.cost.workload
        self._model = model
        self._measured = settled_seconds(workload, records)
        self._measured_on: dict[Scheme, dict[Shape, None]] = {}
        hardware = model.cost.hardware
        peak = hardware.peak_for(workload.dtype)
        self._peak = 1e9 * hardware.cores * peak if peak else np.inf
        own: dict[Scheme, dict[Place, list[float]]] = {}
        family: dict[Scheme, dict[Place, list[float]]] = {}
        pairs = list(dict.fromkeys((record.scheme, record.shape) for record in records))
        for scheme, shape in pairs:
            self._measured_on.setdefault(scheme.family, {})[shape] = None
        if pairs:
            times = [self._measured[program_on(scheme, workload, shape), shape] for scheme, shape in pairs]
            logs = np.log(np.array(times) / model.seconds_of(pairs))
            places = map(tuple, self._positions([shape for _, shape in pairs]).tolist())
            for (scheme, _), place, ratio in zip(pairs, places, logs.tolist(), strict=True):
                own.setdefault(scheme, {}).setdefault(place, []).append(ratio)
                family.setdefault(scheme.family, {}).setdefault(place, []).append(ratio)
        self._own, self._family = _medians(own), _medians(family)

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the seconds of a call, ``[schemes, shapes]``."""
        predicted = self._model.seconds(schemes, shapes)
        least = [self._model.cost.workload.flops(shape) / self._peak for shape in shapes]
        # A ratio from elsewhere can promise more than the processor computes.
        found: Values = np.maximum(
            predicted * np.exp(self._corrections(schemes, self._positions(shapes))), least
        )
        for row, column, known in self._known(schemes, shapes):
            found[row, column] = known
        return found

    def _known(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Iterator[tuple[int, int, float]]:
        """Yields the measured seconds of any scheme that is the same program, with its row and column."""
        workload = self._model.cost.workload
        columns: dict[Shape, list[int]] = {}
        for column, shape in enumerate(shapes):
            columns.setdefault(shape, []).append(column)
        places = {
            family: [
                (shape, columns[shape]) for shape in self._measured_on.get(family, ()) if shape in columns
            ]
            for family in dict.fromkeys(scheme.family for scheme in schemes)
        }
        for row, scheme in enumerate(schemes):
            for shape, at in places[scheme.family]:
                known = self._measured.get((program_on(scheme, workload, shape), shape), 0.0)
                for column in at if known else ():
                    yield row, column, known

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the uncertainty of predictions, by how much they may be too low, as a logarithm,
        ``[schemes, shapes]``; 0 for measured pairs.

        Of many predictions the lowest are those that err most: who picks the least of them must count
        on it.
        """
        at = self._positions(shapes)
        found = np.empty((len(schemes), len(shapes)))
        # Schemes of a family that were not measured themselves are as doubtful.
        strange: dict[Scheme, Values] = {}
        for row, scheme in enumerate(schemes):
            if scheme in self._own:
                found[row] = _doubt(at, self._own[scheme], 0.0)
                continue
            if scheme.family not in strange:
                strange[scheme.family] = _doubt(at, self._family.get(scheme.family, {}), STRANGER)
            found[row] = strange[scheme.family]
        for row, column, _ in self._known(schemes, shapes):
            found[row, column] = 0.0
        return found

    def _corrections(self, schemes: Sequence[Scheme], at: Values) -> Values:
        """Returns the logarithm of measured over predicted time at some positions, ``[schemes, at]``."""
        families = {
            family: _interpolated(at, known)
            for family in dict.fromkeys(scheme.family for scheme in schemes)
            if (known := self._family.get(family))
        }
        found = np.zeros((len(schemes), len(at)))
        for row, scheme in enumerate(schemes):
            if scheme.family in families:
                found[row] = families[scheme.family]
            if scheme in self._own:
                found[row] += self._deviation(scheme, at)
        return found

    def _deviation(self, scheme: Scheme, at: Values) -> Values:
        """Returns the logarithm by which a measured scheme deviates from its family at some positions."""
        family, own = self._family[scheme.family], self._own[scheme]
        deviations = {place: own[place] - family[place] for place in own}
        if at.shape[1] == 1:
            # Between its own places it deviates as there; at the family's next ones beyond, no more.
            low, high = min(own), max(own)
            deviations |= {place: 0.0 for place in family if not low <= place <= high}
        else:
            deviations |= {place: 0.0 for place in family if place not in own}
        return _interpolated(at, deviations)

    def _positions(self, shapes: Sequence[Shape]) -> Values:
        """Returns the places of shapes, ``[shapes, axes]``: the logarithm of their flops or, of several
        dimensions, of each dynamic extent."""
        workload = self._model.cost.workload
        if len(workload.dims) > 1:
            return np.log([[max(1, shape[name]) for name in workload.dims] for shape in shapes])
        return np.log([[max(1, workload.flops(shape))] for shape in shapes])


Place = tuple[float, ...]
"""The logarithm of a shape's flops, or of each of its dynamic extents."""

REACH = 0.7
"""The distance, as a logarithm of extents, at which the weight of a measurement of another shape falls to
0.6: about a factor of two in one extent."""


def _interpolated(at: Values, known: Mapping[Place, float]) -> Values:
    """Returns values between and beyond places where they are known: along one axis linearly, over several as
    a mean weighted by nearness, which tends to the median of all far from any.

    Args:
        at: ``[n, axes]``.
    """
    places, values = np.array(list(known)), np.array(list(known.values()))
    if at.shape[1] == 1:
        order = places[:, 0].argsort()
        return np.asarray(np.interp(at[:, 0], places[order, 0], values[order]))
    near = np.exp(-_squared_distances(at, places) / (2 * REACH**2))
    far = 1e-3
    return np.asarray((near @ values + far * np.median(values)) / (near.sum(axis=1) + far))


def _squared_distances(at: Values, places: Values) -> Values:
    return np.asarray(((at[:, None, :] - places[None, :, :]) ** 2).sum(axis=2))


def _doubt(at: Values, places: Iterable[Place], least: float) -> Values:
    """Returns the uncertainty at some positions of a plan that was measured at others."""
    measured = np.array(list(places))
    if not len(measured):
        return np.full(len(at), MOST_DOUBT)
    distance = np.sqrt(_squared_distances(at, measured).min(axis=1))
    return np.asarray(np.minimum(MOST_DOUBT, least + DOUBT_A_STEP * distance))


def _medians(
    ratios: Mapping[Scheme, Mapping[Place, list[float]]],
) -> dict[Scheme, dict[Place, float]]:
    """Returns the median at each position, in ascending order of positions, for each scheme."""
    return {
        scheme: {place: median(found[place]) for place in sorted(found)} for scheme, found in ratios.items()
    }
