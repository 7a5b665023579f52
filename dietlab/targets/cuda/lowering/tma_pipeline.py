"""One thread block's micro-kernel with a producer: its bulk copies fill a ring of stages, workers empty
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.block import own_steps, step_number
from dietlab.targets.cuda.lowering.ending import workers_of
from dietlab.targets.cuda.lowering.geometry import AnyPanel, Arrays, BlockPosition, SwizzledPanel
from dietlab.targets.cuda.lowering.layout import Layout
from dietlab.targets.cuda.lowering.swapped import SwappedGroup
from dietlab.targets.cuda.lowering.tensor_maps import Maps, box_lines, box_rows, whole_patterns
from dietlab.targets.cuda.lowering.tir import bound, computed_once, int32, registers, when
from dietlab.targets.cuda.lowering.warp_group import WarpGroup, warp_group
from dietlab.targets.cuda.lowering.write_back import write_back
from dietlab.targets.cuda.needs import exchanged_bytes
from dietlab.targets.cuda.ring import BARRIER_BYTES, RegistersOfRoles, registers_of_roles
from dietlab.targets.cuda.unit import WARP, Unit

WORKERS: dict[Unit, type[WarpGroup]] = {"tma": WarpGroup, "swapped": SwappedGroup}
"""The workers of blocks with a producer, by unit."""

BRING = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
BRING_TO_ALL = f"{BRING}.multicast::cluster"

WAIT = "dietlab_wait"
WAIT_SOURCE = f"""
__forceinline__ __device__ void {WAIT}(void* barrier, int parity) {{
  unsigned int address = (unsigned int)__cvta_generic_to_shared(barrier), done;
  do {{
    asm volatile("{{ .reg .pred over; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%1], %2; "
                 "selp.u32 %0, 1, 0, over; }}" : "=r"(done) : "r"(address), "r"(parity) : "memory");
  }} while (!done);
}}
"""
"""The CUDA source of a function that waits until the phase of this parity, the current one or the one before,
is over (PTX ISA, ``mbarrier.try_wait``)."""

ARRIVE_AT = "dietlab_arrive_at"
ARRIVE_SOURCE = f"""
__forceinline__ __device__ void {ARRIVE_AT}(void* barrier, int rank) {{
  unsigned int address = (unsigned int)__cvta_generic_to_shared(barrier), there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" : : "r"(there) : "memory");
}}
"""
"""The CUDA source of a function that arrives at the barrier at the same place of another block's shared
memory (PTX ISA, ``mapa`` and ``mbarrier.arrive``)."""


@dataclass(frozen=True)
class Ring:
    """Stages of shared memory with two barriers each, and a thread's place among them.

    ``full`` counts the producer's arrival and the bytes of a stage. ``empty`` counts an arrival of each warp
    of workers, in all blocks that share rows. ``at`` holds three registers: for the slot, its phase (0 or 1),
    and the slot before."""

    kernel: CudaMicroKernel
    barriers: Any
    first: int
    at: Any

    @property
    def slot(self) -> Any:
        return self.at[0]

    @property
    def phase(self) -> Any:
        return self.at[1]

    @property
    def slot_before(self) -> Any:
        return self.at[2]

    def full(self, slot: Any) -> Any:
        """Returns the address of the barrier at which workers wait until a slot is full."""
        return T.address_of(self.barriers[int32(self.first) + slot])

    def empty(self, slot: Any) -> Any:
        return T.address_of(self.barriers[int32(self.first + self.kernel.stages) + slot])

    def start(self) -> None:
        for n in range(3):
            T.buffer_store(self.at, int32(0), [n])

    def advance(self) -> None:
        """Goes to the next slot, and behind the last one to the first in its next phase."""
        T.buffer_store(self.at, self.slot, [2])
        T.buffer_store(self.at, self.slot + int32(1), [0])
        with when(self.slot == int32(self.kernel.stages)):
            T.buffer_store(self.at, int32(0), [0])
            T.buffer_store(self.at, self.phase ^ int32(1), [1])


def ring_program(layout: Layout, arrays: Arrays, place: BlockPosition, maps: Maps) -> None:
    """Computes one tile of the output.

    For example, with four stages (a slot is the stage that a step lies in)::

        before (block_program)               after
        fetch steps 0 and 1                  one thread:                   workers:
        for s in range(steps):               for s in range(steps):        for s in range(steps):
          wait for step s; barrier             wait until slot is empty      wait until slot is full
          sums += x[slot] @ w[slot]            expect its bytes              sums += x[slot] @ w[slot]
          fetch step s + 2                     bring x[slot] and w[slot]     wait for the product before;
                                                                               its slot is empty
        y[rows inside] = ...                                               y[rows inside] = ...

    No thread of a worker computes an address, and no barrier stops the whole block. The hardware writes zeros
    to shared memory for elements beyond the depth or the columns (local padding, paper section 3.2). Rows
    beyond the end are not brought: old data in their place only reaches rows of the output that are not
    stored.

    Blocks that share rows (``multicast``) bring a part of them each, to all of the cluster. A slot is empty
    when the workers of all blocks have left it. The workers report only slots that are filled again, so that
    no block ends while others still report to its barriers::

        block 0                              block 1
        bring x[slot][0:32] to both          bring x[slot][32:64] to both
        bring its columns w[slot]            bring its columns w[slot]

    Blocks that share a reduction (``splits``) take every ``splits``-th step, and a share of the sums. So do
    those of the last wave's clusters (``ending``); the blocks of other clusters do not wait for each other.
    """
    kernel, geometry = layout.kernel, layout.geometry
    used = max(kernel.stages * layout.x.stage * geometry.itemsize, exchanged_bytes(kernel))
    ring, steps = _started(kernel, layout.shared, used, place)
    roles = registers_of_roles(kernel)
    with T.If(place.thread >= int32(kernel.computing)):
        with T.Then():
            _set_registers(roles, producer=True)
            with when(place.thread == int32(kernel.computing)):
                _produce(ring, layout, place, maps, steps)
            # The workers meet those of other blocks twice, at a barrier that counts all threads.
            with nullcontext() if place.share is None else when(place.share.together):
                for _ in range(2 if kernel.sharing > 1 else 0):
                    T.evaluate(T.ptx["barrier.cluster.arrive.relaxed"]())
                    T.evaluate(T.ptx["barrier.cluster.wait.acquire"]())
        with T.Else():
            _set_registers(roles, producer=False)
            worker = warp_group(layout, WORKERS[kernel.unit])
            worker.start()
            _consume(ring, worker, steps)
            worker.finish()
            if place.share is None:
                _store(worker, arrays, place)
                return
            together, alone = workers_of(worker)
            with T.If(place.share.together):
                with T.Then():
                    _store(together, arrays, place)
                with T.Else():
                    _store(alone, arrays, place)


def walking_program(
    layouts: Sequence[Layout],
    arrays: Arrays,
    place: BlockPosition,
    maps: Sequence[Maps],
    each_tile: Callable[[Callable[[int, BlockPosition], None]], None],
) -> None:
    """Computes one tile of the output after the other.

    For example, with tiles 0 and 4 of a block that remains::

        one thread:                              workers:
        for tile in (0, 4):                      for tile in (0, 4):
          for s in range(steps):                   sums = 0
            wait until slot is empty               for s in range(steps):
            bring x[slot] and w[slot]                wait until slot is full
                                                     sums += x[slot] @ w[slot]; the slot before is empty
                                                   wait for the last product; its slot is empty
                                                   y[rows inside] = ...      # tile 4 is already brought

    The ring goes on from tile to tile: slots and phases are those that the last tile left. Nothing but the
    ring lies in shared memory, so that stores take none of it (:func:`~.write_back.write_back`), and no
    barrier but the ring's stops a thread after the start.

    Args:
        layouts: of each region of the launch, the tallest first; all have the ring of the first.
        place: the block's place, without a tile.
        maps: of each region.
        each_tile: a function that emits the loop over a block's tiles. It takes a function that emits a tile
            of a region at its place.
    """
    kernel, geometry, stage = layouts[0].kernel, layouts[0].geometry, layouts[0].x.stage
    layouts = [
        replace(each, x=replace(each.x, stage=stage), w=replace(each.w, stage=stage)) for each in layouts
    ]
    used = kernel.stages * stage * geometry.itemsize
    ring, steps = _started(kernel, layouts[0].shared, used, place)
    roles = registers_of_roles(kernel)
    with T.If(place.thread >= int32(kernel.computing)):
        with T.Then():
            _set_registers(roles, producer=True)
            with when(place.thread == int32(kernel.computing)):
                each_tile(lambda region, at: _produce(ring, layouts[region], at, maps[region], steps))
        with T.Else():
            _set_registers(roles, producer=False)
            workers = [warp_group(layout, WORKERS[kernel.unit]) for layout in layouts]

            def compute(region: int, at: BlockPosition) -> None:
                worker = workers[region]
                worker.start()
                _consume(ring, worker, steps)
                worker.finish()
                with when(tirx.And(steps > int32(0), worker.lane == int32(0))):
                    T.evaluate(T.ptx["mbarrier.arrive.shared.b64"](ring.empty(ring.slot_before)))
                _store(worker, arrays, at)

            each_tile(compute)


def _store(worker: WarpGroup, arrays: Arrays, place: BlockPosition) -> None:
    with worker.totals(place.rank) as totals:
        write_back(worker, totals, arrays, place)


def _started(kernel: CudaMicroKernel, shared: Any, first_byte: int, place: BlockPosition) -> tuple[Ring, Any]:
    """Emits the start of the ring whose barriers begin behind the stages; returns it and the block's number
    of steps."""
    ring = _ring(kernel, shared, first_byte)
    steps = int32(own_steps(kernel, place))
    _initialize(ring, place.thread)
    ring.start()
    return ring, steps


def _ring(kernel: CudaMicroKernel, shared: Any, first_byte: int) -> Ring:
    first = first_byte // BARRIER_BYTES
    barriers = T.decl_buffer(
        (first + 2 * kernel.stages,), "uint64", data=shared.data, scope="shared.dyn", align=BARRIER_BYTES
    )
    return Ring(kernel, barriers, first, registers("ring", 3, "int32"))


def _initialize(ring: Ring, thread: Any) -> None:
    """Makes the barriers, visible to bulk copies and all threads of the cluster."""
    kernel = ring.kernel
    with when(thread == int32(0)), T.serial(int32(0), int32(kernel.stages)) as slot:
        T.evaluate(T.ptx["mbarrier.init.shared.b64"](ring.full(slot), tirx.const(1, "uint32")))
        warps = tirx.const(kernel.computing // WARP * kernel.multicast, "uint32")
        T.evaluate(T.ptx["mbarrier.init.shared.b64"](ring.empty(slot), warps))
    T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
    if kernel.multicast == 1:
        T.evaluate(T.cuda.cta_sync())
        return
    T.evaluate(T.ptx["fence.mbarrier_init.release.cluster"]())
    T.evaluate(T.ptx["barrier.cluster.arrive.relaxed.aligned"]())
    T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())


def _set_registers(roles: RegistersOfRoles, *, producer: bool) -> None:
    """Emits the change from the number of registers at the launch to a role's number, if the two differ."""
    if roles.worker == roles.launched:
        return
    how, count = ("dec", roles.producer) if producer else ("inc", roles.worker)
    T.evaluate(T.ptx[f"setmaxnreg.{how}.sync.aligned.u32"](count))


def _produce(ring: Ring, layout: Layout, place: BlockPosition, maps: Maps, steps: Any) -> None:
    """Fills slot after slot, in one thread. In the first round no wait blocks: the phase before the first
    counts as over."""
    kernel, geometry = layout.kernel, layout.geometry
    rows = RowsInside.of(kernel, place)
    line_bytes = kernel.step * geometry.itemsize
    expected = bound("expected", rows.brought * int32(line_bytes) + int32(kernel.cols * line_bytes))
    with T.serial(int32(0), steps) as variable:
        step = IRBuilder.name("step", variable)
        _wait(ring.empty(ring.slot), ring.phase ^ int32(1))
        coming = tirx.Cast("uint32", expected)
        T.evaluate(T.ptx["mbarrier.arrive.expect_tx.shared.b64"](ring.full(ring.slot), coming))
        k = bound("k", step_number(kernel, place, step) * int32(kernel.step))
        _, w_lines = box_lines(kernel, geometry)
        full = ring.full(ring.slot)
        _bring_rows(layout, rows, place, maps, ring.slot, k, full)
        for line, element in _boxes(layout.w.panel, w_lines):
            col, within = layout.w.place(line, element)
            at = layout.w.place(place.first_col + int32(col), k + int32(within))
            _bring(layout, layout.w.at(ring.slot, col, within), maps.w, at, full)
        ring.advance()


@dataclass(frozen=True)
class RowsInside:
    """The rows of a tile that lie inside ``x``.

    Args:
        whole: the number of boxes with the rows of one instruction (:func:`box_rows`).
        end: the number of rows in the box behind these boxes; 0 if there is none.
        brought: the number of rows in all boxes.
    """

    whole: Any
    end: Any
    brought: Any

    @classmethod
    def of(cls, kernel: CudaMicroKernel, place: BlockPosition) -> RowsInside:
        """Computes the rows once for all steps."""
        piece = box_rows(kernel)
        there = tirx.min(place.extents.rows - place.first_row, int32(kernel.rows))
        if kernel.unit == "swapped":  # most tiles are one box, whose last rows may be zeros
            there = whole_patterns(there, int32)
        inside = computed_once("inside", there)
        whole = bound("whole", tirx.truncdiv(inside, int32(piece)))
        end = bound("end", whole_patterns(inside - whole * int32(piece), int32))
        return cls(whole, end, whole * int32(piece) + end)


def _bring_rows(
    layout: Layout, rows: RowsInside, place: BlockPosition, maps: Maps, slot: Any, k: Any, barrier: Any
) -> None:
    """Emits the copies of a tile's rows to one slot.

    For example, with 100 rows of a tile of 128::

        bring rows 0 to 63      one box; a part of it where blocks share them
        bring rows 64 to 103    another one, in the first of the blocks that share them
    """
    kernel, panel = layout.kernel, layout.x.panel
    piece, shared_by = box_rows(kernel), kernel.multicast
    lines, _ = box_lines(kernel, layout.geometry)

    def bring(source: Any, line: Any, element: int) -> None:
        at = place.first_row + line, k + int32(element)
        _bring(layout, layout.x.at(slot, line, element), source, at, barrier, shared_by)

    for line, element in _boxes(panel, piece):
        first = int32(line) if shared_by == 1 else int32(line) + place.rank * int32(lines)
        with when(int32(line // piece) < rows.whole):
            bring(maps.x, first, element)
    for _, element in _boxes(panel, kernel.rows):
        first = nullcontext() if shared_by == 1 else when(place.rank == int32(0))
        with first, when(rows.end > int32(0)):
            bring(maps.x_end, rows.whole * int32(piece), element)


def _boxes(panel: AnyPanel, lines: int) -> Iterator[tuple[int, int]]:
    """Yields the first line and element of each box of a panel."""
    assert isinstance(panel, SwizzledPanel)  # as panels() makes them for groups of warps
    for element in range(0, panel.length, panel.pitch):
        for line in range(0, panel.lines, lines):
            yield line, element


def _bring(
    layout: Layout, to: Any, source: Any, first: tuple[Any, Any], barrier: Any, shared_by: int = 1
) -> None:
    """Emits one bulk copy, from the operand's line and element ``first`` on, to each of the blocks that share
    it."""
    line, element = first
    where = T.address_of(layout.shared[to]), T.address_of(source), element, line, barrier
    if shared_by == 1:
        T.evaluate(T.ptx[BRING](*where))
    else:
        T.evaluate(T.ptx[BRING_TO_ALL](*where, tirx.const((1 << shared_by) - 1, "uint16")))


def _consume(ring: Ring, worker: WarpGroup, steps: Any) -> None:
    """Emits the workers' loop. A slot is reported empty when the tensor cores have computed its product; the
    next product is issued by then."""
    with T.serial(int32(0), steps) as variable:
        step = IRBuilder.name("step", variable)
        _wait(ring.full(ring.slot), ring.phase)
        worker.multiply_add(ring.slot)
        worker.settle()
        shared_by = worker.kernel.multicast
        left = ring.empty(ring.slot_before)
        if shared_by == 1:
            with when(tirx.And(step > int32(0), worker.lane == int32(0))):
                T.evaluate(T.ptx["mbarrier.arrive.shared.b64"](left))
        else:  # each lane reports to one block
            again = tirx.And(step > int32(0), step <= steps - int32(worker.kernel.stages))
            with when(tirx.And(again, worker.lane < int32(shared_by))):
                T.evaluate(T.cuda.func_call(ARRIVE_AT, left, worker.lane, source_code=ARRIVE_SOURCE))
        ring.advance()


def _wait(barrier: Any, parity: Any) -> None:
    T.evaluate(T.cuda.func_call(WAIT, barrier, parity, source_code=WAIT_SOURCE))
