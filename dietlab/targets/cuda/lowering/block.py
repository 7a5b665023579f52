"""One thread block's micro-kernel as TensorIR: fetch, compute, write back.

Every function here is one visible step; :func:`block_program` is their list.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.fetch import PanelCopy, panel_copies
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockPosition
from dietlab.targets.cuda.lowering.layout import Layout, Left, Worker
from dietlab.targets.cuda.lowering.multiply_adds import multiply_adds
from dietlab.targets.cuda.lowering.tensor_core import tensor_core
from dietlab.targets.cuda.lowering.tir import bound, ceil_div, int32, registers, when
from dietlab.targets.cuda.lowering.warp_group import WarpGroup, warp_group
from dietlab.targets.cuda.lowering.write_back import write_back
from dietlab.targets.cuda.unit import Unit

WORKERS: dict[Unit, Callable[[Layout], Worker]] = {
    "fma": multiply_adds,
    "mma": tensor_core,
    "wgmma": partial(warp_group, kind=WarpGroup),
}
"""The functions by unit that make a thread's worker with its registers. Blocks with a producer have another
program (:mod:`~dietlab.targets.cuda.lowering.tma_pipeline`)."""


def block_program(layout: Layout, arrays: Arrays, place: BlockPosition) -> None:
    """Computes one tile of the output.

    For example, with three stages (``slot`` is the stage that a step lies in, ``step % 3``)::

        before                                    after
        for i in range(rows):                     fetch steps 0 and 1
          for j in range(cols):                   for s in range(steps):
            for k in range(depth):                  wait until step s has come; barrier
              y[i, j] += x[i, k] * w[j, k]          fetch step s + 2 into the slot that step s - 1 left
                                                    sums += x[slot] @ w[slot]       # no bound check
                                                  y[rows inside] = activation(sums + bias) + residual

    Elements beyond an operand's end are zero in shared memory (local padding, paper section 3.2): only the
    fetch and the write-back know where the output ends. A ``checked`` scheme has no local padding: its fetch
    reads the last elements again, and each multiply-add tests its bounds.

    Each of ``splits`` blocks that share the reduction takes every ``splits``-th step, from its rank on, and
    stores a share of the sums (:meth:`~dietlab.targets.cuda.lowering.layout.Layout.shared_totals`).

    With ``wgmma``, tensor cores read shared memory by themselves. Step ``s`` is issued before the fetch
    begins, and step ``s - 1`` may still be running. So the fetch takes the slot that step ``s - 2`` left, one
    step less ahead.
    """
    kernel = layout.kernel
    worker = WORKERS[kernel.unit](layout)
    worker.start()
    x, w = panel_copies(layout, arrays, place)
    steps = own_steps(kernel, place)
    for first in range(kernel.ahead):
        if not isinstance(steps, int) or first < steps:
            with nullcontext() if isinstance(steps, int) else when(int32(first) < steps):
                for copy in (x, w):
                    copy.begin(step_number(kernel, place, int32(first)), int32(first))
                    copy.finish(int32(first))
        _commit(x, w)
    _walk(worker, place, x, w, steps)
    worker.finish()
    worker.add_slices()
    with worker.totals(place.rank) as totals:
        write_back(worker, totals, arrays, place)


def _walk(worker: Worker, place: BlockPosition, x: PanelCopy, w: PanelCopy, steps: Any) -> None:
    """Emits the loop over the reduction, whose first steps are already being fetched."""
    kernel = worker.kernel
    computed, fetched = _Slot.of("slot", kernel, 0), _Slot.of("free", kernel, kernel.ahead)
    with T.serial(int32(0), int32(steps)) as variable:
        step = IRBuilder.name("step", variable)
        if x.asynchronous or w.asynchronous:
            T.evaluate(T.ptx["cp.async.wait_group"](kernel.ahead - 1))
        worker.publish()
        T.evaluate(T.cuda.cta_sync())
        coming = step + kernel.ahead
        slot = fetched.now

        def begin() -> None:
            with when(coming < int32(steps)):
                number = step_number(kernel, place, coming)
                x.begin(number, slot)
                w.begin(number, slot)
            _commit(x, w)

        if not worker.asynchronous:
            begin()
        number = step_number(kernel, place, step)
        left = _left(kernel, place, number) if place.checked else None
        worker.multiply_add(computed.now, left)
        if worker.asynchronous:
            begin()
            worker.settle()
        if not (x.asynchronous and w.asynchronous):
            with when(coming < int32(steps)):
                x.finish(slot)
                w.finish(slot)
        computed.advance()
        fetched.advance()


@dataclass(frozen=True)
class _Slot:
    """A counter that holds the stage of the current step: a counter costs less than a remainder."""

    counter: Any
    stages: int

    @classmethod
    def of(cls, name: str, kernel: CudaMicroKernel, first: int) -> _Slot:
        """Returns a counter called ``name`` that begins at the stage of step ``first``."""
        counter = registers(name, 1, "int32")
        T.buffer_store(counter, int32(first % kernel.stages), [int32(0)])
        return cls(counter, kernel.stages)

    @property
    def now(self) -> Any:
        """The current stage (int32)."""
        return self.counter[int32(0)]

    def advance(self) -> None:
        """Goes to the next stage, and from the last one to the first."""
        after = self.now + int32(1)
        if self.stages & (self.stages - 1):
            after = tirx.Select(after == int32(self.stages), int32(0), after)
        else:
            after = after & int32(self.stages - 1)
        T.buffer_store(self.counter, after, [int32(0)])


def own_steps(kernel: CudaMicroKernel, place: BlockPosition) -> Any:
    """Returns the number of reduction steps of this block."""
    steps = ceil_div(place.extents.depth, kernel.step)
    steps = steps if isinstance(steps, int) else bound("steps", steps)
    if place.share is not None:
        shared = ceil_div(int32(steps) - place.share.first, kernel.ending)
        return bound("own_steps", tirx.Select(place.share.together, shared, int32(steps)))
    if kernel.splits == 1:
        return steps
    return bound("own_steps", tirx.truncdiv(steps + (kernel.splits - 1) - place.rank, int32(kernel.splits)))


def step_number(kernel: CudaMicroKernel, place: BlockPosition, own: Any) -> Any:
    """Returns the index among all steps of the reduction that this block's step ``own`` has."""
    if place.share is not None:
        return own * place.share.apart + place.share.first
    return own if kernel.splits == 1 else own * int32(kernel.splits) + place.rank


def _left(kernel: CudaMicroKernel, place: BlockPosition, step: Any) -> Left:
    """Returns the numbers of rows, columns and steps from the tile's first to the operand's last, for bound
    checks.
    """
    whole = place.extents
    return Left(
        bound("rows_left", whole.rows - place.first_row),
        bound("cols_left", int32(whole.cols) - place.first_col),
        bound("depth_left", int32(whole.depth) - step * int32(kernel.step)),
    )


def _commit(x: PanelCopy, w: PanelCopy) -> None:
    """Makes one group of the copies since the last call, even an empty one: waits count one group for each
    step.
    """
    if x.asynchronous or w.asynchronous:
        T.evaluate(T.ptx["cp.async.commit_group"]())
