"""The least times that a processor allows, without a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.formulas import FloatArray
from dietlab.hardware import Hardware
from dietlab.measure import CacheState, Record
from dietlab.shapes import Shape
from dietlab.space import FMA_LATENCY, CpuMicroKernel, CudaMicroKernel, Scheme, Space

UNKNOWN_PEAK = 100.0
"""GFLOP/s of one core whose peak was not measured: without it all speeds rank alike."""

DOUBT = 0.4
"""The standard deviation of the logarithm of a time that is predicted from no measurement."""

UNDER_WAY = 2 * FMA_LATENCY
"""Sums that keep both FMA units of a core busy: x86-64 cores with AVX2 have two."""


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
    and multiplies all pairs; processors load about as many operands a cycle as they multiply (two of each on
    x86 since Haswell and Zen). So a tile of one row waits for its loads, and one of 4 x 2 does not. On a CPU,
    a tile of fewer sums than are under way in both of its units waits for these, too; the adaptation cost has
    counted one unit.
    """
    kernel = scheme.kernel
    if isinstance(kernel, CpuMicroKernel):
        down, across = kernel.rows, kernel.vectors(hardware.cpu.lanes)
        waits = min(1.0, down * across / UNDER_WAY) / min(1.0, down * across / FMA_LATENCY)
    else:
        assert isinstance(kernel, CudaMicroKernel)
        down, across = kernel.tile_rows // kernel.pieces.rows, kernel.tile_cols // kernel.pieces.cols
        waits = 1.0
    work = max(1, down) * max(1, across)
    return waits * work / max(work, down + across)


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
