"""Progress in text: a bar for terminals and notebooks, lines for logs, a logger.

``tqdm`` is imported when the first bar is drawn.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Protocol, TextIO

from dietlab.events import (
    Event,
    ModelFitted,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)

SECONDS_BETWEEN_LINES = 5.0


def duration(seconds: float) -> str:
    """Returns ``"8.2 s"``, ``"3 min 05 s"`` or ``"1 h 02 min"``."""
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
            return f"{stage}: started, {total} {unit}"
        case StageAdvanced(stage, done, note):
            return f"{stage}: {done} done{f', {note}' if note else ''}"
        case StageFinished(stage, seconds):
            return f"{stage}: finished in {duration(seconds)}"
        case TrialMeasured(kernel, shape, gflops, status, trials):
            result = f"{gflops:.1f} GFLOP/s" if gflops > 0 else f"failed ({status})"
            return f"trial {trials}: {kernel} at {shape}: {result}"
        case ModelFitted(number, samples, metrics):
            scores = "".join(f", {name} {value:.3g}" for name, value in metrics.items())
            return f"model of round {number}: {samples} records{scores}"
        case RoundFinished(number, trials, failures, best, seconds):
            return (
                f"round {number}: {trials} trials, {failures} failed, best {best:.1f} GFLOP/s, "
                f"{duration(seconds.total)}"
            )
        case _:
            return repr(event)


@dataclass(frozen=True)
class StageClock:
    """How far a stage is; times are readings of one monotonic clock, in seconds.

    ``resumed`` is what was already done at the start: it must not count as speed.
    """

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

    def seconds_left(self, now: float) -> float | None:
        """At the mean speed so far; None before the first unit is done."""
        made = self.done - self.resumed
        if made <= 0:
            return None
        return max(0.0, (now - self.started) / made * (self.total - self.done))

    def line(self, now: float) -> str:
        """Returns ``"measure: 12/64 trials, 8.0 s left, best 101 GFLOP/s"``."""
        left = self.seconds_left(now)
        parts = [f"{self.stage}: {self.done}/{self.total} {self.unit}"]
        if left is not None and self.done < self.total:
            parts.append(f"{duration(left)} left")
        return ", ".join([*parts, self.note] if self.note else parts)


class _Display(Protocol):
    def started(self, event: StageStarted) -> None: ...
    def advanced(self, event: StageAdvanced) -> None: ...
    def finished(self, event: StageFinished) -> None: ...


class ProgressBar:
    """An observer that shows each running stage: done of total, time left, best so far.

    A terminal and a notebook get ``tqdm`` bars. Where ``stream`` is no terminal (a log
    file, a pipe) it gets plain lines instead, at most one every ``interval`` seconds and
    a last one for each stage that had a line or took that long.

    Args:
        stream: where to write; standard error if None.
        interval: least time between two plain lines, in seconds.
        clock: a monotonic clock, in seconds (another one for tests).
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        interval: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._stream, self._interval, self._clock = stream, interval, clock
        self._chosen: _Display | None = None

    @property
    def _display(self) -> _Display:
        # Chosen at the first event: a bar may be made before standard error is redirected.
        if self._chosen is None:
            stream = self._stream or sys.stderr
            bars = stream.isatty() or (self._stream is None and in_notebook())
            self._chosen = _Bars(stream) if bars else _Lines(stream, self._interval, self._clock)
        return self._chosen

    def on_event(self, event: Event) -> None:
        match event:
            case StageStarted():
                self._display.started(event)
            case StageAdvanced():
                self._display.advanced(event)
            case StageFinished():
                self._display.finished(event)


class _Bars:
    """One ``tqdm`` bar for each running stage, closed when the stage ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: dict[str, Any] = {}

    def started(self, event: StageStarted) -> None:
        from tqdm.auto import tqdm

        self._close(event.stage)
        # A notebook's bar is a widget: it takes no stream.
        where = {} if in_notebook() else {"file": self._stream, "dynamic_ncols": True}
        self._bars[event.stage] = tqdm(
            desc=event.stage, total=event.total, initial=event.done, unit=f" {event.unit}", **where
        )

    def advanced(self, event: StageAdvanced) -> None:
        if bar := self._bars.get(event.stage):
            if event.note:
                bar.set_postfix_str(event.note, refresh=False)
            bar.update(event.done - bar.n)

    def finished(self, event: StageFinished) -> None:
        self._close(event.stage)

    def _close(self, stage: str) -> None:
        bar = self._bars.pop(stage, None)
        if bar is not None:
            bar.refresh()
            bar.close()


class _Lines:
    """Plain lines, rarely."""

    def __init__(self, stream: TextIO, interval: float, clock: Callable[[], float]) -> None:
        self._stream, self._interval, self._clock = stream, interval, clock
        self._stages: dict[str, StageClock] = {}
        self._spoke_of: set[str] = set()
        self._last_line = clock()

    def started(self, event: StageStarted) -> None:
        self._stages[event.stage] = StageClock.of(event, self._clock())

    def advanced(self, event: StageAdvanced) -> None:
        if event.stage not in self._stages:
            return
        stage = self._stages[event.stage] = self._stages[event.stage].advanced(event)
        now = self._clock()
        if now - self._last_line >= self._interval:
            self._last_line = now
            self._spoke_of.add(event.stage)
            self._write(stage.line(now))

    def finished(self, event: StageFinished) -> None:
        stage = self._stages.pop(event.stage, None)
        if stage is None or (event.stage not in self._spoke_of and event.seconds < self._interval):
            return
        self._spoke_of.discard(event.stage)
        self._last_line = self._clock()
        note = f", {stage.note}" if stage.note else ""
        amount = f"{stage.done}/{stage.total} {stage.unit}"
        self._write(f"{stage.stage}: {amount} in {duration(event.seconds)}{note}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LogObserver:
    """An observer that writes every event to a logger as one line of text.

    Stages, rounds and model fits are logged at INFO; single steps and trials at DEBUG.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("dietlab")

    def on_event(self, event: Event) -> None:
        frequent = isinstance(event, (StageAdvanced, TrialMeasured))
        self._logger.log(logging.DEBUG if frequent else logging.INFO, "%s", describe(event))


def in_notebook() -> bool:
    """Returns whether a Jupyter kernel runs this process; asks IPython only if it is already loaded."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
