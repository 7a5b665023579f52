"""Empties the caches of single cores, as other work between two calls would."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

COVERED = 2
"""The multiple of L2 that is read: caches do not strictly replace the oldest line."""
LINE_FLOATS = 16


class PrivateCaches:
    """Reads other data until nothing of a contender's is left in an L1 or L2 cache.

    One thread computes on the caller's core, which alone is emptied. Threads of a pool may run on any
    processor, so that each processor that this process may use is emptied by a thread pinned to it, unless
    the pool can be told to do it: one whose threads spin makes others wait for a time slice.
    The data read is the same for all: it takes ``COVERED`` L2 caches of the shared last level.

    Args:
        l2_bytes: size of one core's L2 cache.
        threads: how many the contender computes with.
        on_each: runs a function on each of those threads (default: pinned threads read instead).
    """

    def __init__(
        self, l2_bytes: int, threads: int, on_each: Callable[[Callable[[], object]], None] | None = None
    ) -> None:
        lines = np.ones(COVERED * l2_bytes // 4, np.float32)[::LINE_FLOATS]
        read = partial(np.add.reduce, lines)
        self._read = read if on_each is None else partial(on_each, read)
        processors = sorted(os.sched_getaffinity(0)) if threads > 1 and on_each is None else []
        # Zero names the calling thread, and an executor of one thread keeps to it.
        self._readers = [
            ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {p})) for p in processors
        ]

    def empty(self) -> None:
        """Returns when all have read."""
        if not self._readers:
            self._read()
        for reading in [reader.submit(self._read) for reader in self._readers]:
            reading.result()
