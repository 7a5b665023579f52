"""The compute stage on CUDA cores: one thread's tile in registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cuda.layout import WARP, Layout, Left, Summing
from dietlab.lower.cuda.tir import bound, int32, registers, span, unrolled

QUAD = 4
"""Steps of the reduction that one read of shared memory brings along the depth."""

WARP_DOWN, WARP_ACROSS = 4, 8
"""How a warp's threads lie over the tile: eight neighbouring columns are read without a conflict."""


@dataclass(frozen=True)
class MultiplyAdds(Summing):
    """A thread on CUDA cores: ``tile_rows x tile_cols`` sums, operands read 16 bytes at a time.

    Draws, for a 2 x 1 tile and ``w[cols, depth]``::

        before                         after
        for k in range(step):          for q in range(step / 4):
          y0 += x[0, k] * w[0, k]        a0, a1, b0 = x[0, 4q : 4q + 4], x[1, ...], w[0, ...]
          y1 += x[1, k] * w[0, k]        y0 += a0[0] * b0[0]; y1 += a1[0] * b0[0]
                                         ... the same for elements 1, 2 and 3

    Row ``i`` of a thread is ``i * down`` rows below its first, so that a warp reads neighbouring rows.
    """

    @property
    def held_rows(self) -> int:
        return self.kernel.tile_rows

    @property
    def held_cols(self) -> int:
        return self.kernel.tile_cols

    @property
    def wide(self) -> int:
        """Neighbouring columns that one read brings where ``w`` lies along the columns."""
        if not self.layout.geometry.direct:
            return 1
        return next(width for width in (4, 2, 1) if self.held_cols % width == 0)

    def row(self, i: Any) -> Any:
        return self.down + i * int32(self.kernel.down)

    def col(self, j: Any) -> Any:
        wide = int32(self.wide)
        if self.wide == 1:
            return self.across + j * int32(self.kernel.across)
        group, at = tirx.truncdiv(j, wide), tirx.truncmod(j, wide)
        return (group * int32(self.kernel.across) + self.across) * wide + at

    def at(self, i: Any, j: Any) -> Any:
        return i * int32(self.held_cols) + j

    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        with unrolled(self.layout.part // QUAD, "q") as q:
            k = bound("k", self.layout.slice * int32(self.layout.part) + q * int32(QUAD))
            self._read(slot, k)
            rows, cols = self.held_rows, self.held_cols
            with unrolled(QUAD, "e") as e, unrolled(rows, "i") as i, unrolled(cols, "j") as j:
                product = self.x[i * int32(QUAD) + e] * self.w[self._held(j, e)]
                at = self.at(i, j)
                with self._checked(i, j, k + e, left):
                    T.buffer_store(self.sums, self.sums[at] + product, [at])

    @contextmanager
    def _checked(self, i: Any, j: Any, k: Any, left: Left | None) -> Iterator[None]:
        """Emits bound checks around one multiply-add, if there are any."""
        if left is None:
            yield
            return
        inside = tirx.And(self.row(i) < left.rows, tirx.And(self.col(j) < left.cols, k < left.depth))
        with T.If(inside), T.Then():
            yield

    def _read(self, slot: Any, k: Any) -> None:
        """Reads four steps of the thread's rows and columns from shared memory to registers."""
        layout, shared = self.layout, self.layout.shared
        with unrolled(self.held_rows, "i") as i:
            value = shared[span(layout.x_at(slot, self.row(i), k), QUAD)]
            T.buffer_store(self.x, value, [span(i * int32(QUAD), QUAD)])
        if not layout.geometry.direct:
            with unrolled(self.held_cols, "j") as j:
                value = shared[span(layout.w_at(slot, self.col(j), k), QUAD)]
                T.buffer_store(self.w, value, [span(j * int32(QUAD), QUAD)])
            return
        with unrolled(QUAD, "e") as e, unrolled(self.held_cols // self.wide, "group") as group:
            first = group * int32(self.wide)
            value = shared[span(layout.w_at(slot, self.col(first), k + e), self.wide)]
            T.buffer_store(self.w, value, [span(e * int32(self.held_cols) + first, self.wide)])

    def _held(self, j: Any, e: Any) -> Any:
        """Returns the register that holds column ``j`` at step ``e`` of four."""
        if self.layout.geometry.direct:
            return e * int32(self.held_cols) + j
        return j * int32(QUAD) + e


def multiply_adds(layout: Layout) -> MultiplyAdds:
    """Returns a thread's place in the tile and its registers."""
    kernel, thread = layout.kernel, layout.thread
    if kernel.down % WARP_DOWN == 0 and kernel.across % WARP_ACROSS == 0:
        warp, lane = tirx.truncdiv(thread, int32(WARP)), tirx.truncmod(thread, int32(WARP))
        warps_across = int32(kernel.across // WARP_ACROSS)
        down = tirx.truncdiv(warp, warps_across) * int32(WARP_DOWN) + tirx.truncdiv(lane, int32(WARP_ACROSS))
        across = tirx.truncmod(warp, warps_across) * int32(WARP_ACROSS)
        across = across + tirx.truncmod(lane, int32(WARP_ACROSS))
    else:
        down = tirx.truncdiv(thread, int32(kernel.across))
        across = tirx.truncmod(thread, int32(kernel.across))
    return MultiplyAdds(
        layout,
        registers("sums", kernel.accumulators),
        registers("a", QUAD * kernel.tile_rows),
        registers("b", QUAD * kernel.tile_cols),
        bound("down", down),
        bound("across", across),
    )
