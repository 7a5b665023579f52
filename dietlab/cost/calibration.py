"""Predictions corrected by what was measured: the model fills in between measured shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dietlab.cost.model import CostModel
from dietlab.measure import Record
from dietlab.shapes import Shape
from dietlab.space import MicroKernel


def calibrated_seconds(
    model: CostModel, records: Iterable[Record], kernels: Sequence[MicroKernel], shapes: Sequence[Shape]
) -> npt.NDArray[np.float64]:
    """Seconds of a call, ``[micro-kernels, shapes]``.

    Where a micro-kernel was measured on a shape, that time stands. Elsewhere its prediction is
    multiplied by the ratio of measured to predicted time, interpolated between its measured shapes
    over the logarithm of their flops; one that was not measured borrows the ratios of those that
    differ from it in height and edge only. The adaptation cost draws the saw-tooth; the ratio
    corrects what no model knows (cache effects, the cost of a call).
    """
    measured: dict[MicroKernel, dict[Shape, float]] = {}
    for record in records:
        if record.ok and record.seconds:
            times = measured.setdefault(record.micro_kernel, {})
            times[record.shape] = min(record.seconds, times.get(record.shape, record.seconds))
    predicted = model.seconds(kernels, shapes)
    anchors = _Anchors(model, measured)
    at = anchors.positions(shapes)
    for row, kernel in enumerate(kernels):
        places, ratios = anchors.of(kernel)
        if len(places):
            predicted[row] *= np.exp(np.interp(at, places, ratios))
        times = measured.get(kernel, {})
        for column, shape in enumerate(shapes):
            predicted[row, column] = times.get(shape, predicted[row, column])
    return predicted


class _Anchors:
    """Logarithms of measured over predicted time, by micro-kernel and by family."""

    def __init__(self, model: CostModel, measured: Mapping[MicroKernel, Mapping[Shape, float]]) -> None:
        self._model = model
        self._own: dict[MicroKernel, dict[float, list[float]]] = {}
        self._family: dict[MicroKernel, dict[float, list[float]]] = {}
        for kernel, times in measured.items():
            base = model.seconds([kernel], list(times))[0]
            for place, seconds, predicted in zip(self.positions(times), times.values(), base, strict=True):
                ratio = float(np.log(seconds / predicted))
                self._own.setdefault(kernel, {}).setdefault(float(place), []).append(ratio)
                self._family.setdefault(kernel.family, {}).setdefault(float(place), []).append(ratio)

    def of(self, kernel: MicroKernel) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Positions in ascending order, and the ratio at each."""
        found = self._own.get(kernel) or self._family.get(kernel.family) or {}
        places = sorted(found)
        return np.array(places), np.array([np.median(found[place]) for place in places])

    def positions(self, shapes: Iterable[Shape]) -> npt.NDArray[np.float64]:
        return np.log([max(1, self._model.cost.workload.flops(shape)) for shape in shapes])
