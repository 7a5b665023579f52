"""Blocks that remain: the tiles of a launch over which each block walks, in an order that L2 profits from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.ending import places_for
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import BlockGeometry
from dietlab.targets.cuda.lowering.tir import bound, computed_once, int32

GROUP_ROWS = 8
"""The most row tiles of a group whose columns come before those of the next group. With 132 blocks of 128 x
128, 8 row tiles and 17 column tiles are read at a time; an estimate."""


@dataclass(frozen=True)
class Walk:
    """The tiles of a launch (int32, or numbers), and the blocks that walk over them.

    Block ``b`` of ``blocks`` computes tiles ``b``, ``b + blocks``, ``b + 2 blocks`` and so on. Their numbers
    run down the rows of a group of row tiles first. For example, five row tiles and three column tiles, in
    groups of two row tiles where a program has :data:`GROUP_ROWS`, and four blocks::

        columns   0   1   2             tiles of block 0:  0   4   8  12
        rows 0    0   2   4                      block 1:  1   5   9  13
             1    1   3   5                      block 2:  2   6  10  14
             2    6   8  10                      block 3:  3   7  11
             3    7   9  11
             4   12  13  14

    Tiles that blocks compute at the same time lie in few rows and few columns: each operand that L2 reads
    serves several blocks.
    """

    row_tiles: Any
    col_tiles: Any
    blocks: Any
    group_rows: int = GROUP_ROWS

    @classmethod
    def of(cls, kernel: CudaMicroKernel, geometry: BlockGeometry, row_tiles: Any, col_tiles: Any) -> Walk:
        """Emits on the host the number of blocks: no more than there are tiles; ``kernel`` is the
        micro-kernel of the plan's tallest tiles."""
        held = places_for(kernel, geometry.hardware, geometry.itemsize)
        blocks = bound("blocks", tirx.min(int32(held), row_tiles * int32(col_tiles)))
        return cls(row_tiles, int32(col_tiles), blocks)

    def rounds(self, block: Any) -> Any:
        """Returns the number of tiles of a block. No term exceeds the number of all tiles."""
        return tirx.truncdiv(self.row_tiles * self.col_tiles - int32(1) - block, self.blocks) + int32(1)

    def tile(self, number: Any) -> tuple[Any, Any]:
        """Returns the row tile and the column tile of a number."""
        of_group = int32(self.group_rows) * self.col_tiles
        group = tirx.truncdiv(number, of_group)
        first, inside = group * int32(self.group_rows), tirx.truncmod(number, of_group)
        high = tirx.min(self.row_tiles - first, int32(self.group_rows))
        return first + tirx.truncmod(inside, high), tirx.truncdiv(inside, high)

    @contextmanager
    def tiles(self, block: Any) -> Iterator[tuple[Any, Any]]:
        """Opens the loop over a block's tiles: the row tile and the column tile of each."""
        rounds = computed_once("rounds", self.rounds(block))
        with T.serial(int32(0), rounds) as turn:
            row, col = self.tile(block + turn * self.blocks)
            yield computed_once("row_tile", row), computed_once("col_tile", col)
