"""The compute stage on CUDA cores: one thread's tile in registers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.lowering.layout import Layout, Left, Worker
from dietlab.targets.cuda.lowering.tir import bound, int32, registers, span, unrolled, when
from dietlab.targets.cuda.unit import QUAD, WARP

WARP_DOWN, WARP_ACROSS = 4, 8
"""The numbers of threads of a warp along rows and columns of the tile: one read uses at most eight different
banks."""


@dataclass(frozen=True)
class MultiplyAdds(Worker):
    """A thread on CUDA cores: ``tile_rows x tile_cols`` sums, operands read 16 bytes at a time.

    For example, with a 2 x 1 tile and ``w[cols, depth]``::

        before                         after
        for k in range(step):          for q in range(step / 4):
          y0 += x[0, k] * w[0, k]        a0, a1, b0 = x[0, 4q : 4q + 4], x[1, ...], w[0, ...]
          y1 += x[1, k] * w[0, k]        y0 += a0[0] * b0[0]; y1 += a1[0] * b0[0]
                                         ... the same for elements 1, 2 and 3

    A thread has runs of up to four neighbouring rows and columns, ``down`` or ``across`` runs apart: a warp
    reads neighbouring runs, and a store of a run has 16 bytes.
    """

    @property
    def held_rows(self) -> int:
        return self.kernel.tile_rows

    @property
    def held_cols(self) -> int:
        return self.kernel.tile_cols

    def row(self, i: Any) -> Any:
        return _in_runs(i, self.kernel.run_rows, self.kernel.down, self.down)

    def col(self, j: Any) -> Any:
        return _in_runs(j, self.kernel.run_cols, self.kernel.across, self.across)

    def at(self, i: Any, j: Any) -> Any:
        return i * int32(self.held_cols) + j

    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        rows, cols = self.held_rows, self.held_cols
        with unrolled(self.layout.part // QUAD, "q") as q:
            k = bound("k", self.layout.slice * int32(self.layout.part) + q * int32(QUAD))
            self._read(slot, k)
            if self.layout.geometry.direct:  # what is read of w at a time belongs to one step
                with unrolled(QUAD, "e") as e, unrolled(rows, "i") as i, unrolled(cols, "j") as j:
                    self._add(i, j, e, k, left)
            else:  # and here to one column
                with unrolled(cols, "j") as j, unrolled(QUAD, "e") as e, unrolled(rows, "i") as i:
                    self._add(i, j, e, k, left)

    def _add(self, i: Any, j: Any, e: Any, k: Any, left: Left | None) -> None:
        product = self.x[i * int32(QUAD) + e] * self.w[self._held(j, e)]
        at = self.at(i, j)
        with self._checked(i, j, k + e, left):
            T.buffer_store(self.sums, self.sums[at] + product, [at])

    def _checked(self, i: Any, j: Any, k: Any, left: Left | None) -> AbstractContextManager[None]:
        """Returns a context that checks the bounds of one multiply-add, if ``left`` is given."""
        if left is None:
            return nullcontext()
        inside = tirx.And(self.row(i) < left.rows, tirx.And(self.col(j) < left.cols, k < left.depth))
        return when(inside)

    def _read(self, slot: Any, k: Any) -> None:
        """Reads four steps of the thread's rows and columns from shared memory to registers."""
        layout, shared = self.layout, self.layout.shared
        with unrolled(self.held_rows, "i") as i:
            value = shared[span(layout.x.at(slot, self.row(i), k), QUAD)]
            T.buffer_store(self.x, value, [span(i * int32(QUAD), QUAD)])
        if not layout.geometry.direct:
            with unrolled(self.held_cols, "j") as j:
                value = shared[span(layout.w.at(slot, self.col(j), k), QUAD)]
                T.buffer_store(self.w, value, [span(j * int32(QUAD), QUAD)])
            return
        wide = self.kernel.run_cols
        with unrolled(QUAD, "e") as e, unrolled(self.held_cols // wide, "run") as run:
            first = run * int32(wide)
            value = shared[span(layout.w.at(slot, self.col(first), k + e), wide)]
            T.buffer_store(self.w, value, [span(e * int32(self.held_cols) + first, wide)])

    def _held(self, j: Any, e: Any) -> Any:
        """Returns the register that holds column ``j`` at step ``e`` of four."""
        if self.layout.geometry.direct:
            return e * int32(self.held_cols) + j
        return j * int32(QUAD) + e


def _in_runs(number: Any, run: int, workers: int, worker: Any) -> Any:
    """Returns the row or column of the tile that is a thread's ``number``-th one."""
    if run == 1:
        return worker + number * int32(workers)
    group, at = tirx.truncdiv(number, int32(run)), tirx.truncmod(number, int32(run))
    return (group * int32(workers) + worker) * int32(run) + at


def multiply_adds(layout: Layout) -> MultiplyAdds:
    """Returns a thread's place in the tile and its registers.

    The lanes of a warp, four rows of eight::

        before                          after
         0  1  2  3  4  5  6  7          0  2  4  6  8 10 12 14
         8  9 10 11 12 13 14 15          1  3  5  7  9 11 13 15
        16 17 18 19 20 21 22 23         16 18 20 22 24 26 28 30
        24 25 26 27 28 29 30 31         17 19 21 23 25 27 29 31

    so that each lane shares a column's address with one neighbour and a row's with another. All lanes then
    get 16 bytes in two turns instead of four (NVIDIA's developer forum, "How to understand the bank conflict
    of shared_mem", of compute capability 7; CUTLASS has the same order).
    """
    kernel, thread = layout.kernel, layout.thread
    if kernel.down % WARP_DOWN == 0 and kernel.across % WARP_ACROSS == 0:
        warp, lane = tirx.truncdiv(thread, int32(WARP)), tirx.truncmod(thread, int32(WARP))
        warps_across = int32(kernel.across // WARP_ACROSS)
        half, inside = tirx.truncdiv(lane, int32(WARP // 2)), tirx.truncmod(lane, int32(WARP // 2))
        low, high = tirx.truncmod(inside, int32(2)), tirx.truncdiv(inside, int32(2))
        down = tirx.truncdiv(warp, warps_across) * int32(WARP_DOWN) + half * int32(2) + low
        across = tirx.truncmod(warp, warps_across) * int32(WARP_ACROSS) + high
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
