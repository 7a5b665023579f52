"""A GPU as a device: arrays on it, its own clock, and CUDA graphs, so that the host does not show.

A call only queues its work. As long as the host queues faster than the GPU works, a block runs without gaps,
and events at its ends measure it (CUDA C Programming Guide, "Elapsed time"). If the host is slower, or calls
are so short that it might be, the calls are recorded once as a CUDA graph, which the GPU replays without the
host. This holds for every contender whose calls can be recorded, so a contender with cheap calls from Python
has no advantage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from math import ceil
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from dietlab.measure.timing.contender import Array, Call
from dietlab.measure.timing.device import Copy, Output, Placed, TimedBlock
from dietlab.measure.timing.disturbance import Probe, Taken, take
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.protocol import GPU_CACHE_STATES
from dietlab.measure.timing.rotation import copies_beyond
from dietlab.problem import FloatArray

HOST_SHARE = 0.8
"""The share of queueing in a block's time above which the GPU may have to wait for the host."""
SHORT_CALL = 50e-6
"""The shortest call, in seconds, that is not recorded as a graph: Python's own work is 5 to 20 us a call."""
GRAPH_CALLS = 256
"""The most calls in one graph, unless operands have more copies. Starting a graph takes about 10 us, below 2
% of its run."""
FEWEST_CALLS, MOST_CALLS = 4, 512
"""The fewest and the most calls of a block: a stream holds about a thousand launches, then queueing waits for
the GPU."""
MOST_WARM = 256
"""The most calls that are queued right before a block: a stream holds about a thousand launches."""
TRIAL_CALLS = 8
"""The number of calls of a short trial, whose time determines the number of calls of a block."""
WARM_SECONDS = 0.001
"""The seconds of work that is queued right before a block. This work raises clocks, brings hot operands into
L2, and gives the host a lead, so that the block's first call does not wait."""


@dataclass(frozen=True)
class Span:
    """The seconds of some calls on the device, and the seconds of queueing these calls on the host."""

    seconds: float
    host_seconds: float

    @property
    def host_share(self) -> float:
        return self.host_seconds / max(self.seconds, 1e-9)


class StreamClock(Protocol):
    """A clock times calls on the stream that they queue their work on."""

    def span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        """Times ``calls``, queued right behind ``warm``."""

    def wait(self) -> None:
        """Waits until the device is done, and raises a kernel's fault."""


class GpuArrays(Protocol):
    """Arrays on a GPU, made by the library that also calls the contenders."""

    def put(self, array: FloatArray) -> Array:
        """Returns a copy of a host's array on the GPU."""

    def output(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Output: ...

    def recorded(self, calls: Iterable[Call]) -> Call | None:
        """Returns a call that replays the calls as a CUDA graph; None if they cannot be recorded."""


class HostClock:
    """A clock for calls that return when they are done: for a CPU that stands in for the GPU."""

    def span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        queue(warm)
        started = perf_counter()
        queue(calls)
        return Span(perf_counter() - started, 0.0)

    def wait(self) -> None:
        return None


class Gpu:
    """A GPU.

    Args:
        arrays: the library's arrays, which place operands on the GPU.
        clock: the GPU's own clock.
        l2_bytes: the size of L2, which the copies of a rotation exceed.
        probe: a function that returns the seconds of a cycle of the multiprocessors' clock. A block is
            repeated if the clock changes during it. The clock may differ between blocks: at its power limit a
            GPU chooses its clock by the kind of work, which is part of the measurement.
        unprobed: the reason why there is no probe.
    """

    states: Sequence[str] = GPU_CACHE_STATES
    kept_bytes = 1 << 30
    slow_first_call = True
    arena = None

    def __init__(
        self,
        arrays: GpuArrays,
        clock: StreamClock,
        l2_bytes: int,
        probe: Probe | None = None,
        unprobed: str = "",
    ) -> None:
        self.unprobed = unprobed
        self._arrays, self._clock, self._l2_bytes, self._probe = arrays, clock, l2_bytes, probe

    def copies(self, problem: Problem) -> int:
        return copies_beyond(problem.bytes, self._l2_bytes, packed=False)

    def keeps_variables(self, problem: Problem) -> bool:
        return False

    def copy(self, problem: Problem, first: Copy | None) -> Copy:
        constants, variables = (
            {name: self._arrays.put(array) for name, array in arrays.items()}
            for arrays in (problem.constants, problem.variables)
        )
        return Placed(constants, variables, self._arrays.output(problem.out_shape, problem.dtype))

    def block(
        self, calls: Sequence[Call], cache: str, seconds: float, contender: object, about: float | None
    ) -> TimedBlock:
        turns = cycle(calls)
        if about is None:
            self._clock.span((), islice(turns, len(calls)))  # loads code
            span = self._clock.span(islice(turns, 1), islice(turns, TRIAL_CALLS))
        else:
            span = Span(TRIAL_CALLS * about, 0.0)
        each = max(span.seconds / TRIAL_CALLS, 1e-9)
        if span.host_share > HOST_SHARE or each < SHORT_CALL:
            replayed = self._replayed(calls, each, seconds)
            if replayed is not None:
                return replayed
        count, warm = _clamped(seconds / each, FEWEST_CALLS, MOST_CALLS), _warm(each)

        def run() -> float:
            return self._clock.span(islice(turns, warm), islice(turns, count)).seconds / count

        return TimedBlock(run, count, host_share=span.host_share)

    def take(self, block: TimedBlock, usual_probe: float | None) -> Taken:
        taken = take(block.run, self._probe)
        self._clock.wait()
        return taken

    def called(self) -> None:
        self._clock.wait()

    def _replayed(self, calls: Sequence[Call], each: float, seconds: float) -> TimedBlock | None:
        """Returns the block as replays of a graph of whole rotations; None if calls cannot be recorded."""
        wanted = _clamped(seconds / each, 1, GRAPH_CALLS)
        size = len(calls) * max(1, wanted // len(calls))
        replay = self._arrays.recorded(islice(cycle(calls), size))
        if replay is None:
            return None
        replay()  # the first one also brings the graph to the GPU
        one = self._clock.span((), [replay]).seconds
        count = _clamped(seconds / max(one, 1e-9), 1, MOST_CALLS)
        span = self._clock.span([replay], repeat(replay, count))

        def run() -> float:
            return self._clock.span([replay], repeat(replay, count)).seconds / (count * size)

        return TimedBlock(run, count * size, graph=True, host_share=span.host_share)


def queue(calls: Iterable[Call]) -> None:
    """Makes the calls, one after the other."""
    for call in calls:
        call()


def _warm(each: float) -> int:
    return _clamped(WARM_SECONDS / each, 1, MOST_WARM)


def _clamped(count: float, least: int, most: int) -> int:
    return min(most, max(least, ceil(count)))
