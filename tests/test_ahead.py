"""Rounds that are proposed while the one before is measured: what they know, and that little else changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event as Signal
from threading import active_count
from typing import Any

import pytest

from dietlab.base.errors import ModelError
from dietlab.compare.study import Study
from dietlab.cost import LearnedPredictor
from dietlab.machine import Hardware
from dietlab.measure import Record, RecordStore, ReplayRunner, SyntheticRunner, Timing, Trial
from dietlab.problem import Dense, Dim, ShapeSet, Workload
from dietlab.scheme import Scheme, Space, build_space
from dietlab.tuning import EFFORTS, PhaseTimer, Proposal, Tuner, TuningRun, tune
from dietlab.tuning.rounds import Answering
from dietlab.tuning.strategies.registry import strategy_named

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 32), N=2304, K=768)
SHAPES = ShapeSet.uniform(WORK)
RUNNER = SyntheticRunner(HARDWARE)
ROUNDS = {"trials": 20, "batch": 5, "decisions": 24, "decision_batch": 8, "decided_loss": 0.0}
EFFORT = replace(EFFORTS["quick"], timing=Timing(3, 0.001), **ROUNDS)
WAIT = 30.0
"""Seconds until what never comes is given up: far more than a round of this effort takes."""


@pytest.fixture(scope="module")
def space() -> Space:
    whole = build_space(WORK, HARDWARE)
    return whole.restricted_to(Random(1).sample(whole.schemes, 60))


@pytest.fixture(scope="module")
def whole(space: Space) -> TuningRun:
    return tune(space, SHAPES, RUNNER, EFFORT, ahead=True)


def tuner_of(space: Space, **changed: Any) -> Tuner:
    return Tuner(space, SHAPES, replace(EFFORT, **changed), strategy_named("draft"), LearnedPredictor())


def by_hand(tuner: Tuner, runner: SyntheticRunner = RUNNER) -> Iterator[tuple[Tuner, Proposal]]:
    """Yields each proposal with the tuner that knows all but it, as tuning ahead makes them."""
    proposal = tuner.ask()
    while proposal is not None:
        yield tuner, proposal
        early = tuner.ask(during=proposal)
        tuner = tuner.tell(proposal, runner.measure(WORK, proposal.trials))
        proposal = early or tuner.ask()


@dataclass
class Fleet:
    """Measures like the synthetic machine, says that it has some devices, and keeps what it was asked."""

    devices: int
    interrupt_after: int = -1
    asked: list[tuple[Scheme, Any]] = field(default_factory=list)

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for record in RUNNER.measure(workload, trials):
            if len(self.asked) == self.interrupt_after:
                self.interrupt_after = -1
                raise KeyboardInterrupt
            self.asked.append((record.scheme, record.shape))
            yield record


def test_a_round_ahead_knows_what_is_asked_for_and_none_of_its_records(space: Space) -> None:
    early = 0
    for tuner, proposal in by_hand(tuner_of(space)):
        following = tuner.ask(during=proposal)
        slower = SyntheticRunner(HARDWARE, noise=0.5, seed=9).measure(WORK, proposal.trials)
        assert tuner.tell(proposal, slower).records != tuner.records
        assert tuner.ask(during=proposal) == following
        if following is None:
            continue
        early += 1
        assert not {*following.new} & {*proposal.new}
        assert following.round != proposal.round and following.round.number > 0
        if proposal.round.stage == following.round.stage == "decide":
            rivals = {shape for _, shape in proposal.pairs}
            assert not rivals & {shape for _, shape in following.pairs}
    assert early >= 4


def test_the_first_round_is_waited_for(space: Space) -> None:
    tuner = tuner_of(space)
    first = tuner.ask()
    assert first is not None and tuner.ask(during=first) is None
    failed = [Record(trial.scheme, trial.shapes[0], "crashed", reason="signal 11") for trial in first.trials]
    assert tuner.tell(first, failed).ask(during=first) is None


def test_to_tune_ahead_is_to_ask_ahead_by_hand_within_the_same_budget(space: Space, whole: TuningRun) -> None:
    asked = [proposal for _, proposal in by_hand(tuner_of(space))]
    measured = [(record.scheme, record.shape) for record in whole.records]
    assert [pair for proposal in asked for pair in proposal.pairs] == measured
    waiting = tune(space, SHAPES, RUNNER, EFFORT, ahead=False)
    decided = [r for r in whole.records if r.asked_by and r.asked_by.stage == "decide"]
    assert whole.trials >= EFFORT.trials == len({scheme for p in asked for scheme in p.new})
    assert 0 < len(decided) <= EFFORT.decisions and whole.held_out_metrics
    assert {r.scheme for r in whole.records} != {r.scheme for r in waiting.records}


# After 23 records a round of deciding is cut: the rest of it is another moment, and later rounds may differ.
@pytest.mark.parametrize(
    "after", [0, 12, 20, 28, *(pytest.param(n, marks=pytest.mark.thorough) for n in (3, 5, 27, 31))]
)
def test_a_run_ahead_that_was_interrupted_goes_on_as_if_it_was_not(
    after: int, space: Space, whole: TuningRun, tmp_path: Path
) -> None:
    threads = active_count()
    store = RecordStore(tmp_path / "r.jsonl", {"workload": WORK.to_json()})
    with pytest.raises(KeyboardInterrupt):
        tune(space, SHAPES, Fleet(4, after), EFFORT, store=store)
    assert active_count() == threads
    kept, left = RecordStore(tmp_path / "r.jsonl", {"workload": WORK.to_json()}), Fleet(4)
    run = tune(space, SHAPES, left, EFFORT, store=kept)
    pairs = [(record.scheme, record.shape) for record in whole.records]
    assert [(record.scheme, record.shape) for record in run.records] == pairs and left.asked == pairs[after:]
    again = Fleet(4)
    assert tune(space, SHAPES, again, EFFORT, store=kept).records == run.records and not again.asked


@pytest.mark.parametrize("devices", [1, 2])
def test_rounds_are_ahead_where_several_devices_measure(devices: int, space: Space, whole: TuningRun) -> None:
    run = tune(space, SHAPES, Fleet(devices), EFFORT)
    assert (run.records == whole.records) == (devices > 1)


def test_an_object_that_measures_is_a_whole_runner() -> None:
    least, replay = Answering(Fleet(1)), Answering(ReplayRunner(RUNNER.measure(WORK, [])))
    assert (least.pairs, least.devices, Answering(RUNNER).devices) == (None, 1, 1)
    assert replay.pairs == frozenset()
    least.close()


def test_the_tuner_thinks_while_devices_measure(space: Space) -> None:
    """Each round but the first two ends only once a fit has begun and ended during it."""
    fits: list[Signal] = []

    class Fitting:
        def fit(self, space: Space, records: Sequence[Record]) -> Any:
            found = LearnedPredictor().fit(space, records)
            fits[-1].set()
            return found

    class Waiting:
        rounds = 0

        def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
            yield from RUNNER.measure(workload, trials[:-1])
            self.rounds += 1
            assert self.rounds < 3 or fits[-1].wait(WAIT)
            fits.append(Signal())
            yield from RUNNER.measure(workload, trials[-1:])

    fits.append(Signal())
    effort = replace(EFFORT, decisions=0, batch=4)
    assert tune(space, SHAPES, Waiting(), effort, predictor=Fitting(), ahead=True).trials == 20


def test_what_is_thought_while_devices_measure_costs_no_time() -> None:
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    clock = PhaseTimer(lambda: now[0])
    passes(3.0)
    clock.waited(lambda: clock.fit(lambda: passes(20.0)))
    assert (clock.seconds.model, clock.seconds.search) == (3.0, 0.0)
    clock.fit(lambda: passes(5.0))
    assert clock.seconds.model + clock.seconds.search == 8.0


def test_an_error_of_the_tuner_ends_the_run(space: Space) -> None:
    class Failing:
        fits = 0

        def fit(self, space: Space, records: Sequence[Record]) -> Any:
            self.fits += 1
            if self.fits > 2:
                raise ModelError("the model fits", "it does not")
            return LearnedPredictor().fit(space, records)

    threads = active_count()
    with pytest.raises(ModelError, match="the model fits"):
        tune(space, SHAPES, RUNNER, EFFORT, predictor=Failing(), ahead=True)
    assert active_count() == threads


def test_a_study_goes_on_as_it_began(tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 32), N=128, K=64)
    found = {}
    for devices, ahead, began in ((4, None, True), (1, None, False), (4, False, False), (1, True, True)):
        folder = tmp_path / f"{devices}-{ahead}"
        study = Study.create(folder, work, HARDWARE, ShapeSet.uniform(work, 4), "smoke")
        with pytest.raises(KeyboardInterrupt):
            study.tune(Fleet(devices, interrupt_after=10), ahead=ahead)
        run = Study.open(folder).tune(Fleet(5 - devices), ahead=not ahead)
        found.setdefault(began, []).append([(r.scheme, r.shape) for r in run.records])
    assert all(one == other for one, other in found.values()) and found[True] != found[False]
