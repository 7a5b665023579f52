"""The least times that a processor allows, without a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.formulas import FloatArray
from dietlab.measure import CacheState, Record
from dietlab.shapes import Shape
from dietlab.space import CpuMicroKernel, Scheme, Space

UNKNOWN_PEAK = 100.0
"""GFLOP/s of one core whose peak was not measured: without it all speeds rank alike."""

LINE_BYTES = 64
"""Bytes of a line of cache, which one prefetch asks for."""

DOUBT = 0.4
"""The standard deviation of the logarithm of a time that is predicted from no measurement."""


def peak_speed(cost: AdaptationCost) -> float:
    """Returns the peak of one core, in flop/s, for the operator's type."""
    return 1e9 * (cost.hardware.peak_for(cost.workload.dtype) or UNKNOWN_PEAK)


def at_peak(cost: AdaptationCost, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
    """Returns the seconds of calls whose tiles compute at the processor's peak, ``[schemes, shapes]``."""
    return cost.table(schemes, shapes, lambda _: peak_speed(cost))


def at_peak_of(cost: AdaptationCost, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
    """Returns :func:`at_peak` of single pairs, ``[pairs]``."""
    return cost.seconds_of(schemes, shapes, lambda _: peak_speed(cost))


def bound(scheme: Scheme, cost: AdaptationCost) -> float:
    """Returns the flop/s of one core that the tile of a scheme allows, if its loads and its multiply-adds are
    begun one after the other, as many of each in a cycle (two on x86 since Haswell and Zen); of a GPU's tile,
    the
    peak.

    A step of a CPU's tile loads a vector of weights for each of its vectors and an input for each row, and
    may prefetch each line of weights. (That low tiles wait for their sums is part of the adaptation.) On the
    surveys in ``data/cost`` this ranks better than the larger of both: 0.72 of the pairs for 0.53 (dense),
    0.82 for 0.78
    and 0.71 for 0.64 (batched).
    """
    kernel = scheme.kernel
    if not isinstance(kernel, CpuMicroKernel):
        return peak_speed(cost)
    vectors = kernel.vectors(cost.hardware.cpu.lanes)
    lines = vectors * cost.hardware.cpu.vector_bytes / LINE_BYTES if kernel.prefetch else 0.0
    return peak_speed(cost) / (1 + (kernel.rows + vectors + lines) / (kernel.rows * vectors))


@dataclass(frozen=True)
class AnalyticPredictor:
    """Predicts from the bound and the adaptation, and learns nothing.

    Args:
        cache: where operands are while candidates are timed.
    """

    cache: CacheState = "hot"

    def fit(self, space: Space, records: Sequence[Record]) -> Analytic:
        return Analytic(adaptation_cost(space.workload, space.hardware, "streamed", self.cache))


@dataclass(frozen=True)
class Analytic:
    """The bound and the adaptation of a space."""

    cost: AdaptationCost

    def on(self, space: Space) -> Analytic:
        """Returns the same for the schemes of another space."""
        return Analytic(adaptation_cost(space.workload, space.hardware, "streamed", self.cost.cache))

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        return self.cost.table(schemes, shapes, lambda scheme: bound(scheme, self.cost))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        return np.full((len(schemes), len(shapes)), DOUBT)
