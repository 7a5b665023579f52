"""The analytic half of the cost model: what stitching a micro-kernel over a shape loses.

A micro-kernel computes at a throughput of its own, ``f_mk``. A shape made of it also pays for
padding (``f_pad``), for idle cores (``f_occ``) and, on a CPU, for the first trip of the weights
from the last-level cache (``f_stream``, an addition to the paper)::

    seconds(M, S) = flops(S) / (f_mk(M) * cores * f_pad(M, S) * f_occ(M, S) * f_stream(M, S))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from dietlab.hardware import Hardware
from dietlab.shapes import Shape
from dietlab.space import MicroKernel
from dietlab.workloads import Role, Workload, extents

Adaptation = Literal["paper", "streamed"]
FLOAT_BYTES = 4


def f_pad(sizes: Mapping[Role, int], tile: Mapping[Role, int], *, spatial_only: bool = False) -> float:
    """Useful over executed multiply-adds: ``prod extent / (tile * ceil(extent / tile))``.

    The paper's definition (section 3.3) counts the spatial axes only (``spatial_only``); a padded
    reduction axis costs as much, so it is counted by default. An empty shape wastes nothing.
    """
    counted = [role for role in tile if not (spatial_only and role == "depth")]
    if any(sizes[role] == 0 for role in counted):
        return 1.0
    return prod(sizes[role] / (tile[role] * ceil(sizes[role] / tile[role])) for role in counted)


def padding_waste(sizes: Mapping[Role, int], tile: Mapping[Role, int]) -> float:
    """Multiply-adds that no output needs over all executed, in [0, 1)."""
    return 1.0 - f_pad(sizes, tile)


def f_occ(tiles: int, processors: int, imbalance: float | None = None) -> float:
    """Busy over paid processors for ``g`` equal tiles on ``C`` processors (paper, section 3.3).

    ``g / G`` with ``G = C * ceil(g / C)``. With a fitted ``imbalance`` c it is
    ``c g / ((c - 1) g + G)``, which is 1 at full waves, ``g / G`` at c = 1 and tends to 1 for large c; the
    paper fits c = 1.433 below one wave and 2.14 above on a T4.
    """
    if tiles == 0:
        return 1.0
    paid = processors * ceil(tiles / processors)
    if imbalance is None:
        return tiles / paid
    return imbalance * tiles / ((imbalance - 1) * tiles + paid)


@dataclass(frozen=True)
class AdaptationCost:
    """The adaptation of micro-kernels of one workload to shapes on one processor.

    ``kind="paper"`` has padding and idle cores only; ``"streamed"`` adds the weights' traffic.
    """

    workload: Workload
    hardware: Hardware
    kind: Adaptation = "streamed"

    def static(self, kernel: MicroKernel, shape: Shape) -> float:
        """``f_pad * f_occ``: what is known before anything is measured."""
        sizes = extents(self.workload, shape)
        panels = ceil(sizes["cols"] / kernel.cols)
        return f_pad(sizes, kernel.tile) * f_occ(panels, self.hardware.cores)

    def seconds(self, kernel: MicroKernel, shape: Shape, throughput: float) -> float:
        """Predicted seconds of a call if the micro-kernel alone runs at ``throughput`` flop/s a core."""
        row_tiles, panels, tile_flops, fetch = self._tiles(kernel, shape)
        warm = tile_flops / throughput
        cold = max(warm, fetch)
        if kernel.order == "ws":
            return panels * (cold + (row_tiles - 1) * warm)
        return panels * row_tiles * cold

    def throughput(self, kernel: MicroKernel, shape: Shape, seconds: float) -> float:
        """The inverse of :meth:`seconds`: the label that one measurement gives for every shape."""
        row_tiles, panels, tile_flops, fetch = self._tiles(kernel, shape)
        mean = seconds / (panels * row_tiles)
        hidden = mean >= fetch or kernel.order == "is" or row_tiles == 1
        warm = mean if hidden else (mean * row_tiles - fetch) / (row_tiles - 1)
        # A time below the fetch's would give a senseless warm tile; then traffic was no limit.
        return tile_flops / (warm if warm > 0.5 * mean else mean)

    def _tiles(self, kernel: MicroKernel, shape: Shape) -> tuple[int, int, float, float]:
        """Row tiles, panels of the busiest core, flops of a tile, seconds to fetch a panel."""
        sizes = extents(self.workload, shape)
        row_tiles = max(1, ceil(sizes["rows"] / kernel.rows))
        panels = ceil(ceil(sizes["cols"] / kernel.cols) / self.hardware.cores)
        tile_flops = 2.0 * kernel.rows * kernel.cols * sizes["depth"]
        panel_bytes = FLOAT_BYTES * kernel.cols * sizes["depth"]
        rate = self._weights_gbps(FLOAT_BYTES * sizes["cols"] * sizes["depth"])
        return row_tiles, panels, tile_flops, panel_bytes / (rate * 1e9) if rate else 0.0

    def _weights_gbps(self, weight_bytes: int) -> float | None:
        """What a core gets from where the weights stay between calls: the last-level cache, or memory
        if they would fill more than half of it; None when traffic is not modelled."""
        if self.kind == "paper":
            return None
        if 2 * weight_bytes <= self.hardware.cpu.l3_bytes:
            return self.hardware.l3_gbps
        memory = self.hardware.dram_gbps
        return memory / self.hardware.cores if memory else None


def best_shape(kernel: MicroKernel, shapes: tuple[Shape, ...], cost: AdaptationCost) -> Shape:
    """``S*``: the shape on which a micro-kernel wastes least; the largest of equals."""
    return max(shapes, key=lambda shape: (round(cost.static(kernel, shape), 6), shape))
