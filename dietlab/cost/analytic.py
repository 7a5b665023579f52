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
    """Returns the flop/s of one core that the tile of a scheme allows: the peak or, where a step loads more
    than it multiplies, what loads allow. (That low tiles wait for their own sums is part of the adaptation.)

    A step of a CPU's tile loads one vector of weights for each of its vectors, and one input for each row; a
    core begins as many loads in a cycle as multiply-adds, two of each on x86 since Haswell and Zen.
    """
    kernel = scheme.kernel
    if not isinstance(kernel, CpuMicroKernel):
        return peak_speed(cost)
    vectors = kernel.vectors(cost.hardware.cpu.lanes)
    return peak_speed(cost) * min(1.0, kernel.rows * vectors / (kernel.rows + vectors))


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
