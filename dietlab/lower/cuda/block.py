"""One thread block's micro-kernel as TensorIR: fetch, compute, write back.

Every function here is one visible step; :func:`block_program` is their list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cuda.epilogue import activated
from dietlab.lower.cuda.fetch import Fetch, fetches
from dietlab.lower.cuda.geometry import BlockGeometry
from dietlab.lower.cuda.layout import Left, Totals, Worker
from dietlab.lower.cuda.tir import bound, int32, int64, unrolled
from dietlab.lower.cuda.units import worker_of
from dietlab.space import CudaMicroKernel


@dataclass(frozen=True)
class Arrays:
    """The operands as flat buffers, one element after the other."""

    x: Any
    w: Any
    y: Any
    bias: Any | None
    residual: Any | None


@dataclass(frozen=True)
class BlockPosition:
    """The position of a block's tile: its batch, its first row and column, and its number of rows (all
    int32 expressions), in a block of threads numbered by ``thread``, which is number ``rank`` of those
    that share the tile's reduction; ``checked`` if its multiply-adds test their bounds, in place of local
    padding."""

    batch: Any
    first_row: Any
    first_col: Any
    size: Any
    thread: Any
    rank: Any
    checked: bool = False


def block_program(
    kernel: CudaMicroKernel,
    geometry: BlockGeometry,
    arrays: Arrays,
    shared: Any,
    place: BlockPosition,
    *,
    aligned: bool,
) -> None:
    """Computes one tile of the output.

    Draws, for three stages (``slot`` is the stage that a step lies in, ``step % 3``)::

        before                                    after
        for i in range(rows):                     fetch steps 0 and 1
          for j in range(cols):                   for s in range(steps):
            for k in range(depth):                  wait until step s has come; barrier
              y[i, j] += x[i, k] * w[j, k]          fetch step s + 2 into the slot that step s - 1 left
                                                    sums += x[slot] @ w[slot]       # no bound check
                                                  y[rows inside] = activation(sums + bias) + residual

    What a fetch would read beyond an operand is zero in shared memory (local padding, paper section 3.2):
    only the fetch and the write-back know where the output ends. A ``checked`` scheme has no local
    padding: beyond the end its fetch reads the last elements again, and each multiply-add tests its bounds.

    Of ``splits`` blocks that share the reduction each takes every ``splits``-th step, from its rank on, and
    writes some of the rows (:meth:`~dietlab.lower.cuda.layout.Layout.totals`).

    Tensor cores that read shared memory by themselves (``wgmma``) are given a step before the fetch begins,
    and may still compute the one before it: the fetch takes the slot that step ``s - 2`` left, one step
    less ahead.

    Args:
        shared: the block's dynamic shared memory, elements of the operands' type.
        aligned: whether the arrays begin at multiples of 16 bytes, so that copies can be as wide.
    """
    worker = worker_of(kernel, geometry, shared, place.thread)
    worker.start()
    x, w = fetches(kernel, geometry, arrays, shared, place, aligned=aligned)
    depth = geometry.extent(geometry.depth, place.size)
    steps = _steps(kernel, depth, place)
    for first in range(kernel.ahead):
        if not isinstance(steps, int) or first < steps:
            with nullcontext() if isinstance(steps, int) else _only(int32(first) < steps):
                for fetch in (x, w):
                    fetch.begin(_number(kernel, place, int32(first)), int32(first))
                    fetch.finish(int32(first))
        _commit(x, w)
    _walk(worker, geometry, place, x, w, depth, steps)
    worker.finish()
    worker.add_slices()
    with worker.totals() as total:
        write_back(worker, total, geometry, arrays, place)


def _walk(
    worker: Worker, geometry: BlockGeometry, place: BlockPosition, x: Fetch, w: Fetch, depth: Any, steps: Any
) -> None:
    """Emits the loop over the reduction, whose first steps are already being fetched."""
    kernel = worker.kernel
    with T.serial(int32(0), int32(steps)) as variable:
        step = IRBuilder.name("step", variable)
        if x.asynchronous or w.asynchronous:
            T.evaluate(T.ptx["cp.async.wait_group"](kernel.ahead - 1))
        worker.publish()
        T.evaluate(T.cuda.cta_sync())
        coming = step + kernel.ahead
        slot = tirx.truncmod(coming, int32(kernel.stages))

        def begin() -> None:
            with _only(coming < int32(steps)):
                number = _number(kernel, place, coming)
                x.begin(number, slot)
                w.begin(number, slot)
            _commit(x, w)

        if not worker.asynchronous:
            begin()
        number = _number(kernel, place, step)
        left = _left(kernel, geometry, place, depth, number) if place.checked else None
        worker.multiply_add(tirx.truncmod(step, int32(kernel.stages)), left)
        if worker.asynchronous:
            begin()
            worker.settle()
        if not (x.asynchronous and w.asynchronous):
            with _only(coming < int32(steps)):
                x.finish(slot)
                w.finish(slot)


def _steps(kernel: CudaMicroKernel, depth: Any, place: BlockPosition) -> Any:
    """Returns the number of reduction steps of this block."""
    steps = -(-depth // kernel.step) if isinstance(depth, int) else _ceil(depth, kernel.step)
    if kernel.splits == 1:
        return steps
    return bound("own_steps", tirx.truncdiv(steps + (kernel.splits - 1) - place.rank, int32(kernel.splits)))


def _number(kernel: CudaMicroKernel, place: BlockPosition, own: Any) -> Any:
    """Returns which of all steps this block's ``own``-th one is."""
    return own if kernel.splits == 1 else own * int32(kernel.splits) + place.rank


def _left(
    kernel: CudaMicroKernel, geometry: BlockGeometry, place: BlockPosition, depth: Any, step: Any
) -> Left:
    """Returns the rows, columns and steps from the tile's first to the operand's end, which bound checks
    compare with."""
    cols = int32(geometry.extent(geometry.cols, place.size))
    return Left(
        bound("rows_left", place.size - place.first_row),
        bound("cols_left", cols - place.first_col),
        bound("depth_left", int32(depth) - step * int32(kernel.step)),
    )


def _commit(x: Fetch, w: Fetch) -> None:
    """Copies issued since the last call become one group, an empty one if there are none: groups are
    counted, one a step."""
    if x.asynchronous or w.asynchronous:
        T.evaluate(T.ptx["cp.async.commit_group"]())


@contextmanager
def _only(condition: Any) -> Iterator[None]:
    """Statements for where the condition holds."""
    with T.If(condition), T.Then():
        yield


def _ceil(extent: Any, tile: int) -> Any:
    return bound("steps", tirx.truncdiv(extent + (tile - 1), int32(tile)))


def write_back(
    worker: Worker, total: Totals, geometry: BlockGeometry, arrays: Arrays, place: BlockPosition
) -> None:
    """Stores what lies inside the output, after the epilogue.

    Rows are tested one by one; columns only if the output's width is no multiple of the tile's. Blocks that
    share a reduction take turns with a thread's rows.
    """
    kernel = worker.kernel
    width = geometry.extent(geometry.cols, place.size)
    first = int64(place.batch) * int64(place.size) * int64(width) + (
        int64(place.first_row) * int64(width) + int64(place.first_col)
    )
    origin = bound("origin", first)
    rows_left = bound("rows_left", place.size - place.first_row)
    checked = not geometry.fits("cols", kernel.cols)
    cols_left = bound("cols_left", int32(width) - place.first_col) if checked else None
    with worker.writers(), unrolled(worker.held_rows, "i") as i:
        row = bound("row", worker.row(i))
        mine = row < rows_left
        if kernel.splits > 1:
            mine = tirx.And(mine, tirx.truncmod(i, int32(kernel.splits)) == place.rank)
        with T.If(mine), T.Then(), unrolled(worker.held_cols, "j") as j:
            col = bound("col", worker.col(j))
            with nullcontext() if cols_left is None else _only(col < cols_left):
                _store(geometry, arrays, place, origin, row, col, width, total(i, j))


def _store(
    geometry: BlockGeometry,
    arrays: Arrays,
    place: BlockPosition,
    origin: Any,
    row: Any,
    col: Any,
    width: Any,
    value: Any,
) -> None:
    if arrays.bias is not None:
        value = value + tirx.Cast("float32", arrays.bias[int64(place.first_col + col)])
    value = activated(geometry.epilogue.activation, value)
    at = origin + int64(row * int32(width) + col)
    if arrays.residual is not None:
        value = value + tirx.Cast("float32", arrays.residual[at])
    T.buffer_store(arrays.y, tirx.Cast(geometry.dtype, value), [at])
