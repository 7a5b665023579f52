"""The micro-kernel of a CUDA contraction: the tile of one thread block."""

# The order that a dataclass makes stands in place of the abstract one.
# mypy: disable-error-code=misc

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dietlab.base.errors import SpaceError
from dietlab.problem import Role
from dietlab.scheme.micro_kernel import COMPOSED, Edge, MicroKernel
from dietlab.scheme.scheme import Scheme
from dietlab.targets.cuda.unit import PIECES, Pieces, Unit

CLUSTER = 8
"""The most blocks of a cluster that every GPU with clusters can run (CUDA C Programming Guide, thread block
clusters)."""

PAIR = 2
"""The number of neighbouring columns whose sums one thread holds on tensor cores (PTX ISA, register fragments
of ``mma`` and ``wgmma``)."""

PIECE = 8
"""The number of neighbouring columns that a thread stores at a time, as 16 bytes of 16-bit elements."""

_UNITS: dict[str, Unit] = {pieces.letter: unit for unit, pieces in PIECES.items()}
_KEY = re.compile(
    r"(\d+)x(\d+)x(\d+)\.([twgpx])(\d+)x(\d+)(?:x(\d+))?\.s(\d+)(?:\.k(\d+))?(?:\.m(\d+))?(?:\.e(\d+))?(?:\.(r))?(?:\.b(\d+))?"
    r"(?:\.(even|rest|checked))?"
)


@dataclass(frozen=True, order=True)
class CudaMicroKernel(MicroKernel):
    """A program for one ``rows x cols`` tile of the output, computed by one thread block.

    The block walks along the reduction axis ``step`` by ``step``: both operands' tiles are fetched to
    shared memory, zero where they stick out (local padding), then its threads compute from there::

        rows x cols of y  =  sum over steps of   (rows x step of x)  @  (step x cols of w)
                                                  shared memory          shared memory

    Args:
        rows, cols: the extents of the block's tile.
        step: the number of steps of the reduction in one stage.
        down, across: the numbers of workers along the tile's rows and columns: threads for ``fma``, warps for
            ``mma``, groups of four warps for ``wgmma``. A worker's rows are ``down`` (fma), ``16 down`` (mma)
            or ``64 down`` (wgmma, in pieces of 64) apart, so that neighbouring threads read neighbouring rows
            of shared memory (virtual threads, in TVM's words). A worker of ``swapped`` has all rows.
        slices: the number of groups of ``down x across`` workers. Each group computes a part of every step;
            the groups' sums are added up at the end. Several groups give small outputs enough threads to fill
            the processor.
        stages: the number of tiles in shared memory, 2 or more: ``stages - 1`` steps are fetched while one is
            computed. ``wgmma`` needs 3 or more, and fetches ``stages - 2`` steps ahead: the tensor cores may
            still read the step before.
        unit: the unit that multiplies: ``fma`` (CUDA cores, fp32), ``mma`` (tensor cores, fp16 and bf16 with
            fp32 sums, operands from registers), ``wgmma`` (the same from shared memory, of compute capability
            9.0 only), ``tma`` (as ``wgmma``, from a ring of stages that four more warps fill by bulk
            copies: no worker copies, and none waits for another) or ``swapped`` (as ``tma`` with the operands
            exchanged, for few rows: ``wgmma`` takes 64 columns of ``w``, and 8 rows of ``x`` or more).
        splits: the number of blocks that share one tile's reduction (split-K), each with every ``splits``-th
            step. These blocks are one cluster, which adds up its sums through its blocks' shared memory:
            nothing is written twice, and no second kernel is launched. From compute capability 9.0 on; 8 at
            most.
        multicast: the number of blocks side by side that share the rows of ``x`` (``tma`` only). These blocks
            are one cluster; each block brings a part of the rows to all of them, so that L2 is read once for
            all.
        ending: the number of blocks that share each tile of the last, partly full wave (``tma`` only). The
            blocks of a cluster compute one tile each in the waves before, and one tile together in the last
            one, if fewer steps pay for adding up (:mod:`~dietlab.targets.cuda.ending`).
        persistent: whether blocks remain until the launch ends (``tma`` only). There are as many blocks as
            the GPU holds at once, and each computes one tile after the other. Its producer brings the next
            tile while its workers store the last one.
        resident: the least number of blocks that a multiprocessor must have room for. This limits the
            compiler's registers (CUDA C Programming Guide, launch bounds).

    The paper's five numbers are ``rows``, ``cols``, ``step``, and the thread's tile ``rows / down`` x
    ``cols / across``.

    ``key`` reads ``128x64x16.t16x16.s3``, with slices ``32x64x64.t4x16x4.s3``, on tensor cores
    ``128x128x32.w2x2.s4``, with splits and two resident blocks ``64x64x32.w2x2.s4.k4.b2``, by groups of warps
    ``128x256x64.g2x1.s4``, by groups with a producer ``128x256x64.p2x1.s4``, in clusters of two
    ``128x128x64.p1x1.s6.m2``, with the end of a launch shared by two blocks a tile ``128x128x64.p2x1.s4.e2``,
    with blocks that remain ``128x128x64.p2x1.s6.r``, with exchanged operands ``16x128x64.x1x2.s8.k4``.

    Raises:
        SpaceError: if a size is not positive, or workers do not divide the tile.
    """

    rows: int
    cols: int
    step: int
    down: int
    across: int
    slices: int = 1
    stages: int = 2
    unit: Unit = "fma"
    splits: int = 1
    resident: int = 1
    multicast: int = 1
    ending: int = 1
    persistent: bool = False
    example: ClassVar[str] = "128x64x16.t16x16.s3.even"
    reserves: ClassVar[bool] = True
    ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sizes = (self.rows, self.cols, self.step, self.down, self.across, self.slices, self.stages)
        if min(*sizes, self.splits, self.resident, self.multicast, self.ending) < 1:
            raise SpaceError("a micro-kernel's sizes must be positive", self.key, "Make each 1 or more.")
        if self.stages < self.pieces.stages:
            computed = "another is" if self.pieces.stages == 2 else "two are"
            remedy = f"Give it {self.pieces.stages} or more."
            raise SpaceError(f"one stage must be fetched while {computed} computed", self.key, remedy)
        if self.pieces.producers and self.slices > 1:
            remedy = "Take wgmma to slice a step."
            raise SpaceError("what a producer brings must be computed in whole steps", self.key, remedy)
        if self.multicast > 1 and (self.unit != "tma" or self.splits > 1):
            remedy = "Take tma, and no splits."
            raise SpaceError("blocks can only share rows of producers or a reduction", self.key, remedy)
        if self.ending > 1 and (self.unit != "tma" or self.splits * self.multicast > 1):
            remedy = "Take tma, no splits and no multicast."
            raise SpaceError(
                "blocks with producers can share the last wave, and nothing else", self.key, remedy
            )
        if self.persistent and (self.unit != "tma" or self.cluster > 1):
            remedy = "Take tma, no splits, no multicast and no shared last wave."
            raise SpaceError("blocks with producers can remain if each has its own tiles", self.key, remedy)
        if self.cluster > CLUSTER:
            raise SpaceError(f"a cluster must have at most {CLUSTER} blocks", self.key, "Split it less.")
        divided = {
            "rows": (self.rows, self.granule),
            "columns": (self.cols, self.across * self.pieces.cols),
            "steps": (self.step, self.slices * self.pieces.steps),
        }
        for what, (extent, share) in divided.items():
            if extent % share:
                remedy = f"Change the {what} or how many workers share them."
                raise SpaceError(f"workers must share a multiple of {share} {what}", self.key, remedy)
        if self.pieces.widest and self.tile_cols > self.pieces.widest:
            rule = f"a worker must compute at most {self.pieces.widest} columns"
            raise SpaceError(rule, self.key, "Let more share them.")
        if self.pieces.tallest and (self.down > 1 or self.rows > self.pieces.tallest):
            rule = f"each worker must compute all rows, {self.pieces.tallest} at most"
            raise SpaceError(rule, self.key, "Let workers share columns.")

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The treatments of the edge tile that the unit supports."""
        return ("padded", *COMPOSED, "checked") if self.unit == "fma" else ("padded", *COMPOSED)

    def scheme_key(self, order: str, edge: str) -> str:
        """Returns the key of a scheme with this micro-kernel and this treatment of the edge."""
        workers = f"{self.pieces.letter}{self.down}x{self.across}"
        workers += f"x{self.slices}" if self.slices > 1 else ""
        splits = f".k{self.splits}" if self.splits > 1 else ""
        multicast = f".m{self.multicast}" if self.multicast > 1 else ""
        ending = f".e{self.ending}" if self.ending > 1 else ""
        remain = ".r" if self.persistent else ""
        resident = f".b{self.resident}" if self.resident > 1 else ""
        suffix = f".{edge}" if edge else ""
        tile = f"{self.rows}x{self.cols}x{self.step}.{workers}.s{self.stages}"
        return f"{tile}{splits}{multicast}{ending}{remain}{resident}{suffix}"

    @classmethod
    def parse(cls, key: str) -> tuple[CudaMicroKernel, str, str] | None:
        """Returns the micro-kernel, the order and the edge of a key; None if the key is not of a GPU's
        scheme."""
        match = _KEY.fullmatch(key)
        if not match:
            return None
        rows, cols, step, letter, down, across, slices, stages, *last, edge = match.groups()
        sizes: Any = [int(size) for size in (rows, cols, step, down, across, slices or 1, stages)]
        *shares, remain, resident = last
        splits, multicast, ending = (int(size or 1) for size in shares)
        kernel = cls(*sizes, unit=_UNITS[letter], splits=splits, resident=int(resident or 1))
        return replace(kernel, multicast=multicast, ending=ending, persistent=bool(remain)), "", edge or ""

    @property
    def pieces(self) -> Pieces:
        """The smallest piece that the unit computes at a time."""
        return PIECES[self.unit]

    @property
    def granule(self) -> int:
        """The number of rows that its workers compute at once: heights are multiples of it."""
        return self.down * self.pieces.rows

    @property
    def tile(self) -> dict[Role, int]:
        """The extents of its tile by role; the depth is that of one step."""
        return {"rows": self.rows, "cols": self.cols, "depth": self.step}

    @property
    def access_pattern(self) -> Unit:
        """The unit. Stages and splits are no part of the pattern: a model fitted on some of these sizes
        predicts others."""
        return self.unit

    @property
    def computing(self) -> int:
        """The number of threads of the block that compute."""
        return self.down * self.across * self.slices * self.pieces.threads

    @property
    def threads(self) -> int:
        """The number of threads of the block."""
        return self.computing + self.pieces.producers

    @property
    def cluster(self) -> int:
        """The number of blocks of a cluster."""
        return self.splits * self.multicast * self.ending

    @property
    def sharing(self) -> int:
        """The most blocks that share one tile's reduction."""
        return self.splits * self.ending

    @property
    def ahead(self) -> int:
        """The number of steps that are fetched while one is computed."""
        return self.stages - self.pieces.stages + 1

    @property
    def tile_rows(self) -> int:
        """The number of rows that one worker computes."""
        return self.rows // self.down

    @property
    def tile_cols(self) -> int:
        """The number of columns that one worker computes."""
        return self.cols // self.across

    @property
    def run_rows(self) -> int:
        """The number of neighbouring rows that one thread reads one after the other."""
        return _run(self.tile_rows) if self.unit == "fma" else 1

    @property
    def run_cols(self) -> int:
        """The number of neighbouring columns whose sums one thread can store at once."""
        if self.unit == "swapped":  # from shared memory, in which blocks put all sums in order
            return PIECE
        return _run(self.tile_cols) if self.unit == "fma" else PAIR

    @property
    def panel_run_cols(self) -> int:
        """The number of neighbouring columns that one thread reads from shared memory one after the other."""
        return self.run_cols if self.unit == "fma" else 1

    @property
    def accumulators(self) -> int:
        """The number of fp32 sums that one thread holds."""
        return self.tile_rows * self.tile_cols // self.pieces.threads


def _run(extent: int) -> int:
    """Returns the longest run of fp32, at most 16 bytes, that divides a thread's rows or columns."""
    return next(run for run in (4, 2, 1) if extent % run == 0)


CudaScheme = Scheme[CudaMicroKernel]
