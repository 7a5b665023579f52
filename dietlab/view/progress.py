"""Progress in text: sentences for events, how far a stage is, and an observer that logs."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace

from dietlab.base.cards import counted
from dietlab.base.events import (
    Event,
    ModelFitted,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)
from dietlab.cost import too_few_pairs

EARLY = 0.1
"""The share of a stage's units that must be done before its speed gives the time left: micro-kernels are
built in batches, so the first record comes late and the next ones at once."""


def duration(seconds: float) -> str:
    """Returns a time as text: ``"8.2 s"``, ``"3 min 05 s"`` or ``"1 h 02 min"``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def describe(event: Event) -> str:
    """Returns one line of text for any event; line breaks inside it are flattened."""
    return " ".join(_sentence(event).split())


def _sentence(event: Event) -> str:
    match event:
        case StageStarted(stage, total, unit):
            return f"{stage}: started, {counted(total, unit)}"
        case StageAdvanced(stage, done, note):
            return f"{stage}: {done} done{f', {note}' if note else ''}"
        case StageFinished(stage, seconds):
            return f"{stage}: finished in {duration(seconds)}"
        case TrialMeasured(kernel, shape, gflops, status, trials):
            result = f"{gflops:.1f} GFLOP/s" if gflops > 0 else f"failed ({status})"
            return f"trial {trials}: {kernel} at {shape}: {result}"
        case ModelFitted(number, samples, metrics):
            words = {name: f"{value:.3g}" for name, value in metrics.items()} | too_few_pairs(metrics)
            scores = "".join(f", {name} {text}" for name, text in words.items())
            return f"model of round {number}: {samples} records{scores}"
        case RoundFinished(number, trials, failures, best, seconds):
            counts = f"round {number}: {trials} trials, {failures} failed"
            return f"{counts}, best {best:.1f} GFLOP/s, {duration(seconds.total)}"
        case _:
            return repr(event)


@dataclass(frozen=True)
class StageClock:
    """The progress of a stage; times are readings of one monotonic clock, in seconds.

    ``resumed`` is the number of units done before the start, which must not count as speed."""

    stage: str
    total: int
    unit: str
    started: float
    resumed: int = 0
    done: int = 0
    note: str = ""

    @classmethod
    def of(cls, event: StageStarted, now: float) -> StageClock:
        return cls(event.stage, event.total, event.unit, now, event.done, event.done)

    def advanced(self, event: StageAdvanced) -> StageClock:
        return replace(self, done=event.done, note=event.note or self.note)

    @property
    def made(self) -> int:
        """The number of units done since the start."""
        return self.done - self.resumed

    def seconds_left(self, now: float) -> float | None:
        """Returns the time left at the mean speed so far; None before :data:`EARLY` of the units are done."""
        if self.made < max(1.0, EARLY * (self.total - self.resumed)):
            return None
        return max(0.0, (now - self.started) / self.made * (self.total - self.done))

    @property
    def amount(self) -> str:
        """The done and the total units as text: ``"8/8 micro-kernels"``."""
        return f"{self.done:,}/{counted(self.total, self.unit)}"

    def line(self, now: float) -> str:
        """Returns the progress as text: ``"measure: 12/64 trials, 8.0 s left, best 101 GFLOP/s"``."""
        left = self.seconds_left(now)
        parts = [f"{self.stage}: {self.amount}"]
        if left is not None and self.done < self.total:
            parts.append(f"{duration(left)} left")
        return ", ".join([*parts, self.note] if self.note else parts)


class LogObserver:
    """An observer that writes every event to a logger as one line of text.

    Stages, rounds and model fits are logged at INFO; single steps and trials at DEBUG.

    Args:
        logger: the logger of the lines (default: the logger ``dietlab``).
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("dietlab")

    def on_event(self, event: Event) -> None:
        """Logs a line for an event: ``DEBUG`` for events that come often, ``INFO`` for others."""
        frequent = isinstance(event, (StageAdvanced, TrialMeasured))
        self._logger.log(logging.DEBUG if frequent else logging.INFO, "%s", describe(event))


def in_notebook() -> bool:
    """Returns whether a Jupyter kernel runs this process; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
