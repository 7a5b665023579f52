"""Weights in panels: the transposition of ``w[cols, depth]`` in registers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tir import (
    constant,
    int64,
    masked_load,
    masked_store,
    quotient,
    vector,
    when,
)

PANEL_FUNCTION = "panel"


def panel_function(geometry: Geometry) -> Any:
    """Returns ``panel(w, out, cols[, depth][, bias])``: one panel of :class:`Geometry`, from row-major
    weights.

    Draws, for ``lanes == 2``::

        before                               after
        w[0, :]  a b c d                     out[0, :]  a e
        w[1, :]  e f g h                     out[1, :]  b f        (after the bias, if there is one)
                                             out[2, :]  c g
                                             out[3, :]  d h

    Blocks of ``lanes x lanes`` are read as rows, exchanged in registers and written as rows.
    ``cols`` is how many rows ``w`` has from here on: beyond them the last one is read again, and its
    products are never written. With none left the panel is zero.

    All stores are masked, because these carry no type-based alias information: TVM's says that buffers
    of different names are different memory, and with this function inlined LLVM would let a tile read
    its weights before they are written here.
    """
    lanes, below = geometry.lanes, int(geometry.epilogue.bias)
    with IRBuilder() as builder, T.prim_func(private=True):
        T.func_name(PANEL_FUNCTION)
        T.func_attr({"tirx.noalias": True})
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
            _store(out, block * lanes + k + below, column, lanes)
    first = blocks * lanes if isinstance(blocks, int) else T.bind(blocks * lanes)
    left = depth - first
    if isinstance(left, int) and not left:
        return
    with nullcontext() if isinstance(left, int) else when(left > 0):
        rows = [T.bind(masked_load(w, source * depth + first, int64(left), lanes)) for source in sources]
        for k, column in enumerate(exchanged(rows, lanes)[: left if isinstance(left, int) else lanes]):
            with nullcontext() if isinstance(left, int) else when(k < left):
                _store(out, first + k + below, column, lanes)


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
