"""Small pieces of TensorIR that the lowering is written with, and types in memory and in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.problem import require_dtype

_PREFETCH_READ, _DATA_CACHE = 0, 1
L1, L2 = 3, 2
"""LLVM's locality of a prefetch: the cache that the line is brought to."""


@contextmanager
def function(name: str, *, exported: bool = False) -> Iterator[IRBuilder]:
    """Makes a function of what is emitted inside; yields its builder, whose ``get()`` returns it later."""
    with IRBuilder() as builder, T.prim_func(private=not exported):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, **({"global_symbol": name} if exported else {})})
        yield builder


def stack_buffer(elements: int, dtype: str = "float32") -> Any:
    """Allocates an array on the stack; one whose indices are all constants becomes registers.

    Without the annotation TVM would turn it into a call of its runtime's workspace allocator.
    """
    return T.alloc_buffer((elements,), dtype, scope="local", annotations={"disable_lower_builtin": True})


def vector(start: Any, lanes: int) -> Any:
    """Returns the index of ``lanes`` consecutive elements from ``start`` on."""
    return tirx.Ramp(int64(start), int64(1), lanes)


def int64(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def constant(value: float, lanes: int, dtype: str = "float32") -> Any:
    """Returns a vector of equal numbers; for one lane, the number."""
    one = tirx.const(value, dtype)
    return one if lanes == 1 else tirx.Broadcast(one, lanes)


def vector_type(dtype: str, lanes: int) -> str:
    """Returns the type of a vector; for one lane, the type of its element."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def instruction(name: str, *operands: Any) -> None:
    """Emits an intrinsic of LLVM that has no result; an ``int`` is the number of a register."""
    numbers = (tirx.IntImm("int8", one) if isinstance(one, int) else one for one in operands)
    T.evaluate(tirx.call_llvm_intrin("void", name, *numbers))


def mask(inside: Any, lanes: int) -> Any:
    """Returns a vector of bits: lane ``v`` is set where ``v < inside``."""
    steps = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
    return tirx.LT(steps, tirx.Broadcast(tirx.Cast("int32", inside), lanes))


def masked_store(buffer: Any, offset: Any, value: Any, inside: Any, lanes: int) -> None:
    """Stores the first ``inside`` lanes (none if negative); the others' memory is not touched.

    One lane of less than 32 bits is stored by itself: LLVM (as in TVM 0.27) makes a narrowing masked store
    of a single known lane a store of 32 bits, over what follows.
    """
    pointer = buffer.access_ptr("w", offset=offset)
    if buffer.dtype.bits >= 32:
        instruction("llvm.masked.store", value, pointer, mask(inside, lanes))
        return
    value = T.bind(value)
    with T.If(inside == 1):
        with T.Then():
            one = T.decl_buffer((1,), str(buffer.dtype), data=buffer.data, elem_offset=offset, align=1)
            T.buffer_store(one, tirx.Shuffle([value], [tirx.IntImm("int32", 0)]), [0])
        with T.Else():
            instruction("llvm.masked.store", value, pointer, mask(inside, lanes))


def masked_load(buffer: Any, offset: Any, inside: Any, lanes: int) -> Any:
    """Loads the first ``inside`` lanes; the others are zero and their memory is not touched."""
    dtype = str(buffer.dtype)
    pointer, others = buffer.access_ptr("r", offset=offset), constant(0, lanes, dtype)
    return tirx.call_llvm_intrin(f"{dtype}x{lanes}", "llvm.masked.load", pointer, mask(inside, lanes), others)


def prefetch(buffer: Any, offset: Any, level: int) -> None:
    """Prefetches the cache line at ``offset``; beyond the end of the buffer that does no harm."""
    constants = (tirx.IntImm("int32", n) for n in (_PREFETCH_READ, level, _DATA_CACHE))
    pointer = buffer.access_ptr("r", offset=offset)
    instruction("llvm.prefetch", pointer, *constants)


def forget(*pointers: Any) -> None:
    """Makes the compiler reload the memory behind two pointers, without an instruction. To the compiler,
    LLVM's ``clear_cache`` may change memory; where the instruction cache is coherent it becomes no
    instruction (LLVM Language Reference)."""
    instruction("llvm.clear_cache", *pointers)


def either(condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """Emits both branches of a condition."""
    with T.If(condition):
        with T.Then():
            then()
        with T.Else():
            otherwise()


def switch(value: Any, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """Emits a binary search for ``value``, which is one of the ascending ``cases``; ``emit(n)`` emits case
    ``n``."""
    if len(cases) == 1:
        emit(cases[0])
        return
    middle = len(cases) // 2
    low, high = (partial(switch, value, half, emit) for half in (cases[:middle], cases[middle:]))
    either(value < cases[middle], low, high)


def ceil_div(extent: Any, tile: Any) -> Any:
    """Returns the number of tiles that cover an extent; both are numbers or expressions."""
    if isinstance(extent, int) and isinstance(tile, int):
        return -(-extent // tile)
    return tirx.truncdiv(extent + (tile - 1), int64(tile))


def quotient(extent: Any, divisor: Any) -> Any:
    """Returns how often a divisor goes into an extent; both are numbers or expressions."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return extent // divisor
    return tirx.truncdiv(int64(extent), int64(divisor))


def most(one: Any, other: Any) -> Any:
    """Returns the larger of two numbers or expressions."""
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return tirx.max(int64(one), int64(other))


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Makes what is emitted inside run under a condition."""
    with T.If(condition), T.Then():
        yield


def stored_as(dtype: str) -> str:
    """Returns the type by which generated code reads and writes an array. TVM generates no CPU code for some
    types: their bits are read and written."""
    precision = require_dtype(dtype)
    return f"uint{8 * precision.itemsize}" if precision.extension else dtype


def widened(value: Any, lanes: int) -> Any:
    """Returns a vector, as it lies in memory, in float32."""
    if str(value.ty.dtype).startswith("uint16"):
        wide = tirx.Cast(vector_type("uint32", lanes), value) << constant(16, lanes, "uint32")
        return tirx.reinterpret(vector_type("float32", lanes), wide)
    return value


def narrowed(value: Any, dtype: str, lanes: int) -> Any:
    """Returns a float32 vector as it is stored: rounded to nearest, ties to even, and clipped to the range of
    whole numbers."""
    precision = require_dtype(dtype)
    if precision.ends is not None:
        low, high = (constant(float(end), lanes) for end in precision.ends)
        inside = tirx.max(tirx.min(value, high), low)
        whole = tirx.call_llvm_intrin(f"float32x{lanes}", "llvm.rint", inside)
        return tirx.Cast(f"{dtype}x{lanes}", tirx.Cast(f"int32x{lanes}", whole))
    return BITS[dtype](T.bind(value), lanes) if precision.extension else value


def _upper_half(value: Any, lanes: int) -> Any:
    """Returns the nearest bfloat16. Half of its last place (minus one if that place is even) is added to the
    bits of the float32, so values that overflow become infinite. Not-a-number keeps its upper bits, quiet."""
    bits = T.bind(tirx.reinterpret(f"uint32x{lanes}", value))
    upper = T.bind(bits >> constant(16, lanes, "uint32"))
    even = upper & constant(1, lanes, "uint32")
    rounded = (bits + even + constant(0x7FFF, lanes, "uint32")) >> constant(16, lanes, "uint32")
    quiet = upper | constant(0x40, lanes, "uint32")
    # Only not-a-number differs from itself.
    return tirx.Cast(f"uint16x{lanes}", tirx.Select(tirx.NE(value, value), quiet, rounded))


BITS: Mapping[str, Callable[[Any, int], Any]] = {"bfloat16": _upper_half}
"""Functions that return the bits of float32 values in a type that TVM has no code for, by the type's name."""
