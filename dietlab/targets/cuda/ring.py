"""Needs of a block with a producer in addition to its tiles: descriptors, barriers, and registers by role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dietlab.problem import Role, Workload, batched, gathered, require_dtype, static_extent
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.unit import PIECES

LINE_BYTES = 16
"""The alignment in bytes at which lines of a described matrix begin (CUDA Driver API,
``cuTensorMapEncodeTiled``)."""

BARRIER_BYTES = 8
"""The size in bytes of an mbarrier object in shared memory (PTX ISA, ``mbarrier``). A stage has two such
barriers: full and empty."""

REGISTERS_OF = 8
"""The number of a thread's registers that are given and taken at a time (PTX ISA, ``setmaxnreg``)."""

REGISTERS_PER_SM, REGISTERS_PER_THREAD = 65536, 255
"""The number of registers of a multiprocessor, and the most registers of a thread, of compute capability 9.0,
the only one with ``wgmma`` (CUDA C++ Programming Guide, technical specifications)."""

PRODUCER_REGISTERS = 40
"""The number of registers that a producer's thread keeps: one thread counts stages and issues copies. With
24, the least that ``setmaxnreg`` allows, some would spill."""

MOST_REGISTERS = 240
"""The most registers that a worker's thread takes: a multiple of 8 below 255, the most of an instruction."""


@dataclass(frozen=True)
class RegistersOfRoles:
    """The numbers of registers of a thread: of every thread at the launch, then of a producer's thread, and
    of a worker's thread.
    """

    launched: int
    producer: int
    worker: int


def registers_of_roles(kernel: CudaMicroKernel) -> RegistersOfRoles:
    """Returns the numbers of registers of each role's threads.

    For example, with two groups of workers and a producer of four warps each, one block a multiprocessor::

        before (as launched)             after setmaxnreg
        producer   128 x 168             128 x  40
        worker 0   128 x 168             128 x 232
        worker 1   128 x 168             128 x 232
    """
    room = REGISTERS_PER_SM // (kernel.resident * kernel.threads)
    launched = min(room, REGISTERS_PER_THREAD) // REGISTERS_OF * REGISTERS_OF
    producer = min(PRODUCER_REGISTERS, launched)
    workers = kernel.threads - PIECES[kernel.unit].producers
    left = launched * kernel.threads - producer * PIECES[kernel.unit].producers
    taken = left // workers // REGISTERS_OF * REGISTERS_OF
    return RegistersOfRoles(launched, producer, max(launched, min(taken, MOST_REGISTERS)))


def missing_registers(kernel: CudaMicroKernel, needed: int) -> int:
    """Returns how many more registers a worker's thread needs than it can take; 0 if it has enough."""
    return max(0, needed - registers_of_roles(kernel).worker)


def barrier_bytes(kernel: CudaMicroKernel) -> int:
    """Returns the shared memory of a block's barriers in bytes; none without a producer."""
    return 2 * BARRIER_BYTES * kernel.stages if kernel.pieces.producers else 0


def described(workload: Workload) -> bool:
    """Returns whether both operands can be described for bulk copies: each is one matrix of 16-bit elements
    whose lines begin at multiples of 16 bytes. What a kernel covers of an image is no such matrix. Of lines
    of dynamic length, those of some calls do; a library serves the other calls by another plan.

    Other bounds of a descriptor hold for all operands: extents up to 2^32, and up to 2^40 bytes from a line
    to the next.
    """
    lengths: tuple[Role, ...] = ("depth", "cols" if workload.weights == "direct" else "depth")
    known = [extent for role in lengths if (extent := static_extent(workload, role)) is not None]
    return not batched(workload) and not gathered(workload) and whole_lines(workload.dtype, known)


def whole_lines(dtype: str, extents: Iterable[object]) -> bool:
    """Returns whether bulk copies serve the type, and all extents make lines that begin at multiples of 16
    bytes. A dynamic extent (None, or a name) makes no such lines."""
    itemsize = require_dtype(dtype).itemsize
    return dtype in PIECES["tma"].types and all(
        isinstance(extent, int) and extent * itemsize % LINE_BYTES == 0 for extent in extents
    )
