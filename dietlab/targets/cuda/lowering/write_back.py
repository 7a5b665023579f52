"""Finished sums go to memory: epilogue, and stores as wide as the output allows."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.activation import activated
from dietlab.targets.cuda.lowering.geometry import CELL, Arrays, BlockGeometry, BlockPosition
from dietlab.targets.cuda.lowering.layout import Totals, Worker
from dietlab.targets.cuda.lowering.tir import (
    bound,
    exchange_pairs,
    int32,
    int64,
    load_16_bytes,
    registers,
    span,
    store_16_bytes,
    unrolled,
    when,
)
from dietlab.targets.cuda.unit import FLOATS

LANES = 4
"""The number of neighbouring lanes of a group of warps that hold eight neighbouring columns of one row (PTX
ISA, "Register fragments", accumulator of ``m64nNk16``)."""


@dataclass(frozen=True)
class Output:
    """The output around a block's tile.

    Args:
        origin: the index of the element at the tile's first row and column (int64).
        width: the number of columns of the output.
        rows_left, cols_left: the numbers of rows and columns from the tile's first ones to the output's end;
            None for columns if all tiles lie inside.
        finished: the registers of the ``wide`` neighbouring values of one store.
    """

    geometry: BlockGeometry
    arrays: Arrays
    place: BlockPosition
    origin: Any
    width: Any
    rows_left: Any
    cols_left: Any | None
    wide: int
    finished: Any

    def at(self, row: Any, col: Any) -> Any:
        """Returns the index of the output's element at a row and column of the tile (int64)."""
        return self.origin + int64(row * int32(self.width) + col)

    def inside(self, col: Any) -> Any:
        """Returns a context for columns that exist. Only the first column of a store is tested."""
        return nullcontext() if self.cols_left is None else when(col < self.cols_left)

    def finish(self, sums: Any, first: Any, row: Any, col: Any) -> None:
        """Emits the epilogue of neighbouring sums, whose results are then in ``finished``."""
        added = {
            "bias": (self.arrays.bias, int64(self.place.first_col + col)),
            "residual": (self.arrays.residual, self.at(row, col)),
        }
        held = {}
        for name, (array, at) in added.items():
            if array is not None:
                held[name] = registers(name, self.wide, self.geometry.dtype)
                if self.wide == CELL:
                    load_16_bytes(held[name], array, at)
                else:
                    T.buffer_store(held[name], array[span(at, self.wide)], [span(int32(0), self.wide)])
        with unrolled(self.wide, "e") as e:
            value = sums[first + e]
            if "bias" in held:
                value = value + tirx.Cast("float32", held["bias"][e])

            def add(value: Any, e: Any = e) -> Any:
                there = held.get("residual")
                return value if there is None else value + tirx.Cast("float32", there[e])

            epilogue = self.geometry.epilogue
            value = epilogue.finish(value, partial(activated, epilogue.activation), add)
            T.buffer_store(self.finished, tirx.Cast(self.geometry.dtype, value), [e])

    def store(self, row: Any, col: Any) -> None:
        """Emits the store of the finished values to the output."""
        at = self.at(row, col)
        kind = FLOATS.get(self.geometry.dtype)
        if kind and self.wide > 1:  # by itself the compiler stores some one by one
            values = [self.finished[int32(e)] for e in range(self.wide)]
            T.evaluate(T.ptx[f"st.global.v{self.wide}.{kind}"](T.address_of(self.arrays.y[at]), *values))
        elif self.wide == CELL:
            store_16_bytes(self.arrays.y, at, self.finished)
        else:
            T.buffer_store(self.arrays.y, self.finished[span(int32(0), self.wide)], [span(at, self.wide)])


def write_back(worker: Worker, totals: Totals, arrays: Arrays, place: BlockPosition) -> None:
    """Stores what lies inside the output, after the epilogue: through shared memory if stores of 16 bytes
    are possible. All threads that compute must call it.

    Rows are tested one by one; columns only if the output's width is no multiple of the tile's. Whether the
    lines of an output of dynamic width begin at multiples of 16 bytes is tested here: only stores depend on
    it.
    """
    geometry, cols = worker.layout.geometry, worker.layout.geometry.cols
    if isinstance(cols, int) or cols in geometry.whole or not geometry.aligned:
        _write(worker, totals, _output(worker, geometry, arrays, place))
        return
    wide = replace(geometry, whole=geometry.whole | {cols})
    with T.If(tirx.truncmod(place.extents.cols, int32(geometry.vector)) == int32(0)):
        with T.Then():
            _write(worker, totals, _output(worker, wide, arrays, place))
        with T.Else():
            _write(worker, totals, _output(worker, geometry, arrays, place))


def _output(worker: Worker, geometry: BlockGeometry, arrays: Arrays, place: BlockPosition) -> Output:
    """Returns the output around a block's tile, with what is known of its width."""
    kernel, whole = worker.kernel, place.extents
    width = whole.cols
    first = int64(place.batch) * int64(whole.rows) * int64(width) + (
        int64(place.first_row) * int64(width) + int64(place.first_col)
    )
    wide = min(geometry.y_width, kernel.run_cols)
    return Output(
        geometry,
        arrays,
        place,
        origin=bound("origin", first),
        width=width,
        rows_left=bound("rows_left", whole.rows - place.first_row),
        cols_left=(
            None if geometry.fits("cols", kernel.cols) else bound("cols_left", int32(width) - place.first_col)
        ),
        wide=wide,
        finished=registers("finished", wide, geometry.dtype),
    )


def _write(worker: Worker, totals: Totals, output: Output) -> None:
    kernel = worker.kernel
    if kernel.persistent:
        whole = output.geometry.y_width == CELL and kernel.tile_cols % (LANES * CELL) == 0
        (_between_lanes if whole else _store)(worker, totals, output)
    # Workers with exchanged operands have eight neighbours each: blocks have put their sums in order.
    elif kernel.splits == 1 and output.geometry.y_width == CELL > kernel.run_cols:
        _through_shared(worker, totals, output)
    else:
        _store(worker, totals, output)


def _store(worker: Worker, totals: Totals, output: Output) -> None:
    """Emits stores of neighbouring values.

    For example, with runs of four and an output whose width is a multiple of four::

        before                                    after
        if row < rows left:                       if row < rows left and col < columns left:
          for j in range(4):                        y[row, col : col + 4] = sums[0:4]
            if col + j < columns left:
              y[row, col + j] = sums[j]
    """
    kernel, wide = worker.kernel, output.wide
    with worker.layout.writers(), unrolled(totals.count, "n") as n:
        run = totals.run(n)
        row = bound("row", worker.row(run.row))
        inside = row < output.rows_left
        with (
            when(inside if run.there is None else tirx.And(run.there, inside)),
            unrolled(kernel.run_cols // wide, "piece") as piece,
        ):
            col = bound("col", worker.col(run.col) + piece * int32(wide))
            with output.inside(col):
                output.finish(totals.sums, run.first + piece * int32(wide), row, col)
                output.store(row, col)


def _through_shared(worker: Worker, totals: Totals, output: Output) -> None:
    """Emits stores of 16 bytes, after values are put in order in shared memory.

    For example, with a row of 16 columns, of which four threads have two neighbours each::

        before: 8 stores of 4 bytes               after: 8 stores to shared memory, barrier, 2 of 16 bytes
        t0 t0 t1 t1 t2 t2 t3 t3 | t0 t0 ...       t0 t0 t0 t0 t0 t0 t0 t0 | t1 t1 t1 t1 t1 t1 t1 t1

    Lines are 16 bytes further apart than they are long, so that eight of them lie in different banks.
    """
    kernel, shared, thread = worker.kernel, worker.layout.shared, output.place.thread
    pitch, across = kernel.cols + CELL, kernel.cols // CELL
    worker.layout.meet()  # the stages have been read
    with worker.layout.writers(), unrolled(totals.count, "n") as n:
        run = totals.run(n)
        row, col = bound("row", worker.row(run.row)), bound("col", worker.col(run.col))
        with when(row < output.rows_left), output.inside(col):
            output.finish(totals.sums, run.first, row, col)
            value = output.finished[span(int32(0), output.wide)]
            T.buffer_store(shared, value, [span(row * int32(pitch) + col, output.wide)])
    worker.layout.meet()
    pieces = kernel.rows * across
    with unrolled(-(-pieces // kernel.computing), "n") as n:
        piece = bound("piece", thread + n * int32(kernel.computing))
        row = bound("row", tirx.truncdiv(piece, int32(across)))
        col = bound("col", tirx.truncmod(piece, int32(across)) * int32(CELL))
        # A tile has as many rows as pieces; those beyond are no rows of it.
        inside = row < tirx.min(output.rows_left, int32(kernel.rows))
        with when(inside), output.inside(col):
            value = shared[span(row * int32(pitch) + col, CELL)]
            T.buffer_store(output.arrays.y, value, [span(output.at(row, col), CELL)])


def _between_lanes(worker: Worker, totals: Totals, output: Output) -> None:
    """Emits stores of 16 bytes without shared memory, which holds the stages of a next tile: the four lanes
    that have neighbouring columns exchange their values.

    For example, with a row of 32 columns (a number is a pair of neighbouring columns)::

        before               after
        lane 0: 0 4  8 12    lane 0:  0  1  2  3      # 16 bytes
        lane 1: 1 5  9 13    lane 1:  4  5  6  7
        lane 2: 2 6 10 14    lane 2:  8  9 10 11
        lane 3: 3 7 11 15    lane 3: 12 13 14 15
    """
    lane = bound("lane_of_four", tirx.truncmod(worker.layout.thread, int32(LANES)))
    pairs = registers("pairs", CELL, output.geometry.dtype)
    with unrolled(totals.count // LANES, "n") as n:
        runs = [totals.run(n * int32(LANES) + int32(m)) for m in range(LANES)]
        row = bound("row", worker.row(runs[0].row))
        for m, run in enumerate(runs):
            col = bound("col", worker.col(run.col))
            with when(row < output.rows_left), output.inside(col):
                output.finish(totals.sums, run.first, row, col)
                value = output.finished[span(int32(0), output.wide)]
                T.buffer_store(pairs, value, [span(int32(m * output.wide), output.wide)])
        exchange_pairs(pairs, lane)
        col = bound("first", worker.col(runs[0].col) + lane * int32(CELL - output.wide))
        with when(row < output.rows_left), output.inside(col):
            store_16_bytes(output.arrays.y, output.at(row, col), pairs)
