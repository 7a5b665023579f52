"""The analytic draft: what is known of every scheme before anything was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietlab.cost import adaptation_cost
from dietlab.hardware import Hardware
from dietlab.measure import CacheState
from dietlab.search.state import Values
from dietlab.shapes import Shape
from dietlab.space import FMA_LATENCY, CpuMicroKernel, CudaMicroKernel, Scheme, Space

UNDER_WAY = 2 * FMA_LATENCY
"""Sums that keep both FMA units of a core busy: x86-64 cores with AVX2 have two."""


@dataclass(frozen=True)
class Draft:
    """A draft predicts times without a measurement: the adaptation cost at the most throughput that the
    registers' tile allows (:func:`reach`). Only ratios between schemes count; where the processor's peak was
    never measured, the times are in units of it."""

    space: Space
    cache: CacheState = "hot"

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        hardware, workload = self.space.hardware, self.space.workload
        peak = 1e9 * (hardware.peak_for(workload.dtype) or 100.0)
        cost = adaptation_cost(workload, hardware, cache=self.cache)
        return cost.table(schemes, shapes, lambda scheme: peak * reach(scheme, hardware))


def reach(scheme: Scheme, hardware: Hardware) -> float:
    """Returns the share of the peak that a tile allows, in (0, 1].

    A step of the reduction loads an operand for each row and each column of the tile, in the unit's pieces,
    and multiplies all pairs; processors load about as many operands a cycle as they multiply. So a tile of
    one row waits for its loads, and one of 4 x 2 does not. On a CPU, a tile of fewer sums than are under way
    in both of its units waits for these, too; the adaptation cost has counted one unit.
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


def logarithms(predicted: Values) -> Values:
    """Returns the logarithms of times; those that are 0, of empty calls, count as equal."""
    return np.asarray(np.log(np.where(predicted > 0, predicted, 1.0)))
