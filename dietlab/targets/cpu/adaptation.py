"""The adaptation cost of register tiles on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.bundle import Bundle, Calls, FiveParts, Formulas, Rows, Same, Sizes, Speed, peak_speed
from dietlab.cost.formulas import FloatArray, f_occ
from dietlab.machine import Hardware
from dietlab.measure import Record
from dietlab.problem import IntArray, precision_of
from dietlab.scheme import EDGES
from dietlab.targets.cpu.features import CPU_FEATURES, cpu_features
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.overlap import ALL_HIDDEN, Hiding, fitted_hiding
from dietlab.targets.cpu.space import FMA_LATENCY
from dietlab.targets.cpu.units import UNITS

EDGE_STEPS = 6.0
"""Steps of the reduction that starting, storing and calling a tile cost: one load and one store a
vector beside a multiply-add a step, and some tens of cycles around them."""
SUMS_STEPS = 2.0
"""Steps of the reduction that adding up one lane of an accumulator across lanes costs."""
TRANSPOSED_ROWS = 7.0
"""Rows in whose time a panel of weights is transposed on the fly: four exchanges of registers, a load and
a store for what is one multiply-add a row."""

LINE_BYTES = 64
"""Bytes of a line of cache, which one prefetch asks for."""


@dataclass(frozen=True)
class CpuAdaptation(Formulas):
    """The adaptation of register tiles; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    A call also pays for the first trip of the weights from where they stay between calls (an addition to
    the paper)::

        seconds(M, S) = flops(S) / (f_mk(M) * cores * f_pad(M, S) * f_occ(M, S) * f_stream(M, S))

    The micro-kernels of one plan share its passes over the weights, and its cores.
    """

    FEATURES = CPU_FEATURES
    DEALT = 1.0
    """All of the space: how a core fetches and loops, in which access patterns differ, is hardly expected."""

    hiding: Hiding = ALL_HIDDEN

    @property
    def unhindered(self) -> Speed:
        """One flop/s: no fetch takes as long."""
        return Same(1.0)

    @property
    def expected(self) -> Speed:
        """The share of the peak that tiles allow (:func:`reach`)."""
        peak = peak_speed(self.workload, self.hardware)
        return lambda scheme: peak * reach(scheme.kernel, self.hardware)

    def features(self, schemes: Sequence[CpuScheme]) -> Rows:
        """Returns :func:`~dietlab.targets.cpu.features.cpu_features` of each scheme."""
        return [cpu_features(scheme, self.workload, self.hardware) for scheme in schemes]

    def knobs(self, schemes: Sequence[CpuScheme]) -> Rows:
        """Returns the parameters of schemes in numbers."""
        return [self._knobs(scheme) for scheme in schemes]

    def _knobs(self, scheme: CpuScheme) -> list[float]:
        kernel = scheme.kernel
        numbers = [kernel.rows, kernel.cols, kernel.unroll, kernel.prefetch, kernel.ahead, kernel.block]
        units = [kernel.facts.rate] if precision_of(self.workload).narrow else []  # others have one
        return [*numbers, kernel.along == "depth", scheme.order == "ws", EDGES.index(scheme.edge), *units]

    def loops(self, kernel: CpuMicroKernel) -> tuple[int, int]:
        """Returns the K-block, and the vectors across a tile."""
        return kernel.block, kernel.vectors(cpu_of(self.hardware).lanes)

    @property
    def levels(self) -> dict[str, int]:
        """The sizes of the caches."""
        cpu = cpu_of(self.hardware)
        return {"L1": cpu.l1d_bytes, "L2": cpu.l2_bytes, "the last level": cpu.last_level_bytes}

    def fitted(self, records: Sequence[Record], throughput: Speed | None = None) -> CpuAdaptation:
        """Returns the adaptation with the hiding that fits records best, once throughputs are known."""
        if throughput is None:
            return self
        return replace(self, hiding=fitted_hiding(AdaptationCost(self), records, throughput))

    @property
    def constants(self) -> dict[str, Any]:
        """The shares of computing that hide the fetch of weights."""
        return {"hiding": list(self.hiding)}

    def with_constants(self, value: Mapping[str, Any]) -> CpuAdaptation:
        """Returns the adaptation with a file's shares; in one from before they were fitted, all is hidden."""
        return replace(self, hiding=Hiding(*value.get("hiding", ALL_HIDDEN)))

    def from_cache(self, calls: Calls) -> npt.NDArray[np.bool_]:
        """Returns where the last-level cache holds the weights between calls; they come from memory if they
        rotate or would fill more than half of it."""
        weight_bytes = self._weight_bytes * calls["cols"] * calls["depth"]
        return np.asarray((self.cache != "rotating") & (2 * weight_bytes <= cpu_of(self.hardware).l3_bytes))

    @property
    def _weight_bytes(self) -> int:
        return precision_of(self.workload).itemsize

    def sizes(self, scheme: CpuScheme) -> Sizes:
        kernel = scheme.kernel
        more = {"across": kernel.vectors(cpu_of(self.hardware).lanes), "block": kernel.block}
        alike, sizes, paid = super().sizes(scheme)
        return Sizes((alike, scheme.order, kernel.ahead, kernel.along), {**sizes, **more}, paid)

    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
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

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        tiles = np.asarray(sum(count for _, count in bundle.tiles(calls["rows"])))
        static: FloatArray = bundle.useful(calls) * self._busy(bundle, calls, tiles)
        return static

    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
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


def reach(kernel: CpuMicroKernel, hardware: Hardware) -> float:
    """Returns the share of the peak that a tile allows, in (0, 1]: that of multiply-adds in all of a step's
    instructions, loads and prefetches of lines beside them, by the unit's rate over the fastest's.

    A step of the reduction loads an operand for each row and each column of the tile, in the unit's pieces,
    and multiplies all pairs. A core begins as many loads as multiply-adds in a cycle (two of each on x86
    since Haswell and Zen); they are counted one after the other, and so are prefetches of each line of
    weights. On the surveys in ``data/cost`` this ranks better than the larger of both counts. (That low tiles
    wait for their sums is part of the adaptation.) A matrix unit loads and multiplies whole groups of rows.
    """
    facts, units = kernel.facts, cpu_of(hardware).units(kernel.facts.dtype)
    fastest = max((UNITS[unit].rate for unit in units), default=facts.rate)
    rows, vectors = kernel.rows // facts.tile_rows, kernel.vectors(cpu_of(hardware).lanes)
    lines = vectors * cpu_of(hardware).vector_bytes / LINE_BYTES if kernel.prefetch else 0.0
    return facts.rate / fastest / (1 + (rows + vectors + lines) / (rows * vectors))


def _fetches_once(bundle: Bundle) -> bool:
    """Returns whether a pass waits for its weights in its first tile only."""
    return bundle.like.order == "ws" and not bundle.like.kernel.ahead


def _of_first(values: Sequence[FloatArray], counts: Sequence[IntArray]) -> FloatArray:
    """Returns the value of each plan's first region that has tiles."""
    found = values[-1]
    for value, count in zip(reversed(values), reversed(counts), strict=True):
        found = np.where(count > 0, value, found)
    return found
