"""Stops a bench before a time is up, at a point from which the same command goes on."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from dietlab.base.events import Event, StageFinished


class OutOfTime(Exception):
    """The time is up. Whatever was measured stands on disk."""


class Deadline:
    """An observer that ends a run some seconds after it was made. What happens between two events (a
    micro-kernel built, a shape measured) is finished, and the next is not begun if the time is up by then.

    It is one of the run's observers: what happens between two events (a micro-kernel built, a shape
    measured) is finished, and the next is not begun if the time is up by then.

    Args:
        seconds: None for a run without end.
        clock: a reading in seconds.

    ``left`` is how many turns a run that was stopped left over; None if it was not stopped.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self.left: int | None = None

    def check(self, needed: float = 0.0) -> None:
        """Raises :class:`OutOfTime` unless ``seconds`` more still fit."""
        if self._end is not None and self._clock() + needed >= self._end:
            raise OutOfTime

    def on_event(self, event: Event) -> None:
        if not isinstance(event, StageFinished):  # which is also sent on the way out
            self.check()
