"""Stops a bench in time, at a point from which the same command goes on."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from dietlab.base.events import Event, StageFinished


class OutOfTime(Exception):
    """The time is up. All that was measured is on disk."""


class Deadline:
    """An observer that ends a run ``seconds`` after the observer was created (None: never). Work between two
    events, such as the build of a micro-kernel, is finished; after the deadline no further work begins.

    ``left`` is the number of turns that a stopped run did not measure; None for a run that was not stopped.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self.left: int | None = None

    def check(self, needed: float = 0.0) -> None:
        """Raises :class:`OutOfTime` unless another ``needed`` seconds fit before the deadline."""
        if self._end is not None and self._clock() + needed >= self._end:
            raise OutOfTime

    def on_event(self, event: Event) -> None:
        if not isinstance(event, StageFinished):  # sent by an ending stage, also after OutOfTime
            self.check()
