"""The interface of a worker, and what workers of all units share: panels in shared memory, and slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cuda.geometry import BlockGeometry, Panel
from dietlab.lower.cuda.tir import float32, int32, unrolled
from dietlab.space import CudaMicroKernel

WARP = 32


Totals = Callable[[Any, Any], Any]
"""The finished sum of a thread's ``i``-th row and ``j``-th column."""


@dataclass(frozen=True)
class Left:
    """Rows, columns and reduction steps from a tile's first ones to the operands' ends (int32)."""

    rows: Any
    cols: Any
    depth: Any


class Worker(Protocol):
    """A thread's part of a tile: where its sums belong, and how they come about."""

    @property
    def kernel(self) -> CudaMicroKernel: ...

    @property
    def held_rows(self) -> int:
        """Different rows that one thread has sums of."""

    @property
    def held_cols(self) -> int: ...

    def row(self, i: Any) -> Any:
        """Returns the row of the tile that its ``i``-th row is (an int32 expression)."""

    def col(self, j: Any) -> Any: ...

    def at(self, i: Any, j: Any) -> Any:
        """Returns the index of the thread's sum for its ``i``-th row and ``j``-th column."""

    def start(self) -> None:
        """Sums begin with zero."""

    @property
    def asynchronous(self) -> bool:
        """True if the compute stage goes on while threads do other things."""

    def publish(self) -> None:
        """Makes this thread's writes to shared memory visible to the multiplying unit, once the block has
        passed a barrier."""

    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        """Emits the compute stage: one step, from the stage ``slot`` of shared memory; without bound
        checks, unless what is ``left`` is given."""

    def settle(self) -> None:
        """Ends a step: the stage that was computed before it can be written again."""

    def finish(self) -> None:
        """Waits after the last step until the sums are in the registers."""

    def add_slices(self) -> None:
        """Adds up what the slices have; the first one has the result."""

    def writers(self) -> Any:
        """Returns a context for statements of those threads that have results."""

    def totals(self) -> AbstractContextManager[Totals]:
        """Returns a context with the sums by row and column, of all blocks that share the reduction."""


@dataclass(frozen=True)
class Layout:
    """The layout that all units share: the panels in shared memory, the slice of a thread, its number in
    it."""

    kernel: CudaMicroKernel
    geometry: BlockGeometry
    shared: Any
    x_panel: Panel
    w_panel: Panel
    stage: int
    slice: Any
    thread: Any

    @property
    def part(self) -> int:
        """Steps of the reduction that one slice computes of each stage."""
        return self.kernel.step // self.kernel.slices

    def x_at(self, slot: Any, line: Any, k: Any) -> Any:
        """Returns the element of shared memory that holds ``x[line, k]``."""
        return self.x_panel.at(slot * int32(self.stage), line, k)

    def w_at(self, slot: Any, col: Any, k: Any) -> Any:
        """Returns the element of shared memory that holds ``w[k, col]``."""
        line, at = (k, col) if self.geometry.direct else (col, k)
        base = slot * int32(self.stage) + int32(self.x_panel.elements)
        return self.w_panel.at(base, line, at)

    @contextmanager
    def writers(self) -> Iterator[None]:
        if self.kernel.slices == 1:
            yield
            return
        with T.If(self.slice == int32(0)), T.Then():
            yield

    def add_slices(self, sums: Any, count: int) -> None:
        """Adds up ``count`` sums of each thread over the slices, through shared memory.

        Draws, for two slices (what belongs to a thread lies ``threads of a slice`` apart, so that
        neighbouring threads meet different banks)::

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
        with T.If(self.slice > int32(0)), T.Then(), unrolled(count, "n") as n:
            at = ((self.slice - int32(1)) * int32(count) + n) * int32(group) + self.thread
            T.buffer_store(scratch, sums[n], [at])
        T.evaluate(T.cuda.cta_sync())
        others = kernel.slices - 1
        first = self.slice == int32(0)
        with T.If(first), T.Then(), unrolled(others, "other") as other, unrolled(count, "n") as n:
            at = (other * int32(count) + n) * int32(group) + self.thread
            T.buffer_store(sums, sums[n] + scratch[at], [n])

    @contextmanager
    def totals(self, sums: Any, count: int, at: Callable[[Any, Any], Any]) -> Iterator[Totals]:
        """Opens a context in which the blocks of a cluster have each other's ``count`` sums of a thread.

        Draws, for two blocks (a block without others has what it needs in its registers)::

            barrier                                       # the stages have been read
            shared[n * group + thread] = sums[n]
            cluster barrier
            y[...] = shared of block 0[n * group + thread] + shared of block 1[n * group + thread]
            cluster barrier                               # no block leaves before it was read

        (CUDA C Programming Guide, distributed shared memory).
        """
        if self.kernel.splits == 1:
            yield lambda i, j: sums[at(i, j)]
            return
        group = int32(self.kernel.threads // self.kernel.slices)
        extent = (count * self.kernel.threads // self.kernel.slices,)
        own = T.decl_buffer(extent, "float32", data=self.shared.data, scope="shared.dyn")
        T.evaluate(T.cuda.cta_sync())
        with self.writers(), unrolled(count, "n") as n:
            T.buffer_store(own, sums[n], [n * group + self.thread])
        cluster_barrier()
        blocks = [self._of_block(own, rank) for rank in range(self.kernel.splits)]

        def total(i: Any, j: Any) -> Any:
            first, *others = (block[at(i, j) * group + self.thread] for block in blocks)
            return sum(others, first)

        yield total
        cluster_barrier()

    @staticmethod
    def _of_block(own: Any, rank: int) -> Any:
        """Returns the shared memory of another block of the cluster, at the same place."""
        mapped = T.alloc_buffer((1,), "uint64", scope="local")
        T.evaluate(T.ptx["mapa.u64"](mapped[0], T.address_of(own[0]), tirx.const(rank, "uint32")))
        pointer = tirx.Var(f"sums_of_{rank}", PointerType(PrimType("float32"), "shared"))
        T.Bind(T.reinterpret(pointer.ty, mapped[0]), var=pointer)
        return T.decl_buffer(own.shape, "float32", data=pointer, scope="shared")


@dataclass(frozen=True)
class Summing(ABC):
    """The sums of a thread of any unit: ``x`` and ``w`` are registers for operands, or names of their
    tiles; ``down`` and ``across`` are its worker's place in the tile."""

    layout: Layout
    sums: Any
    x: Any
    w: Any
    down: Any
    across: Any

    @property
    def kernel(self) -> CudaMicroKernel:
        return self.layout.kernel

    @abstractmethod
    def at(self, i: Any, j: Any) -> Any:
        """Returns the index of a sum; see :class:`Worker`."""

    def start(self) -> None:
        with unrolled(self.kernel.accumulators, "n") as n:
            T.buffer_store(self.sums, float32(0.0), [n])

    @property
    def asynchronous(self) -> bool:
        return False

    def publish(self) -> None:
        # A barrier is enough for what reads shared memory as threads do.
        return None

    def settle(self) -> None:
        # What threads compute, they have computed.
        return None

    def finish(self) -> None:
        # Registers have what was written to them last.
        return None

    def add_slices(self) -> None:
        self.layout.add_slices(self.sums, self.kernel.accumulators)

    def writers(self) -> AbstractContextManager[None]:
        return self.layout.writers()

    def totals(self) -> AbstractContextManager[Totals]:
        return self.layout.totals(self.sums, self.kernel.accumulators, self.at)


def cluster_barrier() -> None:
    """Waits until all threads of all blocks of a cluster arrive and see what was written before."""
    T.evaluate(T.ptx["barrier.cluster.arrive.release.aligned"]())
    T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())
