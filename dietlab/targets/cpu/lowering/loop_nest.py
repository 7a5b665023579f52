"""The loops over one plan's tiles: each is a context manager that yields its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Sizes
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.lowering.addresses import Strided
from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS, Geometry
from dietlab.targets.cpu.lowering.tir import ceil_div, int64, most
from dietlab.targets.cpu.lowering.units import x_words


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
class Tiling:
    """The tiles of one scheme over one call's output. No loop changes any of it.

    Args:
        functions: the module's private functions by name.
        heights, widths: the numbers of rows and of columns of the tiles that shapes of this scheme need.
        group_rows: the number of rows that a matrix unit multiplies at once.
    """

    scheme: CpuScheme
    geometry: Geometry
    operands: Operands
    functions: Mapping[str, Any]
    heights: tuple[int, ...]
    widths: tuple[int, ...]
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
    def row_tiles(self) -> Any:
        return ceil_div(self.rows, self.kernel.rows)

    @property
    def column_tiles(self) -> Any:
        return ceil_div(self.cols, self.kernel.cols)

    @property
    def panels(self) -> int:
        """The number of panels under one column tile."""
        return self.kernel.vectors(self.geometry.lanes)

    @property
    def panel_floats(self) -> Any:
        """The number of weights in one panel."""
        return self.geometry.panel_rows(self.depth) * self.geometry.lanes

    @property
    def tile_floats(self) -> Any:
        """The number of weights under one column tile."""
        return self.panels * self.panel_floats

    def packed_at(self, group: Any) -> Any:
        """Returns the place of a group's first panel in packed weights."""
        if self.geometry.groups == 1:
            return HEADER_FLOATS
        return HEADER_FLOATS + group * self.geometry.group_floats(self.cols, self.geometry.elements)

    @property
    def transposed_panels(self) -> int:
        """The number of panels that are transposed on the fly before the row tiles of one column tile."""
        return self.panels if transposes(self.kernel, self.geometry) else 0

    @property
    def x(self) -> Strided:
        """The input, as rows of the words that a unit reads."""
        return Strided(self.operands.x, x_words(self.kernel, self.depth))

    @property
    def w(self) -> Strided:
        """Weights that are not packed."""
        return Strided(self.operands.w, self.cols if self.geometry.weights == "direct" else self.depth)


def transposes(kernel: CpuMicroKernel, geometry: Geometry) -> bool:
    """Returns whether a plan transposes panels on the fly: its vectors run across the rows of the weights."""
    return geometry.weights == "transposed" and kernel.along == "cols"


class RowBlock(NamedTuple):
    """The row tiles of one pass over the weights: the index of the first one, and their number."""

    first: Any
    tiles: Any


@dataclass(frozen=True)
class Position:
    """The place of one tile in the loops.

    Args:
        row_tile, column_tile: the tile's indices.
        block: the row tiles of its pass over the weights.
        columns: its core's first column tile, and one past the last.
        begin: the first step of its K-block.
        batch: the index of its product or group.
        gathered: the first row of the copy of the input (:mod:`~dietlab.targets.cpu.lowering.patches`).
    """

    row_tile: Any
    column_tile: Any
    block: RowBlock
    columns: tuple[Any, Any]
    begin: Any = 0
    batch: Any = 0
    gathered: Any = 0


@contextmanager
def each_core(cores: int) -> Iterator[Any]:
    if cores == 1:
        yield 0
        return
    with T.parallel(0, int64(cores)) as core:
        yield core


def share(count: Any, core: Any, cores: int) -> tuple[Any, Any]:
    """Returns the first of a core's equal share of ``count`` pieces of work, and one past its last."""
    return (0, int64(count)) if cores == 1 else _part(count, core, int64(cores))


def _part(count: Any, number: Any, parts: Any) -> tuple[Any, Any]:
    """Returns the begin and end of one of ``parts`` parts, whose sizes differ by at most one."""
    first = T.bind(tirx.truncdiv(number * count, parts))
    return first, T.bind(tirx.truncdiv((number + 1) * count, parts))


@contextmanager
def groups(geometry: Geometry) -> Iterator[Any]:
    """Yields the number of each group of columns."""
    if geometry.groups == 1:
        yield 0
        return
    with T.serial(int64(0), int64(geometry.groups)) as group:
        yield group


@contextmanager
def k_blocks(tiling: Tiling) -> Iterator[tuple[Any, Any]]:
    """Yields the first step of each K-block, and the number of K-blocks that a tile takes one after the
    other: all if the call has a single row tile (:attr:`Lowering.single_tile_whole_depth`), else one."""
    kernel, alone = tiling.kernel, 1
    if not kernel.block:
        yield 0, 1
        return
    parts: Any = int64(most(1, ceil_div(tiling.depth, kernel.block)))
    if tiling.geometry.lowering.single_tile_whole_depth:
        single = int64(tiling.row_tiles) == 1
        alone = T.bind(T.if_then_else(single, parts, int64(1)))
        parts = T.bind(T.if_then_else(single, int64(1), parts))
    with T.serial(int64(0), parts) as part:
        yield T.bind(part * kernel.block), alone


@contextmanager
def k_blocks_of_tile(tiling: Tiling, begin: Any, parts: Any) -> Iterator[Any]:
    """Yields the first step of each of the ``parts`` K-blocks from step ``begin`` on."""
    if not tiling.kernel.block:
        yield begin
        return
    with T.serial(int64(0), parts) as part:
        yield T.bind(begin + part * tiling.kernel.block)


def rows_together(tiling: Tiling) -> Any:
    """Returns the number of rows whose input stays in a core's L2; at least those of a tile."""
    kernel = tiling.kernel
    return most(kernel.rows, tiling.geometry.block_rows(x_words(kernel, tiling.depth), kernel.block))


@contextmanager
def row_blocks(tiling: Tiling) -> Iterator[RowBlock]:
    """Yields blocks of row tiles, each of which reads all weights once. Blocks are equal: a short last one
    would compute for less time than its weights take to arrive. A stationary input needs no blocks."""
    if tiling.scheme.order == "is":
        yield RowBlock(0, tiling.row_tiles)
        return
    together = rows_together(tiling)
    blocks = T.bind(int64(ceil_div(tiling.rows, together)))
    with T.serial(int64(0), blocks) as block:
        first, last = _part(tiling.row_tiles, block, blocks)
        yield RowBlock(first, T.bind(last - first))


@contextmanager
def tiles(
    tiling: Tiling, block: RowBlock, core: Any, before_row: Callable[[Any], None] = lambda row: None
) -> Iterator[tuple[Any, Any, tuple[Any, Any]]]:
    """Yields the row tile and the column tile of this core's share of a block, and its columns. The inner
    loop is cut where a share begins or ends. ``before_row`` emits what comes before the columns of a row
    tile, where these are the inner loop."""
    stationary, columns = tiling.scheme.order == "ws", int64(tiling.column_tiles)
    outer, inner = (columns, block.tiles) if stationary else (block.tiles, columns)
    own: tuple[Any, Any] = (0, tiling.column_tiles)
    begin: Any
    if tiling.geometry.cores == 1:
        ends, begin, end = (int64(0), outer), int64(0), inner
    else:
        first, last = share(outer * inner, core, tiling.geometry.cores)
        ends = (T.bind(tirx.truncdiv(first, inner)), T.bind(tirx.truncdiv(last + inner - 1, inner)))
        own = ends if stationary else own
    with T.serial(*ends) as o:
        if tiling.geometry.cores > 1:
            begin, end = tirx.max(first - o * inner, int64(0)), tirx.min(last - o * inner, inner)
        if not stationary:
            before_row(block.first + o)
        with T.serial(begin, end) as i:
            row, column = (i, o) if stationary else (o, i)
            yield block.first + row, column, own


def composed(edge: str, extent: Any, most: int, number: Any) -> tuple[Any, Any]:
    """Returns two values: the first row (or column) of a composed tile, and the number of its rows (or
    columns), ``most`` at most."""
    if edge == "rest":
        first = T.bind(number * most)
        return first, T.bind(tirx.min(int64(most), extent - first))
    parts = T.bind(int64(ceil_div(extent, most)))
    low = T.bind(tirx.truncdiv(int64(extent), parts))
    more = extent - low * parts
    first = T.bind(number * low + tirx.min(number, more))
    return first, T.bind(low + T.if_then_else(number < more, int64(1), int64(0)))


def call(function: Any, arguments: list[Any]) -> None:
    """Calls a private function of the same module."""
    T.evaluate(tvm.ir.Call(function, arguments, ret_ty="void"))
