"""The micro-kernel of a CPU contraction: a frozen, hashable, ordered value."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from dietlab.errors import SpaceError
from dietlab.workloads import Role

Order = Literal["ws", "is"]
Along = Literal["cols", "depth"]
Edge = Literal["even", "rest", "padded", "checked", "partitioned"]
EDGES: tuple[Edge, ...] = ("even", "rest", "padded", "checked", "partitioned")
COMPOSED: tuple[Edge, ...] = ("even", "rest")
"""Edges that no tile sticks out of: what is left is covered by lower micro-kernels."""

_KEY = re.compile(
    r"(\d+)x(\d+)\.u(\d+)\.(ws|is)\.p(\d+)(a?)(?:\.(depth))?(?:\.(even|rest|checked|partitioned))?"
)


@dataclass(frozen=True, order=True)
class MicroKernel:
    """A program for one ``rows x cols`` tile of the output, held in vector registers.

    Args:
        rows: rows of the register tile (each row of the input is broadcast).
        cols: columns of the register tile; a multiple of the vector lanes if vectors run along them.
        unroll: steps of the reduction axis in one iteration of the inner loop.
        order: which operand stays while the other streams. ``ws`` (weight-stationary): for each
            panel of weights, all row tiles; ``is`` (input-stationary): for each row tile, all
            panels.
        prefetch: how many steps ahead weights are asked into L1; 0 leaves it to the hardware.
        edge: what happens where a tile would stick out of the output. Composition covers the rows
            exactly, with lower micro-kernels beside this one: ``even`` (``ceil(T / rows)`` tiles
            whose heights differ by at most one: 31 = 11 + 10 + 10) or ``rest`` (full tiles, then
            one of what is left: 31 = 14 + 14 + 3). DietCode's way has this micro-kernel only:
            ``padded`` (local padding: the edge tile of the input is copied once and filled with
            zeros, so that the compute stage has no bound check), ``checked`` (bound checks stay
            in the compute stage) or ``partitioned`` (full tiles without checks, the edge tile with).
        ahead: whether what comes next is asked into L2, each row tile a share, so that memory works
            while the current one is computed: the next panel of packed weights, or the operands and
            the output of a batch's next product.
        along: the axis that vectors run along. ``cols``: an input is broadcast to a vector of outputs.
            ``depth``: every output is a dot product, ``lanes`` products at a time, which are added up
            across the lanes at the end; ``unroll`` counts vectors of the reduction axis, ``cols`` is
            any number, and columns are composed as rows are.

    ``key`` is its short name in records and generated code: ``8x32.u4.ws.p0a.even``, or
    ``5x5.u4.ws.p0.depth.even`` for vectors along the depth.

    Raises:
        SpaceError: if a size is not positive.
    """

    rows: int
    cols: int
    unroll: int = 1
    order: Order = "ws"
    prefetch: int = 0
    edge: Edge = "padded"
    ahead: bool = False
    along: Along = "cols"

    def __post_init__(self) -> None:
        if min(self.rows, self.cols, self.unroll) < 1 or self.prefetch < 0:
            raise SpaceError("a micro-kernel's sizes are positive", self.key)

    @property
    def key(self) -> str:
        suffix = "" if self.along == "cols" else f".{self.along}"
        suffix += "" if self.edge == "padded" else f".{self.edge}"
        prefetch = f"p{self.prefetch}{'a' if self.ahead else ''}"
        return f"{self.rows}x{self.cols}.u{self.unroll}.{self.order}.{prefetch}{suffix}"

    def __str__(self) -> str:
        return self.key

    @classmethod
    def from_key(cls, key: str) -> MicroKernel:
        """The inverse of ``key``.

        Raises:
            SpaceError: if it is not a key.
        """
        match = _KEY.fullmatch(key)
        if not match:
            raise SpaceError("a micro-kernel's key reads like 8x32.u4.ws.p0", repr(key))
        rows, cols, unroll, order, prefetch, ahead, along, edge = match.groups()
        kernel = cls(int(rows), int(cols), int(unroll), prefetch=int(prefetch), ahead=bool(ahead))
        names: dict[str, Any] = {"order": order, "edge": edge or "padded", "along": along or "cols"}
        return replace(kernel, **names)

    @property
    def composed(self) -> bool:
        """Whether rows are covered exactly, by this micro-kernel and lower ones."""
        return self.edge in COMPOSED

    @property
    def composes(self) -> tuple[MicroKernel, ...]:
        """The micro-kernels that its plans are made of: itself and, if it is composed, lower ones."""
        heights = range(1, self.rows + 1) if self.composed else (self.rows,)
        return tuple(replace(self, rows=rows) for rows in heights)

    @property
    def family(self) -> MicroKernel:
        """The representative of all that differ in height and edge only."""
        return replace(self, rows=1, edge="even")

    @property
    def tile(self) -> dict[Role, int]:
        """Tile extents by role; the reduction axis is covered exactly (its tile is 1)."""
        return {"rows": self.rows, "cols": self.cols, "depth": 1}

    @property
    def cover_tile(self) -> dict[Role, int]:
        """Extents that a plan covers multiples of: what is composed is covered exactly."""
        if not self.composed:
            return self.tile
        return {**self.tile, "rows": 1, "cols": self.cols if self.along == "cols" else 1}

    @property
    def code(self) -> MicroKernel:
        """The representative of all that share generated tiles: loop order and edge are around them."""
        return replace(self, order="ws", edge="even")

    def vectors(self, lanes: int) -> int:
        """Vector registers across one row of the tile."""
        return self.cols // lanes if self.along == "cols" else self.cols

    def registers(self, lanes: int) -> int:
        """Vector registers in use: accumulators, one step's weights, one input."""
        return self.rows * self.vectors(lanes) + self.vectors(lanes) + 1
