"""Rotating operands: the number of copies, and the bytes of a call that come from memory."""

from __future__ import annotations

import math

from dietlab.base.cards import bytes_text
from dietlab.machine import Hardware, Roofline
from dietlab.machine.system import free_bytes
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Shape, Workload, bound, precision_of

ROTATED_CACHES = 2.0
"""The ratio of the size of all copies to the last-level cache: no copy is still in the cache when its turn
comes."""

MOST_BYTES = 1 << 30
"""The most bytes of a shape's copies, for any last-level cache."""

LEAST_BYTES = 64 << 20
"""The number of bytes that a rotation may use even if little memory is free."""

FREE_SHARE = 1 / 16
"""The share of the free memory that a rotation may use: in an evaluation, each of a dozen processes has a
rotation."""

MOST_PACKED = 64
"""The most copies of packed weights: packing is expensive."""

MOST_PLAIN = 1024
"""The most copies of arrays that are not packed."""


def copies_beyond(copy_bytes: int, last_level_bytes: int, *, packed: bool) -> int:
    """Returns the number of copies that exceed the last-level cache, up to a limit."""
    most = MOST_PACKED if packed else MOST_PLAIN
    needed = math.ceil(ROTATED_CACHES * last_level_bytes / copy_bytes) + 1
    return max(2, min(most, MOST_BYTES // copy_bytes, needed))


def exceeded_bytes(hardware: Hardware) -> int:
    """Returns the size of a last-level cache that rotations on this machine can exceed: the size of the
    processor's cache, or less if little memory is free."""
    most = max(LEAST_BYTES, int(FREE_SHARE * free_bytes()))
    return min(hardware.last_level_bytes, int(most / ROTATED_CACHES))


def shortage(hardware: Hardware, exceeded: int) -> str:
    """Returns a note if rotations did not exceed the processor's last-level cache; else an empty text."""
    level = hardware.last_level_bytes
    if exceeded >= level:
        return ""
    rotated, wanted = (bytes_text(ROTATED_CACHES * size) for size in (exceeded, level))
    return (
        f"Little memory was free: operands rotated through {rotated} in place of {wanted}, so that a "
        f"cache of {bytes_text(level)} may hold some of them."
    )


def memory_bytes(workload: Workload, shape: Shape, hardware: Hardware) -> int:
    """Returns the number of bytes that a rotating call fetches from memory: the size of the operands that
    rotate (the constant operands; without any, all operands and the output). Returns 0 for a small layer,
    whose limited number of copies fits the last-level cache."""
    constants = timing_target(hardware.kind).rotated(workload)
    values = sum(math.prod(bound(workload.signature[name], shape)) for name in constants)
    rotated = precision_of(workload).itemsize * values or workload.bytes(shape)
    level = hardware.last_level_bytes
    return rotated if rotated * copies_beyond(rotated, level, packed=bool(constants)) > level else 0


def roofline_of(workload: Workload, shape: Shape, hardware: Hardware) -> Roofline | None:
    """Returns the roofline of a call; None if the peak or the memory bandwidth is unknown."""
    of_call = workload.flops(shape), workload.bytes(shape), workload.dtype
    if hardware.roofline(*of_call) is None:
        return None
    return hardware.roofline(*of_call, memory_bytes(workload, shape, hardware))
