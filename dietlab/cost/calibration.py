"""Predictions corrected by what was measured: the model fills in between measured shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    over the logarithm of their flops. The adaptation cost draws the saw-tooth of padding; the ratio
    corrects what no model knows (cache effects, the cost of a call).
    """
    measured: dict[MicroKernel, dict[Shape, list[float]]] = {kernel: {} for kernel in kernels}
    for record in records:
        if record.ok and record.seconds and record.micro_kernel in measured:
            measured[record.micro_kernel].setdefault(record.shape, []).append(record.seconds)
    predicted = model.seconds(kernels, shapes)
    at = _positions(model, shapes)
    for row, kernel in enumerate(kernels):
        times = {shape: min(values) for shape, values in measured[kernel].items()}
        if times:
            anchors = sorted(times, key=lambda shape: _positions(model, [shape])[0])
            base = model.seconds([kernel], anchors)[0]
            ratios = np.log(np.array([times[shape] for shape in anchors]) / base)
            predicted[row] *= np.exp(np.interp(at, _positions(model, anchors), ratios))
            for column, shape in enumerate(shapes):
                predicted[row, column] = times.get(shape, predicted[row, column])
    return predicted


def _positions(model: CostModel, shapes: Sequence[Shape]) -> npt.NDArray[np.float64]:
    return np.log([max(1, model.cost.workload.flops(shape)) for shape in shapes])
