"""Where the time of a stage goes that its records do not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from dietlab.events import PhaseSeconds
from dietlab.measure import Record, Runner, Trial
from dietlab.workloads import Workload

Result = TypeVar("Result")


class PhaseTimer:
    """Runs from when it was made. ``model`` is what :meth:`fit` took, ``search`` all that neither that nor a
    runner took: choosing what to measure, and what to compile.

    Args:
        now: a reading in seconds.
    """

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._began = now()
        self._fitting = self._running = 0.0

    def fit(self, work: Callable[[], Result]) -> Result:
        started = self._now()
        result = work()
        self._fitting += self._now() - started
        return result

    def watched(self, runner: Runner) -> Runner:
        """The same runner; what it takes is not charged to ``search``."""
        return _Watched(runner, self)

    def waited(self, work: Callable[[], Result]) -> Result:
        started = self._now()
        try:
            return work()
        finally:
            self._running += self._now() - started

    @property
    def seconds(self) -> PhaseSeconds:
        """Model and search time so far."""
        passed = self._now() - self._began
        return PhaseSeconds(model=self._fitting, search=max(0.0, passed - self._fitting - self._running))


class _Watched:
    def __init__(self, runner: Runner, clock: PhaseTimer) -> None:
        self._runner, self._clock = runner, clock

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        records = iter(self._runner.measure(workload, trials))
        while (record := self._clock.waited(lambda: next(records, None))) is not None:
            yield record

    def close(self) -> None:
        close = getattr(self._runner, "close", None)
        if close is not None:
            close()


def with_records(seconds: PhaseSeconds, records: Iterable[Record]) -> PhaseSeconds:
    """Model and search time with the other phases, which stand in the records."""
    found = [record.phases for record in records]
    return replace(
        seconds,
        compile=sum(phases.compile for phases in found),
        verify=sum(phases.verify for phases in found),
        measure=sum(phases.measure for phases in found),
    )
