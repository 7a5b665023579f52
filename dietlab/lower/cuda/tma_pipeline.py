"""One thread block's micro-kernel with a producer: bulk copies fill a ring of stages, workers empty it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cuda.geometry import AnyPanel, BlockGeometry, SwizzledPanel, panels
from dietlab.lower.cuda.layout import WARP, Layout
from dietlab.lower.cuda.place import Arrays, BlockPosition
from dietlab.lower.cuda.tensor_maps import Maps, box_lines
from dietlab.lower.cuda.tir import bound, int32, only, registers
from dietlab.lower.cuda.warp_group import WarpGroup, warp_group
from dietlab.lower.cuda.write_back import write_back
from dietlab.space import CudaMicroKernel
from dietlab.space.cuda_ring import BARRIER_BYTES, RegistersOfRoles, registers_of_roles
from dietlab.space.cuda_unit import PIECES

BRING = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"

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
"""Waits until the phase of this parity is over: the barrier's current one, or the one before it (PTX ISA,
``mbarrier.try_wait``)."""


@dataclass(frozen=True)
class Ring:
    """Stages of shared memory with two barriers each, and a thread's place among them.

    ``full`` counts one arrival, the producer's, and the bytes of a stage; ``empty`` counts one of each of the
    workers' warps. ``at`` are registers: the slot, the phase that it is in (0 or 1), the slot before.
    """

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
        """Returns the address of the barrier that says that a slot is full."""
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
        with only(self.slot == int32(self.kernel.stages)):
            T.buffer_store(self.at, int32(0), [0])
            T.buffer_store(self.at, self.phase ^ int32(1), [1])


def ring_program(
    kernel: CudaMicroKernel,
    geometry: BlockGeometry,
    arrays: Arrays,
    shared: Any,
    place: BlockPosition,
    maps: Maps,
) -> None:
    """Computes one tile of the output.

    Draws, for four stages (a slot is the stage that a step lies in)::

        before (block_program)               after
        fetch steps 0 and 1                  one thread:                   workers:
        for s in range(steps):               for s in range(steps):        for s in range(steps):
          wait for step s; barrier             wait until slot is empty      wait until slot is full
          sums += x[slot] @ w[slot]            expect its bytes              sums += x[slot] @ w[slot]
          fetch step s + 2                     bring x[slot] and w[slot]     wait for the product before;
                                                                               its slot is empty
        y[rows inside] = ...                                               y[rows inside] = ...

    No thread of a worker computes an address, and no barrier holds the whole block up. What a bulk copy would
    read beyond an operand is zero in shared memory (local padding, paper section 3.2), by hardware.
    """
    x_panel, w_panel = panels(kernel, geometry)
    stage = x_panel.elements + w_panel.elements
    layout = Layout(kernel, geometry, shared, x_panel, w_panel, stage, int32(0), place.thread)
    workers = kernel.threads - PIECES[kernel.unit].producers
    ring = _ring(kernel, shared, kernel.stages * stage * geometry.itemsize)
    depth = geometry.extent(geometry.depth, place.size)
    steps = int32(-(-depth // kernel.step))
    _initialize(ring, place.thread, workers)
    ring.start()
    roles = registers_of_roles(kernel)
    with T.If(place.thread >= int32(workers)):
        with T.Then():
            _set_registers(roles, producer=True)
            with only(place.thread == int32(workers)):
                _produce(ring, layout, place, maps, steps)
        with T.Else():
            _set_registers(roles, producer=False)
            worker = warp_group(layout)
            worker.start()
            _consume(ring, worker, steps)
            worker.finish()
            with worker.totals(place.rank) as totals:
                write_back(worker, totals, geometry, arrays, None, place)  # the producer meets nobody


def _ring(kernel: CudaMicroKernel, shared: Any, first_byte: int) -> Ring:
    """Returns the ring whose barriers begin behind the stages."""
    first = first_byte // BARRIER_BYTES
    barriers = T.decl_buffer(
        (first + 2 * kernel.stages,), "uint64", data=shared.data, scope="shared.dyn", align=BARRIER_BYTES
    )
    return Ring(kernel, barriers, first, registers("ring", 3, "int32"))


def _initialize(ring: Ring, thread: Any, workers: int) -> None:
    """Makes the barriers, and lets bulk copies and all threads know of them."""
    with only(thread == int32(0)), T.serial(int32(0), int32(ring.kernel.stages)) as slot:
        T.evaluate(T.ptx["mbarrier.init.shared.b64"](ring.full(slot), tirx.const(1, "uint32")))
        warps = tirx.const(workers // WARP, "uint32")
        T.evaluate(T.ptx["mbarrier.init.shared.b64"](ring.empty(slot), warps))
    T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
    T.evaluate(T.cuda.cta_sync())


def _set_registers(roles: RegistersOfRoles, *, producer: bool) -> None:
    """Gives or takes registers, unless all roles have as many."""
    if roles.worker == roles.launched:
        return
    how, count = ("dec", roles.producer) if producer else ("inc", roles.worker)
    T.evaluate(T.ptx[f"setmaxnreg.{how}.sync.aligned.u32"](count))


def _produce(ring: Ring, layout: Layout, place: BlockPosition, maps: Maps, steps: Any) -> None:
    """Fills slot after slot, in one thread. In its first phase a slot was never filled: the phase before it
    is over."""
    kernel, geometry = layout.kernel, layout.geometry
    with T.serial(int32(0), steps) as variable:
        step = IRBuilder.name("step", variable)
        _wait(ring.empty(ring.slot), ring.phase ^ int32(1))
        expected = tirx.const(layout.stage * geometry.itemsize, "uint32")
        T.evaluate(T.ptx["mbarrier.arrive.expect_tx.shared.b64"](ring.full(ring.slot), expected))
        k = bound("k", step * int32(kernel.step))
        x_lines, w_lines = box_lines(kernel, geometry)
        x_base = ring.slot * int32(layout.stage)
        w_base = x_base + int32(layout.x_panel.elements)
        full = ring.full(ring.slot)
        for line, element, to in _boxes(layout.x_panel, x_lines, x_base):
            _bring(layout, to, maps.x, k + int32(element), place.first_row + int32(line), full)
        for line, element, to in _boxes(layout.w_panel, w_lines, w_base):
            if geometry.direct:
                _bring(layout, to, maps.w, place.first_col + int32(element), k + int32(line), full)
            else:
                _bring(layout, to, maps.w, k + int32(element), place.first_col + int32(line), full)
        ring.advance()


def _boxes(panel: AnyPanel, lines: int, base: Any) -> Iterator[tuple[int, int, Any]]:
    """Yields the first line and element of each box of a panel, and where it lies in shared memory."""
    assert isinstance(panel, SwizzledPanel)  # as panels() makes them for groups of warps
    for element in range(0, panel.length, panel.pitch):
        for line in range(0, panel.lines, lines):
            yield line, element, panel.at(base, line, element)


def _bring(layout: Layout, to: Any, source: Any, element: Any, line: Any, barrier: Any) -> None:
    T.evaluate(T.ptx[BRING](T.address_of(layout.shared[to]), T.address_of(source), element, line, barrier))


def _consume(ring: Ring, worker: WarpGroup, steps: Any) -> None:
    """Emits the workers' loop. A slot is empty when the product after it has been given to the tensor cores
    and the one that reads it is computed."""
    with T.serial(int32(0), steps) as variable:
        step = IRBuilder.name("step", variable)
        _wait(ring.full(ring.slot), ring.phase)
        worker.multiply_add(ring.slot)
        worker.settle()
        with only(tirx.And(step > int32(0), worker.lane == int32(0))):
            T.evaluate(T.ptx["mbarrier.arrive.shared.b64"](ring.empty(ring.slot_before)))
        ring.advance()


def _wait(barrier: Any, parity: Any) -> None:
    T.evaluate(T.cuda.func_call(WAIT, barrier, parity, source_code=WAIT_SOURCE))
