"""The progress bar of a whole command: one line that a terminal redraws; a file gets one line per stage."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from tqdm import tqdm

from dietlab.base.cards import counted
from dietlab.base.events import Event, StageAdvanced, StageFinished, StageStarted
from dietlab.view.progress import StageClock, duration, in_notebook

LINE = "{desc} [{bar:20}] {percentage:.0f} %{postfix}"
"""The line in a terminal, as tqdm formats it."""

SECONDS_BETWEEN_DRAWINGS = 0.1
"""The least time between two drawings of the line, in seconds: a search reports a thousand records a second
when it replays them."""

TRUSTED = 0.03
"""The share of a command's work that must be done before the time left is shown: earlier, one slow start
would set the speed of all stages."""

SHARES = {
    "search": 10.0,
    "decide": 30.0,
    "build": 2.0,
    "prepare": 3.0,
    "ansor": 30.0,
    "open": 6.0,
    "evaluate": 28.0,
}
"""The shares of the stages, in their order, in a command's time, relative to each other. They are a third of
the seconds of ``dietlab quickstart`` with effort quick on one core of a Zen 3. They serve only to estimate
the stages that have not begun."""

USUAL_SHARE = 1.0
"""The share of a stage that is not in :data:`SHARES`."""


@dataclass
class _Course:
    """The progress of a command: its planned stages, the current one, and the stages that run inside it.

    Times are readings of one monotonic clock, in seconds. Work is in units of the stages' ``shares``.
    ``done`` is all work done, ``worked`` the work since the command began, ``before`` and ``after`` the work
    of the stages before and after the current one."""

    shares: Mapping[str, float]
    began: float
    stage: str = ""
    place: int = 0
    before: float = 0.0
    after: float = 0.0
    entered: float = 0.0
    units: int = 0
    unit: str = ""
    note: str = ""
    done: float = 0.0
    worked: float = 0.0
    running: dict[str, StageClock] = field(default_factory=dict)

    def started(self, event: StageStarted, now: float) -> None:
        if event.stage in self.shares and event.stage != self.stage:
            shares, at = list(self.shares.values()), list(self.shares).index(event.stage)
            self.stage, self.place, self.entered = event.stage, at + 1, now
            self.before, self.after = sum(shares[:at]), sum(shares[at + 1 :])
            self.units, self.note = 0, ""
        self.running[event.stage] = StageClock.of(event, now)
        if event.stage == self.stage:
            self.unit = event.unit
            self._reach(event.done / max(1, event.total))

    def advanced(self, event: StageAdvanced) -> None:
        last = self.running[event.stage]
        clock = self.running[event.stage] = last.advanced(event)
        if event.stage == self.stage:
            self.units += clock.done - last.done
            self.note = clock.note
            self.worked += self._reach(clock.done / max(1, clock.total))

    def finished(self, stage: str) -> StageClock:
        if stage == self.stage:
            self._reach(1.0)
        return self.running.pop(stage)

    def _reach(self, part: float) -> float:
        """Advances the stage to a part (0 to 1) of its work. Returns the added work, 0 if the stage began
        again."""
        more = max(0.0, self.before + min(1.0, part) * self.shares[self.stage] - self.done)
        self.done += more
        return more

    @property
    def whole(self) -> float:
        return sum(self.shares.values())

    def seconds_left(self, now: float) -> float | None:
        """Returns the seconds left: the current round at its own speed, the rest at the command's speed.
        Returns None while too little is done for an estimate."""
        clock = self.running.get(self.stage)
        of_round = clock.seconds_left(now) if clock else None
        if of_round is not None and not self.after:
            return of_round
        if self.worked < TRUSTED * self.whole:
            return None
        pace = (now - self.began) / self.worked
        return pace * (self.whole - self.done) if of_round is None else of_round + pace * self.after


class ProgressBar:
    """An observer that shows one bar for all stages of a command: the current stage, the done part of the
    whole, the time left, and the best result so far.

    A terminal and a notebook get one line that is drawn again and again, and is gone at the end. Where
    ``stream`` is no terminal (a log file, a pipe), each stage that did something leaves one line at its end.
    A stage that is not among ``stages`` counts as a part of the stage in which it runs; outside of any stage
    it is shown as a command by itself.

    ``with ProgressBar("tune", ("search", "decide")) as bar: ...`` closes it.

    Args:
        command: the name with which the line begins.
        stages: the names of the coming stages, in order (default: unknown), or a mapping from names to shares
            of the command's time (default: :data:`SHARES`).
        stream: the stream to write to; standard error if None.
        clock: a monotonic clock, in seconds; tests give another one.
    """

    def __init__(
        self,
        command: str = "",
        stages: Iterable[str] | Mapping[str, float] = (),
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._command = command
        usual = {name: SHARES.get(name, USUAL_SHARE) for name in stages}
        self._shares = stages if isinstance(stages, Mapping) else usual
        self._stream, self._clock = stream, clock
        self._course: _Course | None = None
        self._show: Callable[[str], None] | None = None
        self._drawn = float("-inf")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_event(self, event: Event) -> None:
        """Draws the line anew for an event."""
        now, course = self._clock(), self._course
        match event:
            case StageStarted(stage):
                if course is None:
                    course = self._course = _Course(self._shares or {stage: USUAL_SHARE}, now)
                if stage in course.shares and stage != course.stage:
                    self._leave(course)
                course.started(event, now)
                self._draw(course, now, force=True)
            case StageAdvanced(stage) if course and stage in course.running:
                course.advanced(event)
                self._draw(course, now)
            case StageFinished(stage, seconds) if course and stage in course.running:
                inside = list(course.running).index(stage) == 1 and stage not in course.shares
                clock = course.finished(stage)
                if inside:
                    self._line(self._head(course, stage), clock.made, clock.unit, seconds, clock.note)
                if not self._shares and not course.running:
                    self.close()  # nobody else will: no further stage is known
                else:
                    self._draw(course, now)

    def clear(self) -> None:
        """Removes the line, so that other text can be written; the next event draws the line again."""
        if self._show:
            self._show("")
            self._show("")  # the cursor, to the line's beginning
            self._show, self._drawn = None, float("-inf")

    def close(self) -> None:
        """Ends the command: removes the line from a terminal, or writes the line of the last stage to a
        file."""
        if self._course:
            self._leave(self._course)
        self.clear()
        self._course = None

    def _leave(self, course: _Course) -> None:
        """Writes the line of a finished stage to a file."""
        seconds = self._clock() - course.entered
        self._line(self._head(course), course.units, course.unit, seconds, course.note)

    def _line(self, head: str, units: int, unit: str, seconds: float, note: str) -> None:
        if units and not self._redraws:
            more = f", {note}" if note else ""
            self._out.write(f"{head}: {counted(units, unit)} in {duration(seconds)}{more}\n")
            self._out.flush()

    def _head(self, course: _Course, inside: str = "") -> str:
        """Returns ``"tune 2/3 decide"``, or only the name for a command of one stage; a stage ``inside`` the
        current one is named instead of it."""
        several = len(course.shares) > 1
        place = f"{course.place}/{len(course.shares)}" if several else ""
        stage = inside or (course.stage if several or not self._command else "")
        return " ".join(word for word in (self._command, place, stage) if word)

    def _draw(self, course: _Course, now: float, force: bool = False) -> None:
        """Shows ``"tune 2/2 decide [========    ] 41 %, 1 min 20 s left, 12/24 measurements, ..."``."""
        if not self._redraws or (now - self._drawn < SECONDS_BETWEEN_DRAWINGS and not force):
            return
        self._drawn, left, clocks = now, course.seconds_left(now), list(course.running.values())
        parts = [] if left is None else [f"{duration(left)} left"]
        parts += [clock.amount for clock in clocks if clock.stage == course.stage]
        if inside := [clock for clock in clocks if clock.stage != course.stage]:
            done = f" {inside[-1].amount}" if inside[-1].total > 1 else ""
            parts.append(" ".join(clock.stage for clock in inside) + done)
        parts += [clock.note for clock in clocks if clock.note][-1:]
        self._show = self._show or tqdm.status_printer(self._out)
        line = tqdm.format_meter(
            *(course.done, course.whole, now - course.began),
            ncols=shutil.get_terminal_size().columns - 1,
            prefix=self._head(course),
            ascii=" =",
            bar_format=LINE,
            postfix=", ".join(parts),
        )
        self._show(line)

    @property
    def _redraws(self) -> bool:
        """Returns whether the stream shows one line that is redrawn. The stream is looked up each time:
        standard error may be redirected after the bar was made."""
        return self._out.isatty() or (self._stream is None and in_notebook())

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stderr
