"""Copies tiles of the operands to shared memory, with zeros where they stick out: local padding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import require_dtype
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockPosition
from dietlab.targets.cuda.lowering.layout import Layout, StagedPanel
from dietlab.targets.cuda.lowering.tir import bound, int32, int64, registers, span, unrolled, when
from dietlab.targets.cuda.space import LEAST_ASYNCHRONOUS_BYTES


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


def _at_most(at: Any, end: Any | None, count: int) -> Any:
    """Returns the index, or at most the last one at which ``count`` elements fit before the end."""
    return at if end is None else tirx.min(at, end - int32(count))


@dataclass(frozen=True)
class PanelCopy:
    """The copy of one operand's tile to its panel, ``width`` elements at a time, by all threads of the block.

    For example, with 16-byte copies of float32 and ``threads`` threads::

        before                                 after (copy n of this thread)
        for line in range(lines):              c = thread + n * threads
          for e in range(step):                line, e = c // (step / 4), c % (step / 4) * 4
            shared[line, e] =                  inside = line < lines left and k + e < depth
              x[first + line, k + e]           cp.async shared[line, e : e + 4] <- x[...], 16 bytes
                if inside else 0                                       # 0 of them read if not inside

    ``begin`` issues the copies of a step. Without cp.async it reads into registers, and ``finish`` writes
    these to shared memory, after the multiply-adds that hide the reads.

    Args:
        thread: the index of this thread in the block.
        held: the registers between ``begin`` and ``finish``; None for copies by cp.async.
    """

    kernel: CudaMicroKernel
    source: Source
    panel: StagedPanel
    width: int
    thread: Any
    held: Any

    @classmethod
    def of(cls, layout: Layout, source: Source, panel: StagedPanel, width: int, thread: Any) -> PanelCopy:
        """Returns the copy by cp.async or, if the processor or the width allows none, by registers."""
        copy, geometry = cls(layout.kernel, source, panel, width, thread, held=None), layout.geometry
        if geometry.asynchronous and width * geometry.itemsize >= LEAST_ASYNCHRONOUS_BYTES:
            return copy
        return replace(copy, held=registers("held", copy.copies * width, geometry.dtype))

    @property
    def pieces(self) -> int:
        """The number of copies of the whole panel."""
        return self.panel.panel.lines * self.panel.panel.length // self.width

    @property
    def copies(self) -> int:
        """The number of copies of each thread."""
        return -(-self.pieces // self.kernel.threads)

    @property
    def asynchronous(self) -> bool:
        """True for cp.async."""
        return self.held is None

    def begin(self, step: Any, slot: Any) -> None:
        with self._piece() as (n, row, within):
            place = row, within + step * int32(self.kernel.step)
            inside, first = self.source.inside(*place), self.source.address(*place)
            if self.asynchronous:
                self._copy(self.panel.at(slot, row, within), first, inside)
            else:
                self._read(n, first, inside)

    def finish(self, slot: Any) -> None:
        if self.asynchronous:
            return
        with self._piece() as (n, row, within):
            value = self.held[span(n * int32(self.width), self.width)]
            at = span(self.panel.at(slot, row, within), self.width)
            T.buffer_store(self.panel.shared, value, [at])

    @contextmanager
    def _piece(self) -> Iterator[tuple[Any, Any, Any]]:
        """Opens the loop over this thread's copies, with the index, the row, and the first step within the
        stage of each.
        """
        across = self.panel.panel.length // self.width
        with unrolled(self.copies, "n") as n:
            piece = bound("piece", self.thread + n * int32(self.kernel.threads))
            line = bound("line", tirx.truncdiv(piece, int32(across)))
            element = bound("at", tirx.truncmod(piece, int32(across)) * int32(self.width))
            every = self.pieces % self.kernel.threads == 0
            with nullcontext() if every else when(piece < int32(self.pieces)):
                yield n, *self.panel.place(line, element)

    def _read(self, n: Any, first: Any, inside: Any | None) -> None:
        value = self.source.buffer[span(first, self.width)]
        if inside is not None:
            zero = tirx.Cast(self.source.buffer.dtype, tirx.FloatImm("float32", 0))
            zero = zero if self.width == 1 else tirx.Broadcast(zero, self.width)
            value = tirx.if_then_else(inside, value, zero)
        T.buffer_store(self.held, value, [span(n * int32(self.width), self.width)])

    def _copy(self, target: Any, first: Any, inside: Any | None) -> None:
        size = self.width * require_dtype(str(self.source.buffer.dtype)).itemsize
        # Whole lines of 16 bytes pass L1 by: each element is read once a block.
        name = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
        operands = [T.address_of(self.panel.shared[target]), T.address_of(self.source.buffer[first]), size]
        if inside is not None:
            operands.append(tirx.Cast("uint32", tirx.Select(inside, int32(size), int32(0))))
        T.evaluate(T.ptx[name](*operands))


def panel_copies(layout: Layout, arrays: Arrays, place: BlockPosition) -> tuple[PanelCopy, PanelCopy]:
    """Returns the copies of the tiles of ``x`` and ``w``."""
    kernel, geometry, size = layout.kernel, layout.geometry, place.size
    cols, depth = (int32(geometry.extent(extent, size)) for extent in (geometry.cols, geometry.depth))
    steps = None if geometry.fits("depth", kernel.step) else depth
    cols_left = None if geometry.fits("cols", kernel.cols) else bound("cols_left", cols - place.first_col)
    batch, first_row, first_col = (int64(v) for v in (place.batch, place.first_row, place.first_col))
    w_first = first_col if geometry.direct else first_col * int64(depth)
    w_origin = batch * int64(cols) * int64(depth) + w_first
    rows_left = bound("rows_left", size - place.first_row)

    def copy(array: Any, panel: StagedPanel, origin: Any, stride: Any, left: Any, width: int) -> PanelCopy:
        matrix = Strided(array, origin, stride, panel.across, left, steps)
        source = Clamped(matrix, width) if place.checked else matrix
        return PanelCopy.of(layout, source, panel, width, place.thread)

    x_origin = bound("x_origin", (batch * int64(size) + first_row) * int64(depth))
    x = copy(arrays.x, layout.x, x_origin, depth, rows_left, geometry.x_width)
    w_origin, w_stride = bound("w_origin", w_origin), cols if geometry.direct else depth
    return x, copy(arrays.w, layout.w, w_origin, w_stride, cols_left, geometry.w_width)
