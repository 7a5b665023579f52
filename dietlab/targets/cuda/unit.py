"""The units of a multiprocessor that multiply, and the pieces that each works in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["fma", "mma", "wgmma", "tma"]

WARP = 32
WARP_GROUP = 128
"""Threads that execute ``wgmma`` together: four warps, the first one's number a multiple of four (PTX ISA,
asynchronous warpgroup level matrix instructions)."""


@dataclass(frozen=True)
class Pieces:
    """The least that one worker of a unit computes at a time.

    Args:
        letter: of the workers in a micro-kernel's key.
        threads: of a worker.
        rows, cols: of the output; a worker's tile is of multiples of them.
        steps: of the reduction; a slice's part of a stage is a multiple of them.
        stages: of shared memory that it takes: those that are computed at a time, and one that is fetched.
        widest: columns of a worker's tile at most; 0 without a bound.
        producers: threads of a block beside its workers, which bring the tiles.
    """

    letter: str
    threads: int
    rows: int
    cols: int
    steps: int
    stages: int = 2
    widest: int = 0
    producers: int = 0


GROUPED: tuple[Unit, ...] = ("wgmma", "tma")
"""Units whose workers are groups of four warps, which read their operands from shared memory."""

PIECES: dict[Unit, Pieces] = {
    "fma": Pieces("t", 1, 1, 1, 4),
    "mma": Pieces("w", WARP, 16, 16, 16),
    "wgmma": Pieces("g", WARP_GROUP, 64, 16, 16, stages=3, widest=256),
    "tma": Pieces("p", WARP_GROUP, 64, 16, 16, stages=3, widest=256, producers=WARP_GROUP),
}
"""The least pieces of threads on CUDA cores, warps (PTX ISA, ``mma.m16n8k16``, two of them side by side)
and groups of four warps (``wgmma.mma_async.m64nNk16``: N is a multiple of 8, of which every other one is
taken). ``tma`` multiplies as ``wgmma`` does; its tiles are brought by a producer, four warps too, since
four together give and take registers (``setmaxnreg``)."""
