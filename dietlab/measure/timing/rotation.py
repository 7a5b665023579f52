"""Rotating operands: the number of copies."""

from __future__ import annotations

import math

from dietlab.base.cards import bytes_text
from dietlab.machine import Hardware
from dietlab.machine.system import free_bytes

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
