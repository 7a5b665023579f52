"""Memory of one core for a call: copies of the input, and weights transposed on the fly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.loop_nest import transposes
from dietlab.targets.cpu.lowering.tir import ceil_div, int64, most, stack_buffer
from dietlab.targets.cpu.units import WORD_BYTES


def scratch_floats(schemes: Iterable[CpuScheme], geometry: Geometry, depth: Any) -> Any:
    """Returns the scratch of one core, in floats: for the zero-filled copy of an edge tile, or for
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


LINE_BYTES = 64
"""A cache line: vectors are read and written at multiples of it."""


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
    """Allocates an array by the C library for what is emitted inside."""
    lines = ceil_div(floats * WORD_BYTES, LINE_BYTES)
    sizes = (tirx.Cast("uint64", int64(size)) for size in (LINE_BYTES, lines * LINE_BYTES))
    pointer = T.bind(tirx.call_extern("handle", "aligned_alloc", *sizes))
    yield T.decl_buffer((floats,), data=pointer)
    T.evaluate(tirx.call_extern("void", "free", pointer))


def pads(scheme: CpuScheme) -> bool:
    return scheme.edge == "padded" and scheme.rows > 1
