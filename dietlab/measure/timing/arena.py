"""Memory of valid operands, from which rotations take theirs: what a call computes with does not change its
time, so that nobody copies operands to fetch them from memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lower.runtime import ALIGNMENT_BYTES, HUGE_PAGE_BYTES, aligned_empty
from dietlab.measure.timing.rotation import MOST_BYTES, ROTATED_CACHES, copies_beyond

NEAR_ONE = 0x3F80
"""The bits of 1 in bfloat16, which are the upper half of those in float32. With any sign and any of the lower
seven bits each half of a word is a normal number of 1 to 2 in float32, bfloat16 and float16; bytes are any
integers."""


class Arena:
    """Memory that exceeds a cache, in parts that are taken one after the other, round and round.

    Args:
        last_level_bytes: of the cache, which the parts of a rotation exceed
            (:func:`~dietlab.measure.timing.rotation.copies_beyond`).
    """

    def __init__(self, last_level_bytes: int) -> None:
        self._last_level_bytes = last_level_bytes
        self._memory: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._next = 0
        self._headers: dict[int, npt.NDArray[np.uint8]] = {}

    def take(
        self, like: Mapping[str, npt.NDArray[Any]], *, packed: bool, header: bytes = b""
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns the next part: arrays of valid values that begin on cache lines. It is taken again once a
        rotation's other copies were.

        Args:
            like: arrays of the same shapes and types.
            packed: whether they stand for packed weights, of which a rotation has fewer copies.
            header: with which the arrays begin, as long as no other part lies there: as values of another
                part these bytes may be numbers that take long.
        """
        lines = [-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in like.values()]
        size = max(ALIGNMENT_BYTES, sum(lines))
        # One more, since the copies of a rotation may begin anywhere.
        end = size * (1 + copies_beyond(size, self._last_level_bytes, packed=packed))
        if end > len(self._memory):
            whole = int(min(MOST_BYTES, ROTATED_CACHES * self._last_level_bytes))
            self._memory = np.empty(0, np.uint8)  # let go of it before there is another
            self._headers.clear()
            self._memory = _filled(max(end, whole))
        start = self._next if self._next + size <= end else 0
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
    """Returns memory full of numbers that are normal in every type, at random."""
    memory = aligned_empty((-(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES,), np.uint8)
    halves = np.random.default_rng(0).integers(0, 1 << 16, HUGE_PAGE_BYTES // 2, np.uint16)
    memory.reshape(-1, HUGE_PAGE_BYTES)[...] = (halves & 0x807F | NEAR_ONE).view(np.uint8)
    return memory
