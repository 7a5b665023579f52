"""The state that the loops over one plan's tiles share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dietlab.lower.contraction import Sizes
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tir import ceil_div

if TYPE_CHECKING:
    from dietlab.targets.cpu.lowering.prefetch import Stream


@dataclass(frozen=True)
class Operands:
    """Buffers of the entry function, its dynamic extents by name, and one core's scratch."""

    x: Any
    w: Any
    y: Any
    residual: Any | None
    bias: Any | None
    sizes: Sizes
    scratch: Any | None = None


@dataclass(frozen=True)
class LoopNest:
    """The state that the loops over one plan's tiles share: ``batch`` is the product they are in,
    ``first_tile`` and ``block_tiles`` the row tiles of the block (None: all), ``row_tile`` the current
    one, ``columns`` this core's first column tile and one past its last (None: all), ``begin`` the first
    step of the K-block, ``parts`` how many K-blocks a tile takes one after the other, ``streams`` the
    operands that a batch prefetches, ``group_rows`` the rows that a matrix unit multiplies at once."""

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
    group_rows: Any = 1

    @property
    def kernel(self) -> CpuMicroKernel:
        return self.scheme.kernel

    @property
    def rows(self) -> Any:
        return self.geometry.value(self.geometry.rows, self.operands.sizes)

    @property
    def cols(self) -> Any:
        return self.geometry.value(self.geometry.cols, self.operands.sizes)

    @property
    def depth(self) -> Any:
        return self.geometry.value(self.geometry.depth, self.operands.sizes)

    @property
    def products(self) -> Any:
        """Independent products of the batch."""
        assert self.geometry.batch is not None
        return self.geometry.value(self.geometry.batch, self.operands.sizes)

    @property
    def panels(self) -> int:
        """Panels under one column tile."""
        return self.kernel.vectors(self.geometry.lanes)

    @property
    def panel_floats(self) -> Any:
        """Weights of one panel."""
        return self.geometry.panel_rows(self.depth) * self.geometry.lanes

    @property
    def tile_floats(self) -> Any:
        """Weights under one column tile."""
        return self.panels * self.panel_floats

    @property
    def transposes(self) -> bool:
        """True if panels are transposed on the fly."""
        return transposes(self.kernel, self.geometry)

    @property
    def row_tiles(self) -> Any:
        return ceil_div(self.rows, self.kernel.rows)

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
