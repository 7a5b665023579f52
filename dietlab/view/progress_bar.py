"""The progress bar of a whole command: one line, which a terminal redraws and a file gets once a stage."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from dietlab.base.cards import counted
from dietlab.base.events import Event, StageAdvanced, StageFinished, StageStarted
from dietlab.view.progress import StageClock, duration, in_notebook

WIDTH = 20
"""The length of the bar, in characters."""

SECONDS_BETWEEN_DRAWINGS = 0.1
"""The least time between two drawings of the line, in seconds: a search tells of a thousand records a second
when it replays them."""

TRUSTED = 0.03
"""The share of a command's work after which the time left is told: before, one slow start would be taken for
the speed of all stages."""


SHARES = {
    "search": 10.0,
    "decide": 30.0,
    "build": 2.0,
    "prepare": 3.0,
    "ansor": 30.0,
    "open": 6.0,
    "evaluate": 28.0,
}
"""The stages in their order, and their shares of a command's time relative to each other: a third of the
seconds of ``dietlab quickstart`` with effort quick on one core of a Zen 3. They only say how much is left for
the stages that have not begun."""

USUAL_SHARE = 1.0
"""The share of a stage that has none in :data:`SHARES`."""


@dataclass
class _Course:
    """The progress of a command: its planned stages, the one that it is in, and those that run inside of it.

    Times are readings of one monotonic clock, in seconds; work is in units of the stages' ``shares``.
    """

    shares: Mapping[str, float]
    began: float
    place: int = -1
    round: int = 0
    units: int = 0
    unit: str = ""
    note: str = ""
    entered: float = 0.0
    worked: float = 0.0
    running: dict[str, StageClock] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def stage(self) -> str:
        return self.stages[self.place] if self.place >= 0 else ""

    @property
    def clock(self) -> StageClock | None:
        """The progress of the present round; None between two rounds."""
        return self.running.get(self.stage)

    @property
    def head(self) -> str:
        """Returns ``"2/6 decide"``, and nothing for a command of one stage."""
        return self.named(self.stage) if len(self.stages) > 1 else ""

    def named(self, stage: str) -> str:
        """Returns the name of a stage inside the present one, after the place of that."""
        return f"{self.place + 1}/{len(self.stages)} {stage}" if len(self.stages) > 1 else stage

    def enter(self, stage: str, now: float) -> None:
        self.place, self.round, self.units = self.stages.index(stage), 0, 0
        self.note, self.entered = "", now

    def advanced(self, event: StageAdvanced) -> None:
        before = self.running[event.stage]
        after = self.running[event.stage] = before.advanced(event)
        if event.stage == self.stage:
            self.units += after.done - before.done
            self.note = after.note
            self.worked += (after.done - before.done) / max(1, after.total) * self._share

    def part(self) -> float:
        """Returns the part of the command's work that is done, 0 to 1."""
        if self.place < 0:
            return 0.0
        before = sum(self.shares[stage] for stage in self.stages[: self.place])
        here = self.round - 1.0 if self.clock else float(self.round)
        if self.clock:
            here += self.clock.done / max(1, self.clock.total)
        return min(1.0, (before + min(1.0, max(0.0, here)) * self._share) / self._whole)

    def seconds_left(self, now: float) -> float | None:
        """Returns the time left: of the present round at its own speed, of the rest at the command's; None
        as long as too little is done to tell."""
        of_round = self.clock.seconds_left(now) if self.clock else None
        if of_round is not None and self.place == len(self.stages) - 1:
            return of_round
        if self.worked < TRUSTED * self._whole:
            return None
        pace = (now - self.began) / self.worked
        if of_round is None:
            return pace * (1 - self.part()) * self._whole
        done = self.clock.done / max(1, self.clock.total) if self.clock else 0.0
        return of_round + pace * max(0.0, (1 - self.part()) * self._whole - (1 - done) * self._share)

    @property
    def _whole(self) -> float:
        return sum(self.shares.values())

    @property
    def _share(self) -> float:
        return self.shares[self.stage]


class ProgressBar:
    """An observer that shows one bar for all stages of a command: the stage it is in, the part of the whole
    that is done, the time left, the best so far.

    A terminal and a notebook get one line that is drawn again and again, and is gone at the end. Where
    ``stream`` is no terminal (a log file, a pipe) each stage that did something leaves one line when it is
    over. A stage that is not among ``stages`` counts as a part of the one that it runs in; outside of all it
    is a command by itself.

    ``with ProgressBar("tune", ("search", "decide")) as bar: ...`` closes it.

    Args:
        command: what the line begins with.
        stages: the names of the stages that will come, in their order (default: not known), or with their
            shares of the command's time (default: :data:`SHARES`).
        stream: where to write; standard error if None.
        clock: a monotonic clock, in seconds (another one for tests).
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
        self._shown, self._drawn = "", float("-inf")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_event(self, event: Event) -> None:
        """Draws the line anew for an event."""
        now = self._clock()
        match event:
            case StageStarted():
                self._started(event, now)
            case StageAdvanced() if self._course and event.stage in self._course.running:
                self._course.advanced(event)
                self._draw(now)
            case StageFinished() if self._course and event.stage in self._course.running:
                self._finished(event, now)

    def clear(self) -> None:
        """Takes the line away, so that something else can be written; the next event draws it again."""
        if self._shown:
            self._write(f"\r{' ' * len(self._shown)}\r")
            self._shown, self._drawn = "", float("-inf")

    def close(self) -> None:
        """Ends the command: the line goes, and a file gets the line of the last stage."""
        self._leave()
        self.clear()
        self._course = None

    def _started(self, event: StageStarted, now: float) -> None:
        if self._course is None:
            self._course = _Course(self._shares or {event.stage: USUAL_SHARE}, now)
        course = self._course
        if event.stage in course.stages:
            if event.stage != course.stage:
                self._leave()
                course.enter(event.stage, now)
            course.round, course.unit = course.round + 1, event.unit
        course.running[event.stage] = StageClock.of(event, now)
        self._draw(now, force=True)

    def _finished(self, event: StageFinished, now: float) -> None:
        assert self._course is not None
        course = self._course
        inside = list(course.running).index(event.stage) == 1 and event.stage not in course.stages
        clock = course.running.pop(event.stage)
        if inside and clock.made and not self._redraws:
            made = str(counted(clock.made, clock.unit))
            self._line(course.named(event.stage), made, event.seconds, clock.note)
        if not self._shares and not course.running:
            self.close()  # nobody else will: no further stage is known
        else:
            self._draw(now)

    def _leave(self) -> None:
        """Writes the line of a stage that is over into a file."""
        course = self._course
        if course is None or not course.units or self._redraws:
            return
        name = course.head if self._command else course.stage
        made = str(counted(course.units, course.unit))
        self._line(name, made, self._clock() - course.entered, course.note)
        course.units = 0

    def _line(self, name: str, made: str, seconds: float, note: str) -> None:
        head = " ".join(word for word in (self._command, name) if word)
        self._write(f"{head}: {made} in {duration(seconds)}{f', {note}' if note else ''}\n")

    def _draw(self, now: float, force: bool = False) -> None:
        if not self._redraws or (now - self._drawn < SECONDS_BETWEEN_DRAWINGS and not force):
            return
        self._drawn = now
        columns = shutil.get_terminal_size().columns - 1
        line = self._text(now)[:columns]
        self._write(f"\r{line}{' ' * (len(self._shown) - len(line))}")
        self._shown = line

    def _text(self, now: float) -> str:
        """Returns ``"tune 2/2 decide [========    ] 41 %, 1 min 20 s left, 12/24 measurements, ..."``."""
        assert self._course is not None
        course, part = self._course, self._course.part()
        head = f"{self._command} {course.head}".strip() or course.stage
        filled = "=" * int(part * WIDTH)
        parts = [f"{head} [{filled:{WIDTH}}] {part:.0%}".replace("%", " %")]
        left = course.seconds_left(now)
        if left is not None:
            parts.append(f"{duration(left)} left")
        clocks = list(course.running.values())
        if course.clock:
            parts.append(course.clock.amount)
        if inside := [clock for clock in clocks if clock.stage != course.stage]:
            done = f" {inside[-1].amount}" if inside[-1].total > 1 else ""
            parts.append(" ".join(clock.stage for clock in inside) + done)
        notes = [clock.note for clock in clocks if clock.note]
        return ", ".join([*parts, *notes[-1:]])

    @property
    def _redraws(self) -> bool:
        """Returns whether the stream shows one line that is redrawn. It is looked up each time: standard
        error may be redirected after a bar was made."""
        return self._out.isatty() or (self._stream is None and in_notebook())

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stderr

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
