"""Weights in panels (:class:`Geometry`): ``w[cols, depth]`` transposed in registers, or in words."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tir import (
    constant,
    function,
    int64,
    masked_load,
    masked_store,
    quotient,
    stack_buffer,
    stored_as,
    vector,
    when,
)
from dietlab.targets.cpu.units import MADE_UNSIGNED

PANEL_FUNCTION = "panel"


def panel_function(geometry: Geometry) -> Any:
    """Returns ``panel(w, out, cols[, depth][, bias])``: one panel of float32, from row-major weights.

    For example, for ``lanes == 2``::

        before                               after
        w[0, :]  a b c d                     out[0, :]  a e
        w[1, :]  e f g h                     out[1, :]  b f        (after the bias, if there is one)
                                             out[2, :]  c g
                                             out[3, :]  d h

    Blocks of ``lanes x lanes`` are read as rows, exchanged in registers and written as rows.
    ``cols`` is the number of rows that ``w`` has from here on: beyond them the last one is read again, and
    its products are never written. With none left the panel is zero.

    All stores are masked, because masked stores carry no type-based alias information. TVM's says that
    buffers of different names are different memory: with this function inlined, LLVM would let a tile read
    its weights before they are written here.
    """
    lanes, below = geometry.lanes, int(geometry.epilogue.bias)
    with function(PANEL_FUNCTION) as builder:
        pointers = [T.arg(name, T.handle("float32")) for name in ("w", "out")]
        cols = T.arg("cols", T.int64())
        depth = geometry.depth if isinstance(geometry.depth, int) else T.arg("depth", T.int64())
        bias_pointer = T.arg("bias", T.handle("float32")) if below else None
        w = T.decl_buffer((lanes, depth), data=pointers[0], align=4)
        out = T.decl_buffer((geometry.panel_rows(depth), lanes), data=pointers[1])
        with T.If(cols > 0):
            with T.Then():
                _transpose(geometry, w, out, cols, depth)
            with T.Else(), T.serial(int64(0), int64(depth)) as k:
                _store(out, k + below, constant(0.0, lanes), lanes)
        if bias_pointer is not None:
            bias = T.decl_buffer((lanes,), data=bias_pointer, align=4)
            _store(out, 0, masked_load(bias, 0, cols, lanes), lanes)
    return builder.get()


def _store(out: Any, row: Any, value: Any, lanes: int) -> None:
    masked_store(out, row * lanes, value, int64(lanes), lanes)


def _transpose(geometry: Geometry, w: Any, out: Any, cols: Any, depth: Any) -> None:
    lanes, below = geometry.lanes, int(geometry.epilogue.bias)
    sources = [T.bind(tirx.min(int64(v), cols - 1)) for v in range(lanes)]
    blocks = quotient(depth, lanes)
    with T.serial(int64(0), int64(blocks)) as block:
        rows = [T.bind(w[source, vector(block * lanes, lanes)]) for source in sources]
        for k, column in enumerate(exchanged(rows, lanes)):
            _store(out, _row(geometry, block * lanes + k, depth) + below, column, lanes)
    first = blocks * lanes if isinstance(blocks, int) else T.bind(blocks * lanes)
    left = depth - first
    if isinstance(left, int) and not left:
        return
    with nullcontext() if isinstance(left, int) else when(left > 0):
        rows = [T.bind(masked_load(w, source * depth + first, int64(left), lanes)) for source in sources]
        for k, column in enumerate(exchanged(rows, lanes)[: left if isinstance(left, int) else lanes]):
            with nullcontext() if isinstance(left, int) else when(k < left):
                _store(out, _row(geometry, first + k, depth) + below, column, lanes)


def _row(geometry: Geometry, k: Any, depth: Any) -> Any:
    """Returns the step of the reduction at which weight ``k`` of the ``depth`` weights of a column is used. A
    convolution's weights ``w[cols, channels, KH, KW]`` are used in the order of the input, ``[KH, KW,
    channels]``."""
    if geometry.patches is None or geometry.patches.elements == 1:
        return k
    elements, channels = int64(geometry.patches.elements), quotient(depth, geometry.patches.elements)
    return tirx.truncmod(int64(k), elements) * channels + tirx.truncdiv(int64(k), elements)


def exchanged(rows: list[Any], lanes: int) -> list[Any]:
    """Returns the transposition of ``lanes`` vectors of ``lanes`` elements: log2(lanes) rounds of pairs.

    Round ``s`` exchanges the off-diagonal ``s x s`` blocks of each ``2s x 2s`` block::

        a0 a1      a0 b0
        b0 b1  ->  a1 b1
    """
    step = 1
    while step < lanes:
        after = list(rows)
        for i in range(lanes):
            if not i & step:
                pair = [rows[i], rows[i | step]]
                upper = [v if not v & step else lanes + (v ^ step) for v in range(lanes)]
                lower = [v | step if not v & step else lanes + v for v in range(lanes)]
                after[i], after[i | step] = (T.bind(tirx.Shuffle(pair, picks)) for picks in (upper, lower))
        rows, step = after, 2 * step
    return rows


def word_panel_function(geometry: Geometry) -> Any:
    """Returns ``panel(w, out, cols[, scale][, bias])``: one panel of weights of less than 32 bits, in words.

    Beyond the last column, and beyond the last element of the reduction, weights are zero. ``cols`` is the
    number of rows that ``w`` has from here on.
    """
    elements, lanes, precision = geometry.elements, geometry.lanes, geometry.precision
    assert isinstance(elements, int) and isinstance(geometry.depth, int)
    stored, per_step, head = stored_as(precision.name), geometry.per_step, geometry.head_rows
    with function(PANEL_FUNCTION) as builder:
        pointers = [T.arg("w", T.handle(stored)), T.arg("out", T.handle(stored))]
        cols = T.arg("cols", T.int64())
        others = {"scale": precision.scaled, "bias": geometry.epilogue.bias}
        types = {name: stored_as(geometry.type_of(name)) for name, there in others.items() if there}
        handles = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        rows = {name: T.decl_buffer((lanes,), types[name], data=handles[name], align=1) for name in types}
        w = T.decl_buffer((lanes, elements), stored, data=pointers[0], align=1)
        length = geometry.panel_rows(geometry.depth) * lanes
        out = T.decl_buffer((length * per_step,), stored, data=pointers[1])
        words = T.decl_buffer((length,), "int32", data=pointers[1])
        with T.serial(int64(0), int64(lanes)) as v:
            inside = T.bind(v < cols)
            for k in range(elements, geometry.depth * per_step):
                T.buffer_store(out, tirx.const(0, stored), [_place(geometry, int64(k), v)])
            total = stack_buffer(1, "int32")
            T.buffer_store(total, tirx.IntImm("int32", 0), [0])
            with T.serial(int64(0), int64(elements)) as k:
                weight = T.bind(T.if_then_else(inside, w[v, k], tirx.const(0, stored)))
                T.buffer_store(out, weight, [_place(geometry, _row(geometry, k, elements), v)])
                if precision.whole:
                    T.buffer_store(total, total[0] + tirx.Cast("int32", weight), [0])
            if precision.whole:
                T.buffer_store(words, total[0] * tirx.IntImm("int32", -MADE_UNSIGNED), [v])
            for name, row in (("scale", 1), ("bias", head - 1)):
                if name in rows:
                    value = T.if_then_else(inside, _bits(rows[name][v]), tirx.IntImm("int32", 0))
                    T.buffer_store(words, value, [row * lanes + v])
    return builder.get()


def _place(geometry: Geometry, k: Any, v: Any) -> Any:
    """Returns where element ``k`` of column ``v`` stands in its panel, in elements."""
    per_step, halves, lanes = geometry.per_step, geometry.halves, geometry.lanes
    together = per_step // halves
    step = tirx.truncdiv(k, int64(per_step))
    half = tirx.truncdiv(tirx.truncmod(k, int64(per_step)), int64(together))
    first = (step + geometry.head_rows) * (lanes * per_step)
    return first + (half * lanes + v) * together + tirx.truncmod(k, int64(together))


def _bits(value: Any) -> Any:
    """Returns the bits of a value in float32, as int32."""
    if str(value.ty.dtype) == "uint16":
        return tirx.Cast("int32", value) << tirx.IntImm("int32", 16)
    return tirx.reinterpret("int32", value)
