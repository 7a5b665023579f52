"""The protocol of timing: blocks of calls, the cache state, and the clock that fits the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from statistics import median
from time import perf_counter, process_time, sleep, thread_time
from typing import Any, Literal, get_args

from dietlab.errors import MeasureError

CacheState = Literal["hot", "interleaved", "rotating"]
"""``hot``: the same operands in every call; ``interleaved``: private caches are cold, weights stay in
the last level; ``rotating``: weights (or all operands, if none is constant) beyond the last level."""

CACHE_STATES: tuple[CacheState, ...] = get_args(CacheState)

TOGETHER = 16
"""The most shapes whose candidates take turns: on a shared machine with two threads a core, a neighbour made
all programs slower by 1.3 times, for tenths of a second each, a third of the time, and the blocks of a few
candidates lay within one such moment. The operands of these shapes stay in memory meanwhile."""


@dataclass(frozen=True)
class Timing:
    """A protocol of measuring.

    Args:
        blocks: how many blocks of calls.
        block_seconds: a block repeats the call until it lasts about this long.
        stop_beyond: a program slower than this many seconds a call is timed by one block only or, next to
            others on a CPU, by three if it is among the fastest.
        cache: the state in which candidates are timed: ``hot`` or ``rotating``.

    Raises:
        MeasureError: for another cache state.
    """

    blocks: int = 5
    block_seconds: float = 0.003
    stop_beyond: float | None = None
    cache: CacheState = "hot"

    def __post_init__(self) -> None:
        if self.cache not in ("hot", "rotating"):
            raise MeasureError("candidates are timed hot or rotating", repr(self.cache))

    def slow(self, seconds: float) -> bool:
        """Returns whether a call of ``seconds`` is timed by one block only."""
        return self.stop_beyond is not None and seconds > self.stop_beyond

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def clock_for(cores: int) -> Callable[[], float]:
    """Returns the clock: thread CPU time for one core, since a call longer than the scheduler's slice never
    runs undisturbed, and this clock stops while others run. Several threads need the wall clock."""
    return thread_time if cores == 1 else perf_counter


ATTENDED = 0.8
"""The least share of its cores' time that a multi-threaded program has, spinning between its pieces of
work, when no other program runs. With two threads on one core it is a half, and times double."""

WAKING_SECONDS = 0.001
"""Seconds of calls before a block counts, in which threads that slept between two requests wake up."""

RETAKES = 6
"""The most times that a disturbed block is taken again."""

LONGEST_PAUSE = 0.4
"""The longest pause before a disturbed block is taken again, in seconds."""


def time_blocks(
    calls: Sequence[Callable[[], object]],
    timing: Timing,
    cores: int,
    positions: Iterator[int] | None = None,
    call_seconds: float | None = None,
) -> list[float]:
    """Returns the mean seconds of one call in each block, after one call to warm up (of several threads,
    calls for :data:`WAKING_SECONDS`).

    Args:
        calls: the same call, once for each copy of the operands; blocks go round them.
        positions: where in the round each call is (default: from 0). Who goes round the same copies again
            and again passes the same counter, so that no copy comes too soon.
        call_seconds: about how long a call takes, if that is known: none is spent on finding out, and one
            that is longer than a block is not warmed up on one core.
    """
    clock = clock_for(cores)
    turns = (calls[position % len(calls)] for position in (count() if positions is None else positions))
    started = perf_counter()
    if cores > 1 or call_seconds is None or call_seconds < timing.block_seconds:
        next(turns)()
    while cores > 1 and perf_counter() - started < WAKING_SECONDS:
        next(turns)()

    def block(size: int) -> float:
        chosen = tuple(islice(turns, size))
        return time_calls(chosen, clock) if cores == 1 else _attended(chosen, cores)

    estimate = block(1) if call_seconds is None else call_seconds
    size = max(1, round(timing.block_seconds / max(estimate, 1e-9)))
    # A call that is longer than a block was one already.
    taken = [estimate] if size == 1 and call_seconds is None else []
    return taken + [block(size) for _ in range((1 if timing.slow(estimate) else timing.blocks) - len(taken))]


def time_alone(call: Callable[[], object], empty: Callable[[], object], size: int, cores: int) -> float:
    """Returns the median seconds of ``size`` calls, each timed alone after ``empty()``, which takes other
    data into the private caches."""
    clock = clock_for(cores)
    seconds = []
    for _ in range(size):
        empty()
        started = clock()
        call()
        seconds.append(clock() - started)
    return median(seconds)


def time_calls(calls: Sequence[Callable[[], object]], clock: Callable[[], float]) -> float:
    """Returns the mean seconds of some calls, one after the other."""
    started = clock()
    for call in calls:
        call()
    return (clock() - started) / len(calls)


def _attended(calls: Sequence[Callable[[], object]], cores: int) -> float:
    """Returns the mean seconds of some calls by the wall clock, taken again while other programs have one of
    the cores; the least, if they keep it."""
    taken: list[float] = []
    for attempt in range(1 + RETAKES):
        busy = process_time()
        taken.append(time_calls(calls, perf_counter))
        wall = taken[-1] * len(calls)
        if process_time() - busy >= ATTENDED * cores * wall:
            return taken[-1]
        sleep(min(LONGEST_PAUSE, 0.01 * 3**attempt))
    return min(taken)
