"""Panels of weights of less than 32 bits, in words; see
:class:`~dietlab.targets.cpu.lowering.geometry.Geometry`."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.panels import PANEL_FUNCTION
from dietlab.targets.cpu.lowering.tir import int64
from dietlab.targets.cpu.lowering.types import stored_as
from dietlab.targets.cpu.units import MADE_UNSIGNED


def word_panel_function(geometry: Geometry) -> Any:
    """Returns ``panel(w, out, cols[, scale][, bias])``: one panel from row-major weights.

    Beyond the last column, and beyond the last element of the reduction, weights are zero. ``cols`` is how
    many rows ``w`` has from here on.
    """
    elements, lanes, precision = geometry.elements, geometry.lanes, geometry.precision
    assert isinstance(elements, int) and isinstance(geometry.depth, int)
    stored, per_step, head = stored_as(precision.name), geometry.per_step, geometry.head_rows
    with IRBuilder() as builder, T.prim_func(private=True):
        T.func_name(PANEL_FUNCTION)
        T.func_attr({"tirx.noalias": True})
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
            total = T.alloc_buffer((1,), "int32", scope="local", annotations={"disable_lower_builtin": True})
            T.buffer_store(total, tirx.IntImm("int32", 0), [0])
            with T.serial(int64(0), int64(elements)) as k:
                weight = T.bind(T.if_then_else(inside, w[v, k], tirx.const(0, stored)))
                T.buffer_store(out, weight, [_place(geometry, k, v)])
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
    step, half = (
        tirx.truncdiv(k, int64(per_step)),
        tirx.truncdiv(tirx.truncmod(k, int64(per_step)), int64(together)),
    )
    first = (step + geometry.head_rows) * (lanes * per_step)
    return first + (half * lanes + v) * together + tirx.truncmod(k, int64(together))


def _bits(value: Any) -> Any:
    """Returns a value as float32, as the bits of an int32."""
    if str(value.ty.dtype) == "uint16":
        return tirx.Cast("int32", value) << tirx.IntImm("int32", 16)
    return tirx.reinterpret("int32", value)
