"""Bars, lines and logs, driven by a stream of events made by hand."""

from __future__ import annotations

import io
import logging
from dataclasses import dataclass

import pytest

from dietlab.events import (
    Event,
    ModelFitted,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)
from dietlab.view.progress import LogObserver, ProgressBar, StageClock, describe, duration


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tuning_events(trials: int = 8) -> list[Event]:
    steps: list[Event] = [StageStarted("measure", trials, "trials")]
    for i in range(1, trials + 1):
        failed = i == 2
        gflops = 0.0 if failed else 10.0 * i
        steps.append(TrialMeasured("8x48.u4.ws.p0", "T=8", gflops, "timeout" if failed else "ok", i))
        steps.append(StageAdvanced("measure", i, f"best {10 * i} GFLOP/s"))
    return [*steps, StageFinished("measure", float(trials))]


def test_durations_and_sentences() -> None:
    assert [duration(s) for s in (8.24, 59.97, 185, 3720)] == [
        "8.2 s",
        "1 min 00 s",
        "3 min 05 s",
        "1 h 02 min",
    ]
    assert describe(TrialMeasured("8x48", "T=8", 0.0, "broken\nbadly", 3)) == (
        "trial 3: 8x48 at T=8: failed (broken badly)"
    )
    assert describe(RoundFinished(2, 64, 3, 101.0, PhaseSeconds(measure=8))) == (
        "round 2: 64 trials, 3 failed, best 101.0 GFLOP/s, 8.0 s"
    )
    assert describe(ModelFitted(1, 64, {"r2": 0.74})) == "model of round 1: 64 records, r2 0.74"


def test_time_left_ignores_what_was_done_before() -> None:
    clock = StageClock.of(StageStarted("measure", 100, "trials", done=80), now=0.0)
    assert clock.seconds_left(5.0) is None
    clock = clock.advanced(StageAdvanced("measure", 90, "best 3"))
    assert clock.seconds_left(20.0) == pytest.approx(20.0)
    assert clock.line(20.0) == "measure: 90/100 trials, 20.0 s left, best 3"


def test_lines_where_there_is_no_terminal() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar(stream, interval=5.0, clock=clock)
    for event in tuning_events(12):
        if isinstance(event, StageAdvanced):
            clock.now += 1.0
        bar.on_event(event)
    assert stream.getvalue().splitlines() == [
        "measure: 5/12 trials, 7.0 s left, best 50 GFLOP/s",
        "measure: 10/12 trials, 2.0 s left, best 100 GFLOP/s",
        "measure: 12/12 trials in 12.0 s, best 120 GFLOP/s",
    ]


def test_short_stages_and_late_observers_are_silent() -> None:
    stream = io.StringIO()
    bar = ProgressBar(stream, clock=Clock())
    for _ in range(100):
        for event in (StageStarted("s", 1), StageAdvanced("s", 1), StageFinished("s", 0.01)):
            bar.on_event(event)
    bar.on_event(StageAdvanced("never started", 3))
    bar.on_event(StageFinished("never started", 60.0))
    assert stream.getvalue() == ""


def test_bar_in_a_terminal() -> None:
    stream = Terminal()
    bar = ProgressBar(stream)
    for event in tuning_events():
        bar.on_event(event)
    bar.on_event(StageAdvanced("never started", 3))
    last = stream.getvalue().rstrip().split("\r")[-1]
    assert "measure" in last
    assert "8/8" in last
    assert "trials/s" in last
    assert "best 80 GFLOP/s" in last


def test_log_observer_levels(caplog: pytest.LogCaptureFixture) -> None:
    observer = LogObserver(logging.getLogger("dietlab.test"))
    with caplog.at_level(logging.DEBUG, "dietlab.test"):
        for event in tuning_events(2):
            observer.on_event(event)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "measure: started, 2 trials"),
        ("DEBUG", "trial 1: 8x48.u4.ws.p0 at T=8: 10.0 GFLOP/s"),
        ("DEBUG", "measure: 1 done, best 10 GFLOP/s"),
        ("DEBUG", "trial 2: 8x48.u4.ws.p0 at T=8: failed (timeout)"),
        ("DEBUG", "measure: 2 done, best 20 GFLOP/s"),
        ("INFO", "measure: finished in 2.0 s"),
    ]
