"""Addresses of an operand's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.tir import vector


@dataclass(frozen=True)
class Strided:
    """The access to an operand whose rows lie ``apart`` elements from each other.

    The loops take addresses in the input, and in weights that are not packed, from :meth:`at` only. Another
    access needs a class with this method, and a tile function that reads from such addresses.
    """

    buffer: Any
    apart: Any

    def at(self, row: Any, column: Any = 0) -> Any:
        """Returns the pointer from which an element, and those behind it, are read."""
        return self.buffer.access_ptr("r", offset=row * self.apart + column)


@dataclass(frozen=True)
class Rows:
    """Rows of one array, ``apart`` elements from each other, a distance that may be known only at the call.

    Each of ``buffers`` addresses ``together`` rows (:attr:`~dietlab.lower.decisions.Lowering.rows_together`).
    With a number for ``apart`` every row has a constant offset to one pointer. With a variable the compiler
    keeps a pointer to every row through the loop around it. For 14 rows these pointers exceed the scalar
    registers: the compiler spills and reloads them in each step.
    For example, for five rows from step ``k`` on, three together::

        before, in registers           after
        x, x + apart, x + 2 * apart,   p = x + k            rows 0, 1, 2:  p, p + apart, p + 2 * apart
        x + 3 * apart, x + 4 * apart   q = p + 3 * apart    rows 3, 4:     q, q + apart
    """

    buffers: tuple[Any, ...]
    apart: Any
    together: int

    @classmethod
    def of(cls, buffer: Any, offset: Any, count: int, apart: Any, together: int) -> Rows:
        """Emits the pointers to ``count`` rows of ``buffer``; the first row begins at ``offset``."""
        pointer, buffers = buffer.access_ptr("r", offset=offset), []
        for _ in range(0, count, together):
            # LLVM knows only that this points to the same array, so that it cannot compute it from others.
            unrelated = tirx.call_llvm_intrin("handle", "llvm.launder.invariant.group", pointer)
            buffers.append(T.decl_buffer((together * apart,), data=T.bind(unrelated), align=4))
            pointer = buffers[-1].access_ptr("r", offset=together * apart)
        return cls(tuple(buffers), apart, together)

    def place(self, row: int, column: Any) -> tuple[Any, Any]:
        """Returns the buffer of an element, and its offset in it."""
        group, number = divmod(row, self.together)
        return self.buffers[group], number * self.apart + column

    def load(self, row: int, column: int, lanes: int = 1) -> Any:
        """Returns the ``lanes`` elements of a row from ``column`` on."""
        buffer, offset = self.place(row, column)
        return buffer[offset if lanes == 1 else vector(offset, lanes)]
