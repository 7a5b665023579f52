"""Strategies and the joint loop: no waste, good finds, and nothing lost by an interruption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.cost import adaptation_cost, best_shape
from dietlab.errors import DietlabError, ModelError, SpaceError
from dietlab.events import Event, ModelFitted, RoundFinished, StageAdvanced, StageStarted, TrialMeasured
from dietlab.hardware import Hardware
from dietlab.measure import Record, RecordStore, Round, Runner, SyntheticRunner, Timing, Trial
from dietlab.search import (
    EFFORTS,
    STRATEGIES,
    Effort,
    PhaseTimer,
    SearchState,
    TuningRun,
    best_together,
    candidate_plans,
    effort_named,
    length_grid,
    tune,
)
from dietlab.search.strategies import strategy_named
from dietlab.search.verify import FEW_ROWS
from dietlab.shapes import Dim, Shape, ShapeSet
from dietlab.space import MicroKernel, Space, build_space
from dietlab.workloads import Dense, Workload

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 128), N=2304, K=768)
SHAPES = ShapeSet.uniform(WORK)
SMALL = replace(
    EFFORTS["quick"],
    trials=24,
    batch=8,
    confirm_kernels=3,
    confirm_shapes=6,
    verify_shapes=0,
    timing=Timing(3, 0.001),
)
ROTATING = replace(SMALL, timing=Timing(3, 0.001, cache="rotating"))
VERIFIED = replace(SMALL, verify_shapes=6)
THOROUGH = {"hot": SMALL, "rotating": ROTATING, "verified": VERIFIED}


@pytest.fixture(scope="module")
def space() -> Space:
    return build_space(WORK, HARDWARE)


@pytest.fixture(scope="module")
def whole_runs(space: Space) -> dict[str, TuningRun]:
    return {name: tune(space, SHAPES, SyntheticRunner(HARDWARE), effort) for name, effort in THOROUGH.items()}


def few(space: Space, count: int) -> Space:
    return replace(space, schemes=tuple(sorted(Random(1).sample(space.schemes, count))))


@settings(max_examples=12)
@given(
    name=st.sampled_from(sorted(STRATEGIES)),
    tried=st.sampled_from([0, 1, 20, 47, 48]),
    count=st.integers(0, 60),
    seed=st.integers(0, 9),
    fitted=st.booleans(),
)
def test_proposals_are_new_distinct_as_many_as_asked_and_repeatable(
    space: Space, synthetic_run: TuningRun, name: str, tried: int, count: int, seed: int, fitted: bool
) -> None:
    pool = few(space, 48)
    trials = [Trial(kernel, (SHAPES.shapes[0],)) for kernel in pool.schemes[:tried]]
    records = tuple(SyntheticRunner(HARDWARE).measure(WORK, trials))
    state = SearchState(pool, SHAPES, records, synthetic_run.model if fitted and tried else None)
    strategy = strategy_named(name)
    proposed = list(strategy.propose(state, count, Random(seed)))
    assert len(proposed) == len(set(proposed)) == min(count, 48 - tried)
    assert set(proposed) <= set(state.untried) and not set(proposed) & state.tried
    assert proposed == list(strategy.propose(state, count, Random(seed)))


@given(seed=st.integers(0, 99), count=st.integers(1, 40))
def test_the_first_round_tries_every_way_to_read_as_often(space: Space, seed: int, count: int) -> None:
    state = SearchState(space, SHAPES, (), None)
    tried = Counter(
        (k.order, k.kernel.access_pattern)
        for k in strategy_named("marginal").propose(state, count, Random(seed))
    )
    ways = {(kernel.order, kernel.kernel.access_pattern) for kernel in space}
    assert len(ways) == 7 and len(tried) == min(count, len(ways))
    assert max(tried.values()) - min(tried.values()) <= 1


def slowdown(run: TuningRun, space: Space) -> float:
    """Geometric mean over the shapes of the best found over the best of the space."""
    runner = SyntheticRunner(HARDWARE)

    def best(kernels: Sequence[MicroKernel]) -> np.ndarray:
        return np.array([min(runner.seconds(WORK, kernel, shape) for kernel in kernels) for shape in SHAPES])

    return float(np.exp(np.log(best(run.schemes) / best(space.schemes)).mean()))


def test_sixty_four_trials_come_within_three_percent_of_the_best(space: Space) -> None:
    found = {}
    effort = replace(SMALL, trials=64, batch=16, confirm_shapes=0)
    for strategy in ("marginal", "paper", "random"):
        runs = [
            tune(space, SHAPES, SyntheticRunner(HARDWARE), effort, strategy, seed=seed) for seed in range(2)
        ]
        assert all(run.trials == 64 < len(space) / 4 and run.failures == 0 for run in runs)
        found[strategy] = sorted(slowdown(run, space) for run in runs)
    assert found["marginal"][-1] < 1.03, found
    assert found["paper"][0] < 1.03, found
    assert sum(found["marginal"]) < sum(found["random"]), found


def test_each_micro_kernel_is_measured_once_before_confirmation(whole_runs: dict[str, TuningRun]) -> None:
    run = whole_runs["hot"]
    searched = run.records[: SMALL.trials]
    assert len({r.scheme for r in searched}) == SMALL.trials
    assert all(r.shape in SHAPES.shapes for r in searched)
    assert len({r.scheme for r in run.records[SMALL.trials :]}) == SMALL.confirm_kernels
    assert len({(r.asked_by, r.scheme, r.shape) for r in run.records}) == len(run.records)


def test_where_weights_rotate_the_smallest_shape_is_measured_too(space: Space) -> None:
    run = tune(space, SHAPES, SyntheticRunner(HARDWARE), ROTATING, "random")
    first = list(dict.fromkeys(r.scheme for r in run.records))
    assert len(first) == ROTATING.trials
    cost = adaptation_cost(WORK, HARDWARE)
    for kernel in first:
        expected = {Shape.of(T=1), best_shape(kernel, SHAPES.shapes, cost)}
        assert expected <= {r.shape for r in run.records if r.scheme == kernel}
    searched = run.records[: 2 * ROTATING.trials]
    assert {r.shape for r in searched} <= {Shape.of(T=1), *SHAPES} and len(set(first)) == len(first)


@pytest.mark.parametrize("name", THOROUGH)
def test_no_round_measures_anything_twice(name: str, whole_runs: dict[str, TuningRun]) -> None:
    run = whole_runs[name]
    assert len({(r.asked_by, r.scheme, r.shape) for r in run.records}) == len(run.records)


def test_the_model_ranks_what_it_did_not_see_better_than_chance(space: Space) -> None:
    """On few confirmed micro-kernels, so that one run alone says little."""
    runs = [tune(space, SHAPES, SyntheticRunner(HARDWARE), SMALL, seed=seed) for seed in range(4)]
    assert np.mean([run.held_out_metrics["pairwise"] for run in runs]) > 0.6


def test_plans_are_verified_where_they_compete(whole_runs: dict[str, TuningRun]) -> None:
    plain, run = whole_runs["hot"], whole_runs["verified"]
    assert run.records[: len(plain.records)] == plain.records
    verified = run.records[len(plain.records) :]
    first, more = (length_grid(WORK, SHAPES, n * VERIFIED.verify_shapes).shapes for n in (1, 2))
    shapes = {*first, *more}
    # The ends of the range and some in between; in the second round also those between them.
    by_round = {n: {r.shape for r in verified if r.asked_by == Round("verify", n)} for n in (1, 2)}
    assert by_round[1] == set(first) and len(first) >= 4
    assert set(more) - set(first) < by_round[2] <= shapes
    for shape in shapes:
        least = VERIFIED.short_finalists if shape["T"] <= FEW_ROWS else VERIFIED.finalists
        assert len([r for r in run.records if r.shape == shape]) >= least
    assert {r.scheme.edge for r in verified} <= {"even", "rest"}


def test_what_is_probably_fastest_was_measured(space: Space) -> None:
    """Little else can be counted on to be far below it."""
    first, more = (length_grid(WORK, SHAPES, n * VERIFIED.verify_shapes).shapes for n in (1, 2))
    shapes, means = {*first, *more}, []
    for seed in range(6):
        run = tune(space, SHAPES, SyntheticRunner(HARDWARE), VERIFIED, seed=seed)
        plans, ratios = candidate_plans(run, tuple(shapes)), {}
        for shape in shapes:
            seconds = run.expected_seconds(plans, [shape])[:, 0]
            measured = {r.scheme for r in run.records if r.shape == shape}
            best = min(t for plan, t in zip(plans, seconds, strict=True) if plan in measured)
            ratios[shape] = seconds.min() / best
        assert min(ratios[shape] for shape in first) > 0.85, ratios
        means.append(np.mean(list(ratios.values())))
    assert np.mean(means) > 0.93, means


def test_candidates_are_what_was_measured_and_its_lower_relatives(synthetic_run: TuningRun) -> None:
    shapes = tuple(length_grid(synthetic_run.space.workload, synthetic_run.shapes, 16))
    plans, measured = candidate_plans(synthetic_run, shapes), set(synthetic_run.schemes)
    assert list(plans) == sorted(set(plans)) and measured <= set(plans)
    families = {plan.family for plan in set(plans) - measured}
    assert 0 < len(families) <= 10
    for family in families:
        tallest = max(kernel.rows for kernel in measured if kernel.family == family)
        for edge in ("even", "rest"):
            found = sorted(p.rows for p in plans if p.family == family and p.edge == edge)
            assert found == list(range(1, tallest + 1))


def test_best_together_is_greedy(synthetic_run: TuningRun) -> None:
    shapes = synthetic_run.shapes.shapes
    kernels = synthetic_run.schemes
    chosen = best_together(synthetic_run, shapes, 4)
    assert len(set(chosen)) == 4 and best_together(synthetic_run, shapes, 2) == chosen[:2]
    logs = dict(zip(kernels, np.log(synthetic_run.seconds_table(kernels, shapes)), strict=True))
    assert logs[chosen[0]].mean() == min(row.mean() for row in logs.values())
    assert len(best_together(synthetic_run, shapes, 10_000)) == len(kernels)


def test_dense_shapes_share_the_weight_of_their_nearest() -> None:
    work = Dense(T=Dim(1, 40), N=64, K=32)
    given_shapes = ShapeSet.weighted(work, {10: 3.0, 30: 1.0})
    dense = length_grid(work, given_shapes)
    assert [s["T"] for s in dense] == list(range(1, 41))
    assert sum(dense.weight(Shape.of(T=t)) for t in range(1, 20)) == pytest.approx(0.75 * 19 / 20)
    assert len({round(dense.weight(Shape.of(T=t)), 12) for t in range(1, 20)}) == 1


@pytest.mark.parametrize("limit", [3, 4, 7, 64, 256])
@pytest.mark.parametrize("dim", [Dim(1, 5000), Dim(17, 17), Dim(3, 128), Dim(1000, 1001)])
def test_dense_shapes_reach_from_end_to_end_and_are_few(limit: int, dim: Dim) -> None:
    work = Dense(T=dim, N=1, K=1)
    extents = [s["T"] for s in length_grid(work, ShapeSet.uniform(work, 4), limit)]
    assert extents == sorted(set(extents)) and (extents[0], extents[-1]) == (dim.low, dim.high)
    assert len(extents) == len(dim) if len(dim) <= limit else len(extents) <= limit + 1
    assert set(range(dim.low, min(dim.high, dim.low + limit // 2))) <= set(extents)


def test_held_out_shapes_are_never_measured(space: Space) -> None:
    shapes = ShapeSet.every(WORK).split(0.75)
    run = tune(space, shapes, SyntheticRunner(HARDWARE), replace(SMALL, confirm_shapes=0))
    assert not {r.shape for r in run.records} & shapes.held_out


def test_exhaustive_search_ends_with_the_space(space: Space) -> None:
    tiny = few(space, 5)
    run = tune(tiny, SHAPES, SyntheticRunner(HARDWARE), SMALL, "exhaustive")
    assert run.schemes == tiny.schemes and run.trials == 5


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
                if trial.scheme in self.crash:
                    yield Record(trial.scheme, shape, "crashed", reason="signal 11")
                else:
                    yield from SyntheticRunner(HARDWARE).measure(workload, [Trial(trial.scheme, (shape,))])


def in_store(path: Path, space: Space, runner: Runner, effort: Effort = SMALL) -> TuningRun:
    return tune(space, SHAPES, runner, effort, store=RecordStore(path, {"workload": WORK.to_json()}))


def searched_records(run: TuningRun, effort: Effort, batches: int) -> int:
    """How many records the first batches left."""
    seen: set[MicroKernel] = set()
    for count, made in enumerate(run.records):
        if made.scheme not in seen and len(seen) == effort.batch * batches:
            return count
        seen.add(made.scheme)
        if len(seen) == effort.trials and run.records[count + 1].scheme != made.scheme:
            return count + 1
    raise AssertionError("the search is longer than that")


@pytest.mark.parametrize(
    ("name", "batches"),
    [("hot", 0), ("hot", 2), ("rotating", 2), ("verified", 3)],
)
def test_run_resumed_between_rounds_equals_the_uninterrupted_one(
    name: str, batches: int, space: Space, whole_runs: dict[str, TuningRun], tmp_path: Path
) -> None:
    whole, effort = whole_runs[name], THOROUGH[name]
    after = searched_records(whole, effort, batches)
    with pytest.raises(KeyboardInterrupt):
        in_store(tmp_path / "r.jsonl", space, Troubled(interrupt_after=after), effort)
    resumed = in_store(tmp_path / "r.jsonl", space, SyntheticRunner(HARDWARE), effort)
    assert resumed.records == whole.records
    np.testing.assert_array_equal(
        resumed.seconds_table(whole.schemes, SHAPES.shapes),
        whole.seconds_table(whole.schemes, SHAPES.shapes),
    )


@pytest.mark.parametrize("name", ["rotating", "verified"])
def test_finished_run_measures_nothing_when_it_is_repeated(
    name: str, space: Space, whole_runs: dict[str, TuningRun], tmp_path: Path
) -> None:
    first = in_store(tmp_path / "r.jsonl", space, SyntheticRunner(HARDWARE), THOROUGH[name])
    runner = Troubled()
    again = in_store(tmp_path / "r.jsonl", space, runner, THOROUGH[name])
    assert runner.asked == 0 and again.records == first.records == whole_runs[name].records
    assert again.held_out_metrics == first.held_out_metrics


@pytest.mark.parametrize("after", [55, 70])
def test_run_resumed_while_verifying_equals_the_uninterrupted_one(
    after: int, space: Space, whole_runs: dict[str, TuningRun], tmp_path: Path
) -> None:
    whole = whole_runs["verified"]
    assert after < len(whole.records)
    with pytest.raises(KeyboardInterrupt):
        in_store(tmp_path / "r.jsonl", space, Troubled(interrupt_after=after), VERIFIED)
    assert in_store(tmp_path / "r.jsonl", space, Troubled(), VERIFIED).records == whole.records


@pytest.mark.parametrize(
    ("name", "after"),
    [("hot", 13), ("hot", 25), ("rotating", 5), ("rotating", 47), ("verified", 50)],
)
def test_interruption_anywhere_keeps_every_record_and_doubles_none(
    name: str, after: int, space: Space, tmp_path: Path
) -> None:
    path, effort = tmp_path / "r.jsonl", THOROUGH[name]
    with pytest.raises(KeyboardInterrupt):
        in_store(path, space, Troubled(interrupt_after=after), effort)
    kept = RecordStore(path, {"workload": WORK.to_json()}).records
    assert len(kept) == after
    runner = Troubled()
    resumed = in_store(path, space, runner, effort)
    assert resumed.records[:after] == tuple(kept) and runner.asked == len(resumed.records) - after
    assert len({(r.asked_by, r.scheme, r.shape) for r in resumed.records}) == len(resumed.records)
    assert resumed.trials >= SMALL.trials
    if effort is not VERIFIED:
        assert resumed.trials == SMALL.trials


def test_failing_candidates_are_records_and_not_tried_again(space: Space) -> None:
    pool = few(space, 24)
    crash = frozenset(pool.schemes[::2])
    run = tune(pool, SHAPES, Troubled(crash), SMALL)
    assert run.failures == 12 and run.trials == 24
    assert set(run.schemes) == set(pool.schemes) - crash
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


@pytest.mark.parametrize("name", THOROUGH)
def test_observers_see_every_trial_with_rising_progress(name: str, space: Space) -> None:
    effort = THOROUGH[name]
    events: list[Event] = []

    class Recorder:
        def on_event(self, event: Event) -> None:
            events.append(event)

    run = tune(space, SHAPES, SyntheticRunner(HARDWARE), effort, observers=[Recorder()])
    measured = [e for e in events if isinstance(e, TrialMeasured)]
    assert [e.trials for e in measured] == list(range(1, len(run.records) + 1))
    assert [e.scheme for e in measured] == [r.scheme.key for r in run.records]
    stages = [e.stage for e in events if isinstance(e, StageStarted)]
    assert stages == ["search", "confirm"] + (["verify", "verify"] if name == "verified" else [])
    assert next(e.total for e in events if isinstance(e, StageStarted)) == effort.trials
    done, total = 0, 0
    for event in events:
        if isinstance(event, StageStarted):
            assert done == total, "the stage before went to its end"
            done, total = 0, event.total
        elif isinstance(event, StageAdvanced):
            assert done <= event.done <= total
            done = event.done
    assert done == total
    rounds = [e for e in events if isinstance(e, RoundFinished)]
    assert [e.round for e in rounds] == [1, 2, 3]
    assert name == "rotating" or [e.trials for e in rounds] == [8, 16, 24]
    assert [e.samples for e in events if isinstance(e, ModelFitted)] == [8, 16, 24]


def test_seconds_add_up_the_phases_of_the_records(space: Space) -> None:
    class Slow:
        def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
            for made in SyntheticRunner(HARDWARE).measure(workload, trials):
                yield replace(made, phases=made.phases.plus(compile=2.0, measure=1.0))

    run = tune(space, SHAPES, Slow(), SMALL)
    assert run.seconds.compile == 2.0 * len(run.records) and run.seconds.measure == len(run.records)
    assert run.seconds.model > 0 and run.seconds.total == pytest.approx(sum(run.seconds.__dict__.values()))
    frame = run.to_frame()
    assert len(frame) == len(run.records) and set(frame["status"]) == {"ok"}


def test_time_that_neither_runner_nor_model_took_is_search(space: Space) -> None:
    now = 0.0

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Slow:
        closed = False

        def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
            for made in SyntheticRunner(HARDWARE).measure(workload, trials):
                passes(100.0)
                yield made

        def close(self) -> None:
            self.closed = True

    slow, clock = Slow(), PhaseTimer(lambda: now)
    trials = [Trial(kernel, tuple(SHAPES)) for kernel in list(space)[:2]]
    passes(3.0)
    clock.fit(lambda: passes(20.0))
    watched = clock.watched(slow)
    for _ in watched.measure(space.workload, trials):
        passes(1.0)
    assert (clock.seconds.model, clock.seconds.search) == (20.0, 3.0 + 2 * len(SHAPES))
    watched.close()  # type: ignore[attr-defined]  # what a run that breaks off calls, if there is one
    assert slow.closed
