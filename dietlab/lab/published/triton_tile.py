"""The tile of a Triton product, and the tile's time on a shape before anything is measured.

Times are of products with 16-bit operands on tensor cores: by the paper's formulas, and by the bound from the
throughputs of a multiprocessor.
"""

# The order that a dataclass makes stands in place of the abstract one.
# mypy: disable-error-code=misc

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dietlab.base.errors import SpaceError
from dietlab.base.statistics import Values
from dietlab.cost.formulas import f_occ, f_pad
from dietlab.machine import Hardware
from dietlab.problem import IntArray, Role
from dietlab.problem.dims import Shape
from dietlab.scheme.micro_kernel import Edge, MicroKernel
from dietlab.targets.cuda import bound as gpu_bound
from dietlab.targets.cuda.adaptation import IMBALANCE
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.occupancy import blocks_per_sm
from dietlab.targets.cuda.rates import GpuRates, gpu_rates

LEAST_EXTENT = 16
"""The least extent of a Triton tile, in elements: its tensor-core product takes no smaller one."""

WARP_OUTPUTS = 256
"""The fewest outputs of a warp, 16 x 16: PyTorch gives a small tile fewer warps."""

BYTES = 2
"""The number of bytes of an element."""

SUMS_BESIDE = 64
"""The number of a thread's registers in addition to its sums: addresses and operands; an estimate."""

GROUP_ROWS, GROUP_WARPS = 64, 4
"""The numbers of rows and warps of one group that multiplies together (``wgmma``): Triton uses groups for
tiles with at least as many rows and warps, if the GPU has ``wgmma``."""

WARP_ROWS = 16
"""The number of rows that one warp multiplies at a time."""

ROLES: dict[Role, tuple[str, str]] = {"rows": ("rows", "T"), "cols": ("cols", "N"), "depth": ("step", "K")}
"""The parameter of a tile and the dimension of a shape that have each role."""

_KEY = re.compile(r"(\d+)x(\d+)x(\d+)\.warps(\d+)\.s(\d+)")
_CHOICE = re.compile(r"type=triton_BLOCK-M=(\d+)_BLOCK-K=(\d+)_BLOCK-N=(\d+)_numstages=(\d+)_numwarps=(\d+)")


@dataclass(frozen=True, order=True)
class TritonTile(MicroKernel):
    """A program for one ``rows x cols`` tile of the output by one thread block; ``key`` reads
    ``128x64x32.warps4.s3``.

    Args:
        step: the number of steps of the reduction axis that one stage holds.
        warps: the number of warps of the block, 32 threads each.
        stages: the number of tiles of shared memory that are fetched ahead.
    """

    rows: int
    cols: int
    step: int
    warps: int
    stages: int
    reserves: ClassVar[bool] = True
    ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        extents = (self.rows, self.cols, self.step)
        odd = [extent for extent in extents if extent < LEAST_EXTENT or extent & (extent - 1)]
        if odd or min(self.warps, self.stages) < 1:
            rule = (
                f"a Triton tile must have warps, stages, and powers of two from {LEAST_EXTENT} on as extents"
            )
            raise SpaceError(rule, self.key, "Leave it out.")

    @classmethod
    def of_choice(cls, choice: str) -> TritonTile | None:
        """Returns the tile that AutoHeuristic's text names; None if there can be no such tile."""
        if match := _CHOICE.fullmatch(choice):
            rows, step, cols, stages, warps = map(int, match.groups())
            with suppress(SpaceError):
                return cls(rows, cols, step, warps, stages)
        return None

    @property
    def key(self) -> str:
        return self.scheme_key("", "")

    def scheme_key(self, order: str, edge: str) -> str:
        return f"{self.rows}x{self.cols}x{self.step}.warps{self.warps}.s{self.stages}"

    @classmethod
    def parse(cls, key: str) -> tuple[TritonTile, str, str] | None:
        match = _KEY.fullmatch(key)
        return None if match is None else (cls(*map(int, match.groups())), "", "")

    @property
    def edges(self) -> tuple[Edge, ...]:
        return ("padded",)

    @property
    def granule(self) -> int:
        return self.rows

    @property
    def tile(self) -> dict[Role, int]:
        return {"rows": self.rows, "cols": self.cols, "depth": self.step}

    @property
    def access_pattern(self) -> str:
        return "triton"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def cut(self, shape: Shape) -> TritonTile:
        """Returns the tile as PyTorch compiles it for a shape: no extent exceeds the shape's, rounded up to a
        power of two, and a warp has :data:`WARP_OUTPUTS` outputs or more."""
        room = (max(LEAST_EXTENT, 1 << (shape[name] - 1).bit_length()) for name in ("T", "N", "K"))
        rows, cols, step = map(min, (self.rows, self.cols, self.step), room)
        return TritonTile(rows, cols, step, min(self.warps, rows * cols // WARP_OUTPUTS), self.stages)


@dataclass(frozen=True)
class Pairs:
    """Pairs of a tile and a shape; all properties are ``[pairs]``."""

    tiles: Sequence[TritonTile]
    shapes: Sequence[Shape]
    hardware: Hardware

    @classmethod
    def of(cls, pairs: Iterable[tuple[TritonTile, Shape]], hardware: Hardware) -> Pairs:
        tiles, shapes = tuple(zip(*pairs, strict=True)) or ((), ())
        return cls(tiles, shapes, hardware)

    def of_tiles(self, name: str) -> IntArray:
        """Returns a parameter of each tile."""
        return np.array([getattr(tile, name) for tile in self.tiles], np.int64)

    @cached_property
    def tile(self) -> dict[Role, IntArray]:
        """The extents of the tiles by role."""
        return {role: self.of_tiles(parameter) for role, (parameter, _) in ROLES.items()}

    @cached_property
    def extents(self) -> dict[Role, IntArray]:
        """The extents of the shapes by role."""
        sizes = {role: [shape[name] for shape in self.shapes] for role, (_, name) in ROLES.items()}
        return {role: np.array(size, np.int64) for role, size in sizes.items()}

    @cached_property
    def resident(self) -> IntArray:
        """The number of blocks that fit a multiprocessor."""
        return np.array([resident(tile, self.hardware) for tile in self.tiles], np.int64)

    @cached_property
    def counts(self) -> dict[Role, IntArray]:
        """The numbers of tiles along each axis."""
        return {role: -(-extent // self.tile[role]) for role, extent in self.extents.items()}

    @property
    def blocks(self) -> IntArray:
        """The number of tiles of the output."""
        return self.counts["rows"] * self.counts["cols"]

    @property
    def places(self) -> IntArray:
        """The number of blocks that the processor holds at once."""
        return self.hardware.cores * self.resident

    @property
    def flops(self) -> IntArray:
        return np.asarray(2 * np.prod([*self.extents.values()], axis=0))

    @property
    def traffic(self) -> IntArray:
        """The number of bytes of both operands and the output."""
        rows, cols, depth = self.extents.values()
        return np.asarray(BYTES * (rows * depth + cols * depth + rows * cols))

    @cached_property
    def rates(self) -> GpuRates:
        return gpu_rates(self.hardware)

    @cached_property
    def block_tiles(self) -> gpu_bound.BlockTiles:
        """The tiles as the bound takes them."""
        rows, cols, step = self.tile.values()
        warps, stages = self.of_tiles("warps"), self.of_tiles("stages")
        grouped = (rows >= GROUP_ROWS) & (warps >= GROUP_WARPS) & gpu_of(self.hardware).warp_groups
        groups = warps / GROUP_WARPS
        down = np.where(grouped, np.minimum(rows / GROUP_ROWS, groups), np.clip(rows / WARP_ROWS, 1, warps))
        unit = np.where(grouped, *(gpu_bound.UNIT_NUMBERS[unit] for unit in ("wgmma", "mma")))
        across = np.maximum(1, np.where(grouped, groups, warps) / down)
        ahead = np.maximum(1, stages - 1)
        threads, one, size = 32 * warps, np.ones_like(rows), np.full_like(rows, BYTES)
        return gpu_bound.BlockTiles(
            unit, rows, cols, step, down, across, threads, ahead, self.resident, one, size, one, one, 0 * one
        )

    @cached_property
    def bound(self) -> gpu_bound.BoundSeconds:
        """The parts of the time that throughputs and latencies of a multiprocessor allow."""
        # PyTorch empties L2 before each call that it times.
        memory = gpu_bound.memory_seconds(self.traffic, self.rates, hot=False)
        depth = self.extents["depth"]
        return gpu_bound.bound_seconds(self.block_tiles, self.blocks, depth, memory, self.rates)

    @cached_property
    def paper(self) -> Values:
        """The seconds by DietCode's formulas without a measurement: at the peak, slowed by padding and
        partial waves."""
        below, above = IMBALANCE
        imbalance = np.where(self.blocks < self.places, below, above)
        occupied, useful = f_occ(self.blocks, self.places, imbalance), f_pad(self.extents, self.tile)
        peak = 2 * self.rates.group_macs * self.rates.hertz * self.rates.multiprocessors
        return np.asarray(gpu_bound.LAUNCH_SECONDS + self.flops / (peak * useful * occupied))


@lru_cache(maxsize=4096)  # a table has few tiles, and many pairs
def resident(tile: TritonTile, hardware: Hardware) -> int:
    """Returns the number of a tile's blocks that fit a multiprocessor, 1 or more, by an estimate of its
    registers.
    """
    registers = min(255, tile.rows * tile.cols // tile.threads + SUMS_BESIDE)
    shared = (tile.rows + tile.cols) * tile.step * BYTES * tile.stages
    return max(1, blocks_per_sm(gpu_of(hardware), tile.threads, registers, shared))
