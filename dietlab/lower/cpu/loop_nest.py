"""The state that the loops over one plan's tiles share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import tirx

from dietlab.lower.cpu.geometry import Geometry
from dietlab.lower.cpu.tir import int64
from dietlab.space import CpuMicroKernel, CpuScheme

if TYPE_CHECKING:
    from dietlab.lower.cpu.prefetch import Stream


@dataclass(frozen=True)
class Operands:
    """Buffers of the entry function, its dynamic dimension, and one core's scratch."""

    x: Any
    w: Any
    y: Any
    residual: Any | None
    bias: Any | None
    size: Any
    scratch: Any | None = None


@dataclass(frozen=True)
class LoopNest:
    """The state that the loops over one plan's tiles share: ``batch`` is the product they are in,
    ``first_tile`` and ``block_tiles`` the row tiles of the block (None: all), ``row_tile`` the current
    one, ``columns`` this core's first column tile and one past its last (None: all), ``begin`` the first
    step of the K-block, ``parts`` how many K-blocks a tile takes one after the other, ``streams`` the
    operands that a batch prefetches."""

    scheme: CpuScheme
    geometry: Geometry
    operands: Operands
    functions: Mapping[str, Any]
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    batch: Any = 0
    first_tile: Any = 0
    block_tiles: Any | None = None
    row_tile: Any = 0
    columns: tuple[Any, Any] | None = None
    begin: Any = 0
    parts: Any = 1
    streams: tuple[Stream, ...] = ()

    @property
    def kernel(self) -> CpuMicroKernel:
        return self.scheme.kernel

    @property
    def size(self) -> Any:
        return self.operands.size

    @property
    def cols(self) -> Any:
        return self.geometry.value(self.geometry.cols, self.size)

    @property
    def depth(self) -> Any:
        return self.geometry.value(self.geometry.depth, self.size)

    @property
    def panels(self) -> int:
        """Panels under one column tile."""
        return self.kernel.vectors(self.geometry.lanes)

    @property
    def tile_floats(self) -> int:
        """Weights under one column tile."""
        return self.panels * self.geometry.panel_rows * self.geometry.lanes

    @property
    def transposes(self) -> bool:
        """True if panels are transposed on the fly."""
        return transposes(self.kernel, self.geometry)

    @property
    def row_tiles(self) -> Any:
        return ceil_div(self.size, self.kernel.rows)

    @property
    def pass_tiles(self) -> Any:
        """Row tiles that one pass over the weights computes."""
        return self.row_tiles if self.block_tiles is None else self.block_tiles

    @property
    def column_tiles(self) -> Any:
        return ceil_div(self.cols, self.kernel.cols)


def transposes(kernel: CpuMicroKernel, geometry: Geometry) -> bool:
    """Returns whether a plan transposes panels on the fly: its vectors run across the rows of the weights."""
    return geometry.weights == "transposed" and kernel.along == "cols"


def ceil_div(extent: Any, tile: int) -> Any:
    """Returns the number of tiles that cover an extent, a number or an expression."""
    if isinstance(extent, int):
        return -(-extent // tile)
    return tirx.truncdiv(extent + (tile - 1), int64(tile))
