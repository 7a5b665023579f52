"""The least times that a processor allows, without a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.formulas import FloatArray
from dietlab.cost.target import cost_target
from dietlab.hardware import Hardware
from dietlab.measure import CacheState, Record
from dietlab.shapes import Shape
from dietlab.space import Scheme, Space

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


def reach(scheme: Scheme, hardware: Hardware) -> float:
    """Returns the share of the peak that a tile allows, in (0, 1].

    A step of the reduction loads an operand for each row and each column of the tile, in the unit's pieces,
    and multiplies all pairs. A CPU's core begins as many loads as multiply-adds in a cycle (two of each on
    x86 since Haswell and Zen); they are counted one after the other, and so are prefetches of each line of
    weights. On the surveys in ``data/cost`` this ranks better than the larger of both counts. (That low tiles
    wait for their sums is part of the adaptation.) A matrix unit loads and multiplies whole groups of rows.
    A GPU's tile waits for its loads if they are more.
    """
    return cost_target(hardware.kind).reach(scheme.kernel, hardware)


@dataclass(frozen=True)
class AnalyticPredictor:
    """Predicts from the bound and the adaptation, and learns nothing.

    Args:
        cache: where operands are while candidates are timed.
    """

    cache: CacheState = "hot"

    def fit(self, space: Space, records: Sequence[Record]) -> Analytic:
        return Analytic.of(space, self.cache)


@dataclass(frozen=True)
class Analytic:
    """The adaptation cost of a space at the most throughput that a tile allows (:func:`reach`). Where the
    processor's peak was never measured, only ratios of its times count."""

    cost: AdaptationCost

    @classmethod
    def of(cls, space: Space, cache: CacheState = "hot") -> Analytic:
        """Returns what is known of a space before anything was measured."""
        return cls(adaptation_cost(space.workload, space.hardware, "streamed", cache))

    def on(self, space: Space) -> Analytic:
        """Returns the same for the schemes of another space."""
        return Analytic.of(space, self.cost.cache)

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        peak, hardware = peak_speed(self.cost), self.cost.hardware
        return self.cost.table(schemes, shapes, lambda scheme: peak * reach(scheme, hardware))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        return np.full((len(schemes), len(shapes)), DOUBT)
