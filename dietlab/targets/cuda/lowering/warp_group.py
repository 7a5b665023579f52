"""The compute stage on tensor cores that read shared memory: four warps together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.lowering.geometry import CELL, STRIPS, AnyPanel, SwizzledPanel
from dietlab.targets.cuda.lowering.layout import Layout, Left, Worker
from dietlab.targets.cuda.lowering.tir import bound, int32, int64, keep, registers, unrolled
from dietlab.targets.cuda.unit import PIECES, WARP

ROWS, STEPS = PIECES["wgmma"].rows, PIECES["wgmma"].steps
"""The numbers of rows and steps of one instruction (PTX ISA, ``wgmma.mma_async.m64nNk16``)."""

IN_FLIGHT = 1
"""The most steps that may still be unfinished when the next step is issued, so that tensor cores never wait
for threads. The slot of a step is overwritten two steps later (:attr:`CudaMicroKernel.ahead`)."""

ADDRESS_BITS = 0x3FFFF
"""The mask of the bits of an address in shared memory that a descriptor holds (PTX ISA, matrix descriptor
format)."""

ITEM_BYTES = 2
"""The number of bytes of an operand's element."""


@dataclass(frozen=True)
class WarpGroup(Worker):
    """Four warps on tensor cores: ``wgmma.mma_async.m64nNk16`` on tiles in shared memory that ``x`` and ``w``
    describe. N is all of the group's columns; where ``w`` lies along the columns, the instruction transposes
    it.

    For example, with a 64 x 128 tile of a group and a step of 32::

        before                                     after
        for i in range(64):                        registers of sums are ready (wgmma.fence)
          for j in range(128):                     y[0:64, 0:128] += x[0:64,  0:16] * w[0:128,  0:16]
            for k in range(32):                    y[0:64, 0:128] += x[0:64, 16:32] * w[0:128, 16:32]
              y[i, j] += x[i, k] * w[j, k]         commit
                                                   (the next fetch begins)
                                                   wait until the step before is computed

    The tensor cores compute while the threads go on: sums are valid only after :meth:`finish`. The tensor
    cores read shared memory through the async proxy, which :meth:`publish` orders behind the threads' writes.
    After a wait, what they have read may be overwritten (PTX ISA, "Async proxy" of ``wgmma``).

    A warp has 16 of the 64 rows. Of each of its 16 x 8 sums a thread holds rows ``lane / 4`` and ``lane / 4 +
    8``, columns ``lane % 4 * 2`` and the next (PTX ISA, "Register fragments", accumulator of ``m64nNk16``).
    """

    warp: Any
    lane: Any

    @property
    def down_pieces(self) -> int:
        return self.kernel.tile_rows // ROWS

    @property
    def held_rows(self) -> int:
        return 2 * self.down_pieces

    @property
    def held_cols(self) -> int:
        return self.kernel.tile_cols // 4

    def row(self, i: Any) -> Any:
        piece, half = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        inside = self.warp * int32(16) + tirx.truncdiv(self.lane, int32(4)) + half * int32(8)
        return self._first_row(piece) + inside

    def col(self, j: Any) -> Any:
        eight, at = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        inside = eight * int32(8) + tirx.truncmod(self.lane, int32(4)) * int32(2) + at
        return self._first_col() + inside

    def at(self, i: Any, j: Any) -> Any:
        piece, half = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        eight, at = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        return piece * int32(self._of_piece) + eight * int32(4) + half * int32(2) + at

    @property
    def _of_piece(self) -> int:
        """The number of sums of one instruction that a thread holds."""
        return self.kernel.tile_cols // 2

    def _first_row(self, piece: Any) -> Any:
        return (piece * int32(self.kernel.down) + self.down) * int32(ROWS)

    def _first_col(self) -> Any:
        return self.across * int32(self.kernel.tile_cols)

    @property
    def asynchronous(self) -> bool:
        return True

    def start(self) -> None:
        super().start()
        # Hides that a sum begins with zero. Otherwise the compiler sets it to zero again where the loop is
        # skipped, and then ptxas computes one product after the other.
        keep(self.sums, self.kernel.accumulators)

    def publish(self) -> None:
        T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())

    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        assert left is None  # an instruction multiplies whole pieces
        T.evaluate(T.ptx["wgmma.fence.sync.aligned"]())
        with unrolled(self.layout.part // STEPS, "q") as q, unrolled(self.down_pieces, "i") as i:
            k = bound("k", self.layout.slice * int32(self.layout.part) + q * int32(STEPS))
            self._multiply(slot, i, k)
        T.evaluate(T.ptx["wgmma.commit_group.sync.aligned"]())

    def settle(self) -> None:
        T.evaluate(T.ptx["wgmma.wait_group.sync.aligned"](IN_FLIGHT))

    def _multiply(self, slot: Any, i: Any, k: Any) -> None:
        """Emits one instruction. Its operands begin at a group of eight lines of a strip, whose first line is
        not swizzled; the tensor cores swizzle the offsets that they add."""
        kind = self.kernel.pieces.types[self.layout.geometry.dtype]
        sums = [self.sums[i * int32(self._of_piece) + int32(n)] for n in range(self._of_piece)]
        first, second, *transposed = self.operands(slot, i, k)
        name = f"wgmma.mma_async.sync.aligned.m64n{2 * self._of_piece}k16.f32.{kind}.{kind}"
        # Sums are added to; nothing is negated.
        T.evaluate(T.ptx[name](*sums, first, second, True, 1, 1, *transposed))

    def operands(self, slot: Any, i: Any, k: Any) -> tuple[Any, Any, int, int]:
        """Returns the descriptors of both operands of piece ``i`` from step ``k`` on, and whether the
        instruction transposes each: ``w`` may lie along the columns."""
        shifted = self.kernel.persistent
        x = moved(self.x, self.layout.x.at(slot, self._first_row(i), k), shifted=shifted)
        w = moved(self.w, self.layout.w.at(slot, self._first_col(), k), shifted=shifted)
        return x, w, 0, int(self.layout.geometry.direct)

    def finish(self) -> None:
        T.evaluate(T.ptx["wgmma.wait_group.sync.aligned"](0))
        keep(self.sums, self.kernel.accumulators)


def moved(descriptor: Any, elements: Any, *, shifted: bool = False) -> Any:
    """Returns the descriptor of a tile that begins ``elements``, a multiple of eight, further on.

    Args:
        shifted: whether to divide by a shift. Over several tiles of a block the compiler does not see that a
            slot is not negative, and a division would take three instructions.
    """
    cells = elements >> int32(CELL.bit_length() - 1) if shifted else tirx.truncdiv(elements, int32(CELL))
    return tirx.Cast("uint64", descriptor + int64(cells))


def described(panel: AnyPanel, *, across: bool) -> int:
    """Returns a panel's matrix descriptor without the address, as a signed number of 64 bits.

    ::

        bits 16-29  leading dimension byte offset / 16     across lines: from a strip to the next; else 1
        bits 32-45  stride dimension byte offset / 16      from eight lines of a strip to the next eight
        bits 62-63  swizzling mode                         1, 2, 3 for strips of 128, 64, 32 bytes

    (PTX ISA, matrix descriptor format and canonical layouts.)

    Args:
        across: whether a line holds one step, so that an instruction's columns are in several strips.
    """
    assert isinstance(panel, SwizzledPanel)  # as panels() makes them for groups of warps
    strip, eight_lines = (panel.pitch * lines * ITEM_BYTES // 16 for lines in (panel.lines, 8))
    value = (strip if across else 1) << 16 | eight_lines << 32 | (STRIPS.index(panel.pitch) + 1) << 62
    return value - (1 << 64 if value >> 63 else 0)


AnyGroup = TypeVar("AnyGroup", bound=WarpGroup)


def warp_group(layout: Layout, kind: type[AnyGroup]) -> AnyGroup:
    """Returns the worker of this thread; its descriptors are of tiles at the start of shared memory."""
    kernel, thread = layout.kernel, layout.thread
    threads = PIECES["wgmma"].threads
    group = bound("group", tirx.truncdiv(thread, int32(threads)))
    warp = bound("warp", tirx.truncdiv(tirx.truncmod(thread, int32(threads)), int32(WARP)))
    lane = bound("lane", tirx.truncmod(thread, int32(WARP)))
    down = bound("down", tirx.truncdiv(group, int32(kernel.across)))
    across = bound("across", tirx.truncmod(group, int32(kernel.across)))
    address = T.cuda.cvta_generic_to_shared(T.address_of(layout.shared[0]))
    first = bound("first", int64((address & tirx.const(ADDRESS_BITS, "uint32")) >> tirx.const(4, "uint32")))
    fields = (
        described(layout.x.panel, across=layout.x.across),
        described(layout.w.panel, across=layout.w.across),
    )
    x, w = (bound(f"{name}_tile", first + int64(value)) for name, value in zip("xw", fields, strict=True))
    return kind(layout, registers("sums", kernel.accumulators), x, w, down, across, warp, lane)
