"""Rotating operands: how many copies go round, and what of a call comes from memory then."""

from __future__ import annotations

import math

from dietlab.base.cards import bytes_text
from dietlab.machine import Hardware, Roofline
from dietlab.machine.system import free_bytes
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Shape, Workload, bound, precision_of

ROTATED_CACHES = 2.0
"""The multiple of the last-level cache that rotated operands cover, so that none is still there when its
turn comes."""

MOST_BYTES = 1 << 30
"""The most bytes of a shape's copies, whatever the size of the last-level cache."""

LEAST_BYTES = 64 << 20
"""Bytes that rotations may always take."""

FREE_SHARE = 1 / 16
"""The share of the free memory that the operands of a rotation may take: each contender's process has its
own, a dozen of them in an evaluation."""

MOST_PACKED, MOST_PLAIN = 64, 1024
"""The most copies of packed weights, which are expensive to make, and of arrays."""


def copies_beyond(copy_bytes: int, last_level_bytes: int, *, packed: bool) -> int:
    """Returns the number of copies that exceed the last-level cache, up to a limit."""
    most = MOST_PACKED if packed else MOST_PLAIN
    needed = math.ceil(ROTATED_CACHES * last_level_bytes / copy_bytes) + 1
    return max(2, min(most, MOST_BYTES // copy_bytes, needed))


def exceeded_bytes(hardware: Hardware) -> int:
    """Returns which size of a last-level cache rotations on this machine exceed: the processor's, or less
    where little memory is free."""
    most = max(LEAST_BYTES, int(FREE_SHARE * free_bytes()))
    return min(hardware.last_level_bytes, int(most / ROTATED_CACHES))


def shortage(hardware: Hardware, exceeded: int) -> str:
    """Returns what a reader must know if rotations exceeded less than a processor's last-level cache."""
    level = hardware.last_level_bytes
    if exceeded >= level:
        return ""
    rotated, wanted = (bytes_text(ROTATED_CACHES * size) for size in (exceeded, level))
    return (
        f"Little memory was free: operands rotated through {rotated} in place of {wanted}, so that a "
        f"cache of {bytes_text(level)} may hold some of them."
    )


def memory_bytes(workload: Workload, shape: Shape, hardware: Hardware) -> int:
    """Returns the bytes that a rotating call fetches from memory: those of the operands that
    rotate, such as constant ones, or of all and the output. They are 0 for a small layer, whose copies are
    limited in number and fit the last-level cache."""
    constants = timing_target(hardware.kind).rotated(workload)
    values = sum(math.prod(bound(workload.signature[name], shape)) for name in constants)
    rotated = precision_of(workload).itemsize * values or workload.bytes(shape)
    level = hardware.last_level_bytes
    return rotated if rotated * copies_beyond(rotated, level, packed=bool(constants)) > level else 0


def roofline_of(workload: Workload, shape: Shape, hardware: Hardware) -> Roofline | None:
    """Returns the roofline of a call; None where the peak or the memory bandwidth is not known."""
    of_call = workload.flops(shape), workload.bytes(shape), workload.dtype
    if hardware.roofline(*of_call) is None:
        return None
    return hardware.roofline(*of_call, memory_bytes(workload, shape, hardware))
