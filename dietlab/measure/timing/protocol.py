"""The protocol of timing: blocks of calls, the cache state, and the clock that fits the cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter, thread_time
from typing import Any, Literal, get_args

from dietlab.base.errors import MeasureError

CacheState = Literal["hot", "interleaved", "rotating"]
"""``hot``: the same operands in every call; ``interleaved``: private caches are cold, weights stay in
the last level; ``rotating``: weights (or all operands, if none is constant) beyond the last level."""

CACHE_STATES: tuple[CacheState, ...] = get_args(CacheState)

GPU_CACHE_STATES: tuple[CacheState, ...] = ("hot", "rotating")
"""States of the caches that calls can be timed in on a GPU."""


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
        """Returns the fields by name, in their units."""
        return asdict(self)


def clock_for(cores: int) -> Callable[[], float]:
    """Returns the clock: thread CPU time for one core, since a call longer than the scheduler's slice never
    runs undisturbed, and this clock stops while others run. Several threads need the wall clock."""
    return thread_time if cores == 1 else perf_counter
