"""The compute stage on tensor cores: one warp's fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.lowering.layout import Layout, Left, Worker
from dietlab.targets.cuda.lowering.tir import bound, int32, registers, unrolled
from dietlab.targets.cuda.unit import WARP


@dataclass(frozen=True)
class TensorCore(Worker):
    """A warp on tensor cores: ``mma.sync.m16n8k16`` on fragments that ``ldmatrix`` reads.

    For example, with a 16 x 16 tile of one warp and 16 steps::

        before                                     after
        for i in range(16):                        ldmatrix.x4  a0..a3 <- x[0:16, 0:16]
          for j in range(16):                      ldmatrix.x4  b0..b3 <- w[0:16, 0:16]
            for k in range(16):                    mma  y[0:16, 0:8]  += a0..a3 * b0, b1
              y[i, j] += x[i, k] * w[j, k]         mma  y[0:16, 8:16] += a0..a3 * b2, b3

    Of each 16 x 8 sums a thread holds rows ``lane / 4`` and ``lane / 4 + 8``, columns ``lane % 4 * 2`` and
    the next (PTX ISA, "Matrix fragments for mma.m16n8k16").
    """

    lane: Any

    @property
    def down_fragments(self) -> int:
        return self.kernel.tile_rows // 16

    @property
    def across_pairs(self) -> int:
        """The number of fragments of 16 columns, each of which holds two instructions' sums."""
        return self.kernel.tile_cols // 16

    @property
    def held_rows(self) -> int:
        return 2 * self.down_fragments

    @property
    def held_cols(self) -> int:
        return 4 * self.across_pairs

    def row(self, i: Any) -> Any:
        fragment, half = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        return self._first_row(fragment) + tirx.truncdiv(self.lane, int32(4)) + half * int32(8)

    def col(self, j: Any) -> Any:
        eight, at = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        pair, half = tirx.truncdiv(eight, int32(2)), tirx.truncmod(eight, int32(2))
        return self._first_col(pair) + half * int32(8) + tirx.truncmod(self.lane, int32(4)) * int32(2) + at

    def at(self, i: Any, j: Any) -> Any:
        fragment, half = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        eight, at = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        return self._sum(fragment, eight) + half * int32(2) + at

    def _sum(self, fragment: Any, eight: Any) -> Any:
        """Returns the first of four sums of a 16 x 8 fragment."""
        return (fragment * int32(2 * self.across_pairs) + eight) * int32(4)

    def _first_row(self, fragment: Any) -> Any:
        return (fragment * int32(self.kernel.down) + self.down) * int32(16)

    def _first_col(self, pair: Any) -> Any:
        return (pair * int32(self.kernel.across) + self.across) * int32(16)

    def multiply_add(self, slot: Any, left: Left | None = None) -> None:
        assert left is None  # an instruction multiplies whole fragments
        with unrolled(self.layout.part // 16, "q") as q:
            k = bound("k", self.layout.slice * int32(self.layout.part) + q * int32(16))
            self._read(slot, k)
            with unrolled(self.down_fragments, "i") as i, unrolled(2 * self.across_pairs, "j") as j:
                self._multiply(i, j)

    def _multiply(self, i: Any, j: Any) -> None:
        kind = self.kernel.pieces.types[self.layout.geometry.dtype]
        first = self._sum(i, j)
        sums = [self.sums[first + int32(e)] for e in range(4)]
        x = [self.x[i * int32(4) + int32(e)] for e in range(4)]
        w = [self.w[j * int32(2) + int32(e)] for e in range(2)]
        name = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        T.evaluate(T.ptx[name](*sums, *x, *w, *sums))

    def _read(self, slot: Any, k: Any) -> None:
        """Reads the fragments of 16 steps. Each of a warp's four groups of eight threads names the lines of
        one 8 x 8 matrix."""
        layout, shared = self.layout, self.layout.shared
        eight, matrix = tirx.truncmod(self.lane, int32(8)), tirx.truncdiv(self.lane, int32(8))
        low, high = tirx.truncmod(matrix, int32(2)), tirx.truncdiv(matrix, int32(2))
        with unrolled(self.down_fragments, "i") as i:
            line = self._first_row(i) + low * int32(8) + eight
            at = layout.x.at(slot, line, k + high * int32(8))
            self._load("ldmatrix.sync.aligned.m8n8.x4.shared.b16", self.x, i, shared, at)
        with unrolled(self.across_pairs, "j") as j:
            first = self._first_col(j) + high * int32(8)
            if layout.geometry.direct:
                at = layout.w.at(slot, first, k + low * int32(8) + eight)
                self._load("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", self.w, j, shared, at)
            else:
                at = layout.w.at(slot, first + eight, k + low * int32(8))
                self._load("ldmatrix.sync.aligned.m8n8.x4.shared.b16", self.w, j, shared, at)

    @staticmethod
    def _load(name: str, held: Any, number: Any, shared: Any, at: Any) -> None:
        places = [held[number * int32(4) + int32(e)] for e in range(4)]
        T.evaluate(T.ptx[name](*places, T.address_of(shared[at])))


def tensor_core(layout: Layout) -> TensorCore:
    """Returns a warp's place in the tile, and this thread's registers."""
    kernel = layout.kernel
    warp = bound("warp", tirx.truncdiv(layout.thread, int32(WARP)))
    lane = bound("lane", tirx.truncmod(layout.thread, int32(WARP)))
    down = bound("down", tirx.truncdiv(warp, int32(kernel.across)))
    across = bound("across", tirx.truncmod(warp, int32(kernel.across)))
    return TensorCore(
        layout,
        registers("sums", kernel.accumulators),
        registers("a", 4 * (kernel.tile_rows // 16), "uint32"),
        registers("b", 4 * (kernel.tile_cols // 16), "uint32"),
        down,
        across,
        lane,
    )
