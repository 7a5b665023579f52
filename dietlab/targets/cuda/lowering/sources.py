"""Elements of an operand: their addresses, and a test for those that a tile lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx

from dietlab.targets.cuda.lowering.tir import int32, int64


class Source(Protocol):
    """The elements of an operand that one tile takes.

    ``row`` counts rows of ``x`` or columns of ``w`` from the tile's first one; ``step`` counts steps of the
    reduction from 0 (int32 expressions). For a copy of several elements, they are those of the first
    element. The other elements must follow it in memory, and either all or none must lie inside the operand.
    """

    @property
    def buffer(self) -> Any:
        """The operand as a flat buffer."""

    def address(self, row: Any, step: Any) -> Any:
        """Returns the index of an element in the buffer (int64)."""

    def inside(self, row: Any, step: Any) -> Any | None:
        """Returns the condition that the operand has this element, or None if it has all elements that tiles
        take. For a missing element, the address is not read and shared memory gets zero."""

    def of_copy(self, copy: Any) -> Source:
        """Returns the source for one of a thread's copies in a step, by its number (int32). This source may
        use what is known of the copy's row since before the first step."""


@dataclass(frozen=True)
class Strided:
    """A matrix whose lines lie ``stride`` elements apart.

    Args:
        origin: the index of the tile's first row (or column) at reduction step 0 (int64).
        across: whether a line holds the rows of one step, as in ``w[depth, cols]``. Otherwise it holds the
            steps of one row.
        rows_left: the number of rows from the tile's first one to the operand's end; None if every tile lies
            inside.
        depth: the number of steps of the reduction; None if it is a multiple of the tile's.
    """

    buffer: Any
    origin: Any
    stride: Any
    across: bool
    rows_left: Any | None
    depth: Any | None

    def address(self, row: Any, step: Any) -> Any:
        line, element = (step, row) if self.across else (row, step)
        return self.origin + int64(line * self.stride + element)

    def inside(self, row: Any, step: Any) -> Any | None:
        limits = [(row, self.rows_left), (step, self.depth)]
        tests = [at < end for at, end in (limits[::-1] if self.across else limits) if end is not None]
        return None if not tests else tests[0] if len(tests) == 1 else tirx.And(*tests)

    def of_copy(self, copy: Any) -> Strided:
        return self


@dataclass(frozen=True)
class Clamped:
    """A matrix whose last elements are read again beyond its end. Only multiply-adds that test their bounds
    may use it: they ignore these elements.

    Args:
        width: the number of elements of one copy, along a line.
    """

    matrix: Strided
    width: int

    @property
    def buffer(self) -> Any:
        return self.matrix.buffer

    def address(self, row: Any, step: Any) -> Any:
        rows, steps = (self.width, 1) if self.matrix.across else (1, self.width)
        row = _at_most(row, self.matrix.rows_left, rows)
        return self.matrix.address(row, _at_most(step, self.matrix.depth, steps))

    def inside(self, row: Any, step: Any) -> Any | None:
        return None

    def of_copy(self, copy: Any) -> Clamped:
        return self


def _at_most(at: Any, end: Any | None, count: int) -> Any:
    """Returns the index, or at most the last one at which ``count`` elements fit before the end."""
    return at if end is None else tirx.min(at, end - int32(count))
