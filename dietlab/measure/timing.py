"""How a program is timed: blocks of calls, and the clock that fits the number of cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from time import perf_counter, thread_time
from typing import Any


@dataclass(frozen=True)
class Timing:
    """A protocol of measuring.

    Args:
        blocks: how many blocks of calls.
        block_seconds: a block repeats the call until it lasts about this long.
        stop_beyond: a program slower than this many seconds a call is timed by one block only.
    """

    blocks: int = 5
    block_seconds: float = 0.003
    stop_beyond: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def clock_for(cores: int) -> Callable[[], float]:
    """Thread CPU time for one core: a call longer than the scheduler's slice never runs undisturbed,
    and this clock stops while others run. Several threads need the wall clock."""
    return thread_time if cores == 1 else perf_counter


def time_blocks(call: Callable[[], object], timing: Timing, cores: int) -> list[float]:
    """Mean seconds of one call in each block, after one call to warm up."""
    clock = clock_for(cores)
    call()
    estimate = time_calls(call, 1, clock)
    calls = max(1, ceil(timing.block_seconds / max(estimate, 1e-9)))
    slow = timing.stop_beyond is not None and estimate > timing.stop_beyond
    return [time_calls(call, calls, clock) for _ in range(1 if slow else timing.blocks)]


def time_calls(call: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(calls):
        call()
    return (clock() - started) / calls
