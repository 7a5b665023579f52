"""Predictions corrected by what was measured: the model fills in between measured shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import median_low

import numpy as np
import numpy.typing as npt

from dietlab.cost.model import CostModel
from dietlab.measure import Record
from dietlab.shapes import Shape
from dietlab.space import MicroKernel

Values = npt.NDArray[np.float64]

DOUBT_A_STEP = 0.05
"""How much slower than predicted a plan may be, in logarithms, for each factor of e in flops between a shape
and the nearest one on which it, or one of its family, was measured."""

STRANGER = 0.03
"""The same for a plan that was never measured itself."""

MOST_DOUBT = 0.3


FITS = 16
"""Fits of how slow the rounds were, each with less weight on what the one before left unexplained."""

NOISE = 0.01
"""Differences of times, as logarithms, that no fit should try to explain."""


def settled_seconds(records: Iterable[Record]) -> dict[tuple[MicroKernel, Shape], float]:
    """One time for each micro-kernel and shape, out of rounds whose machine was quicker or slower.

    On each shape a time is what the micro-kernel takes, times how slow its round was for all (``asked_by``):
    records of a round ran in turns. Rounds that have micro-kernels in common are compared by these; then
    of two times of a micro-kernel the lower one counts, and of three the middle one, since disturbances
    only slow down.
    """
    shapes: dict[Shape, dict[MicroKernel, dict[str, float]]] = {}
    for record in records:
        if record.ok and record.seconds:
            rounds = shapes.setdefault(record.shape, {}).setdefault(record.micro_kernel, {})
            rounds[record.asked_by] = min(record.seconds, rounds.get(record.asked_by, record.seconds))
    return {
        (kernel, shape): seconds
        for shape, times in shapes.items()
        for kernel, seconds in _settled(times).items()
    }


Times = Mapping[MicroKernel, Mapping[str, float]]
"""Seconds on one shape by micro-kernel and round."""


def _settled(times: Times) -> dict[MicroKernel, float]:
    """What each micro-kernel takes in a round of mean slowness."""
    slowness = _slowness(times)
    return {
        kernel: median_low([seconds / slowness[name] for name, seconds in rounds.items()])
        for kernel, rounds in times.items()
    }


def _slowness(times: Times) -> dict[str, float]:
    """How slow each round was, 1 on average; the least absolute deviations of the logarithms, by fits with
    weights. What a micro-kernel takes drops out of the normal equations, which are as many as rounds."""
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
    """Those of one micro-kernel's times: the further from their middle, the less."""
    found: Values = 1.0 / np.maximum(np.abs(own - np.median(own)), NOISE)
    return found


class Calibration:
    """A cost model and the records that correct it.

    Where a micro-kernel was measured on a shape, that time stands (:func:`settled_seconds`). Elsewhere its
    prediction is
    multiplied by the ratio of measured to predicted time of its family (those that differ from it in
    height and edge only), interpolated over the logarithm of the shapes' flops, times how much it
    deviates from its family where it was measured itself: one measurement at an end of the range
    says nothing about the other end. The adaptation cost draws the saw-tooth; the ratio corrects what
    no model knows (cache effects, the cost of a call).
    """

    def __init__(self, model: CostModel, records: Iterable[Record]) -> None:
        self._model = model
        self._measured = settled_seconds(records)
        hardware = model.cost.hardware
        peak = hardware.peak_for(model.cost.workload.dtype)
        self._peak = 1e9 * hardware.cores * peak if peak else np.inf
        self._own: dict[MicroKernel, dict[float, list[float]]] = {}
        self._family: dict[MicroKernel, dict[float, list[float]]] = {}
        pairs = list(self._measured)
        if pairs:
            logs = np.log(np.array(list(self._measured.values())) / model.seconds_of(pairs))
            places = self._positions([shape for _, shape in pairs])
            for (kernel, _), place, ratio in zip(pairs, places.tolist(), logs.tolist(), strict=True):
                self._own.setdefault(kernel, {}).setdefault(place, []).append(ratio)
                self._family.setdefault(kernel.family, {}).setdefault(place, []).append(ratio)

    def seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Values:
        """Seconds of a call, ``[micro-kernels, shapes]``."""
        predicted = self._model.seconds(kernels, shapes)
        at = self._positions(shapes)
        for row, kernel in enumerate(kernels):
            predicted[row] *= np.exp(self._correction(kernel, at))
            for column, shape in enumerate(shapes):
                # A ratio from elsewhere can promise more than the processor computes.
                least = self._model.cost.workload.flops(shape) / self._peak
                predicted[row, column] = self._measured.get(
                    (kernel, shape), max(predicted[row, column], least)
                )
        return predicted

    def doubt(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Values:
        """How far a prediction may be too low, as a logarithm, ``[micro-kernels, shapes]``; 0 where there
        is a measurement.

        Of many predictions the lowest are those that err most: who picks the least of them must count
        on it.
        """
        at = self._positions(shapes)
        found = np.empty((len(kernels), len(shapes)))
        for row, kernel in enumerate(kernels):
            own = sorted(self._own.get(kernel, ()))
            places = np.array(own or sorted(self._family.get(kernel.family, ())))
            if not len(places):
                found[row] = MOST_DOUBT
                continue
            distance = np.abs(at[:, None] - places[None, :]).min(axis=1)
            found[row] = np.minimum(MOST_DOUBT, (0.0 if own else STRANGER) + DOUBT_A_STEP * distance)
        return found

    def _correction(self, kernel: MicroKernel, at: Values) -> Values:
        """Logarithm of measured over predicted time at some positions."""
        family, own = self._family.get(kernel.family, {}), self._own.get(kernel, {})
        if not family:
            return np.zeros(len(at))
        places = sorted(family)
        medians = np.array([np.median(family[place]) for place in places])
        low, high = min(own, default=np.inf), max(own, default=-np.inf)
        # Between its own places it deviates as there; at the family's next ones beyond, no more.
        kept = [i for i, place in enumerate(places) if place in own or not low <= place <= high]
        own_places = [places[i] for i in kept]
        deviations = [
            float(np.median(own[places[i]]) - medians[i]) if places[i] in own else 0.0 for i in kept
        ]
        found: Values = np.interp(at, places, medians) + np.interp(at, own_places, deviations)
        return found

    def _positions(self, shapes: Sequence[Shape]) -> Values:
        flops = self._model.cost.workload.flops
        return np.log([max(1, flops(shape)) for shape in shapes])
