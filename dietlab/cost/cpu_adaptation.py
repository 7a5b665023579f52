"""The adaptation cost of register tiles on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Literal, NamedTuple

from dietlab.cost.formulas import Parts, f_occ, f_pad
from dietlab.hardware import Hardware
from dietlab.measure import CacheState
from dietlab.plans import Plan, plan_for
from dietlab.shapes import Shape
from dietlab.space import FMA_LATENCY, CpuMicroKernel, CpuScheme
from dietlab.workloads import Role, Workload, extents, largest

FLOAT_BYTES = 4

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
    tiles prefetch them: 1 where the processor does both at once (:mod:`dietlab.cost.overlap`)."""

    memory: float
    cache: float


ALL_HIDDEN = Hiding(1.0, 1.0)


@dataclass(frozen=True)
class CpuAdaptation:
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

    def static(self, scheme: CpuScheme, shape: Shape) -> float:
        sizes = extents(self.workload, shape)
        pieces = self._pieces(scheme, plan_for(scheme, sizes["rows"]), sizes)
        return f_pad(sizes, scheme.cover_tile) * f_occ(pieces, self.hardware.cores)

    def seconds(self, scheme: CpuScheme, shape: Shape, throughput: Callable[[CpuScheme], float]) -> float:
        return self.parts(scheme, shape, throughput).total

    def parts(self, scheme: CpuScheme, shape: Shape, throughput: Callable[[CpuScheme], float]) -> Parts:
        sizes = extents(self.workload, shape)
        plan = plan_for(scheme, sizes["rows"])
        if not plan.regions:
            return Parts(0.0, 0.0, 0.0, 0.0, 0.0)
        column_tiles = ceil(sizes["cols"] / scheme.cols)
        passes = sizes["batch"] * column_tiles / self.hardware.cores
        width, edge_steps = self._width(scheme, sizes), self._edge_steps(scheme, sizes)
        tiles = [region.scheme for region in plan.regions]
        steps = [2.0 * tile.rows * width / (throughput(tile) * self._hidden(tile)) for tile in tiles]
        step_of_all = sum(step * r.tiles for step, r in zip(steps, plan.regions, strict=True))
        edges = edge_steps * step_of_all
        # However low the tiles are: exchanging registers waits for no multiply-add.
        edges += self._transposed_rows(scheme) * sizes["depth"] * 2.0 * width / throughput(scheme)
        warm = sizes["depth"] * step_of_all
        first = (sizes["depth"] + edge_steps) * steps[0]
        waiting = self._waiting(scheme, plan.tiles, warm + edges, first, self._fetch(scheme))
        useful = f_pad(sizes, scheme.cover_tile)
        busy = f_occ(self._pieces(scheme, plan, sizes), self.hardware.cores)
        idle = (warm + edges + waiting) * (1 / busy - 1)
        return Parts(*(passes * p for p in (warm * useful, edges, warm * (1 - useful), waiting, idle)))

    def throughput(self, scheme: CpuScheme, shape: Shape, seconds: float) -> float:
        sizes = extents(self.workload, shape)
        plan = plan_for(scheme, sizes["rows"])
        passes = sizes["batch"] * ceil(sizes["cols"] / scheme.cols) / self.hardware.cores
        spent = seconds / passes * f_occ(self._pieces(scheme, plan, sizes), self.hardware.cores)
        paid = {r: r.executed_rows / self._hidden(r.scheme) for r in plan.regions}
        head, rows = plan.regions[0], sum(paid.values())
        lead = paid[head] / head.tiles
        steps = rows * (sizes["depth"] + self._edge_steps(scheme, sizes))
        transposed = self._transposed_rows(scheme) * sizes["depth"]
        flops = 2.0 * self._width(scheme, sizes) * (steps + transposed)
        fetch, first = self._fetch(scheme), lead / rows
        rest = spent - fetch
        # Only where the first tile waits for its weights does their fetch tell nothing about computing;
        # a time below the fetch's would give a senseless rest.
        bound = scheme.order == "ws" and not scheme.kernel.ahead and fetch > spent * first
        if bound and rest > 0.5 * spent * (1 - first) > 0:
            return flops * (1 - first) / rest
        return flops / spent

    def working_share(self, scheme: CpuScheme, shape: Shape) -> float:
        parts = self.parts(scheme, shape, lambda _: 1.0)
        return parts.compute / parts.total if parts.total else 0.0

    @staticmethod
    def _width(scheme: CpuScheme, sizes: Mapping[Role, int]) -> float:
        """Returns the columns of a tile, on average: where they are composed no tile is wider than needed."""
        if scheme.kernel.along == "cols":
            return scheme.cols
        return sizes["cols"] / ceil(sizes["cols"] / scheme.cols)

    def _hidden(self, scheme: CpuScheme) -> float:
        """Returns the share of its throughput that a low tile reaches: with fewer accumulators than a
        multiply-add takes cycles the unit idles, and no candidate that low was measured by itself."""
        across = (
            scheme.cols if scheme.kernel.along == "depth" else scheme.kernel.vectors(self.hardware.cpu.lanes)
        )
        return min(1.0, scheme.rows * across / FMA_LATENCY)

    def _edge_steps(self, scheme: CpuScheme, sizes: Mapping[Role, int]) -> float:
        """Steps in whose time a tile is begun and ended, once in each pass over the output."""
        passes = ceil(sizes["depth"] / (scheme.kernel.block or max(1, sizes["depth"])))
        sums = SUMS_STEPS * self.hardware.cpu.lanes if scheme.kernel.along == "depth" else 0.0
        return EDGE_STEPS * passes + sums

    def _transposed_rows(self, scheme: CpuScheme) -> float:
        transposes = self.workload.weights == "transposed" and scheme.kernel.along == "cols"
        return TRANSPOSED_ROWS if transposes else 0.0

    def _pieces(self, scheme: CpuScheme, plan: Plan[CpuMicroKernel], sizes: Mapping[Role, int]) -> int:
        """Returns the pieces of work that are divided among the cores: products of a batch, transposed
        panels, or tiles."""
        column_tiles = ceil(sizes["cols"] / scheme.cols)
        if any(axis.role == "batch" for axis in self.workload.axes):
            return sizes["batch"]
        return column_tiles if self.workload.weights == "transposed" else column_tiles * plan.tiles

    def _waiting(self, scheme: CpuScheme, tiles: int, computing: float, first: float, fetch: float) -> float:
        """Returns the seconds that one pass waits for weights: all its tiles hide the fetch if each asks for
        a part of the next panel; else the first one alone, or every one if weights are fetched for each."""
        if scheme.kernel.ahead:
            share = 1.0 if tiles == 1 else getattr(self.hiding, self.weights_from)
            return max(0.0, fetch - share * computing)
        if scheme.order == "ws":
            return max(0.0, fetch - first)
        return max(0.0, tiles * fetch - computing)

    def _fetch(self, scheme: CpuScheme) -> float:
        """Returns the seconds to fetch the weights of one column tile."""
        rate = self._weights_gbps
        if not rate:
            return 0.0
        return FLOAT_BYTES * scheme.cols * largest(self.workload, "depth") / (rate * 1e9)

    @cached_property
    def weights_from(self) -> Literal["memory", "cache"]:
        """The level that holds the weights between calls: the last-level cache, or memory if they rotate
        or would fill more than half of it."""
        weight_bytes = FLOAT_BYTES * largest(self.workload, "cols") * largest(self.workload, "depth")
        kept = self.cache != "rotating" and 2 * weight_bytes <= self.hardware.cpu.l3_bytes
        return "cache" if kept else "memory"

    @cached_property
    def _weights_gbps(self) -> float | None:
        """The bandwidth of that level for one core, in GB/s; None if traffic is not modelled."""
        if self.kind == "paper" or self.workload.weights != "packed":
            return None
        if self.weights_from == "cache":
            return self.hardware.l3_gbps
        memory = self.hardware.dram_gbps
        return memory / self.hardware.cores if memory else None
