"""The operands of a kernel, and the place of a block's tile in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arrays:
    """The operands as flat buffers, one element after the other."""

    x: Any
    w: Any
    y: Any
    bias: Any | None
    residual: Any | None


@dataclass(frozen=True)
class BlockPosition:
    """The position of a block's tile: its batch, its first row and column, and its number of rows (all
    int32 expressions), in a block of threads numbered by ``thread``, which is number ``rank`` of those
    that share the tile's reduction; ``checked`` if its multiply-adds test their bounds, in place of local
    padding."""

    batch: Any
    first_row: Any
    first_col: Any
    size: Any
    thread: Any
    rank: Any
    checked: bool = False
