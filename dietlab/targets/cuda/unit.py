"""The units of a multiprocessor that multiply, and the pieces that each works in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["fma", "mma", "wgmma", "tma", "swapped"]

WARP = 32
WARP_GROUP = 128
"""The number of threads that execute ``wgmma`` together: four warps, the first of which has a multiple of
four as its index (PTX ISA, asynchronous warpgroup level matrix instructions)."""

QUAD = 4
"""The number of steps of the reduction that a float32 thread reads at a time: 16 bytes."""


@dataclass(frozen=True)
class Pieces:
    """The smallest piece that one worker of a unit computes at a time.

    Args:
        types: PTX's names of the types that the unit multiplies, by dietlab's names.
        letter: the workers' letter in a micro-kernel's key.
        threads: the number of threads of a worker.
        rows, cols: the extents of which those of a worker's tile are multiples.
        steps: the number of steps of which a slice's part of a stage is a multiple.
        stages: the fewest stages of shared memory: the stages that are computed at a time, and one that is
            fetched.
        widest: the most columns of a worker's tile; 0 for no limit.
        producers: the number of threads of a block that bring the tiles, in addition to its workers.
        tallest: the most rows of a worker's tile; 0 for no limit. With a limit, a worker has all rows of the
            tile, which one instruction multiplies.
    """

    types: Mapping[str, str]
    letter: str
    threads: int
    rows: int
    cols: int
    steps: int
    stages: int = 2
    widest: int = 0
    producers: int = 0
    tallest: int = 0


GROUPED: tuple[Unit, ...] = ("wgmma", "tma", "swapped")
"""The units whose workers are groups of four warps, which read their operands from shared memory."""

FLOATS, HALVES = {"float32": "f32"}, {"float16": "f16", "bfloat16": "bf16"}
"""The types of CUDA cores and of tensor cores."""

TENSOR_CORES_SINCE = {"float16": (7, 0), "bfloat16": (8, 0)}
"""The compute capability from which tensor cores multiply a type (CUDA C Programming Guide, tensor core input
data types)."""

PIECES: dict[Unit, Pieces] = {
    "fma": Pieces(FLOATS, "t", 1, 1, 1, 4),
    "mma": Pieces(HALVES, "w", WARP, 16, 16, 16),
    "wgmma": Pieces(HALVES, "g", WARP_GROUP, 64, 16, 16, stages=3, widest=256),
    "tma": Pieces(HALVES, "p", WARP_GROUP, 64, 16, 16, stages=3, widest=256, producers=WARP_GROUP),
    "swapped": Pieces(
        HALVES, "x", WARP_GROUP, 8, 64, 64, stages=3, widest=256, producers=WARP_GROUP, tallest=256
    ),
}
"""The smallest pieces of threads on CUDA cores, of warps (PTX ISA, ``mma.m16n8k16``, two side by side) and of
groups of four warps (``wgmma.mma_async.m64nNk16``, with multiples of 16 for N). ``tma`` multiplies as
``wgmma``. A producer brings its tiles: four warps too, since four together give and take registers
(``setmaxnreg``). ``swapped`` multiplies as ``tma``, but the columns of ``w`` are the 64 rows of the
instruction, and the rows of ``x`` are its N: few rows fill it. Its steps are whole lines of 128 bytes, so
that the panel of ``w`` begins with a whole pattern behind any number of rows."""
