"""Tiles of the operands come to shared memory, zero where they stick out: local padding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import AnyPanel, BlockGeometry, panels
from dietlab.targets.cuda.lowering.tir import bound, int32, int64, registers, span, unrolled
from dietlab.targets.cuda.space import LEAST_ASYNCHRONOUS_BYTES


@dataclass(frozen=True)
class Fetch:
    """The copy of one operand's tile, ``width`` elements at a time, by all threads of the block.

    Draws, for 16-byte copies of float32 and ``threads`` threads::

        before                                 after (copy n of this thread)
        for line in range(lines):              c = thread + n * threads
          for e in range(step):                line, e = c // (step / 4), c % (step / 4) * 4
            shared[line, e] =                  inside = line < lines left and k + e < depth
              x[first + line, k + e]           cp.async shared[line, e : e + 4] <- x[...], 16 bytes
                if inside else 0                                       # 0 of them read if not inside

    ``begin`` issues the copies of a step; without cp.async it reads into registers, and ``finish`` writes
    them to shared memory, after the multiply-adds that hide the reads.

    Args:
        depth_lines: whether its lines count the reduction axis, and do not run along it.
        lines_left, length_left: how much of the operand there is from the tile's first line and, at
            reduction step 0, element; None where every tile lies inside.
        origin: the operand's element at the tile's first line and column, reduction index 0 (int64).
        stride: elements from one of its lines to the next.
        checked: whether multiply-adds test their bounds, so that nothing is filled with zeros.
        base: the first element of the operand's panel in a stage; ``stage`` elements a stage.
    """

    kernel: CudaMicroKernel
    panel: AnyPanel
    width: int
    asynchronous: bool
    itemsize: int
    dtype: str
    source: Any
    shared: Any
    thread: Any
    origin: Any
    stride: Any
    base: int
    stage: int
    depth_lines: bool
    lines_left: Any | None
    length_left: Any | None
    checked: bool
    held: Any | None

    @property
    def pieces(self) -> int:
        """Copies of the whole panel."""
        return self.panel.lines * self.panel.length // self.width

    @property
    def copies(self) -> int:
        """Copies of each thread."""
        return -(-self.pieces // self.kernel.threads)

    def begin(self, step: Any, slot: Any) -> None:
        with unrolled(self.copies, "n") as n:
            self._for_piece(n, lambda line, at: self._begin(n, step, slot, line, at))

    def finish(self, slot: Any) -> None:
        if self.asynchronous:
            return
        with unrolled(self.copies, "n") as n:
            self._for_piece(n, lambda line, at: self._finish(n, slot, line, at))

    def _for_piece(self, n: Any, emit: Any) -> None:
        """Emits ``emit(line, element)`` for copy ``n`` of this thread, if it has that many."""
        piece = bound("piece", self.thread + n * int32(self.kernel.threads))
        across = self.panel.length // self.width
        line = bound("line", tirx.truncdiv(piece, int32(across)))
        at = bound("at", tirx.truncmod(piece, int32(across)) * int32(self.width))
        if self.pieces % self.kernel.threads == 0:
            emit(line, at)
        else:
            with T.If(piece < int32(self.pieces)), T.Then():
                emit(line, at)

    def _begin(self, n: Any, step: Any, slot: Any, line: Any, at: Any) -> None:
        inside = self._inside(step, line, at)
        first = self._source(step, line, at)
        if self.asynchronous:
            self._copy(self._target(slot, line, at), first, inside)
            return
        assert self.held is not None
        zero = tirx.Cast(self.dtype, tirx.FloatImm("float32", 0))
        zero = zero if self.width == 1 else tirx.Broadcast(zero, self.width)
        value = self.source[span(first, self.width)]
        value = value if inside is None else tirx.if_then_else(inside, value, zero)
        T.buffer_store(self.held, value, [span(n * int32(self.width), self.width)])

    def _finish(self, n: Any, slot: Any, line: Any, at: Any) -> None:
        assert self.held is not None
        value = self.held[span(n * int32(self.width), self.width)]
        T.buffer_store(self.shared, value, [span(self._target(slot, line, at), self.width)])

    def _copy(self, target: Any, first: Any, inside: Any | None) -> None:
        size = self.width * self.itemsize
        # Whole lines of 16 bytes pass L1 by: each element is read once a block.
        name = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
        operands = [T.address_of(self.shared[target]), T.address_of(self.source[first]), size]
        if inside is not None:
            operands.append(tirx.Cast("uint32", tirx.Select(inside, int32(size), int32(0))))
        T.evaluate(T.ptx[name](*operands))

    def _place(self, step: Any, line: Any, at: Any) -> tuple[Any, Any]:
        """Returns the place of a piece in the operand: lines and elements from the tile's origin."""
        start = step * int32(self.kernel.step)
        return (line + start, at) if self.depth_lines else (line, at + start)

    def _inside(self, step: Any, line: Any, at: Any) -> Any | None:
        """Returns whether a piece lies inside the operand: pieces are so long that they do as a whole or
        not."""
        lines, length = self._place(step, line, at)
        tests = [
            index < left
            for index, left in ((lines, self.lines_left), (length, self.length_left))
            if left is not None and not self.checked
        ]
        return None if not tests else tests[0] if len(tests) == 1 else tirx.And(*tests)

    def _source(self, step: Any, line: Any, at: Any) -> Any:
        lines, length = self._place(step, line, at)
        if self.checked:  # no zeros there: what is read again is never used
            lines = lines if self.lines_left is None else tirx.min(lines, self.lines_left - int32(1))
            if self.length_left is not None:
                length = tirx.min(length, self.length_left - int32(self.width))
        return self.origin + int64(lines * self.stride + length)

    def _target(self, slot: Any, line: Any, at: Any) -> Any:
        return self.panel.at(slot * int32(self.stage) + int32(self.base), line, at)


def fetches(
    kernel: CudaMicroKernel, geometry: BlockGeometry, arrays: Any, shared: Any, place: Any
) -> tuple[Fetch, Fetch]:
    """Returns the copies of the tiles of ``x`` and ``w``, which lie side by side in each stage."""
    size = place.size
    cols, depth = (int32(geometry.extent(e, size)) for e in (geometry.cols, geometry.depth))
    x_panel, w_panel = panels(kernel, geometry)
    stage = x_panel.elements + w_panel.elements
    deep = None if geometry.fits("depth", kernel.step) else depth
    wide = None if geometry.fits("cols", kernel.cols) else bound("cols_left", cols - place.first_col)
    batch, first_row, first_col = (int64(v) for v in (place.batch, place.first_row, place.first_col))
    x_origin = (batch * int64(size) + first_row) * int64(depth)
    w_origin = batch * int64(cols) * int64(depth) + (
        first_col if geometry.direct else first_col * int64(depth)
    )
    rows_left, x_origin = bound("rows_left", size - place.first_row), bound("x_origin", x_origin)
    x = _fetch(
        kernel,
        geometry,
        arrays.x,
        shared,
        place.thread,
        x_panel,
        geometry.x_width,
        x_origin,
        depth,
        0,
        stage,
        False,
        rows_left,
        deep,
        place.checked,
    )
    w_lines, w_length = (deep, wide) if geometry.direct else (wide, deep)
    w = _fetch(
        kernel,
        geometry,
        arrays.w,
        shared,
        place.thread,
        w_panel,
        geometry.w_width,
        bound("w_origin", w_origin),
        cols if geometry.direct else depth,
        x_panel.elements,
        stage,
        geometry.direct,
        w_lines,
        w_length,
        place.checked,
    )
    return x, w


def _fetch(
    kernel: CudaMicroKernel,
    geometry: BlockGeometry,
    source: Any,
    shared: Any,
    thread: Any,
    panel: AnyPanel,
    width: int,
    origin: Any,
    stride: Any,
    base: int,
    stage: int,
    depth_lines: bool,
    lines_left: Any | None,
    length_left: Any | None,
    checked: bool,
) -> Fetch:
    asynchronous = geometry.asynchronous and width * geometry.itemsize >= LEAST_ASYNCHRONOUS_BYTES
    fetch = Fetch(
        kernel,
        panel,
        width,
        asynchronous,
        geometry.itemsize,
        geometry.dtype,
        source,
        shared,
        thread,
        origin,
        stride,
        base,
        stage,
        depth_lines,
        lines_left,
        length_left,
        checked,
        None,
    )
    if asynchronous:
        return fetch
    return replace(fetch, held=registers("held", fetch.copies * width, geometry.dtype))
