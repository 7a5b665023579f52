"""The micro-kernel of a CPU contraction: a register tile."""

# The dataclass's order replaces the abstract one.
# mypy: disable-error-code=misc

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dietlab.base.errors import SpaceError
from dietlab.scheme.micro_kernel import MicroKernel
from dietlab.scheme.scheme import Scheme
from dietlab.targets.cpu.units import UNITS, CpuUnit, UnitFacts

Along = Literal["cols", "depth"]

_KEY = re.compile(
    r"(\d+)x(\d+)\.u(\d+)(?:\.(ws|is))?\.p(\d+)(a?)(?:\.k(\d+))?(?:\.(depth))?(?:\.(lines))?"
    rf"(?:\.({'|'.join(sorted(set(UNITS) - {'fma'}, key=len, reverse=True))}))?"
    r"(?:\.(even|rest|checked|partitioned))?"
)


@dataclass(frozen=True, order=True)
class CpuMicroKernel(MicroKernel):
    """A program for one ``rows x cols`` tile of the output, held in vector registers.

    Args:
        rows: the number of rows of the register tile (each row of the input is broadcast).
        cols: the number of columns of the register tile; a multiple of the vector lanes if vectors run along
            them.
        unroll: the number of steps of the reduction axis in one iteration of the inner loop.
        prefetch: the distance of the prefetch of weights into L1, in steps; 0 leaves it to the hardware.
        ahead: whether the next panel of packed weights is prefetched into L2 (not by a single row tile),
            or the operands and the output of a batch's next product. Each row tile prefetches a share,
            so that memory works while the current panel is computed.
        along: the axis that vectors run along. ``cols``: an input is broadcast to a vector of outputs.
            ``depth``: every output is a dot product, ``lanes`` products at a time, which are added up
            across the lanes at the end; ``unroll`` counts vectors of the reduction axis, ``cols`` is
            any number, and columns are composed as rows are.
        block: the number of steps of a K-block, the part of the reduction axis in one pass over the output; 0
            for all of it. The part of the input that a pass reads stays in L1 or L2; the output holds the
            sums between passes.
        unit: the instruction that multiplies and adds. Its *steps* of the reduction are 32-bit words of
            weights (:data:`~dietlab.targets.cpu.units.UNITS`); ``unroll`` and ``prefetch`` count them. AMX
            multiplies groups of up to 16 rows, held in its own tile registers; ``rows`` counts whole groups.
        lines: whether the rows of a tile are neighbours on one line of a convolution's output, so that their
            input is read in place, and elements of the kernel that lie beyond the image are skipped. If
            false, rows are copied from the image first, and tiles go on from line to line. A depthwise
            micro-kernel always covers lines.

    ``key`` reads ``8x32.u4.p0a``, ``5x5.u4.p0.depth`` for vectors along the depth,
    ``6x48.u2.p0a.k512`` for passes of 512 steps, ``6x16.u2.p0a.maddwd`` for another unit, or
    ``6x64.u2.p0.lines``.

    Raises:
        SpaceError: if a size is not positive or no multiple of the instruction's, or the unit is unknown.
    """

    rows: int
    cols: int
    unroll: int = 1
    prefetch: int = 0
    ahead: bool = False
    along: Along = "cols"
    block: int = 0
    unit: CpuUnit = "fma"
    lines: bool = False
    example: ClassVar[str] = "8x32.u4.ws.p0.even"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise SpaceError(f"a CPU's instruction must be one of {', '.join(UNITS)}", repr(self.unit))
        if min(self.rows, self.cols, self.unroll) < 1 or min(self.prefetch, self.block) < 0:
            raise SpaceError("a micro-kernel's sizes must be positive", self.key)
        facts = self.facts
        if self.rows % facts.tile_rows or self.unroll % facts.tile_steps:
            raise SpaceError(
                f"rows and unrolled steps of {self.unit} must be multiples of {facts.tile_rows} and "
                f"{facts.tile_steps}",
                self.key,
            )

    def scheme_key(self, order: str, edge: str) -> str:
        """Returns the key of its scheme with that order of tiles and treatment of the edge."""
        parts = [
            f"{self.rows}x{self.cols}.u{self.unroll}",
            order,
            f"p{self.prefetch}{'a' if self.ahead else ''}",
            f"k{self.block}" if self.block else "",
            "" if self.along == "cols" else self.along,
            "lines" if self.lines else "",
            "" if self.unit == "fma" else self.unit,
            edge,
        ]
        return ".".join(part for part in parts if part)

    @classmethod
    def parse(cls, key: str) -> tuple[CpuMicroKernel, str, str] | None:
        """Returns the micro-kernel, the order and the edge of a key; None if it is no CPU's key."""
        match = _KEY.fullmatch(key)
        if not match:
            return None
        rows, cols, unroll, order, prefetch, ahead, block, along, lines, unit, edge = match.groups()
        others: Any = along or "cols", int(block or 0), unit or "fma", bool(lines)
        kernel = cls(int(rows), int(cols), int(unroll), int(prefetch), bool(ahead), *others)
        return kernel, order or "", edge or ""

    @property
    def granule(self) -> int:
        """Heights are multiples of this number: the rows that one instruction multiplies."""
        return self.facts.tile_rows

    @property
    def depth_multiple(self) -> int:
        """The depth, in elements, is a multiple of this number: above 1 for matrix units only."""
        return self.facts.per_step * self.facts.tile_steps if self.facts.matrix else 1

    @property
    def composes_columns(self) -> bool:
        """True if columns are composed of narrower tiles, as for vectors along the depth."""
        return self.along == "depth"

    @property
    def access_pattern(self) -> tuple[int, bool, Along, int, CpuUnit, bool]:
        """The parameters that determine how operands are read, without the sizes."""
        return self.prefetch, self.ahead, self.along, self.block, self.unit, self.lines

    @property
    def facts(self) -> UnitFacts:
        """The facts about the instruction that multiplies and adds."""
        return UNITS[self.unit]

    def vectors(self, lanes: int) -> int:
        """Returns the number of vector registers across one row of the tile."""
        return self.cols // lanes if self.along == "cols" else self.cols

    def registers(self, lanes: int) -> int:
        """Returns the number of registers in use, vector or tile registers: accumulators, one step's weights,
        one input, and the unit's temporaries."""
        groups, vectors = self.rows // self.facts.tile_rows, self.vectors(lanes)
        if self.facts.matrix:
            return groups * vectors + weight_tiles(vectors) + 1
        return groups * vectors + vectors + self.facts.temporaries


TILE_REGISTERS = 8
"""The number of AMX's tile registers. Each holds 16 rows of 64 bytes (Intel 64 and IA-32 Architectures
Software Developer's Manual, volume 1, chapter on AMX)."""


def weight_tiles(vectors: int) -> int:
    """Returns the number of tile registers for the weights of a micro-kernel that is ``vectors`` registers
    wide: as many, if accumulators and an input leave enough. The number does not depend on the height, so
    that one configuration serves all heights of a family."""
    return max(1, min(vectors, TILE_REGISTERS - 1 - vectors))


CpuScheme = Scheme[CpuMicroKernel]
