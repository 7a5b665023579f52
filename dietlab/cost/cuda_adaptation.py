"""The adaptation cost of thread-block tiles on a GPU."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dietlab.cost.bundle import Bundle, Bundled, Calls, FiveParts
from dietlab.cost.formulas import FloatArray, f_occ
from dietlab.hardware import Hardware
from dietlab.hardware.occupancy import blocks_per_sm
from dietlab.measure import CacheState
from dietlab.shapes import Shape
from dietlab.space import CudaMicroKernel, CudaScheme, compiled_registers, shared_bytes
from dietlab.workloads import IntArray, Role, Workload, require_dtype

Imbalance = tuple[float, float]
"""``c`` of ``f_occ``, below one wave of blocks and above."""

IMBALANCE: Imbalance = (1.433, 2.14)
"""The paper's fit on a T4 (section 3.3); another GPU's is made from its records
(:mod:`dietlab.cost.wave_cost`)."""

EDGE_STEPS = 3.0
"""Steps of the reduction that a block's prologue and epilogue cost: the first fetch, which nothing
overlaps, and the write-back."""

CLUSTER_STEPS = 2.0
"""Steps of the reduction that adding up the sums of a cluster's blocks costs; an estimate."""

LAUNCH_SECONDS = 2e-6
"""Seconds between the end of one kernel and the start of the next on a busy stream."""


@dataclass(frozen=True)
class CudaAdaptation(Bundled):
    """The adaptation of thread blocks; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    A block occupies one of ``C = multiprocessors x blocks a multiprocessor`` places, so ``g`` blocks pay
    for ``G = C ceil(g / C)`` of them in part (paper, section 3.3)::

        seconds = launch + padded flops / (f_mk * multiprocessors * f_occ)     f_occ = c g / ((c - 1) g + G)

    Args:
        resident: blocks that really fit a multiprocessor, by micro-kernel, as its record
            tells; the others' are estimated from its sizes.
        imbalance: the paper's, or fitted.
    """

    workload: Workload
    hardware: Hardware
    kind: Literal["paper", "streamed"] = "streamed"
    cache: CacheState = "hot"
    resident: Mapping[CudaMicroKernel, int] = field(default_factory=dict, hash=False, compare=False)
    imbalance: Imbalance = IMBALANCE

    def with_cache(self, cache: CacheState) -> CudaAdaptation:
        return replace(self, cache=cache)

    def working_shares(self, schemes: Sequence[CudaScheme], shapes: Sequence[Shape]) -> FloatArray:
        rate = 1e9 * (self.hardware.peak_for(self.workload.dtype) or 100.0)
        return self._shares(schemes, shapes, lambda _: rate)

    def places(self, kernel: CudaMicroKernel) -> int:
        """Blocks that fit a multiprocessor at once, 1 or more."""
        known = self._places.get(kernel)
        if known is None:
            shared = shared_bytes(kernel, require_dtype(self.workload.dtype).itemsize)
            registers = compiled_registers(kernel, self.hardware.gpu)
            known = max(1, blocks_per_sm(self.hardware.gpu, kernel.threads, registers, shared))
            self._places[kernel] = known
        return known

    @cached_property
    def _places(self) -> dict[CudaMicroKernel, int]:
        """The cache of :meth:`places`, which every prediction of a time asks for."""
        return {kernel: max(1, blocks) for kernel, blocks in self.resident.items()}

    def filling(self, scheme: CudaScheme, shape: Shape) -> tuple[int, int]:
        """Blocks of a call, and places for blocks on all multiprocessors together."""
        bundle, calls = self._bundle([scheme], lambda _: 1.0), Calls.of(self.workload, [shape])
        blocks, places = self._filling(bundle, calls)
        return int(blocks[0]), int(places[0])

    def _alike(self, scheme: CudaScheme) -> Hashable:
        return scheme.edge

    def _sizes(self, scheme: CudaScheme) -> dict[str, int]:
        kernel = scheme.kernel
        # Blocks that share a reduction take equally many steps, or wait as long.
        sizes = {"splits": kernel.splits, "step": kernel.step * kernel.splits, "places": self.places(kernel)}
        return {**sizes, "rows": kernel.rows, "cols": kernel.cols, "granule": kernel.granule}

    def _paid(self, scheme: CudaScheme) -> dict[Role, int]:
        return {**scheme.cover_tile, "depth": scheme.kernel.step * scheme.kernel.splits}

    def _static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        return bundle.useful(calls) * self._busy(bundle, calls)

    def _parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        works = self._works(bundle, calls)
        padded = sum((work / (bundle.speed(h) * self.hardware.cores) for h, work in works), np.zeros(1))
        edges, useful = padded * _edges(bundle, calls), bundle.useful(calls)
        idle = (padded + edges) * (1 / self._busy(bundle, calls) - 1)
        called = calls["rows"] > 0
        waiting = called * np.maximum(0.0, self._traffic_seconds(calls) - padded - edges - idle)
        launched = edges + called * LAUNCH_SECONDS
        return FiveParts(padded * useful, launched, padded * (1 - useful), waiting, idle)

    def _throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        works = [work for _, work in self._works(bundle, calls)]
        paid = sum(works, np.zeros(1)) * (1 + _edges(bundle, calls))
        # A launch is never all of a call: clocks are read a little apart.
        spent = np.maximum(seconds - LAUNCH_SECONDS, 0.2 * seconds)
        return np.asarray(paid / (self._busy(bundle, calls) * self.hardware.cores * spent))

    @staticmethod
    def _works(bundle: Bundle, calls: Calls) -> list[tuple[IntArray, FloatArray]]:
        """Returns each region's height and executed flops, padding included: blocks that share a reduction
        all wait for the one that has most steps."""
        columns = bundle["cols"] * bundle.column_tiles(calls)
        depth = bundle["step"] * _own_steps(bundle, calls)
        area = np.asarray(2.0 * columns * depth * calls["batch"], np.float64)
        return [(height, area * (height * tiles)) for height, tiles in bundle.tiles(calls["rows"])]

    def _filling(self, bundle: Bundle, calls: Calls) -> tuple[IntArray, IntArray]:
        tiles = np.asarray(sum(count for _, count in bundle.tiles(calls["rows"])))
        blocks = tiles * bundle.column_tiles(calls) * calls["batch"] * bundle["splits"]
        return blocks, self.hardware.cores * bundle["places"]

    def _busy(self, bundle: Bundle, calls: Calls) -> FloatArray:
        blocks, places = self._filling(bundle, calls)
        below, above = self.imbalance
        return f_occ(blocks, places, np.where(blocks < places, below, above))

    def _traffic_seconds(self, calls: Calls) -> FloatArray:
        """Returns the seconds to read every operand from memory once, where they do not stay in L2
        between calls."""
        if self.kind == "paper" or self.cache != "rotating" or not self.hardware.dram_gbps:
            return np.zeros(len(calls.shapes))
        moved = np.array([self.workload.bytes(shape) for shape in calls.shapes], np.float64)
        return moved / (1e9 * self.hardware.dram_gbps)


def _own_steps(bundle: Bundle, calls: Calls) -> IntArray:
    """Steps of the reduction that a block takes."""
    return -(-calls["depth"] // bundle["step"])


def _edges(bundle: Bundle, calls: Calls) -> FloatArray:
    """Returns the cost of prologue, epilogue and reduction across blocks, in units of the multiply-adds."""
    steps = EDGE_STEPS + np.where(bundle["splits"] > 1, CLUSTER_STEPS, 0.0)
    return np.asarray(steps / np.maximum(1, _own_steps(bundle, calls)))
