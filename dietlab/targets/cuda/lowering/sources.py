"""Elements of an operand: their addresses, and a test for those that a tile lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.lowering.tir import bound, from_element, int32, int64, opaque, registers


class Source(Protocol):
    """The elements of an operand that one tile takes.

    ``row`` counts rows of ``x`` or columns of ``w`` from the tile's first one; ``step`` counts steps of the
    reduction from the stage's first one, which is number ``first`` (int32 expressions). For a copy of several
    elements, they are those of the first element. The other elements must follow it in memory, and either all
    or none must lie inside the operand.
    """

    @property
    def buffer(self) -> Any:
        """The operand as a flat buffer."""

    def address(self, row: Any, step: Any, first: Any) -> Any:
        """Returns the index of an element in the buffer (int64)."""

    def inside(self, row: Any, step: Any, first: Any) -> Any | None:
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
        width: the number of elements of one copy, along a line.
        far: whether lines may begin 2^31 elements or more from the first one.
    """

    buffer: Any
    origin: Any
    stride: Any
    across: bool
    rows_left: Any | None
    depth: Any | None
    width: int
    far: bool = False

    def address(self, row: Any, step: Any, first: Any) -> Any:
        step = step + first
        line, element = (step, row) if self.across else (row, step)
        if self.far:
            return self.origin + int64(line) * int64(self.stride) + int64(element)
        return self.origin + int64(line * self.stride + element)

    def inside(self, row: Any, step: Any, first: Any) -> Any | None:
        limits = [(row, self.rows_left), (step + first, self.depth)]
        tests = [at < end for at, end in (limits[::-1] if self.across else limits) if end is not None]
        return None if not tests else tests[0] if len(tests) == 1 else tirx.And(*tests)

    def of_copy(self, copy: Any) -> Strided:
        return self

    def clamped(self, row: Any) -> Any:
        """Returns the row, or the last one at which a copy begins."""
        return _at_most(row, self.rows_left, self.width if self.across else 1)


@dataclass(frozen=True)
class KeptPlaces:
    """A matrix with lines of dynamic length, or with 2^31 elements or more. A thread computes the places of
    its copies in a stage once, and keeps them.

    For example, with the two copies of a thread, rows 0 and 64 of a tile::

        before                                   after
        for step in range(steps):                tile, place = address of x[origin], [0, 64 * K]
          x[origin + 64 * K + step * 16]         for step in range(steps):
                                                   tile[place[1] + step * 16]

    Args:
        buffer: the operand from the tile's first row and step on.
        clamps: whether the last row is read again beyond the operand's end, where sums belong to columns that
            are not stored. This needs no test in a step; but rows that are not read at all cost less.
        places: the registers, one for each copy (int32): a tile has fewer than 2^31 elements from its first
            one to its last one.
    """

    matrix: Strided
    buffer: Any
    clamps: bool
    places: Any
    copy: Any = 0

    @classmethod
    def of(cls, matrix: Strided, copies: int, *, clamps: bool) -> KeptPlaces:
        """Emits the address of the tile, and returns the matrix with registers for the places of copies."""
        tile = from_element(matrix.buffer, matrix.origin)
        return cls(matrix, tile, clamps, registers("places", copies, "int32"))

    def keep(self, copy: Any, row: Any, step: Any) -> None:
        """Emits the place of a copy, which begins at a row and step of a stage."""
        matrix = self.matrix
        row = matrix.clamped(row) if self.clamps else row
        line, element = (step, row) if matrix.across else (row, step)
        place = bound("place", int32(line * matrix.stride + element))
        T.buffer_store(self.places, opaque(place), [copy])

    def address(self, row: Any, step: Any, first: Any) -> Any:
        place, matrix = self.places[self.copy], self.matrix
        if matrix.across:
            return int64(first) * int64(matrix.stride) + int64(place)
        return int64(place + first)

    def inside(self, row: Any, step: Any, first: Any) -> Any | None:
        known = replace(self.matrix, rows_left=None) if self.clamps else self.matrix
        return known.inside(row, step, first)

    def of_copy(self, copy: Any) -> KeptPlaces:
        return replace(self, copy=copy)


@dataclass(frozen=True)
class Clamped:
    """A matrix whose last elements are read again beyond its end. Only multiply-adds that test their bounds
    may use it: they ignore these elements."""

    matrix: Strided

    @property
    def buffer(self) -> Any:
        return self.matrix.buffer

    def address(self, row: Any, step: Any, first: Any) -> Any:
        matrix = self.matrix
        step = _at_most(step + first, matrix.depth, 1 if matrix.across else matrix.width)
        return matrix.address(matrix.clamped(row), step, int32(0))

    def inside(self, row: Any, step: Any, first: Any) -> Any | None:
        return None

    def of_copy(self, copy: Any) -> Clamped:
        return self


def _at_most(at: Any, end: Any | None, count: int) -> Any:
    """Returns the index, or at most the last one at which ``count`` elements fit before the end."""
    return at if end is None else tirx.min(at, end - int32(count))
