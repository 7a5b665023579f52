"""The time of a Triton tile on a shape before anything is measured: by the paper's formulas, and by the bound
from the throughputs of a multiprocessor.

All is of pairs of a tile and a shape, products with 16-bit operands on tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dietlab.cost.formulas import f_occ, f_pad
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.machine import Hardware
from dietlab.problem import IntArray, Role
from dietlab.problem.dims import Shape
from dietlab.targets.cuda.adaptation import IMBALANCE
from dietlab.targets.cuda.bound import (
    LAUNCH_SECONDS,
    UNIT_NUMBERS,
    BlockTiles,
    BoundSeconds,
    bound_seconds,
    memory_seconds,
)
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.occupancy import blocks_per_sm
from dietlab.targets.cuda.rates import GpuRates, gpu_rates

Values = npt.NDArray[np.float64]

BYTES = 2
"""Bytes of an element."""

SUMS_BESIDE = 64
"""Registers of a thread beside its sums: addresses and operands; an estimate."""

GROUP_ROWS, GROUP_WARPS = 64, 4
"""The rows of a tile, and the warps, of one group that multiplies together (``wgmma``): Triton takes such
groups where a tile has as many of both, and the GPU has them."""

ROLES: dict[Role, tuple[str, str]] = {"rows": ("rows", "T"), "cols": ("cols", "N"), "depth": ("step", "K")}
"""The parameter of a tile and the dimension of a shape that have each role."""

WARP_ROWS = 16
"""The rows that one warp multiplies at a time."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a tile and a shape, as numbers ``[pairs]``."""

    tiles: Sequence[TritonTile]
    shapes: Sequence[Shape]
    hardware: Hardware

    @classmethod
    def of(cls, pairs: Iterable[tuple[TritonTile, Shape]], hardware: Hardware) -> Pairs:
        """Returns the pairs in their order."""
        every = tuple(pairs)
        return cls([tile for tile, _ in every], [shape for _, shape in every], hardware)

    def of_tiles(self, name: str) -> IntArray:
        """Returns a parameter of each tile."""
        return np.array([getattr(tile, name) for tile in self.tiles], np.int64)

    @cached_property
    def tile(self) -> dict[Role, IntArray]:
        """Extents of the tiles by role."""
        return {role: self.of_tiles(parameter) for role, (parameter, _) in ROLES.items()}

    @cached_property
    def extents(self) -> dict[Role, IntArray]:
        """Extents of the shapes by role."""
        return {
            role: np.array([shape[name] for shape in self.shapes], np.int64)
            for role, (_, name) in ROLES.items()
        }

    @cached_property
    def resident(self) -> IntArray:
        """Blocks that fit a multiprocessor."""
        return np.array([resident(tile, self.hardware) for tile in self.tiles], np.int64)

    @cached_property
    def counts(self) -> dict[Role, IntArray]:
        """Tiles along each axis."""
        return {role: -(-extent // self.tile[role]) for role, extent in self.extents.items()}

    @property
    def blocks(self) -> IntArray:
        """Tiles of the output."""
        return self.counts["rows"] * self.counts["cols"]

    @property
    def places(self) -> IntArray:
        """Blocks that the processor holds at once."""
        return self.hardware.cores * self.resident

    @property
    def flops(self) -> IntArray:
        return np.asarray(2 * np.prod([*self.extents.values()], axis=0))

    @property
    def traffic(self) -> IntArray:
        """Bytes of both operands and the output."""
        rows, cols, depth = self.extents.values()
        return np.asarray(BYTES * (rows * depth + cols * depth + rows * cols))

    @cached_property
    def rates(self) -> GpuRates:
        return gpu_rates(self.hardware)

    @cached_property
    def block_tiles(self) -> BlockTiles:
        """The tiles as the bound takes them."""
        rows, cols, step = self.tile.values()
        warps, stages = self.of_tiles("warps"), self.of_tiles("stages")
        grouped = (rows >= GROUP_ROWS) & (warps >= GROUP_WARPS) & gpu_of(self.hardware).warp_groups
        groups = warps / GROUP_WARPS
        down = np.where(grouped, np.minimum(rows / GROUP_ROWS, groups), np.clip(rows / WARP_ROWS, 1, warps))
        unit = np.where(grouped, UNIT_NUMBERS["wgmma"], UNIT_NUMBERS["mma"])
        across = np.maximum(1, np.where(grouped, groups, warps) / down)
        ahead = np.maximum(1, stages - 1)
        threads, one, size = 32 * warps, np.ones_like(rows), np.full_like(rows, BYTES)
        return BlockTiles(unit, rows, cols, step, down, across, threads, ahead, self.resident, one, size, one)

    @cached_property
    def bound(self) -> BoundSeconds:
        """The parts of the time that throughputs and latencies of a multiprocessor allow."""
        # PyTorch empties L2 before each call that it times.
        memory = memory_seconds(self.traffic, self.rates, hot=False)
        return bound_seconds(self.block_tiles, self.blocks, self.extents["depth"], memory, self.rates)

    @cached_property
    def paper(self) -> Values:
        """Seconds by DietCode's formulas without a measurement: the peak, over padding and waves."""
        below, above = IMBALANCE
        imbalance = np.where(self.blocks < self.places, below, above)
        occupied, useful = f_occ(self.blocks, self.places, imbalance), f_pad(self.extents, self.tile)
        peak = 2 * self.rates.group_macs * self.rates.hertz * self.rates.multiprocessors
        return np.asarray(LAUNCH_SECONDS + self.flops / (peak * useful * occupied))


@lru_cache(maxsize=4096)  # a table has few tiles, and many pairs
def resident(tile: TritonTile, hardware: Hardware) -> int:
    """Returns how many blocks of a tile fit a multiprocessor, 1 or more, by an estimate of its registers."""
    registers = min(255, tile.rows * tile.cols // tile.threads + SUMS_BESIDE)
    shared = (tile.rows + tile.cols) * tile.step * BYTES * tile.stages
    return max(1, blocks_per_sm(gpu_of(hardware), tile.threads, registers, shared))
