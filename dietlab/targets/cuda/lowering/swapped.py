"""Groups of warps with exchanged operands: few rows are the columns of ``wgmma``, and columns its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cuda.kernel import PIECE
from dietlab.targets.cuda.lowering.layout import Run, Totals
from dietlab.targets.cuda.lowering.tir import bound, int32, keep, registers, span, unrolled
from dietlab.targets.cuda.lowering.warp_group import WarpGroup, moved
from dietlab.targets.cuda.needs import ordered_pitch
from dietlab.targets.cuda.unit import PIECES

COLS = PIECES["swapped"].cols
"""The number of columns of one instruction."""

WORD = 4
"""The number of float32 that a thread reads at a time: 16 bytes."""


@dataclass(frozen=True)
class SwappedGroup(WarpGroup):
    """Four warps on tensor cores that compute ``y^T = w x^T``: ``wgmma.mma_async.m64nNk16`` has 64 columns of
    ``w`` as its rows, and all rows of the tile as its columns.

    For example, with 16 rows, 128 columns of a group and a step of 32::

        WarpGroup: 64 rows, 16 of them used         here
        y[0:64, 0:128] += x[0:64,  0:16] * w ...    y[0:16,  0:64 ]^T += w[ 0:64 ,  0:16] * x[0:16,  0:16]^T
        y[0:64, 0:128] += x[0:64, 16:32] * w ...    y[0:16, 64:128]^T += w[64:128,  0:16] * x[0:16,  0:16]^T
                                                    ... two more, of steps 16 to 31

    Where ``w`` lies along the columns, the instruction transposes it.

    A warp has 16 of the 64 columns. Of each of its 16 x 8 sums a thread holds columns ``lane / 4`` and
    ``lane / 4 + 8``, rows ``lane % 4 * 2`` and the next (PTX ISA, "Register fragments", accumulator of
    ``m64nNk16``). No two are neighbours in a line of ``y``, so the sums are put in order in shared memory
    (:meth:`totals`): a thread stores other rows and columns than it has computed.
    """

    @property
    def down_pieces(self) -> int:
        """The number of instructions for 16 steps of all its columns."""
        return self.kernel.tile_cols // COLS

    @property
    def held_rows(self) -> int:
        return self.kernel.rows // 4

    @property
    def held_cols(self) -> int:
        return 2 * self.down_pieces

    def row(self, i: Any) -> Any:
        """Returns the row itself: a run names the tile's row that it lies in."""
        return i

    def col(self, j: Any) -> Any:
        return j

    def at(self, i: Any, j: Any) -> Any:
        eight, next_row = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
        piece, half = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
        return piece * int32(self._of_piece) + eight * int32(4) + half * int32(2) + next_row

    @property
    def _of_piece(self) -> int:
        return self.kernel.rows // 2

    def _col_of_piece(self, piece: Any) -> Any:
        return self.across * int32(self.kernel.tile_cols) + piece * int32(COLS)

    def operands(self, slot: Any, i: Any, k: Any) -> tuple[Any, Any, int, int]:
        w = moved(self.w, self.layout.w.at(slot, self._col_of_piece(i), k))
        x = moved(self.x, self.layout.x.at(slot, int32(0), k))
        return w, x, int(self.layout.geometry.direct), 0

    @contextmanager
    def totals(self, rank: Any) -> Iterator[Totals]:
        """Opens a context with the sums that this thread stores, in pieces of eight neighbouring columns.

        For example, with 16 rows of 128 columns, two blocks that share the reduction, and 128 threads::

            barrier                                          # the stages have been read
            shared[row][col] = each sum of the thread        # float32, lines 16 bytes further apart
            barrier, or cluster barrier
            block 0: totals = pieces 0 to 127 of block 0 + those of block 1      # one for each thread
            block 1: totals = pieces 128 to 255 of both
            y[row, 8 columns] = totals                       # 16 bytes of 16-bit elements

        Blocks of a cluster arrive and wait as in
        :meth:`~dietlab.targets.cuda.lowering.layout.Layout.shared_totals`.
        """
        kernel, splits = self.kernel, self.kernel.splits
        pieces, across = kernel.rows * kernel.cols // PIECE, kernel.cols // PIECE
        share = -(-pieces // splits)
        mine = -(-share // kernel.computing)
        ordered = self._put_in_order()
        if splits > 1:
            T.evaluate(T.ptx["barrier.cluster.arrive.release.aligned"]())
            T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())
            blocks = [self.layout.of_block(ordered, other) for other in range(splits)]
        else:
            self.layout.meet()
            blocks = [ordered]

        def number(n: Any) -> tuple[Any, Any]:
            """Returns the index of a piece of this block's share, and among all pieces."""
            own = n * int32(kernel.computing) + self.layout.thread
            return own, own if splits == 1 else own + rank * int32(share)

        def place(n: Any) -> tuple[Any, Any]:
            _, piece = number(n)
            return tirx.truncdiv(piece, int32(across)), tirx.truncmod(piece, int32(across)) * int32(PIECE)

        def run(n: Any) -> Run:
            own, piece = number(n)
            row, col = place(n)
            there = tirx.And(own < int32(share), piece < int32(pieces))
            whole = share % kernel.computing == 0 and pieces % splits == 0
            return Run(row, col, n * int32(PIECE), None if whole else there)

        totals = registers("totals", mine * PIECE)
        with unrolled(mine, "n") as n:
            _, piece = number(n)
            at = tirx.min(piece, int32(pieces - 1))
            row, col = tirx.truncdiv(at, int32(across)), tirx.truncmod(at, int32(across)) * int32(PIECE)
            first = bound("first_sum", row * int32(ordered_pitch(kernel)) + col)
            for word in range(0, PIECE, WORD):
                where = span(first + int32(word), WORD)
                total = sum((block[where] for block in blocks[1:]), blocks[0][where])
                T.buffer_store(totals, total, [span(n * int32(PIECE) + int32(word), WORD)])
        keep(totals, mine * PIECE)
        if splits > 1:
            T.evaluate(T.ptx["barrier.cluster.arrive.relaxed.aligned"]())
        yield Totals(totals, mine, run)
        if splits > 1:
            T.evaluate(T.ptx["barrier.cluster.wait.acquire.aligned"]())

    def _put_in_order(self) -> Any:
        """Puts the thread's sums in rows and columns of shared memory, once the stages have been read."""
        kernel, pitch = self.kernel, ordered_pitch(self.kernel)
        ordered = T.decl_buffer(
            (kernel.rows * pitch,), "float32", data=self.layout.shared.data, scope="shared.dyn"
        )
        self.layout.meet()
        row = bound("row_of_sums", tirx.truncmod(self.lane, int32(4)) * int32(2))
        col = self.warp * int32(16) + tirx.truncdiv(self.lane, int32(4))
        with unrolled(self.held_cols, "j") as j, unrolled(self.held_rows, "i") as i:
            eight, next_row = tirx.truncdiv(i, int32(2)), tirx.truncmod(i, int32(2))
            piece, half = tirx.truncdiv(j, int32(2)), tirx.truncmod(j, int32(2))
            line = row + eight * int32(8) + next_row
            element = self._col_of_piece(piece) + col + half * int32(8)
            T.buffer_store(ordered, self.sums[self.at(i, j)], [line * int32(pitch) + element])
        return ordered
