"""The micro-kernel of a CPU contraction: a register tile."""

# The order that a dataclass makes stands in place of the abstract one.
# mypy: disable-error-code=misc

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from dietlab.errors import SpaceError
from dietlab.space.micro_kernel import Edge, MicroKernel
from dietlab.workloads import Role

Order = Literal["ws", "is"]
Along = Literal["cols", "depth"]

_KEY = re.compile(
    r"(\d+)x(\d+)\.u(\d+)\.(ws|is)\.p(\d+)(a?)(?:\.k(\d+))?(?:\.(depth))?"
    r"(?:\.(even|rest|checked|partitioned))?"
)


@dataclass(frozen=True, order=True)
class CpuMicroKernel(MicroKernel):
    """A program for one ``rows x cols`` tile of the output, held in vector registers.

    Args:
        rows: rows of the register tile (each row of the input is broadcast).
        cols: columns of the register tile; a multiple of the vector lanes if vectors run along them.
        unroll: steps of the reduction axis in one iteration of the inner loop.
        order: which operand stays while the other streams. ``ws`` (weight-stationary): for each
            panel of weights, all row tiles; ``is`` (input-stationary): for each row tile, all
            panels.
        prefetch: distance of the prefetch of weights into L1, in steps; 0 leaves it to the hardware.
        edge: the treatment of tiles that would stick out of the output; see :class:`MicroKernel`.
        ahead: whether the next panel of packed weights is prefetched into L2 (not by a single row tile),
            or the operands and the output of a batch's next product. Each row tile prefetches a share,
            so that memory works while the current panel is computed.
        along: the axis that vectors run along. ``cols``: an input is broadcast to a vector of outputs.
            ``depth``: every output is a dot product, ``lanes`` products at a time, which are added up
            across the lanes at the end; ``unroll`` counts vectors of the reduction axis, ``cols`` is
            any number, and columns are composed as rows are.
        block: steps of a K-block: the part of the reduction axis in one pass over the output, 0 for all
            of it. K-blocking keeps the part of the input that a pass reads in L1 or L2; the output holds
            the sums between passes.

    ``key`` reads ``8x32.u4.ws.p0a.even``, ``5x5.u4.ws.p0.depth.even`` for vectors along the depth, or
    ``6x48.u2.ws.p0a.k512.even`` for passes of 512 steps.

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
    block: int = 0

    def __post_init__(self) -> None:
        if min(self.rows, self.cols, self.unroll) < 1 or min(self.prefetch, self.block) < 0:
            raise SpaceError("a micro-kernel's sizes are positive", self.key)

    @property
    def key(self) -> str:
        suffix = f".k{self.block}" if self.block else ""
        suffix += "" if self.along == "cols" else f".{self.along}"
        suffix += "" if self.edge == "padded" else f".{self.edge}"
        prefetch = f"p{self.prefetch}{'a' if self.ahead else ''}"
        return f"{self.rows}x{self.cols}.u{self.unroll}.{self.order}.{prefetch}{suffix}"

    @classmethod
    def parse(cls, key: str) -> CpuMicroKernel | None:
        match = _KEY.fullmatch(key)
        if not match:
            return None
        rows, cols, unroll, order, prefetch, ahead, block, along, edge = match.groups()
        kernel = cls(
            int(rows),
            int(cols),
            int(unroll),
            prefetch=int(prefetch),
            ahead=bool(ahead),
            block=int(block or 0),
        )
        names: dict[str, Any] = {"order": order, "edge": edge or "padded", "along": along or "cols"}
        return replace(kernel, **names)

    @property
    def granule(self) -> int:
        return 1

    @property
    def tile(self) -> dict[Role, int]:
        return {"rows": self.rows, "cols": self.cols, "depth": 1}

    @property
    def cover_tile(self) -> dict[Role, int]:
        if not self.composed:
            return self.tile
        return {**self.tile, "rows": 1, "cols": self.cols if self.along == "cols" else 1}

    @cached_property
    def code(self) -> CpuMicroKernel:
        """The micro-kernel without loop order and edge, which are outside the tile."""
        return replace(self, order="ws", edge="even")

    @property
    def access_pattern(self) -> tuple[Order, int, bool, Along, int]:
        return self.order, self.prefetch, self.ahead, self.along, self.block

    def vectors(self, lanes: int) -> int:
        """Returns the vector registers across one row of the tile."""
        return self.cols // lanes if self.along == "cols" else self.cols

    def registers(self, lanes: int) -> int:
        """Returns the vector registers in use: accumulators, one step's weights, one input."""
        return self.rows * self.vectors(lanes) + self.vectors(lanes) + 1
