"""The adaptation cost of thread-block tiles on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Literal

from dietlab.cost.formulas import Parts, f_occ, f_pad
from dietlab.hardware import Hardware
from dietlab.hardware.occupancy import blocks_per_sm
from dietlab.measure import CacheState
from dietlab.plans import Plan, plan_for
from dietlab.shapes import Shape
from dietlab.space import CudaMicroKernel, CudaScheme, compiled_registers, shared_bytes
from dietlab.workloads import Role, Workload, extents, require_dtype

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
class CudaAdaptation:
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

    def static(self, scheme: CudaScheme, shape: Shape) -> float:
        sizes = extents(self.workload, shape)
        plan = plan_for(scheme, sizes["rows"])
        return f_pad(sizes, _paid_tile(scheme)) * self._busy(scheme, plan, sizes)

    def seconds(self, scheme: CudaScheme, shape: Shape, throughput: Callable[[CudaScheme], float]) -> float:
        return self.parts(scheme, shape, throughput).total

    def parts(self, scheme: CudaScheme, shape: Shape, throughput: Callable[[CudaScheme], float]) -> Parts:
        sizes = extents(self.workload, shape)
        plan = plan_for(scheme, sizes["rows"])
        if not plan.regions:
            return Parts(0.0, 0.0, 0.0, 0.0, 0.0)
        rates = [throughput(region.scheme) * self.hardware.cores for region in plan.regions]
        works = self._works(scheme, plan, sizes)
        padded = sum(work / rate for work, rate in zip(works, rates, strict=True))
        edges = padded * _edges(scheme, sizes)
        useful = f_pad(sizes, _paid_tile(scheme))
        idle = (padded + edges) * (1 / self._busy(scheme, plan, sizes) - 1)
        waiting = max(0.0, self._traffic_seconds(shape) - padded - edges - idle)
        return Parts(padded * useful, edges + LAUNCH_SECONDS, padded * (1 - useful), waiting, idle)

    def throughput(self, scheme: CudaScheme, shape: Shape, seconds: float) -> float:
        sizes = extents(self.workload, shape)
        plan = plan_for(scheme, sizes["rows"])
        paid = sum(self._works(scheme, plan, sizes)) * (1 + _edges(scheme, sizes))
        # A launch is never all of a call: clocks are read a little apart.
        spent = max(seconds - LAUNCH_SECONDS, 0.2 * seconds)
        return paid / (self._busy(scheme, plan, sizes) * self.hardware.cores * spent)

    def working_share(self, scheme: CudaScheme, shape: Shape) -> float:
        rate = 1e9 * (self.hardware.peak_for(self.workload.dtype) or 100.0)
        parts = self.parts(scheme, shape, lambda _: rate)
        return parts.compute / parts.total if parts.total else 0.0

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
        sizes = extents(self.workload, shape)
        return self._filling(scheme, plan_for(scheme, sizes["rows"]), sizes)

    @staticmethod
    def _works(scheme: CudaScheme, plan: Plan[CudaMicroKernel], sizes: Mapping[Role, int]) -> list[float]:
        """Returns the executed flops of each region, padding included: blocks that share a reduction all wait
        for the one that has most steps."""
        columns = scheme.cols * ceil(sizes["cols"] / scheme.cols)
        depth = scheme.kernel.step * scheme.kernel.splits * _own_steps(scheme, sizes)
        return [2.0 * region.executed_rows * columns * depth * sizes["batch"] for region in plan.regions]

    def _filling(
        self, scheme: CudaScheme, plan: Plan[CudaMicroKernel], sizes: Mapping[Role, int]
    ) -> tuple[int, int]:
        blocks = plan.tiles * ceil(sizes["cols"] / scheme.cols) * sizes["batch"] * scheme.kernel.splits
        return blocks, self.hardware.cores * self.places(scheme.kernel)

    def _busy(self, scheme: CudaScheme, plan: Plan[CudaMicroKernel], sizes: Mapping[Role, int]) -> float:
        blocks, places = self._filling(scheme, plan, sizes)
        below, above = self.imbalance
        return f_occ(blocks, places, below if blocks < places else above)

    def _traffic_seconds(self, shape: Shape) -> float:
        """Returns the seconds to read every operand from memory once, where they do not stay in L2
        between calls."""
        if self.kind == "paper" or self.cache != "rotating" or not self.hardware.dram_gbps:
            return 0.0
        return self.workload.bytes(shape) / (1e9 * self.hardware.dram_gbps)


def _paid_tile(scheme: CudaScheme) -> dict[Role, int]:
    """Extents of which a plan pays for multiples: blocks that share a reduction take equally many steps, or
    wait as long."""
    return {**scheme.cover_tile, "depth": scheme.kernel.step * scheme.kernel.splits}


def _own_steps(scheme: CudaScheme, sizes: Mapping[Role, int]) -> int:
    """Steps of the reduction that a block takes."""
    return ceil(sizes["depth"] / (scheme.kernel.step * scheme.kernel.splits))


def _edges(scheme: CudaScheme, sizes: Mapping[Role, int]) -> float:
    """Returns the cost of prologue, epilogue and reduction across blocks, in units of the multiply-adds."""
    return (EDGE_STEPS + (CLUSTER_STEPS if scheme.kernel.splits > 1 else 0.0)) / _own_steps(scheme, sizes)
