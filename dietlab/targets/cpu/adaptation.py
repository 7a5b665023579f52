"""The adaptation cost of register tiles on a CPU."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.cost.bundle import Bundle, Bundled, Calls, FiveParts
from dietlab.cost.formulas import FloatArray, f_occ
from dietlab.machine import Hardware
from dietlab.measure import CacheState
from dietlab.problem import IntArray, Role, Shape, Workload, precision_of
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.space import FMA_LATENCY

EDGE_STEPS = 6.0
"""Steps of the reduction that starting, storing and calling a tile cost: one load and one store a
vector beside a multiply-add a step, and some tens of cycles around them."""
SUMS_STEPS = 2.0
"""Steps of the reduction that adding up one lane of an accumulator across lanes costs."""
TRANSPOSED_ROWS = 7.0
"""Rows in whose time a panel of weights is transposed on the fly: four exchanges of registers, a load and
a store for what is one multiply-add a row."""


class Hiding(NamedTuple):
    """The share of a pass's computing that overlaps the fetch of weights from their level, if several row
    tiles prefetch them: 1 where the processor does both at once (:mod:`dietlab.targets.cpu.overlap`)."""

    memory: float
    cache: float


ALL_HIDDEN = Hiding(1.0, 1.0)


@dataclass(frozen=True)
class CpuAdaptation(Bundled):
    """The adaptation of register tiles; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    A call also pays for the first trip of the weights from where they stay between calls (an addition to
    the paper)::

        seconds(M, S) = flops(S) / (f_mk(M) * cores * f_pad(M, S) * f_occ(M, S) * f_stream(M, S))

    The micro-kernels of one plan share its passes over the weights, and its cores.
    """

    workload: Workload
    hardware: Hardware
    kind: Literal["paper", "streamed"] = "streamed"
    cache: CacheState = "hot"
    hiding: Hiding = ALL_HIDDEN

    def with_cache(self, cache: CacheState) -> CpuAdaptation:
        return replace(self, cache=cache)

    def working_shares(self, schemes: Sequence[CpuScheme], shapes: Sequence[Shape]) -> FloatArray:
        return self._shares(schemes, shapes, lambda _: 1.0)

    def from_cache(self, calls: Calls) -> npt.NDArray[np.bool_]:
        """Returns where the last-level cache holds the weights between calls; they come from memory if they
        rotate or would fill more than half of it."""
        weight_bytes = self._weight_bytes * calls["cols"] * calls["depth"]
        return np.asarray((self.cache != "rotating") & (2 * weight_bytes <= cpu_of(self.hardware).l3_bytes))

    @property
    def _weight_bytes(self) -> int:
        return precision_of(self.workload).itemsize

    def _alike(self, scheme: CpuScheme) -> Hashable:
        return scheme.edge, scheme.order, scheme.kernel.ahead, scheme.kernel.along

    def _sizes(self, scheme: CpuScheme) -> dict[str, int]:
        kernel = scheme.kernel
        across = kernel.vectors(cpu_of(self.hardware).lanes)
        sizes = {"rows": kernel.rows, "cols": kernel.cols, "granule": kernel.granule}
        return {**sizes, "across": across, "block": kernel.block}

    def _paid(self, scheme: CpuScheme) -> dict[Role, int]:
        return scheme.cover_tile

    def _parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        heights, counts = zip(*bundle.tiles(calls["rows"]), strict=True)
        tiles, depth = sum(counts), calls["depth"]
        width, edge_steps = self._width(bundle, calls), self._edge_steps(bundle, calls)
        steps = [2.0 * h * width / (bundle.speed(h) * self._hidden(bundle, h)) for h in heights]
        step_of_all = sum(step * count for step, count in zip(steps, counts, strict=True))
        warm, edges = depth * step_of_all, edge_steps * step_of_all
        # However low the tiles are: exchanging registers waits for no multiply-add.
        edges = edges + self._transposed_rows(bundle) * depth * 2.0 * width / bundle.speed(bundle["rows"])
        first = (depth + edge_steps) * _of_first(steps, counts)
        waiting = self._waiting(bundle, calls, tiles, warm + edges, first)
        useful, busy = bundle.useful(calls), self._busy(bundle, calls, tiles)
        idle = (warm + edges + waiting) * (1 / busy - 1)
        # A call without rows makes no pass.
        passes = (tiles > 0) * calls["batch"] * bundle.column_tiles(calls) / self.hardware.cores
        parts = warm * useful, edges, warm * (1 - useful), waiting, idle
        return FiveParts(*(passes * part for part in parts))

    def _static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        tiles = np.asarray(sum(count for _, count in bundle.tiles(calls["rows"])))
        static: FloatArray = bundle.useful(calls) * self._busy(bundle, calls, tiles)
        return static

    def _throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        heights, counts = zip(*bundle.tiles(calls["rows"]), strict=True)
        passes = calls["batch"] * bundle.column_tiles(calls) / self.hardware.cores
        spent = seconds / passes * self._busy(bundle, calls, sum(counts))
        paid = [height / self._hidden(bundle, height) for height in heights]
        rows = sum(one * count for one, count in zip(paid, counts, strict=True))
        steps = rows * (calls["depth"] + self._edge_steps(bundle, calls))
        transposed = self._transposed_rows(bundle) * calls["depth"]
        flops = 2.0 * self._width(bundle, calls) * (steps + transposed)
        fetch, first = self._fetch(bundle, calls), _of_first(paid, counts) / rows
        rest = spent - fetch
        # Only where the first tile waits for its weights does their fetch tell nothing about computing;
        # a time below the fetch's would give a senseless rest.
        bound = _fetches_once(bundle) & (fetch > spent * first)
        bound &= (rest > 0.5 * spent * (1 - first)) & (first < 1)
        return np.asarray(np.where(bound, flops * (1 - first) / np.where(bound, rest, 1.0), flops / spent))

    @staticmethod
    def _width(bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the columns of a tile, on average: where they are composed no tile is wider than needed."""
        if bundle.like.kernel.composes_columns:
            return np.asarray(calls["cols"] / np.maximum(1, bundle.column_tiles(calls)))
        return bundle["cols"].astype(np.float64)

    def _hidden(self, bundle: Bundle, heights: IntArray) -> FloatArray:
        """Returns the share of its throughput that a low tile reaches: with fewer accumulators than a
        multiply-add takes cycles the unit idles, and no candidate that low was measured by itself."""
        return np.asarray(np.minimum(1.0, heights * bundle["across"] / FMA_LATENCY))

    def _edge_steps(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Steps in whose time a tile is begun and ended, once in each pass over the output."""
        blocks = np.where(bundle["block"] > 0, bundle["block"], np.maximum(1, calls["depth"]))
        sums = SUMS_STEPS * cpu_of(self.hardware).lanes if bundle.like.kernel.along == "depth" else 0.0
        return np.asarray(EDGE_STEPS * -(-calls["depth"] // blocks) + sums)

    def _transposed_rows(self, bundle: Bundle) -> float:
        transposes = self.workload.weights == "transposed" and bundle.like.kernel.along == "cols"
        return TRANSPOSED_ROWS if transposes else 0.0

    def _busy(self, bundle: Bundle, calls: Calls, tiles: IntArray) -> FloatArray:
        """Returns ``f_occ`` of the pieces of work that are divided among the cores: products of a batch,
        transposed panels, or tiles."""
        if any(axis.role == "batch" for axis in self.workload.axes):
            pieces = calls["batch"]
        else:
            pieces = bundle.column_tiles(calls) * (1 if self.workload.weights == "transposed" else tiles)
        return f_occ(pieces, self.hardware.cores)

    def _waiting(
        self, bundle: Bundle, calls: Calls, tiles: IntArray, computing: FloatArray, first: FloatArray
    ) -> FloatArray:
        """Returns the seconds that one pass waits for weights: all its tiles hide the fetch if each asks for
        a part of the next panel; else the first one alone, or every one if weights are fetched for each."""
        fetch = self._fetch(bundle, calls)
        if bundle.like.kernel.ahead:
            shares = np.where(self.from_cache(calls), self.hiding.cache, self.hiding.memory)
            return np.maximum(0.0, fetch - np.where(tiles == 1, 1.0, shares) * computing)
        if _fetches_once(bundle):
            return np.maximum(0.0, fetch - first)
        return np.maximum(0.0, tiles * fetch - computing)

    def _fetch(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds to fetch the weights of one column tile."""
        memory = self.hardware.dram_gbps
        levels = self.hardware.l3_gbps, memory / self.hardware.cores if memory else None
        # What is not known or modelled takes no time.
        modelled = self.kind != "paper" and self.workload.weights == "packed"
        cache, own = (1e9 * gbps if gbps and modelled else np.inf for gbps in levels)
        rates = np.where(self.from_cache(calls), cache, own)
        return np.asarray(self._weight_bytes * bundle["cols"] * calls["depth"] / rates)


def _fetches_once(bundle: Bundle) -> bool:
    """Returns whether a pass waits for its weights in its first tile only."""
    return bundle.like.order == "ws" and not bundle.like.kernel.ahead


def _of_first(values: Sequence[FloatArray], counts: Sequence[IntArray]) -> FloatArray:
    """Returns the value of each plan's first region that has tiles."""
    found = values[-1]
    for value, count in zip(reversed(values), reversed(counts), strict=True):
        found = np.where(count > 0, value, found)
    return found
