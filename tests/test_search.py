"""Strategies and the joint loop: no waste, good finds, and nothing lost by an interruption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.errors import DietlabError, ModelError, SpaceError
from dietlab.events import Event, ModelFitted, RoundFinished, StageAdvanced, StageStarted, TrialMeasured
from dietlab.hardware import Hardware
from dietlab.measure import Record, RecordStore, Runner, SyntheticRunner, Trial
from dietlab.search import EFFORTS, STRATEGIES, SearchState, TuningRun, effort_named, tune
from dietlab.search.strategies import strategy_named
from dietlab.shapes import Dim, ShapeSet
from dietlab.space import MicroKernel, Space, build_space
from dietlab.workloads import Dense, Workload

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 128), N=2304, K=768)
SHAPES = ShapeSet.uniform(WORK)
SMALL = replace(EFFORTS["smoke"], trials=24, batch=8)


@pytest.fixture(scope="module")
def space() -> Space:
    return build_space(WORK, HARDWARE)


def few(space: Space, count: int) -> Space:
    return replace(space, micro_kernels=tuple(sorted(Random(1).sample(space.micro_kernels, count))))


@settings(max_examples=12)
@given(
    name=st.sampled_from(sorted(STRATEGIES)), tried=st.sampled_from([0, 1, 20, 47, 48]),
    count=st.integers(0, 60), seed=st.integers(0, 9), fitted=st.booleans(),
)  # fmt: skip
def test_proposals_are_new_distinct_as_many_as_asked_and_repeatable(
    space: Space, synthetic_run: TuningRun, name: str, tried: int, count: int, seed: int, fitted: bool
) -> None:
    pool = few(space, 48)
    trials = [Trial(kernel, (SHAPES.shapes[0],)) for kernel in pool.micro_kernels[:tried]]
    records = tuple(SyntheticRunner(HARDWARE).measure(WORK, trials))
    state = SearchState(pool, SHAPES, records, synthetic_run.model if fitted and tried else None)
    strategy = strategy_named(name)
    proposed = list(strategy.propose(state, count, Random(seed)))
    assert len(proposed) == len(set(proposed)) == min(count, 48 - tried)
    assert set(proposed) <= set(state.untried) and not set(proposed) & state.tried
    assert proposed == list(strategy.propose(state, count, Random(seed)))


def slowdown(run: TuningRun, space: Space) -> float:
    """Geometric mean over the shapes of the best found over the best of the space."""
    runner = SyntheticRunner(HARDWARE)

    def best(kernels: Sequence[MicroKernel]) -> np.ndarray:
        return np.array([min(runner.seconds(WORK, kernel, shape) for kernel in kernels) for shape in SHAPES])

    return float(np.exp(np.log(best(run.micro_kernels) / best(space.micro_kernels)).mean()))


def test_sixty_four_trials_come_within_three_percent_of_the_best(space: Space) -> None:
    found = {}
    for strategy in ("marginal", "paper", "random"):
        runs = [
            tune(space, SHAPES, SyntheticRunner(HARDWARE), "quick", strategy, seed=seed) for seed in range(3)
        ]
        assert all(run.trials == 64 < len(space) / 4 and run.failures == 0 for run in runs)
        found[strategy] = sorted(slowdown(run, space) for run in runs)
    assert found["marginal"][-1] < 1.03, found
    assert found["paper"][1] < 1.03, found
    assert sum(found["marginal"]) < sum(found["random"]), found


def test_each_micro_kernel_is_measured_once_before_confirmation(space: Space) -> None:
    run = tune(space, SHAPES, SyntheticRunner(HARDWARE), SMALL)
    searched = run.records[: SMALL.trials]
    assert len({r.micro_kernel for r in searched}) == SMALL.trials
    assert all(r.shape in SHAPES.shapes for r in searched)
    assert len({r.micro_kernel for r in run.records[SMALL.trials :]}) == SMALL.confirm_kernels
    assert len({(r.micro_kernel, r.shape) for r in run.records}) == len(run.records)


def test_held_out_shapes_are_never_measured(space: Space) -> None:
    shapes = ShapeSet.every(WORK).split(0.75)
    run = tune(space, shapes, SyntheticRunner(HARDWARE), replace(SMALL, confirm_shapes=0))
    assert not {r.shape for r in run.records} & shapes.held_out


def test_exhaustive_search_ends_with_the_space(space: Space) -> None:
    tiny = few(space, 5)
    run = tune(tiny, SHAPES, SyntheticRunner(HARDWARE), SMALL, "exhaustive")
    assert run.micro_kernels == tiny.micro_kernels and run.trials == 5


@dataclass
class Troubled:
    """Measures like the synthetic machine, except that some candidates crash and Ctrl-C comes once."""

    crash: frozenset[MicroKernel] = frozenset()
    interrupt_after: int | None = None
    asked: int = 0

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for trial in trials:
            for shape in trial.shapes:
                if self.asked == self.interrupt_after:
                    self.interrupt_after = None
                    raise KeyboardInterrupt
                self.asked += 1
                if trial.micro_kernel in self.crash:
                    yield Record(trial.micro_kernel, shape, "crashed", reason="signal 11")
                else:
                    yield from SyntheticRunner(HARDWARE).measure(
                        workload, [Trial(trial.micro_kernel, (shape,))]
                    )


def in_store(path: Path, space: Space, runner: Runner) -> TuningRun:
    return tune(space, SHAPES, runner, SMALL, store=RecordStore(path, {"workload": WORK.to_json()}))


@pytest.mark.parametrize("batches", [0, 1, 2, 3])
def test_run_resumed_between_rounds_equals_the_uninterrupted_one(
    batches: int, space: Space, tmp_path: Path
) -> None:
    whole = tune(space, SHAPES, SyntheticRunner(HARDWARE), SMALL)
    with pytest.raises(KeyboardInterrupt):
        in_store(tmp_path / "r.jsonl", space, Troubled(interrupt_after=8 * batches))
    resumed = in_store(tmp_path / "r.jsonl", space, SyntheticRunner(HARDWARE))
    assert resumed.records == whole.records
    np.testing.assert_array_equal(
        resumed.seconds_table(whole.micro_kernels, SHAPES.shapes),
        whole.seconds_table(whole.micro_kernels, SHAPES.shapes),
    )


@pytest.mark.parametrize("after", [1, 5, 13, 23, 25, 40])
def test_interruption_anywhere_keeps_every_record_and_doubles_none(
    after: int, space: Space, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        in_store(path, space, Troubled(interrupt_after=after))
    kept = RecordStore(path, {"workload": WORK.to_json()}).records
    assert len(kept) == after
    runner = Troubled()
    resumed = in_store(path, space, runner)
    assert resumed.records[:after] == tuple(kept) and runner.asked == len(resumed.records) - after
    assert len({(r.micro_kernel, r.shape) for r in resumed.records}) == len(resumed.records)
    assert resumed.trials == SMALL.trials


def test_failing_candidates_are_records_and_not_tried_again(space: Space) -> None:
    pool = few(space, 24)
    crash = frozenset(pool.micro_kernels[::2])
    run = tune(pool, SHAPES, Troubled(crash), SMALL)
    assert run.failures == 12 and run.trials == 24
    assert set(run.micro_kernels) == set(pool.micro_kernels) - crash
    assert len([r for r in run.records if not r.ok]) == 12


def test_only_failures_is_an_error_that_points_at_the_records(space: Space) -> None:
    pool, store = few(space, 6), RecordStore()
    with pytest.raises(
        ModelError, match=r"at least one candidate is measured; got 6 failures\. .*dietlab doctor"
    ):
        tune(pool, SHAPES, Troubled(frozenset(pool)), SMALL, store=store)
    assert len(store.records) == 6


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(
        SpaceError, match="a strategy is one of marginal, paper, random, exhaustive; got 'best'"
    ):
        strategy_named("best")
    with pytest.raises(DietlabError, match="an effort is one of smoke, quick, full; got 'huge'"):
        effort_named("huge")


def test_observers_see_every_trial_with_rising_progress(space: Space) -> None:
    events: list[Event] = []

    class Recorder:
        def on_event(self, event: Event) -> None:
            events.append(event)

    run = tune(space, SHAPES, SyntheticRunner(HARDWARE), SMALL, observers=[Recorder()])
    measured = [e for e in events if isinstance(e, TrialMeasured)]
    assert [e.trials for e in measured] == list(range(1, len(run.records) + 1))
    assert [e.micro_kernel for e in measured] == [r.micro_kernel.key for r in run.records]
    for stage, total in (("tune", SMALL.trials), ("confirm", len(run.records) - SMALL.trials)):
        assert [e.total for e in events if isinstance(e, StageStarted) and e.stage == stage] == [total]
        done = [e.done for e in events if isinstance(e, StageAdvanced) and e.stage == stage]
        assert done == sorted(done) and done[-1] == total
    rounds = [e for e in events if isinstance(e, RoundFinished)]
    assert [e.round for e in rounds] == [1, 2, 3] and [e.trials for e in rounds] == [8, 16, 24]
    assert [e.samples for e in events if isinstance(e, ModelFitted)] == [8, 16, 24]


def test_seconds_add_up_the_phases_of_the_records(space: Space) -> None:
    class Slow:
        def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
            for made in SyntheticRunner(HARDWARE).measure(workload, trials):
                yield replace(made, phases=made.phases.plus(compile=2.0, measure=1.0))

    run = tune(space, SHAPES, Slow(), SMALL)
    assert run.seconds.compile == 2.0 * len(run.records) and run.seconds.measure == len(run.records)
    assert run.seconds.model > 0 and run.seconds.total == pytest.approx(sum(run.seconds.__dict__.values()))
    frame = run.frame()
    assert len(frame) == len(run.records) and set(frame["status"]) == {"ok"}
