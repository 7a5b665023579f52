"""Workers of all units: their panels in shared memory, slices, and the sums of a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import tirx as T

from dietlab.lower.activation import float32
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import AnyPanel, BlockGeometry, panels
from dietlab.targets.cuda.lowering.tir import bound, int32, keep, registers, span, unrolled, when

WORKERS_BARRIER = 1
"""The barrier of the threads that compute, without a producer; number 0 is that of all threads."""


class Run(NamedTuple):
    """A thread's sums of neighbouring columns.

    Args:
        row, col: the indices of the run among the thread's own rows and columns (int32).
        first: the index of the first sum's register.
        there: whether the run exists (a condition); None if it always does.
    """

    row: Any
    col: Any
    first: Any
    there: Any | None = None


@dataclass(frozen=True)
class Totals:
    """The finished sums of a thread, in ``count`` runs; a run's sums lie in neighbouring registers."""

    sums: Any
    count: int
    run: Callable[[Any], Run]


@dataclass(frozen=True)
class Left:
    """The numbers of rows, columns and reduction steps from a tile's first ones to the operands' ends
    (int32).
    """

    rows: Any
    cols: Any
    depth: Any


@dataclass(frozen=True)
class StagedPanel:
    """The panel of one operand in each stage of shared memory.

    Args:
        base: the index of its first element in a stage.
        stage: the number of elements of a stage.
        across: whether a line holds the rows of one step, as in ``w[depth, cols]``. Otherwise it holds the
            steps of one row. The rows of ``w`` are its columns.
    """

    shared: Any
    panel: AnyPanel
    base: int
    stage: int
    across: bool

    def at(self, slot: Any, row: Any, step: Any) -> Any:
        """Returns the index in shared memory of an element of stage ``slot``."""
        line, element = self.place(row, step)
        return self.panel.at(slot * int32(self.stage) + int32(self.base), line, element)

    def place(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Returns the line and element of a row and step, or the row and step of a line and element."""
        return (second, first) if self.across else (first, second)


@dataclass(frozen=True)
class Layout:
    """The panels in shared memory, and a thread's slice and number in it, for workers of all units.

    Args:
        shared: the block's dynamic shared memory, in elements of the operands' type.
    """

    kernel: CudaMicroKernel
    geometry: BlockGeometry
    shared: Any
    x: StagedPanel
    w: StagedPanel
    slice: Any
    thread: Any

    @classmethod
    def of(cls, kernel: CudaMicroKernel, geometry: BlockGeometry, shared: Any, thread: Any) -> Layout:
        """Returns the layout for ``thread`` of the block."""
        x, w = panels(kernel, geometry)
        stage, slice_ = x.elements + w.elements, int32(0)
        if kernel.slices > 1:
            group = int32(kernel.threads // kernel.slices)
            slice_ = bound("slice", tirx.truncdiv(thread, group))
            thread = bound("inside", tirx.truncmod(thread, group))
        staged = (
            StagedPanel(shared, x, 0, stage, across=False),
            StagedPanel(shared, w, x.elements, stage, across=geometry.direct),
        )
        return cls(kernel, geometry, shared, *staged, slice_, thread)

    @property
    def part(self) -> int:
        """The number of reduction steps that one slice computes of each stage."""
        return self.kernel.step // self.kernel.slices

    def meet(self) -> None:
        """Emits a barrier of the threads that compute, behind which all see what each wrote to shared memory.
        A producer takes no part in it."""
        if self.kernel.pieces.producers:
            T.evaluate(T.ptx["bar.sync"](WORKERS_BARRIER, self.kernel.computing))
        else:
            T.evaluate(T.cuda.cta_sync())

    def writers(self) -> AbstractContextManager[None]:
        """Returns a context for the threads that have the sums of all slices."""
        return nullcontext() if self.kernel.slices == 1 else when(self.slice == int32(0))

    def add_slices(self, sums: Any, count: int) -> None:
        """Adds up ``count`` sums of each thread over the slices, through shared memory.

        For example, with two slices (a thread's sums lie ``threads of a slice`` apart, so that neighbouring
        threads use different banks)::

            barrier
            if slice 1:  shared[n * group + thread] = sums[n]
            barrier
            if slice 0:  sums[n] += shared[n * group + thread]
        """
        kernel = self.kernel
        if kernel.slices == 1:
            return
        group = kernel.threads // kernel.slices
        scratch = T.decl_buffer(
            ((kernel.slices - 1) * count * group,), "float32", data=self.shared.data, scope="shared.dyn"
        )
        T.evaluate(T.cuda.cta_sync())
        with when(self.slice > int32(0)), unrolled(count, "n") as n:
            at = ((self.slice - int32(1)) * int32(count) + n) * int32(group) + self.thread
            T.buffer_store(scratch, sums[n], [at])
        T.evaluate(T.cuda.cta_sync())
        with self.writers(), unrolled(kernel.slices - 1, "other") as other, unrolled(count, "n") as n:
            at = (other * int32(count) + n) * int32(group) + self.thread
            T.buffer_store(sums, sums[n] + scratch[at], [n])

    @contextmanager
    def shared_totals(
        self, sums: Any, runs: int, width: int, run: Callable[[Any], Run], rank: Any
    ) -> Iterator[Totals]:
        """Opens a context with a block's share of the sums of its cluster.

        For example, with two blocks that share runs 0 to 3 of each thread::

            barrier                                          # the stages have been read
            shared[run][thread] = sums of run                # all four
            cluster barrier
            block 0: totals = shared of block 0[0, 1] + shared of block 1[0, 1]      # all read at once
            block 1: totals = shared of block 0[2, 3] + shared of block 1[2, 3]
            cluster: arrive
            y[...] = totals
            cluster: wait                                    # no block leaves before it was read

        (CUDA C Programming Guide, distributed shared memory). A block arrives as soon as it has read the
        others' sums, so no block waits for another's stores.
        """
        kernel = self.kernel
        group, mine = kernel.computing // kernel.slices, -(-runs // kernel.splits)
        own = T.decl_buffer((runs * group * width,), "float32", data=self.shared.data, scope="shared.dyn")

        def place(number: Any) -> Any:
            return span((number * int32(group) + self.thread) * int32(width), width)

        self.meet()
        with self.writers(), unrolled(runs, "n") as n:
            T.buffer_store(own, sums[span(run(n).first, width)], [place(n)])
        T.evaluate(T.ptx["barrier.cluster.arrive.release.aligned"]())
        T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())
        blocks = [self.of_block(own, other) for other in range(kernel.splits)]
        totals = registers("totals", mine * width)
        with unrolled(mine, "n") as n:
            at = place(tirx.min(rank * int32(mine) + n, int32(runs - 1)))
            total = sum((block[at] for block in blocks[1:]), blocks[0][at])
            T.buffer_store(totals, total, [span(n * int32(width), width)])
        keep(totals, mine * width)
        T.evaluate(T.ptx["barrier.cluster.arrive.relaxed.aligned"]())

        def share(n: Any) -> Run:
            number = rank * int32(mine) + n
            there = None if runs % kernel.splits == 0 else number < int32(runs)
            return Run(*run(number)[:2], n * int32(width), there)

        yield Totals(totals, mine, share)
        T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())

    @staticmethod
    def of_block(own: Any, rank: int) -> Any:
        """Returns the shared memory of another block of the cluster, at the same place."""
        mapped = T.alloc_buffer((1,), "uint64", scope="local")
        T.evaluate(T.ptx["mapa.u64"](mapped[0], T.address_of(own[0]), tirx.const(rank, "uint32")))
        pointer = tirx.Var(f"sums_of_{rank}", PointerType(PrimType("float32"), "shared"))
        T.Bind(T.reinterpret(pointer.ty, mapped[0]), var=pointer)
        return T.decl_buffer(own.shape, "float32", data=pointer, scope="shared")


@dataclass(frozen=True)
class Worker(ABC):
    """A thread's part of a tile: where its sums belong, and how they are computed.

    Args:
        x, w: the registers for operands, or the names of their tiles in shared memory.
        down, across: the place of its worker in the tile.
    """

    layout: Layout
    sums: Any
    x: Any
    w: Any
    down: Any
    across: Any

    @property
    def kernel(self) -> CudaMicroKernel:
        return self.layout.kernel

    @property
    @abstractmethod
    def held_rows(self) -> int:
        """The number of different rows that one thread has sums of."""

    @property
    @abstractmethod
    def held_cols(self) -> int: ...

    @abstractmethod
    def row(self, i: Any) -> Any:
        """Returns the tile's row that is the thread's row number ``i`` (int32)."""

    @abstractmethod
    def col(self, j: Any) -> Any: ...

    @abstractmethod
    def at(self, i: Any, j: Any) -> Any:
        """Returns the index of the thread's sum for its ``i``-th row and ``j``-th column."""

    @abstractmethod
    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        """Emits the compute stage: one step, from stage ``slot`` of shared memory. It checks bounds only if
        ``left`` is given."""

    def start(self) -> None:
        """Sets the sums to zero."""
        with unrolled(self.kernel.accumulators, "n") as n:
            T.buffer_store(self.sums, float32(0.0), [n])

    @property
    def asynchronous(self) -> bool:
        """True if the compute stage goes on while threads do other things."""
        return False

    def publish(self) -> None:
        """Makes this thread's writes to shared memory visible to the unit, once the block has passed a
        barrier. Units that read shared memory as threads do need nothing else."""
        return

    def settle(self) -> None:
        """Ends a step: from here on, the stage of the step before can be overwritten."""
        return

    def finish(self) -> None:
        """Waits after the last step until the sums are in the registers."""
        return

    def add_slices(self) -> None:
        """Adds up the sums of all slices; the first slice gets the result."""
        self.layout.add_slices(self.sums, self.kernel.accumulators)

    @contextmanager
    def totals(self, rank: Any) -> Iterator[Totals]:
        """Opens a context with the sums that this block stores; ``rank`` is its number among the blocks that
        share the reduction."""
        width = self.kernel.run_cols
        across = self.held_cols // width

        def run(n: Any) -> Run:
            row, col = tirx.truncdiv(n, int32(across)), tirx.truncmod(n, int32(across)) * int32(width)
            return Run(row, col, self.at(row, col))

        runs = self.held_rows * across
        if self.kernel.splits == 1:
            yield Totals(self.sums, runs, run)
            return
        with self.layout.shared_totals(self.sums, runs, width, run, rank) as totals:
            yield totals
