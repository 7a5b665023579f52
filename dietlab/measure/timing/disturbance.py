"""Retakes blocks of calls that were disturbed.

A virtual machine or a hot processor may run at half its speed for milliseconds. A *probe* detects such slow
moments: a loop of multiply-adds, whose time depends on the processor's speed only, is timed before and after
a block. Threads that wait for each other are also slow while the system gives one thread's core to another
process; the system counts these interruptions.
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
"""The ratio of a probe's time to the usual time above which the moment counts as slow."""
RETAKES = 4
"""How often, at most, a block is retaken; the last one then counts as it is."""
RECENT = 12
"""The number of latest blocks whose probes determine the usual time of a probe."""
QUICKER = 3
"""The usual time is the slowest among the fastest 1/QUICKER of these probes, the fastest third."""
PROBE_CALLS = 2
"""The number of calls of one probe: during the first, wide vector units may be powered down."""

Result = TypeVar("Result")
Probe = Callable[[], float]
"""A function that does a fixed piece of work and returns its seconds."""


@dataclass(frozen=True)
class Taken:
    """A timed block: the ``seconds`` of a call, the number of disturbed blocks before it (``retaken``),
    whether the block was disturbed too but counts (``kept``), and the seconds of the faster of the two probes
    around the block (``probe``; None without a probe)."""

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
    """Runs ``block`` until both probes around it are fast and nothing interrupted the block, at most ``1 +
    RETAKES`` times. Probes run right before and after the block, while the block's cores are awake: a single
    core may run at a higher clock.

    Args:
        block: a function that runs a block and returns the seconds of a call.
        probe: the probe (None: the first block counts).
        usual: the usual seconds of a probe, from :class:`Pace` (default: the least around this block).
        warm_up: a function that runs before each block and is not timed.
        interruptions: a function that returns the number of interruptions so far.
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
    """Returns how often the system took a core from a thread of this process (getrusage(2),
    ``ru_nivcsw``)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed_once(work: Callable[[], Result]) -> tuple[Result, float]:
    """Runs ``work``, which cannot be repeated. Returns its result, and its wall-clock seconds less the
    seconds that this thread waited for a core."""
    before = _waited_seconds()
    started = perf_counter()
    result = work()
    seconds = perf_counter() - started
    return result, seconds - (_waited_seconds() - before)


def _waited_seconds() -> float:
    """Returns for how many seconds this thread was ready but had no core (proc(5), ``schedstat``); 0 if the
    system does not report them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Pace:
    """The usual time of a probe around a contender's blocks, and the numbers of its blocks and retakes.

    The usual time comes from the fastest third of the contender's latest blocks. Each contender has its own
    usual time: its threads may spin between two calls and lower the clock, which is part of the measurement.
    The usual time follows a processor that settles at a lower speed. A rare fast moment, while the neighbours
    of a shared machine sleep, does not mark all other moments as slow.
    """

    def __init__(self) -> None:
        self.blocks = self.retaken = self.kept = 0
        self._probes: deque[float] = deque(maxlen=RECENT)

    @property
    def usual(self) -> float | None:
        """The usual seconds of a probe; None before the first block."""
        return sorted(self._probes)[len(self._probes) // QUICKER] if self._probes else None

    def note(self, taken: Taken) -> None:
        self.blocks += 1
        self.retaken += taken.retaken
        self.kept += taken.kept
        if taken.probe is not None:
            self._probes.append(taken.probe)


def fma_probe(options: Mapping[str, Any], clock: Callable[[], float]) -> Probe:
    """Returns a probe that runs the compiled multiply-add loop on the calling thread. ``options`` are
    ``library``, the path of the loop's library, and ``seed`` and ``sums``, the lengths of the loop's two
    arguments in floats."""
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
