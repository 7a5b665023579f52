"""A micro-kernel as TensorIR: one function that computes one tile of the output in registers.

Every function here is one visible step; :func:`tile_function` is their list.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.geometry import Geometry
from dietlab.space import MicroKernel

_PREFETCH_READ, _ALL_LEVELS, _DATA_CACHE = 0, 3, 1


def tile_function(kernel: MicroKernel, geometry: Geometry, *, checked: bool) -> Any:
    """``tile(x, w, y, rows, cols)``: a ``kernel.rows x kernel.cols`` tile, all of depth at once.

    Draws, for ``2 x 1`` vectors and ``unroll=1``::

        before                                 after
        for i in range(2):                     a0 = a1 = bias or 0                  # registers
          for v in range(lanes):               for k in range(depth):
            for k in range(depth):               a0 += broadcast(x[0, k]) * w[0, k, :]
              y[i, v] += x[i, k] * w[v, k]       a1 += broadcast(x[1, k]) * w[0, k, :]
                                               if rows > 0: y[0, :] = a0
                                               if rows > 1: y[1, :] = a1

    Args:
        checked: whether the compute stage tests ``i < rows`` before it reads ``x[i, k]``. False
            when the caller guarantees readable rows (local padding, or a full tile).

    ``x`` and ``y`` point at the tile's first element with row strides ``depth`` and
    ``geometry.cols``; ``w`` at the first of its panels. ``rows`` and ``cols`` say how much of the
    tile lies inside the output; only that much is written.
    """
    vectors = kernel.vectors(geometry.lanes)
    with IRBuilder() as builder, T.prim_func(private=True):
        T.func_name(tile_name(kernel, checked=checked))
        T.func_attr({"tirx.noalias": True})
        pointers = [T.arg(name, T.handle("float32")) for name in ("x", "w", "y")]
        rows, cols = T.arg("rows", T.int64()), T.arg("cols", T.int64())
        x = T.decl_buffer((kernel.rows, geometry.depth), data=pointers[0])
        w = T.decl_buffer((vectors, geometry.panel_rows, geometry.lanes), data=pointers[1])
        y = T.decl_buffer((kernel.rows, geometry.cols), data=pointers[2])
        accumulators = stack_buffer(kernel.rows * kernel.cols)
        start_accumulators(kernel, geometry, accumulators, w)
        multiply_add(kernel, geometry, accumulators, x, w, rows if checked else None)
        write_back(kernel, geometry, accumulators, y, rows, cols)
    return builder.get()


def tile_name(kernel: MicroKernel, *, checked: bool) -> str:
    return f"tile_{kernel.key.replace('.', '_')}{'_edge' if checked else ''}"


def stack_buffer(floats: int) -> Any:
    """An array on the stack; one whose indices are all constants becomes registers.

    Without the annotation TVM would turn it into a call of its runtime's workspace allocator.
    """
    return T.alloc_buffer((floats,), scope="local", annotations={"disable_lower_builtin": True})


def vector(start: Any, lanes: int) -> Any:
    """The index of ``lanes`` consecutive elements from ``start`` on."""
    first = tirx.IntImm("int64", start) if isinstance(start, int) else start
    return tirx.Ramp(first, tirx.IntImm("int64", 1), lanes)


def start_accumulators(kernel: MicroKernel, geometry: Geometry, accumulators: Any, w: Any) -> None:
    """Accumulators begin with the bias (row 0 of each panel) or with zero."""
    lanes = geometry.lanes
    zero = tirx.Broadcast(tirx.FloatImm("float32", 0), lanes)
    for i in range(kernel.rows):
        for j in range(kernel.vectors(lanes)):
            first = w[j, 0, vector(0, lanes)] if geometry.has_bias else zero
            T.buffer_store(accumulators, first, [_slot(kernel, i, j, lanes)])


def multiply_add(
    kernel: MicroKernel, geometry: Geometry, accumulators: Any, x: Any, w: Any, rows: Any | None
) -> None:
    """The compute stage: ``depth`` steps, ``kernel.unroll`` of them in one iteration.

    Draws::

        for k in range(depth):        for ko in range(depth // unroll):
          step(k)                       step(ko * unroll); ...; step(ko * unroll + unroll - 1)
                                      step(...) for what is left over
    """
    iterations, left_over = divmod(geometry.depth, kernel.unroll)
    with T.serial(0, iterations) as outer:
        for step in range(kernel.unroll):
            _step(kernel, geometry, accumulators, x, w, rows, outer * kernel.unroll + step)
    for step in range(left_over):
        _step(kernel, geometry, accumulators, x, w, rows, iterations * kernel.unroll + step)


def _step(
    kernel: MicroKernel, geometry: Geometry, accumulators: Any, x: Any, w: Any, rows: Any | None, k: Any
) -> None:
    """One step of the reduction: every accumulator gains one product."""
    lanes, below = geometry.lanes, int(geometry.has_bias)
    for j in range(kernel.vectors(lanes)):
        if kernel.prefetch:
            _prefetch(geometry, w, j, k + kernel.prefetch + below)
    for i in range(kernel.rows):
        value = x[i, k]
        if rows is not None and i > 0:  # a tile has at least one row inside
            value = T.if_then_else(i < rows, value, tirx.FloatImm("float32", 0))
        for j in range(kernel.vectors(lanes)):
            slot = _slot(kernel, i, j, lanes)
            product = tirx.Broadcast(value, lanes) * w[j, k + below, vector(0, lanes)]
            T.buffer_store(accumulators, accumulators[slot] + product, [slot])


def _prefetch(geometry: Geometry, w: Any, panel: int, row: Any) -> None:
    """Asks for one vector of weights; beyond the panel's end it asks for the next panel's."""
    offset = (panel * geometry.panel_rows + row) * geometry.lanes
    constants = (tirx.IntImm("int32", n) for n in (_PREFETCH_READ, _ALL_LEVELS, _DATA_CACHE))
    T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", w.access_ptr("r", offset=offset), *constants))


def write_back(
    kernel: MicroKernel, geometry: Geometry, accumulators: Any, y: Any, rows: Any, cols: Any
) -> None:
    """Stores the part of the tile that lies inside the output.

    Rows are tested one by one; columns only if the output's width is no multiple of the tile's,
    vector by vector, and the last vector element by element.
    """
    lanes = geometry.lanes
    for i in range(kernel.rows):
        with T.If(i < rows), T.Then():
            for j in range(kernel.vectors(lanes)):
                value = accumulators[_slot(kernel, i, j, lanes)]
                if geometry.cols % kernel.cols == 0:
                    T.buffer_store(y, value, [i, vector(j * lanes, lanes)])
                else:
                    _write_vector_in_part(kernel, geometry, accumulators, y, i, j, cols)


def _write_vector_in_part(
    kernel: MicroKernel, geometry: Geometry, accumulators: Any, y: Any, i: int, j: int, cols: Any
) -> None:
    lanes = geometry.lanes
    with T.If(j * lanes + lanes <= cols):
        with T.Then():
            T.buffer_store(y, accumulators[_slot(kernel, i, j, lanes)], [i, vector(j * lanes, lanes)])
        with T.Else():
            for v in range(lanes):
                with T.If(j * lanes + v < cols), T.Then():
                    element = accumulators[i * kernel.cols + j * lanes + v]
                    T.buffer_store(y, element, [i, j * lanes + v])


def _slot(kernel: MicroKernel, i: int, j: int, lanes: int) -> Any:
    return vector(i * kernel.cols + j * lanes, lanes)
