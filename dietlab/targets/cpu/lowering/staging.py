"""The copy of the input that a unit reads: widened, or with another sign, and filled up to whole steps."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.problem import WORKING
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tir import int64, lanes_of, vector, vector_type
from dietlab.targets.cpu.lowering.types import stored_as, widened
from dietlab.targets.cpu.units import MADE_UNSIGNED, UNITS, CpuUnit, UnitFacts

CHUNK = 16
"""Elements of a row that are copied at a time."""


def stage_name(unit: CpuUnit) -> str:
    """Returns the name of the function that copies the input for a unit."""
    return f"stage_{unit}"


def stage_function(unit: CpuUnit, geometry: Geometry) -> Any:
    """Returns ``stage(x, out, rows)``, which copies ``x [rows, elements]`` row by row.

    Draws, for ``vnni`` and 5 elements::

        x[0, :]    a b c d e
        out[0, :]  a+128 b+128 c+128 d+128 e+128 128 128 128

    Every row tile reads a row of the input once for each column tile, so that this is done once in the time
    of as many reads as there are column tiles.
    """
    assert isinstance(geometry.elements, int) and isinstance(geometry.depth, int)
    facts = UNITS[unit]
    elements, padded = geometry.elements, geometry.depth * facts.per_step
    with IRBuilder() as builder, T.prim_func(private=True):
        T.func_name(stage_name(unit))
        T.func_attr({"tirx.noalias": True})
        pointers = {"x": stored_as(geometry.precision.name), "out": facts.staged}
        given = {name: T.arg(name, T.handle(dtype)) for name, dtype in pointers.items()}
        rows = T.arg("rows", T.int64())
        x = T.decl_buffer((rows, elements), pointers["x"], data=given["x"], align=1)
        out = T.decl_buffer((rows, padded), pointers["out"], data=given["out"], align=1)
        whole = elements // CHUNK
        with T.serial(int64(0), rows) as i:
            with T.serial(int64(0), int64(whole)) as chunk:
                at = vector(chunk * CHUNK, CHUNK)
                T.buffer_store(out, _copied(facts, x[i, at], CHUNK), [i, at])
            with T.serial(int64(whole * CHUNK), int64(elements)) as k:
                T.buffer_store(out, _copied(facts, x[i, k], 1), [i, k])
            for k in range(elements, padded):
                T.buffer_store(out, tirx.const(0, facts.staged), [i, k])
    return builder.get()


def _copied(facts: UnitFacts, value: Any, lanes: int) -> Any:
    """Returns elements of the input as the unit reads them."""
    if facts.corrects:
        # Adding 128 to a byte exchanges its highest bit.
        return value ^ lanes_of(-MADE_UNSIGNED, lanes, facts.staged)
    if facts.staged == WORKING.name:
        return widened(value, lanes)
    return value.astype(vector_type(facts.staged, lanes))
