"""Copies tiles of the operands to shared memory, with zeros where they stick out: local padding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import require_dtype
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockPosition
from dietlab.targets.cuda.lowering.layout import Layout, StagedPanel
from dietlab.targets.cuda.lowering.patches import ImageRows, KernelSteps
from dietlab.targets.cuda.lowering.sources import Clamped, Source, Strided
from dietlab.targets.cuda.lowering.tir import bound, int32, int64, registers, span, unrolled, when
from dietlab.targets.cuda.space import LEAST_ASYNCHRONOUS_BYTES


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
            source, place = self.source.of_copy(n), (row, within + step * int32(self.kernel.step))
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

    def matrix(array: Any, panel: StagedPanel, origin: Any, stride: Any, left: Any, width: int) -> Source:
        found = Strided(array, origin, stride, panel.across, left, steps)
        return Clamped(found, width) if place.checked else found

    if geometry.gathers:
        x = _image_copy(layout, arrays, place, rows_left, steps)
    else:
        x_origin = bound("x_origin", (batch * int64(size) + first_row) * int64(depth))
        source = matrix(arrays.x, layout.x, x_origin, depth, rows_left, geometry.x_width)
        x = PanelCopy.of(layout, source, layout.x, geometry.x_width, place.thread)
    w_origin, w_stride = bound("w_origin", w_origin), cols if geometry.direct else depth
    weights = matrix(arrays.w, layout.w, w_origin, w_stride, cols_left, geometry.w_width)
    if geometry.patches is not None and geometry.patches.elements > 1:
        weights = KernelSteps(weights, geometry.patches)
    return x, PanelCopy.of(layout, weights, layout.w, geometry.w_width, place.thread)


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
