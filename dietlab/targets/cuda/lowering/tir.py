"""Small pieces of TensorIR that the CUDA lowering is written with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def int32(value: Any) -> Any:
    """Converts to 32 bits, which suffice within a tile and are native to a GPU."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else _cast("int32", value)


def int64(value: Any) -> Any:
    """Converts to 64 bits: a tile can begin beyond 2^31 elements."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else _cast("int64", value)


def _cast(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def ceil_div(extent: Any, tile: int) -> Any:
    """Returns the number of tiles that cover an extent, a number or an expression."""
    if isinstance(extent, int):
        return -(-extent // tile)
    return tirx.truncdiv(extent + (tile - 1), tirx.IntImm(str(extent.ty.dtype), tile))


def bound(name: str, value: Any) -> Any:
    """Returns a variable called ``name`` in the generated program."""
    return IRBuilder.name(name, T.bind(value))


@contextmanager
def unrolled(count: int, name: str) -> Iterator[Any]:
    """Opens a loop that the CUDA compiler unrolls: arrays indexed by its variable become registers."""
    with T.unroll(int32(0), int32(count)) as variable:
        yield IRBuilder.name(name, variable)


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Opens a block of statements that run if the condition holds."""
    with T.If(condition), T.Then():
        yield


def span(start: Any, lanes: int) -> Any:
    """Returns the index of ``lanes`` consecutive elements from ``start`` on."""
    return start if lanes == 1 else tirx.Ramp(start, tirx.IntImm(str(start.ty.dtype), 1), lanes)


def registers(name: str, count: int, dtype: str = "float32") -> Any:
    """Returns a thread's own array, which lies in registers if all indices are constant."""
    return IRBuilder.name(name, T.alloc_buffer((count,), dtype, scope="local"))


def load_16_bytes(to: Any, array: Any, at: Any) -> None:
    """Emits one load of 16 bytes from an array in memory, at a multiple of 16 bytes, to registers."""
    words = _words(to)
    T.evaluate(T.ptx["ld.global.v4.u32"](*(words[int32(n)] for n in range(4)), T.address_of(array[at])))


def store_16_bytes(array: Any, at: Any, values: Any) -> None:
    """Emits one store of 16 bytes from registers. TVM splits eight elements of 16 bits into single ones."""
    words = _words(values)
    T.evaluate(T.ptx["st.global.v4.u32"](T.address_of(array[at]), *(words[int32(n)] for n in range(4))))


def _words(values: Any) -> Any:
    return T.decl_buffer((4,), "uint32", data=values.data, scope="local")


EXCHANGE = "dietlab_exchange_pairs"
EXCHANGE_SOURCE = f"""
__forceinline__ __device__ void {EXCHANGE}(void* pairs, int lane) {{
  unsigned int* words = (unsigned int*)pairs;
  #pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {{
    #pragma unroll
    for (int low = 0; low < 4; ++low) {{
      if (low & bit) continue;
      int high = low + bit;
      bool upper = lane & bit;
      unsigned int given = upper ? words[low] : words[high];
      unsigned int taken = __shfl_xor_sync(0xffffffffu, given, bit);
      words[low] = upper ? taken : words[low];
      words[high] = upper ? words[high] : taken;
    }}
  }}
}}
"""
"""The CUDA source of a function that transposes the four words of each of four neighbouring lanes, two words
at a time (CUDA C++ Programming Guide, warp shuffle functions)."""


def exchange_pairs(values: Any, lane: Any) -> None:
    """Emits the exchange of eight values of 16 bits between four neighbouring lanes: lane ``m`` gives its
    pair ``n`` to lane ``n`` as pair ``m``. All lanes of the warp must take part.

    Args:
        lane: the number of this lane among the four.
    """
    T.evaluate(T.cuda.func_call(EXCHANGE, values.data, lane, source_code=EXCHANGE_SOURCE))


KEEP = "dietlab_keep"
KEEP_SOURCE = f"""
__forceinline__ __device__ void {KEEP}(float& value) {{
  asm volatile("" : "+f"(value) : : "memory");
}}
"""
"""The CUDA source of an empty ``asm``, which adds no instruction. The compiler moves no computation of
``value`` behind it, and no use before it."""


def keep(values: Any, count: int) -> None:
    """Hides the origin of ``count`` registers from the compiler, which then computes them before this point
    and uses them after it."""
    with unrolled(count, "n") as n:
        T.evaluate(T.cuda.func_call(KEEP, values[n], source_code=KEEP_SOURCE))


OPAQUE = {
    "int32": ("dietlab_opaque", "int", "r"),
    "uint64": ("dietlab_opaque_address", "unsigned long long", "l"),
}
"""The names of CUDA functions by the type of their value; the type in CUDA; and its letter in ``asm``."""

OPAQUE_SOURCE = """
__forceinline__ __device__ {kind} {name}({kind} value) {{
  asm volatile("" : "+{letter}"(value));
  return value;
}}
"""
"""The CUDA source of an empty ``asm``, which adds no instruction. The compiler does not know the value's
origin, and keeps it in a register."""


def opaque(value: Any) -> Any:
    """Returns an expression of int32 or uint64 whose origin the CUDA compiler does not know."""
    dtype = str(value.ty.dtype)
    name, kind, letter = OPAQUE[dtype]
    source = OPAQUE_SOURCE.format(name=name, kind=kind, letter=letter)
    return T.cuda.func_call(name, value, source_code=source, return_type=dtype)


def from_element(buffer: Any, index: Any) -> Any:
    """Emits the address of an element, which is computed once, and returns the buffer from there on."""
    address = bound("address", opaque(T.reinterpret("uint64", T.address_of(buffer[index]))))
    tile = tirx.Var("tile", PointerType(PrimType(str(buffer.dtype)), "global"))
    T.Bind(T.reinterpret(tile.ty, address), var=tile)
    return T.decl_buffer(buffer.shape, buffer.dtype, data=tile)


def computed_once(name: str, value: Any) -> Any:
    """Returns a variable that holds an int32 from here on.

    For example, with a value that costs a division::

        before                                        after
        for step in range(steps):                     tile = opaque(block % row_tiles)
          ... x[block % row_tiles * 64 + i] ...       for step in range(steps):
                                                        ... x[tile * 64 + i] ...

    TVM inserts the expression of a :func:`bound` variable wherever the variable stands, and the CUDA compiler
    computes it in every step of a loop again, to save a register.
    """
    return bound(name, opaque(value))
