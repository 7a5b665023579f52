"""The cost model of a GPU: adaptation under the bound of a multiprocessor's throughputs, or the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dietlab.cost.bundle import Adaptation, Bundle, Calls, FiveParts, Sizes, Speed
from dietlab.cost.formulas import FloatArray
from dietlab.machine import Hardware
from dietlab.measure import CacheState
from dietlab.problem import Workload
from dietlab.targets.cuda.adaptation import BlockAdaptation, CudaAdaptation, computing
from dietlab.targets.cuda.bound import (
    LAUNCH_SECONDS,
    BlockTiles,
    BoundSeconds,
    Numbers,
    block_tiles,
    bound_seconds,
    bound_sizes,
    memory_seconds,
    step_flops,
)
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.rates import GpuRates, gpu_rates


@dataclass(frozen=True)
class BoundedAdaptation(BlockAdaptation):
    """The adaptation of thread blocks under a bound; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    The bound (:mod:`dietlab.targets.cuda.bound`) gives the speed of a multiprocessor full of a tile's blocks.
    If a tile's fitted throughput ``f_mk`` is below that of the bound ``f_bound``, the whole call is slower by
    their ratio, including the time in which its blocks begin and end::

        seconds = launch + (bound - launch) * f_bound / f_mk,    no step before memory has given its operands
    """

    def sizes(self, scheme: CudaScheme) -> Sizes:
        found = super().sizes(scheme)
        return found._replace(sizes={**found.sizes, **bound_sizes(scheme.kernel)})

    @property
    def peak(self) -> Speed | None:
        """None: the bound needs no speed."""
        return None

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        parts = self.parts(bundle, calls)
        paid = parts.compute + parts.padding + parts.idle
        return np.asarray(np.where(paid > 0, parts.compute, 1.0) / np.where(paid > 0, paid, 1.0))

    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        bound, at_bound = self._bound(bundle, calls), self._at_bound(bundle, calls)
        padded = at_bound
        if len(bundle.speeds):
            works = self._works(bundle, calls)
            padded = sum((work / (bundle.speed(h) * self.hardware.cores) for h, work in works), np.zeros(1))
        slower = np.where(at_bound > 0, padded, 1.0) / np.where(at_bound > 0, at_bound, 1.0)
        edges, useful = slower * bound.edges, bundle.useful(calls)
        # A step takes as long on a full multiprocessor as on one that has places left.
        idle = np.maximum(0.0, slower * bound.steps - padded)
        called = at_bound > 0
        waiting = np.where(called, np.maximum(0.0, bound.memory - padded - idle), 0.0)
        launched = edges + called * LAUNCH_SECONDS
        return FiveParts(padded * useful, launched, padded * (1 - useful), waiting, idle)

    def seconds(self, bundle: Bundle, calls: Calls) -> FloatArray:
        if len(bundle.speeds):
            return super().seconds(bundle, calls)
        # The total needs no parts, which would cost as much again.
        return np.asarray((self._blocks(bundle, calls) > 0) * self._bound(bundle, calls).total)

    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        bound, flops = self._bound(bundle, calls), sum((work for _, work in self._works(bundle, calls)))
        at_one = flops / (self.hardware.cores * self._at_bound(bundle, calls))
        return np.asarray(at_one * (bound.steps + bound.edges) / computing(seconds))

    def _bound(self, bundle: Bundle, calls: Calls) -> BoundSeconds:
        """Returns the bound of calls, computed for each call's tallest tiles: they end a wave."""
        tallest = np.zeros(1, np.int64)
        for height, count in bundle.tiles(calls):
            tallest = np.maximum(tallest, np.where(count > 0, height, 0))
        tiles = self._tiles(bundle, np.where(tallest > 0, tallest, bundle["granule"]))
        moved = np.array([self.workload.bytes(shape) for shape in calls.shapes], np.float64)
        memory = memory_seconds(moved, self._rates, hot=self.cache != "rotating")
        return bound_seconds(tiles, self._blocks(bundle, calls), calls["depth"], memory, self._rates)

    def _at_bound(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds of all executed multiply-adds on multiprocessors that are always full."""
        found: FloatArray = np.zeros(1)
        for height, work in self._works(bundle, calls):
            speed = step_flops(self._tiles(bundle, height), self._rates)
            found = found + work / (speed * self.hardware.cores)
        return found

    def _tiles(self, bundle: Bundle, heights: Numbers) -> BlockTiles:
        return block_tiles(bundle.sizes, heights, bundle["places"], self.workload)

    @cached_property
    def _rates(self) -> GpuRates:
        return gpu_rates(self.hardware)


def adaptation(
    workload: Workload, hardware: Hardware, kind: Adaptation, cache: CacheState, **constants: Any
) -> BlockAdaptation:
    """Returns the adaptation under the bound, or the paper's."""
    make = CudaAdaptation if kind == "paper" else BoundedAdaptation
    return make(workload, hardware, kind, cache, **constants)
