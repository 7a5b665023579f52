"""Types in memory and in registers: what is stored of a float32 vector, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import require_dtype
from dietlab.targets.cpu.lowering.tir import constant, lanes_of, vector_type


def stored_as(dtype: str) -> str:
    """Returns the type by which generated code reads and writes an array: the bits of a type that TVM has no
    code for on a CPU."""
    precision = require_dtype(dtype)
    return f"uint{8 * precision.itemsize}" if precision.extension else dtype


def widened(value: Any, lanes: int) -> Any:
    """Returns float32 values of a vector as it lies in memory."""
    if str(value.ty.dtype).startswith("uint16"):
        wide = tirx.Cast(vector_type("uint32", lanes), value) << lanes_of(16, lanes)
        return tirx.reinterpret(vector_type("float32", lanes), wide)
    return value


def narrowed(value: Any, dtype: str, lanes: int) -> Any:
    """Returns a float32 vector as it is stored: rounded to nearest, ties to even; whole numbers within their
    range."""
    precision = require_dtype(dtype)
    if precision.ends is not None:
        low, high = (constant(float(end), lanes) for end in precision.ends)
        inside = tirx.max(tirx.min(value, high), low)
        whole = tirx.call_llvm_intrin(f"float32x{lanes}", "llvm.rint", inside)
        return tirx.Cast(f"{dtype}x{lanes}", tirx.Cast(f"int32x{lanes}", whole))
    return BITS[dtype](T.bind(value), lanes) if precision.extension else value


def _upper_half(value: Any, lanes: int) -> Any:
    """Returns the nearest bfloat16. Half of its last place, less one if that place is even, is added to the
    bits of the float32: what overflows becomes infinite. Not-a-number keeps its upper bits, and is quiet."""
    bits = T.bind(tirx.reinterpret(f"uint32x{lanes}", value))
    upper = T.bind(bits >> lanes_of(16, lanes))
    even = upper & lanes_of(1, lanes)
    rounded = (bits + even + lanes_of(0x7FFF, lanes)) >> lanes_of(16, lanes)
    quiet = upper | lanes_of(0x40, lanes)
    # Only not-a-number differs from itself.
    return tirx.Cast(f"uint16x{lanes}", tirx.Select(tirx.NE(value, value), quiet, rounded))


BITS: Mapping[str, Callable[[Any, int], Any]] = {"bfloat16": _upper_half}
"""The bits of float32 values in a type that TVM has no code for, by its name."""
