"""Memory of one core for a call: copies of the input as units read it, and weights transposed on the fly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import WORKING
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.loop_nest import transposes
from dietlab.targets.cpu.lowering.tir import (
    ceil_div,
    constant,
    function,
    int64,
    most,
    stack_buffer,
    stored_as,
    vector,
    vector_type,
    widened,
)
from dietlab.targets.cpu.units import LINE_BYTES, MADE_UNSIGNED, UNITS, WORD_BYTES, CpuUnit, UnitFacts

CHUNK = 16
"""The number of elements of a row that are copied at a time."""


def scratch_floats(schemes: Iterable[CpuScheme], geometry: Geometry, depth: Any) -> Any:
    """Returns the size of one core's scratch, in floats: for the zero-filled copy of an edge tile, or for
    weights transposed on the fly."""
    found: Any = 0
    for scheme in schemes:
        needed: Any = 0
        if transposes(scheme.kernel, geometry):
            needed += scheme.kernel.vectors(geometry.lanes) * geometry.panel_rows(depth) * geometry.lanes
        if pads(scheme):
            needed += scheme.rows * depth
        found = most(found, needed)
    return found


@contextmanager
def scratch_buffer(schemes: Iterable[CpuScheme], geometry: Geometry, depth: Any) -> Iterator[Any | None]:
    """Allocates one core's scratch for what is emitted inside: on the stack or, if its size depends on the
    call, by the C library; None if nothing needs any."""
    floats = scratch_floats(schemes, geometry, depth)
    if isinstance(floats, int):
        yield stack_buffer(floats) if floats else None
        return
    with allocated(floats) as buffer:
        yield buffer


@contextmanager
def allocated(floats: Any) -> Iterator[Any]:
    """Allocates an array on cache lines, by the C library, for what is emitted inside."""
    lines = ceil_div(floats * WORD_BYTES, LINE_BYTES)
    sizes = (tirx.Cast("uint64", int64(size)) for size in (LINE_BYTES, lines * LINE_BYTES))
    pointer = T.bind(tirx.call_extern("handle", "aligned_alloc", *sizes))
    yield T.decl_buffer((floats,), data=pointer)
    T.evaluate(tirx.call_extern("void", "free", pointer))


def pads(scheme: CpuScheme) -> bool:
    return scheme.edge == "padded" and scheme.rows > 1


def stage_name(unit: CpuUnit) -> str:
    return f"stage_{unit}"


def stage_function(unit: CpuUnit, geometry: Geometry) -> Any:
    """Returns ``stage(x, out, rows)``, which copies ``x [rows, elements]`` row by row.

    For example, for ``vnni`` and 5 elements::

        x[0, :]    a b c d e
        out[0, :]  a+128 b+128 c+128 d+128 e+128 128 128 128

    The copy is made once, and row tiles read each row once for each column tile.
    """
    assert isinstance(geometry.elements, int) and isinstance(geometry.depth, int)
    facts = UNITS[unit]
    elements, padded = geometry.elements, geometry.depth * facts.per_step
    with function(stage_name(unit)) as builder:
        pointers = {"x": stored_as(geometry.precision.name), "out": facts.staged}
        given = {name: T.arg(name, T.handle(dtype)) for name, dtype in pointers.items()}
        rows = T.arg("rows", T.int64())
        x = T.decl_buffer((rows, elements), pointers["x"], data=given["x"], align=1)
        out = T.decl_buffer((rows, padded), pointers["out"], data=given["out"], align=1)
        whole = elements // CHUNK
        with T.serial(int64(0), rows) as i:
            with T.serial(int64(0), int64(whole)) as chunk:
                at = vector(chunk * CHUNK, CHUNK)
                T.buffer_store(out, as_read(facts, x[i, at], CHUNK), [i, at])
            with T.serial(int64(whole * CHUNK), int64(elements)) as k:
                T.buffer_store(out, as_read(facts, x[i, k], 1), [i, k])
            for k in range(elements, padded):
                T.buffer_store(out, tirx.const(0, facts.staged), [i, k])
    return builder.get()


def as_read(facts: UnitFacts, value: Any, lanes: int) -> Any:
    """Returns elements of the input, as they lie in memory, as a unit reads them."""
    if facts.corrects:
        # Adding 128 to a byte flips its highest bit.
        return value ^ constant(-MADE_UNSIGNED, lanes, facts.staged)
    if facts.staged == WORKING.name:
        return widened(value, lanes)
    return value.astype(vector_type(facts.staged, lanes))
