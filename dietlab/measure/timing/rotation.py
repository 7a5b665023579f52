"""Rotating operands: the number of copies, and memory filled with valid values in their place: a call's time
does not depend on values, so nothing is copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.cards import bytes_text
from dietlab.lower.runtime import ALIGNMENT_BYTES, HUGE_PAGE_BYTES, aligned_empty
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

NEAR_ONE = 0x3F80
"""The bits of 1 in bfloat16, which are the upper half of the bits of 1 in float32. With any sign and any
lower seven bits, each half of a word is a normal number in float32, bfloat16 and float16; bytes are arbitrary
integers."""


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


class Arena:
    """Memory that exceeds a cache. Parts of it are taken one after the other, cyclically.

    Args:
        last_level_bytes: the size of the cache that the parts of a rotation exceed
            (:func:`copies_beyond`).
    """

    def __init__(self, last_level_bytes: int) -> None:
        self._last_level_bytes = last_level_bytes
        self._memory: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._next = 0
        self._headers: dict[int, npt.NDArray[np.uint8]] = {}

    def take(
        self, like: Mapping[str, npt.NDArray[Any]], *, packed: bool, header: bytes = b""
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns the next part as arrays of valid values, aligned to cache lines. The part is reused after
        all other copies of a rotation.

        Args:
            like: arrays with the shapes and types of the result.
            packed: whether the arrays replace packed weights, of which a rotation has fewer copies.
            header: the bytes to write at the beginning of each array. When another part covers these bytes,
                the valid values are restored: computing with a header's bytes as numbers could be slow.
        """
        lines = [-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in like.values()]
        size = max(ALIGNMENT_BYTES, sum(lines))
        # One more, since a rotation may begin at any part.
        end = size * (1 + copies_beyond(size, self._last_level_bytes, packed=packed))
        if end > len(self._memory):
            whole = int(min(MOST_BYTES, ROTATED_CACHES * self._last_level_bytes))
            self._memory = np.empty(0, np.uint8)  # freed before the new one is allocated
            self._headers.clear()
            self._memory = _filled(max(end, whole))
        # Parts of one size begin at its multiples, so that two of them are the same memory or share none: a
        # rotation with more calls than parts then meets its own headers.
        start = -(-self._next // size) * size
        start = start if start + size <= end else 0
        self._next = start + size
        for other in [other for other in self._headers if start <= other < self._next]:
            before = self._headers.pop(other)
            self._memory[other : other + len(before)] = before
        found = {}
        for (name, array), line in zip(like.items(), lines, strict=True):
            part = self._memory[start : start + array.nbytes]
            if header:
                self._headers[start] = part[: len(header)].copy()
                part[: len(header)] = np.frombuffer(header, np.uint8)
            found[name] = part.view(array.dtype).reshape(array.shape)
            start += line
        return found


def _filled(size: int) -> npt.NDArray[np.uint8]:
    """Returns memory with random values that are normal numbers in every type."""
    memory = aligned_empty((-(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES,), np.uint8)
    halves = np.random.default_rng(0).integers(0, 1 << 16, HUGE_PAGE_BYTES // 2, np.uint16)
    memory.reshape(-1, HUGE_PAGE_BYTES)[...] = (halves & 0x807F | NEAR_ONE).view(np.uint8)
    return memory
