"""Copies tiles of the operands to shared memory, with zeros where they stick out: local padding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import require_dtype
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockPosition
from dietlab.targets.cuda.lowering.layout import Layout, StagedPanel
from dietlab.targets.cuda.lowering.patches import ImageRows, KernelSteps
from dietlab.targets.cuda.lowering.sources import Clamped, KeptPlaces, Source, Strided
from dietlab.targets.cuda.lowering.tir import bound, int32, int64, registers, span, unrolled, when
from dietlab.targets.cuda.needs import LEAST_ASYNCHRONOUS_BYTES


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
        """The number of copies of each thread in a step."""
        return -(-self.pieces // self.kernel.threads)

    @property
    def asynchronous(self) -> bool:
        """True for cp.async."""
        return self.held is None

    def begin(self, step: Any, slot: Any) -> None:
        with self.piece() as (n, row, within):
            source, place = self.source.of_copy(n), (row, within, step * int32(self.kernel.step))
            inside, first = source.inside(*place), source.address(*place)
            if self.asynchronous:
                self._copy(self.panel.at(slot, row, within), first, inside)
            else:
                self._read(n, first, inside)

    def finish(self, slot: Any) -> None:
        if self.asynchronous:
            return
        with self.piece() as (n, row, within):
            value = self.held[span(n * int32(self.width), self.width)]
            at = span(self.panel.at(slot, row, within), self.width)
            T.buffer_store(self.panel.shared, value, [at])

    @contextmanager
    def piece(self) -> Iterator[tuple[Any, Any, Any]]:
        """Opens the loop over this thread's copies, with the index, the row, and the first step within the
        stage of each.
        """
        across = self.panel.panel.length // self.width
        threads = self.kernel.threads
        with unrolled(self.copies, "n") as n:
            piece = bound("piece", self.thread + n * int32(threads))
            # All copies of a thread begin at one element, if its lines are whole turns of all threads: then
            # one test serves them all.
            first, turn = (self.thread, threads // across) if threads % across == 0 else (piece, 0)
            line = bound("line", tirx.truncdiv(first, int32(across)) + n * int32(turn))
            element = bound("at", tirx.truncmod(first, int32(across)) * int32(self.width))
            every = self.pieces % threads == 0
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
    """Returns the copies of the tiles of ``x`` and ``w``. Emits what they keep in registers: the places of
    operands whose size is not known. For others, the compiler knows the distances of places; and the many
    copies of operands at any address would take too many registers."""
    kernel, geometry, whole = layout.kernel, layout.geometry, place.extents
    cols, depth = int32(whole.cols), int32(whole.depth)
    steps = None if geometry.fits("depth", kernel.step) else depth
    cols_left = None if geometry.fits("cols", kernel.cols) else bound("cols_left", cols - place.first_col)
    batch, first_row, first_col = (int64(v) for v in (place.batch, place.first_row, place.first_col))
    w_first = first_col if geometry.direct else first_col * int64(depth)
    w_origin = batch * int64(cols) * int64(depth) + w_first
    rows_left = bound("rows_left", whole.rows - place.first_row)

    def copy_of(panel: StagedPanel, source: Source, width: int) -> PanelCopy:
        return PanelCopy.of(layout, source, panel, width, place.thread)

    if geometry.gathers:
        x = _image_copy(layout, arrays, place, rows_left, steps)
    else:
        x_origin = bound("x_origin", (batch * int64(whole.rows) + first_row) * int64(depth))
        width = geometry.x_width
        rows = Strided(arrays.x, x_origin, depth, layout.x.across, rows_left, steps, width)
        keeps = geometry.aligned and not _is_small(whole.depth)
        x = _with_places(copy_of(layout.x, rows, width), rows, place, keeps, clamps=False)
    w_origin, w_stride = bound("w_origin", w_origin), cols if geometry.direct else depth
    small = _is_small(whole.depth, *((whole.cols,) if geometry.direct else ()))
    width, far = geometry.w_width, geometry.direct and not small
    weights = Strided(arrays.w, w_origin, w_stride, layout.w.across, cols_left, steps, width, far)
    if geometry.patches is not None and geometry.patches.elements > 1:
        return x, copy_of(layout.w, KernelSteps(weights, geometry.patches), width)
    keeps = geometry.aligned and not small
    return x, _with_places(copy_of(layout.w, weights, width), weights, place, keeps, clamps=True)


def _is_small(*extents: Any) -> bool:
    """Returns whether an operand with such extents has a static size below 2^31 elements."""
    return all(isinstance(extent, int) for extent in extents) and prod(extents) < 2**31


def _with_places(
    copy: PanelCopy, matrix: Strided, place: BlockPosition, keeps: bool, *, clamps: bool
) -> PanelCopy:
    """Returns a matrix's copy with places that are kept (``keeps``), or without."""
    if place.checked:
        return replace(copy, source=Clamped(matrix))
    if not keeps:
        return copy
    kept = KeptPlaces.of(matrix, copy.copies, clamps=clamps)
    with copy.piece() as (n, row, within):
        kept.keep(n, row, within)
    return replace(copy, source=kept)


def _image_copy(
    layout: Layout, arrays: Arrays, place: BlockPosition, rows_left: Any, depth: Any | None
) -> PanelCopy:
    """Returns the copy of a tile of a convolution's ``x``. Emits the places of this thread's rows in the
    images, which it keeps in registers."""
    patches, image = layout.geometry.patches, place.image
    assert patches is not None and image is not None
    rows = ImageRows(arrays.x, patches, image, place.first_row, rows_left, depth)
    copy = PanelCopy.of(layout, rows, layout.x, layout.geometry.x_width, place.thread)
    kept = replace(rows, places=registers("places", copy.copies * rows.numbers, "int32"))
    with copy.piece() as (n, row, _):
        kept.keep(n, row)
    return replace(copy, source=kept)
