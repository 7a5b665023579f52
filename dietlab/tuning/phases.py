"""Times the phases of a stage that its records lack: fitting the model, and the search itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from dietlab.base.events import PhaseSeconds
from dietlab.measure import Record
from dietlab.measure.record import each_once

Result = TypeVar("Result")


class PhaseTimer:
    """A timer that starts when it is made and divides the time into two phases. ``model`` is the time spent
    in :meth:`fit`. ``search`` is the time spent neither in :meth:`fit` nor in a runner. Fitting and choosing
    while a runner measures takes no extra time, and counts in neither phase.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._began = now()
        self._fitting = self._running = 0.0

    def fit(self, work: Callable[[], Result]) -> Result:
        """Runs ``work`` and charges its time to ``model``."""
        started = self._now()
        result = work()
        self._fitting += self._now() - started
        return result

    def watched(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records of a runner, whose time is not charged to ``search``."""
        left = iter(records)
        while (record := self.waited(lambda: next(left, None))) is not None:
            yield record

    def waited(self, work: Callable[[], Result]) -> Result:
        """Runs ``work`` and charges its time to the runner."""
        started = self._now()
        try:
            return work()
        finally:
            self._running += self._now() - started

    @property
    def seconds(self) -> PhaseSeconds:
        """The seconds of ``model`` and ``search`` since the start."""
        own = max(0.0, self._now() - self._began - self._running)
        model = min(self._fitting, own)
        return PhaseSeconds(model=model, search=own - model)


def with_records(seconds: PhaseSeconds, records: Iterable[Record]) -> PhaseSeconds:
    """Returns the seconds of all phases: model and search, and the phases in records: compile, verify and
    measure. Each measurement counts once.

    Args:
        seconds: the seconds of the phases that no record has.
        records: the records with the seconds of the other phases.
    """
    found = [record.phases for record in each_once(records)]
    return replace(
        seconds,
        compile=sum(phases.compile for phases in found),
        verify=sum(phases.verify for phases in found),
        measure=sum(phases.measure for phases in found),
    )
