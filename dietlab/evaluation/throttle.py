"""Blocks of calls that were timed while the processor was slow are taken again.

A virtual machine or a hot processor may run at half its speed for milliseconds. A loop of
multiply-adds whose speed depends on nothing else, timed before and after a block, tells. Threads that wait
for each other are slow, too, while the system gives the core of one of them to somebody else, and it counts
how often it did.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietlab.lower.runtime import aligned_empty, load_library

SLOWER = 1.06
"""A probe that takes this many times the best one's seconds marks a slow moment."""
RETAKES = 4
"""After that many the block counts as it is."""
PATIENCE = 12
"""After that many slow blocks in a row their speed is the processor's speed."""
PROBE_CALLS = 2
"""The first may find wide vector units asleep."""

Probe = Callable[[], float]
"""Seconds of a fixed piece of work."""


@dataclass(frozen=True)
class Taken:
    """A timed block: its ``seconds`` a call, how many blocks were thrown away before it, whether it
    counts although it was slow too (``kept``), and the least ``probe`` around any of them in seconds
    (None without a probe)."""

    seconds: float
    retaken: int = 0
    kept: bool = False
    probe: float | None = None


def take(
    block: Callable[[], float], probe: Probe | None, best: float | None = None,
    warm_up: Callable[[], object] = lambda: None, interruptions: Callable[[], int] = lambda: 0,
) -> Taken:  # fmt: skip
    """Runs ``block`` until both probes around it are quick and nothing interrupted it, at most
    ``1 + RETAKES`` times.

    Args:
        block: returns seconds a call.
        probe: None if there is none: the first block counts.
        best: the least seconds of a probe so far, in any process of this machine.
        warm_up: what runs before each block and does not count.
        interruptions: how many there were so far.
    """
    if probe is None:
        warm_up()
        return Taken(block())
    probes: list[float] = []
    for retaken in range(RETAKES + 1):
        before = probe()
        warm_up()
        begun = interruptions()
        seconds = block()
        undisturbed = interruptions() == begun
        after = probe()
        probes += [before, after]
        quick = min(probes) if best is None else min(best, *probes)
        if undisturbed and max(before, after) <= SLOWER * quick:
            return Taken(seconds, retaken, False, min(probes))
    return Taken(seconds, RETAKES, True, min(probes))


def taken_cores() -> int:
    """How often the system took a core away from a thread of this process (getrusage(2),
    ``ru_nivcsw``)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class Pace:
    """The best probe of a match, and how many of its blocks were taken in slow moments.

    A processor that settles at a lower speed for good is not slow for ever: after ``PATIENCE`` kept
    blocks in a row the best probe among those becomes the measure.
    """

    def __init__(self) -> None:
        self.best: float | None = None
        self.blocks = self.retaken = self.kept = 0
        self._slow: list[float] = []

    def note(self, taken: Taken) -> None:
        self.blocks += 1
        self.retaken += taken.retaken
        self.kept += taken.kept
        if taken.probe is None:
            return
        self._slow = [*self._slow, taken.probe] if taken.kept else []
        if len(self._slow) >= PATIENCE:
            self.best, self._slow = min(self._slow), []
        elif self.best is None or taken.probe < self.best:
            self.best = taken.probe


def fma_probe(options: Mapping[str, Any], clock: Callable[[], float]) -> Probe:
    """The compiled multiply-add loop, on the calling thread.

    Args:
        options: ``library`` (a path), and ``seed`` and ``sums``, the floats of its two arguments.
    """
    import tvm_ffi

    loop = load_library(Path(options["library"])).multiply_add
    seed, sums = aligned_empty((int(options["seed"]),)), aligned_empty((int(options["sums"]),))
    seed.fill(0.5)
    sums.fill(0.0)
    arguments = [tvm_ffi.from_dlpack(array) for array in (seed, sums)]

    def once() -> float:
        started = clock()
        loop(*arguments)
        return clock() - started

    return lambda: min(once() for _ in range(PROBE_CALLS))
