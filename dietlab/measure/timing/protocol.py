"""The protocol of timing: blocks of calls, the cache state, and the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter, thread_time
from typing import Any, Literal, get_args

from dietlab.base.errors import MeasureError

CacheState = Literal["hot", "interleaved", "rotating"]
"""A state of the caches before a timed call. ``hot``: every call has the same operands. ``interleaved``:
private caches are cold, and weights are in the last-level cache. ``rotating``: weights (all operands, if none
is constant) come from memory."""

CACHE_STATES: tuple[CacheState, ...] = get_args(CacheState)
"""All cache states."""

GPU_CACHE_STATES: tuple[CacheState, ...] = ("hot", "rotating")
"""The cache states of a GPU."""


TOGETHER = 16
"""The most shapes whose candidates take turns together. The operands of these shapes stay in memory
meanwhile. With fewer shapes, all blocks of a candidate can lie within one slow moment: on a shared machine
with two threads a core, a neighbour slowed all programs by 1.3x for tenths of a second at once, altogether
for a third of the time."""


@dataclass(frozen=True)
class Timing:
    """A protocol of timing.

    Args:
        blocks: the number of blocks of calls.
        block_seconds: the length of a block, about: a block repeats the call until this time has passed.
        stop_beyond: the seconds of a call above which a program is slow. A slow program is timed by one block
            or, if it is among the fastest rivals on a CPU, by three.
        cache: the cache state in which candidates are timed: ``hot`` or ``rotating``.

    Raises:
        MeasureError: for another cache state.
    """

    blocks: int = 5
    block_seconds: float = 0.003
    stop_beyond: float | None = None
    cache: CacheState = "hot"

    def __post_init__(self) -> None:
        if self.cache not in ("hot", "rotating"):
            raise MeasureError("the cache state of candidates must be hot or rotating", repr(self.cache))

    def slow(self, seconds: float) -> bool:
        """Returns whether a call of ``seconds`` is slower than ``stop_beyond``."""
        return self.stop_beyond is not None and seconds > self.stop_beyond

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, in their units."""
        return asdict(self)


def clock_for(cores: int) -> Callable[[], float]:
    """Returns the clock. For one core the clock is thread CPU time, which stops while other processes run: a
    call longer than the scheduler's time slice never runs undisturbed. Several threads need the wall
    clock."""
    return thread_time if cores == 1 else perf_counter
