"""Blocks of calls that were timed while the processor was slow are taken again.

A virtual machine or a hot processor may run at half its speed for milliseconds. A loop of
multiply-adds whose speed depends on nothing else, timed before and after a block, tells. Threads that wait
for each other are slow, too, while the system gives the core of one of them to somebody else, and it counts
how often it did.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from dietlab.lower.runtime import aligned_empty, load_library

SLOWER = 1.06
"""The ratio to the usual probe from which a probe marks a slow moment."""
RETAKES = 4
"""The most times that a block is taken again; then it counts as it is."""
RECENT, QUICKER = 12, 3
"""The latest blocks that tell the usual probe, and the divisor of their quicker part that is used: the
quickest third."""
PROBE_CALLS = 2
"""Calls of one probe; the first may find wide vector units asleep."""

Result = TypeVar("Result")
Probe = Callable[[], float]
"""Seconds of a fixed piece of work."""


@dataclass(frozen=True)
class Taken:
    """A timed block: its ``seconds`` a call, how many blocks were thrown away before it, whether it
    counts although it was slow too (``kept``), and the quicker ``probe`` around it in seconds (None without
    a probe)."""

    seconds: float
    retaken: int = 0
    kept: bool = False
    probe: float | None = None


def take(
    block: Callable[[], float],
    probe: Probe | None,
    usual: float | None = None,
    warm_up: Callable[[], object] = lambda: None,
    interruptions: Callable[[], int] = lambda: 0,
) -> Taken:
    """Runs ``block`` until both probes around it are quick and nothing interrupted it, at most
    ``1 + RETAKES`` times. The probes come right before and after, so that the cores that a block uses are
    awake for both: one core alone may run at a higher clock than all of them.

    Args:
        block: returns seconds a call.
        probe: None if there is none: the first block counts.
        usual: seconds of a probe, from :class:`Pace` (default: the least around this block).
        warm_up: what runs before each block and does not count.
        interruptions: how many there were so far.
    """
    if probe is None:
        warm_up()
        return Taken(block())
    probes: list[float] = []
    for retaken in range(RETAKES + 1):
        warm_up()
        before = probe()
        begun = interruptions()
        seconds = block()
        undisturbed = interruptions() == begun
        after = probe()
        probes += [before, after]
        quick = min(probes) if usual is None else usual
        if undisturbed and max(before, after) <= SLOWER * quick:
            return Taken(seconds, retaken, False, min(before, after))
    return Taken(seconds, RETAKES, True, min(before, after))


def taken_cores() -> int:
    """Returns how often the system took a core away from a thread of this process (getrusage(2),
    ``ru_nivcsw``)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed_once(work: Callable[[], Result]) -> tuple[Result, float]:
    """Returns what ``work`` returns, which cannot be repeated, and its seconds on the wall clock, without
    those that this thread waited for a core."""
    before = _waited_seconds()
    started = perf_counter()
    result = work()
    seconds = perf_counter() - started
    return result, seconds - (_waited_seconds() - before)


def _waited_seconds() -> float:
    """Returns for how long this thread was ready and had no core (proc(5), ``schedstat``); 0 where the system
    does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Pace:
    """The usual time of a probe around a contender's blocks, and how many of those blocks were in slow
    moments.

    Usual is what the quicker third of its latest blocks found: threads that spin between two calls may
    lower the clock, which is part of what is measured. A processor that settles at a lower speed
    for good is not slow for ever, and a rare quick moment, while the neighbours of a shared machine sleep,
    does not make all others slow.
    """

    def __init__(self) -> None:
        self.blocks = self.retaken = self.kept = 0
        self._probes: deque[float] = deque(maxlen=RECENT)

    @property
    def usual(self) -> float | None:
        """Seconds of a probe; None as long as there was none."""
        return sorted(self._probes)[len(self._probes) // QUICKER] if self._probes else None

    def note(self, taken: Taken) -> None:
        self.blocks += 1
        self.retaken += taken.retaken
        self.kept += taken.kept
        if taken.probe is not None:
            self._probes.append(taken.probe)


def fma_probe(options: Mapping[str, Any], clock: Callable[[], float]) -> Probe:
    """Returns the compiled multiply-add loop, on the calling thread.

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
