"""The tile of a Triton product: one program of those that others measured."""

# The order that a dataclass makes stands in place of the abstract one.
# mypy: disable-error-code=misc

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from dietlab.base.errors import SpaceError
from dietlab.problem import Role
from dietlab.problem.dims import Shape
from dietlab.scheme.micro_kernel import Edge, MicroKernel

LEAST_EXTENT = 16
"""The least extent of a Triton tile, in elements: its tensor-core product takes no smaller one."""

WARP_OUTPUTS = 256
"""The fewest outputs of a warp, 16 x 16: PyTorch gives a small tile fewer warps."""

_KEY = re.compile(r"(\d+)x(\d+)x(\d+)\.warps(\d+)\.s(\d+)")
_CHOICE = re.compile(r"type=triton_BLOCK-M=(\d+)_BLOCK-K=(\d+)_BLOCK-N=(\d+)_numstages=(\d+)_numwarps=(\d+)")


@dataclass(frozen=True, order=True)
class TritonTile(MicroKernel):
    """A program for one ``rows x cols`` tile of the output by one thread block, as Triton compiles it.

    Args:
        rows, cols: the block's tile; what sticks out is masked, so it is local padding.
        step: how much of the reduction axis one stage holds.
        warps: of the block, 32 threads each.
        stages: tiles of shared memory that are fetched ahead.

    ``key`` reads ``128x64x32.warps4.s3``.

    Raises:
        SpaceError: if an extent is no power of two from :data:`LEAST_EXTENT` on, or a count not positive.
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
            raise SpaceError(
                f"a Triton tile has warps, stages, and extents that are powers of two from {LEAST_EXTENT} on",
                self.key,
                "Leave it out.",
            )

    @classmethod
    def of_choice(cls, choice: str) -> TritonTile | None:
        """Returns the tile that AutoHeuristic's text names; None if it names no tile that there can be."""
        match = _CHOICE.fullmatch(choice)
        if match is None:
            return None
        rows, step, cols, stages, warps = map(int, match.groups())
        try:
            return cls(rows, cols, step, warps, stages)
        except SpaceError:
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
        """Threads of the block."""
        return 32 * self.warps

    def cut(self, shape: Shape) -> TritonTile:
        """Returns the tile as PyTorch compiles it for a shape: no extent exceeds the shape's, rounded up to a
        power of two, and a warp has :data:`WARP_OUTPUTS` outputs or more."""
        room = (max(LEAST_EXTENT, 1 << (shape[name] - 1).bit_length()) for name in ("T", "N", "K"))
        rows, cols, step = map(min, (self.rows, self.cols, self.step), room)
        return TritonTile(rows, cols, step, min(self.warps, rows * cols // WARP_OUTPUTS), self.stages)
