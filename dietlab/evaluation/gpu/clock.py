"""Times blocks of calls on a device, so that the host does not show in what is measured.

A call only queues its work. As long as the host queues faster than the GPU works, a block runs without gaps,
and events at its ends tell how long it took (CUDA C Programming Guide, "Elapsed time"). Where the host is
slower, or a call is so short that it might be, the calls are recorded once as a CUDA graph, which the GPU
replays without the host. Every contender whose calls can be recorded is treated so: one that
is called more cheaply from Python gains nothing by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from math import ceil
from time import perf_counter
from typing import Any, Protocol

from dietlab.evaluation.vendors import Call
from dietlab.timing.disturbance import Probe

Capture = Callable[[Any], AbstractContextManager[Any]]
"""What records the calls inside of it into the CUDA graph that it is given."""

HOST_SHARE = 0.8
"""The share of a block's time spent queueing from which the GPU may wait for the host."""
SHORT_CALL = 50e-6
"""Seconds below which calls are recorded to a graph: Python's own work is 5 to 20 us a call."""
GRAPH_CALLS = 256
"""The most calls in one graph, unless there are more copies. Starting a graph takes some 10 us, below 2 %
of what it runs."""
FEWEST_CALLS, MOST_CALLS = 4, 512
"""The fewest and most calls of a block: a stream holds about a thousand launches, then queueing waits for
the GPU."""
MOST_WARM = 256
TRIAL_CALLS = 8
WARM_SECONDS = 0.001
"""Seconds of work queued right before a block: it raises clocks and brings hot operands into L2, and while
it runs the host gets ahead, so that the block's first call does not wait."""


@dataclass(frozen=True)
class TimedBlock:
    """Calls that are ready to be timed together, again and again.

    Args:
        run: the mean seconds of a call over one block; rotations go on where the last block stopped.
        calls: of one block.
        graph: whether they are replayed from a CUDA graph.
        host_share: the host's time of queueing a trial of them over the device's time.
    """

    run: Callable[[], float]
    calls: int
    graph: bool = False
    host_share: float = 0.0


@dataclass(frozen=True)
class Span:
    """Seconds that some calls took on the device, and those that queueing them took on the host."""

    seconds: float
    host_seconds: float

    @property
    def host_share(self) -> float:
        return self.host_seconds / max(self.seconds, 1e-9)


class BlockClock(Protocol):
    """Times blocks of calls."""

    def block(self, calls: Sequence[Call], seconds: float, capture: Capture | None = None) -> TimedBlock:
        """Prepares a block of about ``seconds`` that goes round ``calls``: one call for each copy of its
        operands. Each is made once before, so that code is loaded, tuned and compiled.

        Args:
            capture: records calls; None if they cannot be recorded.
        """

    def wait(self) -> None:
        """Waits until the device is done; a kernel's fault is raised here."""


class HostClock:
    """For calls that return when they are done: on a CPU, in tests."""

    def block(self, calls: Sequence[Call], seconds: float, capture: Capture | None = None) -> TimedBlock:
        turns = cycle(calls)
        self._seconds(islice(turns, len(calls)))
        each = max(self._seconds(islice(turns, TRIAL_CALLS)) / TRIAL_CALLS, 1e-9)
        count = _clamped(seconds / each, FEWEST_CALLS, MOST_CALLS)

        def run() -> float:
            next(turns)()
            return self._seconds(islice(turns, count)) / count

        return TimedBlock(run, count)

    def wait(self) -> None:
        return None

    @staticmethod
    def _seconds(calls: Iterable[Call]) -> float:
        started = perf_counter()
        for call in calls:
            call()
        return perf_counter() - started


class EventClock:
    """A GPU's own clock: events on PyTorch's current stream.

    Args:
        torch: PyTorch with CUDA.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def block(self, calls: Sequence[Call], seconds: float, capture: Capture | None = None) -> TimedBlock:
        turns = cycle(calls)
        self._span((), islice(turns, len(calls)))
        span = self._span(islice(turns, 1), islice(turns, TRIAL_CALLS))
        each = max(span.seconds / TRIAL_CALLS, 1e-9)
        if capture is not None and (span.host_share > HOST_SHARE or each < SHORT_CALL):
            replayed = self._replayed(calls, capture, each, seconds)
            if replayed is not None:
                return replayed
        count, warm = _clamped(seconds / each, FEWEST_CALLS, MOST_CALLS), _warm(each)

        def run() -> float:
            return self._span(islice(turns, warm), islice(turns, count)).seconds / count

        return TimedBlock(run, count, host_share=span.host_share)

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def _replayed(
        self, calls: Sequence[Call], capture: Capture, each: float, seconds: float
    ) -> TimedBlock | None:
        """Returns the block as replays of a graph of whole rotations; None if they cannot be recorded."""
        wanted = _clamped(seconds / each, 1, GRAPH_CALLS)
        size = len(calls) * max(1, wanted // len(calls))
        graph = self._recorded(islice(cycle(calls), size), capture)
        if graph is None:
            return None
        graph.replay()  # the first one also brings the graph to the GPU
        one = self._span((), [graph.replay]).seconds
        count = _clamped(seconds / max(one, 1e-9), 1, MOST_CALLS)
        span = self._span([graph.replay], repeat(graph.replay, count))

        def run() -> float:
            return self._span([graph.replay], repeat(graph.replay, count)).seconds / (count * size)

        return TimedBlock(run, count * size, graph=True, host_share=span.host_share)

    def _recorded(self, calls: Iterable[Call], capture: Capture) -> Any | None:
        cuda = self._torch.cuda
        graph, stream = cuda.CUDAGraph(), cuda.current_stream()
        try:
            with capture(graph):
                for call in calls:
                    call()
        except Exception:  # each library raises another error for what must not be recorded
            cuda.set_stream(stream)  # PyTorch leaves that of a failed recording in place
            self.wait()
            return None
        return graph

    def _span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        """Times ``calls``, queued right behind ``warm``."""
        _queue(warm)
        self._first.record()
        started = perf_counter()
        _queue(calls)
        host_seconds = perf_counter() - started
        self._last.record()
        self._last.synchronize()
        return Span(self._first.elapsed_time(self._last) * 1e-3, host_seconds)


def cycle_probe(torch: Any) -> tuple[Probe | None, str]:
    """Returns the seconds of one cycle of the multiprocessors' clock as the driver reports it now, which a
    block of calls is bracketed with; or None, and the reason."""
    try:
        megahertz = float(torch.cuda.clock_rate())
    except Exception as error:  # NVML's errors have no common base class
        return None, f"the GPU's clock cannot be read: {error}"
    if megahertz <= 0:
        return None, "the driver does not tell the GPU's clock"
    return lambda: 1e-6 / float(torch.cuda.clock_rate()), ""


def _queue(calls: Iterable[Call]) -> None:
    for call in calls:
        call()


def _warm(each: float) -> int:
    return _clamped(WARM_SECONDS / each, 1, MOST_WARM)


def _clamped(count: float, least: int, most: int) -> int:
    return min(most, max(least, ceil(count)))
