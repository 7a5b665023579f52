"""Runs in the background: paused, stopped and failing, with nothing lost and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Semaphore, Timer
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.background import BackgroundRun, Brake, RunStopped, run_in_background
from dietlab.base.errors import DietlabError, MeasureError, StudyError
from dietlab.base.events import Event, Observer, StageAdvanced, StageFinished, TrialMeasured, audience
from dietlab.base.files import locked
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, Record, RecordStore, SyntheticRunner, Trial, read_records
from dietlab.problem import Dense, Dim, ShapeSet, Workload
from dietlab.scheme import build_space
from dietlab.tuning import tune

WORK = Dense(T=Dim(1, 16), N=64, K=32)
SHAPES = ShapeSet.uniform(WORK, 4)
HARDWARE = Hardware.preset("haswell-1core")
SECONDS = 60
"""How long to wait for what must happen."""


class Seen:
    """Lets a test wait for every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._came = Semaphore(0)

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        self._came.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._came.acquire(timeout=SECONDS)


class Calls:
    """An observer that calls a function at the n-th trial of the run it is attached to."""

    def __init__(self, trial: int, act: Callable[[BackgroundRun[Any]], None]) -> None:
        self._trial, self._act = trial, act
        self._run: BackgroundRun[Any] | None = None

    def attach(self, run: BackgroundRun[Any]) -> None:
        self._run = run

    def on_event(self, event: Event) -> None:
        if isinstance(event, TrialMeasured) and event.trials == self._trial:
            assert self._run is not None
            self._act(self._run)


class Gate:
    """Work of some steps, each of which waits to be let through."""

    def __init__(self, steps: int) -> None:
        self._steps, self._open, self._passed, self.done = steps, Semaphore(0), Semaphore(0), 0

    def let(self, count: int = 1) -> None:
        self._open.release(count)

    def passed(self) -> None:
        """Waits until one more step is over."""
        assert self._passed.acquire(timeout=SECONDS)

    def __call__(self, observers: Sequence[Observer]) -> str:
        with audience(observers).stage("steps", self._steps) as stage:
            for _ in range(self._steps):
                assert self._open.acquire(timeout=SECONDS)
                stage.advance()
                self.done += 1
                self._passed.release()
        return "all done"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# --- the run ----------------------------------------------------------------------------------


def test_work_returns_its_result() -> None:
    gate, seen = Gate(3), Seen()
    run = run_in_background(gate, [seen])
    assert run.state == "running" and run.active and run.result is None and not run.wait(0)
    gate.let(3)
    assert run.wait(SECONDS) and run.state == "finished" and not run.active
    assert run.result == "all done" and run.error is None
    assert [e.done for e in seen.events if isinstance(e, StageAdvanced)] == [1, 2, 3]
    for act in (run.pause, run.resume, run.stop):
        act()
        assert run.state == "finished"


def test_pause_holds_between_two_events_and_resume_goes_on() -> None:
    gate, seen = Gate(4), Seen()
    run = run_in_background(gate, [seen])
    gate.let()
    gate.passed()
    seen.wait(2)  # the beginning of the stage, and its first step
    run.pause()
    assert run.state == "paused" and run.pausing
    held = Semaphore(0)
    run.on_change(held.release)
    gate.let(3)
    seen.wait()  # observers see the second step, and there it stays
    assert held.acquire(timeout=SECONDS)
    assert run.state == "paused" and run.active and not run.pausing and gate.done == 1 and not run.wait(0)
    run.resume()
    assert run.wait(SECONDS) and gate.done == 4 and run.result == "all done"


@pytest.mark.parametrize("paused", [False, True])
def test_stop_ends_the_work_before_its_next_step(paused: bool) -> None:
    gate, seen = Gate(4), Seen()
    run = run_in_background(gate, [seen])
    gate.let()
    gate.passed()
    if paused:
        run.pause()
    run.stop()
    assert run.stopping or not run.active
    gate.let(3)
    assert run.wait(SECONDS) and run.state == "stopped" and not run.stopping
    assert gate.done == 1 and run.result is None and run.error is None
    assert isinstance(seen.events[-1], StageFinished), "the stage tells of its end"


def test_failing_work_keeps_its_error_and_nothing_else() -> None:
    class Heavy:
        pass

    held: list[weakref.ref[Heavy]] = []

    def work(observers: Sequence[Observer]) -> None:
        heavy = Heavy()
        held.append(weakref.ref(heavy))
        raise MeasureError("the machine has a floor", "none", "Build one.")

    run = run_in_background(work)
    assert run.wait(SECONDS) and run.state == "failed"
    assert isinstance(run.error, MeasureError) and "Build one" in repr(run)
    gc.collect()
    assert held[0]() is None


def test_listeners_hear_of_every_change() -> None:
    gate, states = Gate(1), []
    run = BackgroundRun(gate, ())
    run.on_change(lambda: states.append(run.state))
    run.start()
    run.pause()
    run.resume()
    gate.let()
    assert run.wait(SECONDS) and states == ["paused", "running", "finished"]


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Python's own handler of SIGINT, which a shell's background job starts without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
def test_a_wait_can_be_interrupted_and_the_run_goes_on() -> None:
    gate = Gate(1)
    run = run_in_background(gate)
    Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run.wait(SECONDS)
    assert run.state == "running"
    gate.let()
    assert run.wait(SECONDS) and run.state == "finished"


def test_a_result_is_no_work() -> None:
    with pytest.raises(
        DietlabError, match=r"work must be a function of observers; got str.*lambda observers"
    ):
        run_in_background("a run")  # type: ignore[arg-type]


# --- the brake --------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["hold", "release"]), st.integers(0, 9))))
def test_paused_seconds_add_up(commands: list[tuple[str, int]]) -> None:
    clock = Clock()
    brake, expected = Brake(clock), 0
    for command, seconds in commands:
        getattr(brake, command)()
        assert brake.holds == (command == "hold")
        clock.now += seconds
        expected += seconds * (command == "hold")
        assert brake.paused_seconds == expected
        if command == "release":
            brake.on_event(StageAdvanced("tune", 1))


def test_a_stopped_brake_ends_whatever_sends_but_no_ending_stage() -> None:
    brake = Brake()
    brake.hold()
    brake.stop()
    assert not brake.holds and brake.stopping
    brake.on_event(StageFinished("tune", 1.0))
    with pytest.raises(RunStopped, match=r"until its user stops it.*All measurements are kept"):
        brake.on_event(StageAdvanced("tune", 1))
    brake.hold()
    assert not brake.holds, "what was stopped waits for nothing"


# --- real tuning ------------------------------------------------------------------------------


def tuning(study: Study) -> Callable[[Sequence[Observer]], Any]:
    return lambda observers: study.tune(SyntheticRunner(HARDWARE), observers)


def test_a_stopped_study_is_unlocked_and_goes_on(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", WORK, HARDWARE, SHAPES, "smoke")
    run = run_in_background(tuning(study), [Calls(5, BackgroundRun.stop)])
    assert run.wait(SECONDS) and run.state == "stopped"
    kept = read_records(study.folder / "records.jsonl").records
    assert len(kept) == 5
    with study.locked():
        pass
    again = run_in_background(tuning(study))
    assert again.wait(SECONDS) and again.state == "finished", again
    found = again.result.records
    assert found[:5] == kept and again.result.trials >= 8
    assert len({(r.asked_by, r.scheme, r.shape) for r in found}) == len(found) > 8


def test_two_tuners_of_one_study_one_fails_and_says_why(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", WORK, HARDWARE, SHAPES, "smoke")
    first = run_in_background(tuning(study), [Calls(3, BackgroundRun.pause), seen := Seen()])
    seen.wait(4)
    second = run_in_background(tuning(study))
    assert second.wait(SECONDS) and second.state == "failed"
    assert "one tuning or evaluation at a time" in repr(second)
    first.stop()
    assert first.wait(SECONDS) and first.state == "stopped"


def test_a_study_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    """The second would measure the processor anew, and no record of the first be of it."""
    folder = tmp_path / "s"
    with locked(folder, "one of them works"), pytest.raises(StudyError, match="one tuning or evaluation"):
        Study.create(folder, WORK, HARDWARE, SHAPES, "smoke")
    assert not (folder / "manifest.json").exists()
    made = Study.create(folder, WORK, HARDWARE, SHAPES, "smoke")
    other = replace(HARDWARE, peak_gflops=1.0)
    assert Study.create(folder, WORK, other, SHAPES, "smoke").hardware == made.hardware


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_in_an_observer_leaves_the_records_and_no_lock(
    error: type[BaseException], tmp_path: Path
) -> None:
    class Breaks:
        def on_event(self, event: Event) -> None:
            if isinstance(event, TrialMeasured) and event.trials == 5:
                raise error

    study = Study.create(tmp_path / "s", WORK, HARDWARE, SHAPES, "smoke")
    with pytest.raises(error):
        study.tune(SyntheticRunner(HARDWARE), [Breaks()])
    assert len(read_records(study.folder / "records.jsonl").records) == 5
    with study.locked():
        pass


def test_a_stopped_run_leaves_no_worker_process(here: Hardware, tmp_path: Path) -> None:
    """The runner is not closed by hand: a notebook's seldom is."""
    before = set(psutil.Process().children(recursive=True))
    runner = LocalRunner(here, builders=1)
    study = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke")
    run = run_in_background(lambda observers: study.tune(runner, observers), [Calls(2, BackgroundRun.stop)])
    assert run.wait(SECONDS) and run.state == "stopped", run
    workers = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs(list(workers), timeout=SECONDS)
    assert not alive
    assert len(read_records(study.folder / "records.jsonl").records) == 2
    kernel = study.space().schemes[0]
    with runner:  # it can be used again
        (record,) = runner.measure(WORK, [Trial(kernel, SHAPES.shapes[:1])])
    assert record.ok


def test_trials_tell_why_they_failed_and_what_they_cost() -> None:
    class Fails:
        def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
            good = SyntheticRunner(HARDWARE).measure(workload, trials)
            for number, record in enumerate(good):
                phases = record.phases.plus(compile=2.0, measure=1.0)
                if number % 2:
                    yield Record(record.scheme, record.shape, "timeout", reason="too slow", phases=phases)
                else:
                    yield Record(record.scheme, record.shape, "ok", record.seconds, phases=phases)

    seen, store = Seen(), RecordStore()
    tune(build_space(WORK, HARDWARE), SHAPES, Fails(), "smoke", observers=[seen], store=store)
    told = [e for e in seen.events if isinstance(e, TrialMeasured)]
    assert [(e.status, e.reason) for e in told] == [(r.status, r.reason) for r in store.records]
    assert {e.reason for e in told} == {"", "too slow"}
    assert all(e.phases.total == 3.0 for e in told)
