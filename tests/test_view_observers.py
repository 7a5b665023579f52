"""Bars, lines and logs, driven by a stream of events made by hand."""

from __future__ import annotations

import io
import logging
import re

import pytest
from observed import Clock, tuning_events

from dietlab.base.events import (
    Event,
    ModelFitted,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)
from dietlab.view.progress import LogObserver, StageClock, describe, duration
from dietlab.view.progress_bar import SHARES, ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_durations_and_sentences() -> None:
    told = [duration(seconds) for seconds in (8.24, 59.97, 185, 3720)]
    assert told == ["8.2 s", "1 min 00 s", "3 min 05 s", "1 h 02 min"]
    few = "too few pairs differ by more than the noise"
    sentences: dict[str, Event] = {
        "trial 3: 8x48 at T=8: failed (broken badly)": TrialMeasured("8x48", "T=8", 0, "broken\nbadly", 3),
        "round 2: 64 trials, 3 failed, best 101.0 GFLOP/s, 8.0 s": RoundFinished(
            2, 64, 3, 101.0, PhaseSeconds(measure=8)
        ),
        "model of round 1: 64 records, r2 0.74": ModelFitted(1, 64, {"r2": 0.74}),
        f"model of round 1: 64 records, pairs 3, mape 0.1, pairwise {few}, r2 {few}": ModelFitted(
            1, 64, {"pairs": 3.0, "mape": 0.1}
        ),
    }
    assert [describe(event) for event in sentences.values()] == [*sentences]


def test_time_left_ignores_what_was_done_before() -> None:
    clock = StageClock.of(StageStarted("measure", 100, "trial", done=80), now=0.0)
    assert clock.seconds_left(5.0) is None
    clock = clock.advanced(StageAdvanced("measure", 81))
    assert clock.seconds_left(5.0) is None, "one unit in ten is too early to tell"
    clock = clock.advanced(StageAdvanced("measure", 90, "best 3"))
    assert clock.seconds_left(20.0) == pytest.approx(20.0)
    assert clock.line(20.0) == "measure: 90/100 trials, 20.0 s left, best 3"


STAGES = ("prepare", "search", "decide")


def played(bar: ProgressBar, clock: Clock, name: str, total: int, unit: str = "trial") -> None:
    """Sends a whole stage, a second a unit."""
    bar.on_event(StageStarted(name, total, unit))
    for done in range(1, total + 1):
        clock.now += 1.0
        bar.on_event(StageAdvanced(name, done, f"best {done} GFLOP/s"))
    bar.on_event(StageFinished(name, float(total)))


def test_a_file_gets_one_line_for_each_stage_with_work() -> None:
    clock, stream = Clock(), io.StringIO()
    with ProgressBar("tune", STAGES, stream, clock) as bar:
        played(bar, clock, "search", 8, "micro-kernel")
        played(bar, clock, "decide", 0, "measurement")
        for _ in range(5):
            played(bar, clock, "decide", 1, "measurement")
        played(bar, clock, "decide", 0, "measurement")
    assert stream.getvalue().splitlines() == [
        "tune 2/3 search: 8 micro-kernels in 8.0 s, best 8 GFLOP/s",
        "tune 3/3 decide: 5 measurements in 5.0 s, best 1 GFLOP/s",
    ]


def test_a_file_is_told_of_the_stages_inside_a_stage() -> None:
    clock, stream = Clock(), io.StringIO()
    with ProgressBar("bench", ["bench"], stream, clock) as bar:
        bar.on_event(StageStarted("bench", 4, "shape", done=2))
        bar.on_event(StageStarted("dense-1t", 1, "study"))
        played(bar, clock, "search", 8, "micro-kernel")
        bar.on_event(StageAdvanced("bench", 3))
        bar.on_event(StageAdvanced("dense-1t", 1))
        bar.on_event(StageFinished("dense-1t", 8.0))
    assert stream.getvalue().splitlines() == [
        "bench dense-1t: 1 study in 8.0 s",
        "bench: 1 shape in 8.0 s",
    ]


def test_stages_without_a_plan_are_commands_and_late_observers_are_silent() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar(stream=stream, clock=clock)
    played(bar, clock, "survey", 1, "micro-kernel")
    played(bar, clock, "decide", 0)
    bar.on_event(StageAdvanced("never started", 3))
    bar.on_event(StageFinished("never started", 60.0))
    assert stream.getvalue() == "survey: 1 micro-kernel in 1.0 s, best 1 GFLOP/s\n"


def test_stages_come_with_their_shares() -> None:
    clock, stream = Clock(), Terminal()
    bar = ProgressBar("reproduce", {"dense": 30.0, "bert": 10.0}, stream, clock)
    played(bar, clock, "dense", 30, "estimated second")
    assert drawn(stream)[-1].startswith("reproduce 1/2 dense [===============     ] 75 %, 10.0 s left")


def drawn(stream: Terminal) -> list[str]:
    return [line.rstrip() for line in stream.getvalue().split("\r")]


def test_a_terminal_has_one_line_for_the_whole_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    clock, stream = Clock(), Terminal()
    with ProgressBar("tune", STAGES, stream, clock) as bar:
        played(bar, clock, "prepare", 3, "contender")
        played(bar, clock, "search", 8, "micro-kernel")
        left = "30 %, 25.4 s left, 8/8 micro-kernels, best 8 GFLOP/s"
        assert drawn(stream)[-1] == f"tune 2/3 search [======              ] {left}"
        bar.on_event(StageStarted("decide", 4, "measurement"))
        clock.now += 1.0
        bar.on_event(StageAdvanced("decide", 1))
        left = "48 %, 3.0 s left, 1/4 measurements"
        assert drawn(stream)[-1] == f"tune 3/3 decide [=========           ] {left}"
    assert "\n" not in stream.getvalue() and drawn(stream)[-1] == "", "the line is gone at the end"
    assert all(len(line) < 120 for line in stream.getvalue().split("\r"))


def test_a_line_is_cut_to_the_terminal_and_covers_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock, stream = Clock(), Terminal()
    bar = ProgressBar("tune", STAGES, stream, clock)
    played(bar, clock, "search", 64, "micro-kernel")
    lines = stream.getvalue().split("\r")[1:]
    assert max(map(len, lines)) == 59
    shown = [len(line.rstrip()) for line in lines]
    assert all(len(after) >= before for before, after in zip(shown, lines[1:], strict=False))


def test_the_time_left_counts_stages_that_have_not_begun() -> None:
    """What was done before the start, or takes no time, does not count as speed."""
    clock, stream = Clock(), Terminal()
    bar = ProgressBar("tune", STAGES, stream, clock)
    bar.on_event(StageStarted("prepare", 64, "contender", done=64))
    bar.on_event(StageFinished("prepare", 0.0))
    bar.on_event(StageStarted("search", 10, "measurement"))
    assert " left" not in stream.getvalue()
    clock.now += 6.0
    bar.on_event(StageAdvanced("search", 10))
    share = SHARES["decide"] / SHARES["search"]
    assert f"{duration(6.0 * share)} left, 10/10 measurements" in drawn(stream)[-1]


def test_a_stage_that_begins_again_never_turn_the_bar_back() -> None:
    clock, stream = Clock(), Terminal()
    bar = ProgressBar("build", ("search", "build"), stream, clock)
    for _ in range(9):
        played(bar, clock, "search", 2, "scheme")
    played(bar, clock, "build", 1, "library")
    parts = [int(found) for found in re.findall(r"(\d+) %", stream.getvalue())]
    assert parts == sorted(parts) and parts[-1] == 100 and parts[0] == 0


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
