"""Strategies and the loop of tuning: no waste, good finds, and nothing lost by an interruption."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observed import Recorder
from threadpoolctl import threadpool_info, threadpool_limits

from dietlab.base.errors import DietlabError, ModelError, SpaceError
from dietlab.base.events import (
    ModelFitted,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageStarted,
    TrialMeasured,
)
from dietlab.cli.recorded import tuning_facts
from dietlab.cost import Known, LearnedPredictor, adaptation_cost, best_shape, evaluate_model, mean_metrics
from dietlab.machine import Hardware
from dietlab.measure import (
    Budget,
    Measures,
    Record,
    RecordStore,
    ReplayRunner,
    Round,
    SyntheticRunner,
    Timing,
    Trial,
)
from dietlab.measure.budget import BudgetSpentError
from dietlab.measure.record import each_once
from dietlab.measure.timing.target import roofline_of
from dietlab.problem import Conv2d, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import Scheme, Space, build_space
from dietlab.tuning import (
    EFFORTS,
    STRATEGIES,
    Decision,
    Effort,
    PhaseTimer,
    Proposal,
    SearchState,
    Tuner,
    TuningRun,
    best_together,
    candidate_plans,
    choose_portfolio,
    effort_named,
    length_grid,
    train_dispatcher,
    tune,
)
from dietlab.tuning.rounds import Answering
from dietlab.tuning.strategies.registry import strategy_named

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 128), N=2304, K=768)
SHAPES = ShapeSet.uniform(WORK)
SHORT = Dense(T=Dim(1, 32), N=2304, K=768)
LENGTHS = ShapeSet.uniform(SHORT)
ANY = Dense(T=Dim(1, 64), N=Dim(64, 4096), K=Dim(64, 4096))
LAYERS = ShapeSet.layers([(2304, 768), (768, 768)], lengths=(1, 8, 24, 64), workload=ANY)
RUNNER = SyntheticRunner(HARDWARE)
OTHER = SyntheticRunner(Hardware.preset("haswell-1core"), noise=0.1)
SMALL = replace(
    EFFORTS["quick"],
    trials=18,
    batch=6,
    decisions=24,
    decision_batch=12,
    decided_loss=0.0,
    timing=Timing(3, 0.001),
)
ROTATING = replace(SMALL, timing=Timing(3, 0.001, cache="rotating"))
BOTH = {"hot": SMALL, "rotating": ROTATING}
each_cache = pytest.mark.parametrize("effort", BOTH.values(), ids=BOTH)


@pytest.fixture(scope="module")
def space() -> Space:
    return build_space(WORK, HARDWARE)


@pytest.fixture(scope="module")
def short() -> Space:
    return few(build_space(SHORT, HARDWARE), 40)


def few(space: Space, count: int) -> Space:
    return space.restricted_to(Random(1).sample(space.schemes, count))


@dataclass(frozen=True)
class Guess:
    """A predictor that learns nothing and costs no time: another processor's times, and what was measured."""

    other: SyntheticRunner = OTHER
    times: dict[tuple[Scheme, Shape], float] = field(default_factory=dict, hash=False)

    def fit(self, space: Space, records: Sequence[Record]) -> Guessed:
        found = {(r.scheme, r.shape): r.seconds for r in records if r.seconds}
        if not found:
            raise ModelError("at least one record is successful", len(records))
        return Guessed(self, space.workload, found)

    def seconds(self, workload: Workload, scheme: Scheme, shape: Shape) -> float:
        if (scheme, shape) not in self.times:
            self.times[scheme, shape] = self.other.seconds(workload, scheme, shape)
        return self.times[scheme, shape]


@dataclass(frozen=True)
class Guessed:
    guess: Guess
    workload: Workload
    measured: Mapping[tuple[Scheme, Shape], float]

    @cached_property
    def factor(self) -> float:
        ratios = [t / self.guess.seconds(self.workload, *pair) for pair, t in self.measured.items()]
        return float(np.median(ratios))

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> np.ndarray:
        def one(scheme: Scheme, shape: Shape) -> float:
            known = self.measured.get((scheme, shape))
            return known or self.factor * self.guess.seconds(self.workload, scheme, shape)

        return np.array([[one(scheme, shape) for shape in shapes] for scheme in schemes])

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> np.ndarray:
        return np.array([[0.01 if (k, s) in self.measured else 0.1 for s in shapes] for k in schemes])


GUESS = Guess()


def tuned(
    space: Space,
    runner: Measures = RUNNER,
    effort: Effort = SMALL,
    shapes: ShapeSet = LENGTHS,
    **others: Any,
) -> TuningRun:
    """A quick run: its predictor learns nothing."""
    return tune(space, shapes, runner, effort, **{"predictor": GUESS, **others})


def by_hand(tuner: Tuner) -> Iterator[tuple[Tuner, Proposal]]:
    """Yields each proposal and the tuner that made it; the last tuner has nothing left to ask."""
    while proposal := tuner.ask():
        yield tuner, proposal
        tuner = told(tuner, proposal)


def told(tuner: Tuner, proposal: Proposal) -> Tuner:
    return tuner.tell(proposal, RUNNER.measure(tuner.space.workload, proposal.trials))


def ended(tuner: Tuner) -> Tuner:
    """The tuner after its last proposal."""
    while proposal := tuner.ask():
        tuner = told(tuner, proposal)
    return tuner


def tuner_of(space: Space, effort: Effort = SMALL, shapes: ShapeSet = LENGTHS, **others: Any) -> Tuner:
    strategy = strategy_named(others.pop("strategy", "draft"))
    return Tuner(space, shapes, effort, strategy, **{"predictor": GUESS, **others})


def stage(records: Iterable[Record], name: str) -> list[Record]:
    return [record for record in records if record.asked_by and record.asked_by.stage == name]


def distinct(records: Sequence[Record]) -> bool:
    """Whether no round measured a pair twice."""
    return len({(r.asked_by, r.scheme, r.shape) for r in records}) == len(records)


@pytest.fixture(scope="module")
def whole(short: Space) -> dict[str, TuningRun]:
    """Runs that nothing interrupted."""
    return {name: tuned(short, effort=effort) for name, effort in BOTH.items()}


@settings(max_examples=12)
@given(
    name=st.sampled_from(sorted(STRATEGIES)),
    tried=st.sampled_from([0, 1, 20, 47, 48]),
    count=st.integers(0, 60),
    seed=st.integers(0, 9),
    fitted=st.booleans(),
)
def test_proposals_are_new_distinct_as_many_as_asked_and_repeatable(
    space: Space, name: str, tried: int, count: int, seed: int, fitted: bool
) -> None:
    pool = few(space, 48)
    trials = [Trial(kernel, (SHAPES.shapes[0],)) for kernel in pool.schemes[:tried]]
    records = tuple(RUNNER.measure(WORK, trials))
    state = SearchState(pool, SHAPES, records, GUESS.fit(pool, records) if fitted and tried else None)
    strategy = strategy_named(name)
    proposed = list(strategy.propose(state, count, Random(seed)))
    assert len(proposed) == len(set(proposed)) == min(count, 48 - tried)
    assert set(proposed) <= set(state.untried) and not set(proposed) & state.tried
    assert proposed == list(strategy.propose(state, count, Random(seed)))


@given(seed=st.integers(0, 99), count=st.integers(1, 40))
def test_the_first_round_tries_every_way_to_read_as_often(space: Space, seed: int, count: int) -> None:
    state = SearchState(space, SHAPES, (), None)
    proposed = strategy_named("marginal").propose(state, count, Random(seed))
    tried = Counter((kernel.order, kernel.kernel.access_pattern) for kernel in proposed)
    ways = {(kernel.order, kernel.kernel.access_pattern) for kernel in space}
    assert len(ways) == 9 and len(tried) == min(count, len(ways))
    assert max(tried.values()) - min(tried.values()) <= 1


def slowdown(run: TuningRun, space: Space) -> float:
    """Geometric mean over the shapes of the best found over the best of the space."""
    runner = SyntheticRunner(HARDWARE)

    def best(kernels: Sequence[Scheme]) -> np.ndarray:
        return np.array([min(runner.seconds(WORK, kernel, shape) for kernel in kernels) for shape in SHAPES])

    return float(np.exp(np.log(best(run.schemes) / best(space.schemes)).mean()))


def test_sixty_four_trials_come_within_three_percent_of_the_best(space: Space) -> None:
    found, pool = {}, few(space, 260)
    effort = replace(SMALL, trials=64, batch=16, decisions=0)
    for strategy in ("draft", "marginal", "paper", "random"):
        runs = [tune(pool, SHAPES, RUNNER, effort, strategy, seed=seed) for seed in range(2)]
        assert all(run.trials == len(run.records) == 64 and run.failures == 0 for run in runs)
        found[strategy] = sorted(slowdown(run, pool) for run in runs)
    assert found["draft"][-1] < 1.03 and found["marginal"][-1] < 1.03, found
    assert found["paper"][0] < 1.03, found
    assert sum(found["marginal"]) < sum(found["random"]), found


def test_small_products_of_the_tuner_use_one_thread(short: Space) -> None:
    class Watched:
        def measure(self, workload: Any, trials: Any) -> Iterator[Record]:
            seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            yield from RUNNER.measure(workload, trials)

    seen: set[int] = set()
    tuned(short)  # loads each library that has a BLAS
    with threadpool_limits(2, "blas"):
        tuned(short, Watched())
        assert seen == {1}
        after = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
        assert after == {2}, "what others compute goes on as before"


def test_each_scheme_is_measured_once_in_the_search(short: Space) -> None:
    run = tuned(short)
    searched = run.records[: SMALL.trials]
    assert stage(run.records, "search") == list(searched)
    assert len({r.scheme for r in searched}) == SMALL.trials and distinct(run.records)
    assert all(r.shape in LENGTHS.shapes for r in searched)
    rounds = list(dict.fromkeys(str(r.asked_by) for r in run.records))
    assert rounds[:5] == ["search 0", "search 6", "search 12", "decide 1", "decide 2"]
    assert rounds[3:] == [f"decide {number}" for number in range(1, len(rounds) - 2)]


def test_where_weights_rotate_the_smallest_shape_and_the_ridge_are_measured_too(short: Space) -> None:
    """At the ridge fetching takes as long as computing, so that what a scheme does of both at once shows."""
    run = tuned(short, effort=ROTATING, strategy="random")
    searched = stage(run.records, "search")
    first = list(dict.fromkeys(r.scheme for r in searched))
    assert len(first) == ROTATING.trials and distinct(run.records)
    cost, apart = adaptation_cost(SHORT, HARDWARE), dict[Shape, float]()
    for shape in ShapeSet.every(SHORT):
        limit = roofline_of(SHORT, shape, HARDWARE)
        assert limit is not None
        apart[shape] = abs(np.log(limit.memory_seconds / limit.compute_seconds))
    others = {best_shape(scheme, LENGTHS.shapes, cost) for scheme in first}
    (ridge,) = {record.shape for record in searched} - {Shape.of(T=1), *others}
    assert apart[ridge] < min(apart.values()) + 0.25
    for scheme in first:
        expected = {Shape.of(T=1), ridge, best_shape(scheme, LENGTHS.shapes, cost)}
        assert expected == {r.shape for r in searched if r.scheme == scheme}


def test_where_weights_rotate_each_round_measures_the_best_of_earlier_ones_again(short: Space) -> None:
    """On each shape that many new ones are measured on, so that rounds can be compared there."""
    searched, compared = stage(tuned(short, effort=ROTATING).records, "search"), set[Shape]()
    for number in (6, 12):
        earlier = [r for r in searched if r.asked_by and r.asked_by.number < number]
        tried = {r.scheme for r in earlier}
        now = [r for r in searched if r.asked_by == Round("search", number)]
        asked = Counter(r.shape for r in now if r.scheme not in tried)
        for shape in {r.shape for r in now}:
            seconds = {r.scheme: r.seconds for r in earlier if r.shape == shape and r.seconds}
            best = sorted(seconds, key=lambda scheme: seconds[scheme])[:2] if asked[shape] >= 4 else ()
            assert {r.scheme for r in now if r.shape == shape} & tried == set(best)
            compared |= {shape} if best else set()
    assert Shape.of(T=1) in compared


def test_the_model_ranks_what_it_did_not_see_better_than_chance(short: Space) -> None:
    run = tune(short, LENGTHS, RUNNER, replace(SMALL, decisions=0))
    unseen = [scheme for scheme in short if scheme not in set(run.schemes)]
    trials = [Trial(scheme, LENGTHS.shapes[:4]) for scheme in unseen]
    found = evaluate_model(run.predictor, list(RUNNER.measure(SHORT, trials)))
    assert len(unseen) == 22 and found["pairwise"] > 0.6


def test_the_model_is_judged_one_round_ahead(short: Space) -> None:
    """Decisions measure what is expected to be as fast: they do not count."""
    effort = replace(SMALL, trials=9, batch=3)
    run = tune(short, LENGTHS, RUNNER, effort)
    first, second, third = (
        [r for r in run.records if r.asked_by == Round("search", tried)] for tried in (0, 3, 6)
    )

    def judged(known: list[Record], new: list[Record]) -> Any:
        tried = {record.scheme for record in known}
        model = LearnedPredictor(cache=effort.timing.cache).fit(short, known)
        return evaluate_model(model, [record for record in new if record.scheme not in tried])

    expected = mean_metrics([judged(first, second), judged([*first, *second], third)])
    assert run.held_out_metrics == expected != {}
    assert stage(run.records, "decide")
    decided = tune(short, LENGTHS, RUNNER, replace(effort, decisions=0))
    assert decided.held_out_metrics == run.held_out_metrics


# The loop as a value


MODEL = {"predictor": LearnedPredictor()}
FITTED = replace(SMALL, trials=16, decisions=16)


@pytest.mark.parametrize(
    ("effort", "others"),
    [(SMALL, {}), (ROTATING, {}), (FITTED, MODEL)],
    ids=["hot", "rotating", "with a model"],
)
def test_to_ask_and_to_tell_by_hand_is_to_tune(effort: Effort, others: dict[str, Any], short: Space) -> None:
    run, last = tuned(short, effort=effort, **others), ended(tuner_of(short, effort, **others))
    assert last.ask() is None and last.records == run.records
    assert last.held_out_metrics == run.held_out_metrics != {}
    assert last.rounds == len({r.asked_by for r in run.records})
    assert last.decided == len(stage(run.records, "decide")) > 0


@each_cache
def test_the_same_records_give_the_same_proposals(effort: Effort, short: Space) -> None:
    asked = 0
    for tuner, proposal in by_hand(tuner_of(short, effort)):
        assert replace(tuner, predictor=Guess()).ask() == tuner.ask() == proposal
        assert len(set(proposal.pairs)) == len(proposal.pairs)
        tried = {record.scheme for record in tuner.records}
        if proposal.round.stage == "search":
            assert set(proposal.new) == {trial.scheme for trial in proposal.trials} - tried
        asked += 1
    assert asked > 4


def test_another_seed_searches_other_schemes(short: Space) -> None:
    first, other = (tuner_of(short, seed=seed).ask() for seed in (0, 1))
    assert first and other and set(first.new) != set(other.new)


def test_to_tell_leaves_the_tuner_that_asked_as_it_was(short: Space) -> None:
    tuner = tuner_of(short)
    proposal = tuner.ask()
    assert proposal is not None
    later = told(tuner, proposal)
    assert tuner.records == () and tuner.ask() == proposal != later.ask()
    assert {record.asked_by for record in later.records} == {proposal.round}


@pytest.mark.parametrize(
    ("work", "shapes"), [(SHORT, LENGTHS), (ANY, LAYERS)], ids=["lengths", "layers and lengths"]
)
def test_one_and_several_dynamic_dimensions_are_tuned(work: Dense, shapes: ShapeSet) -> None:
    run = tuned(few(build_space(work, HARDWARE), 40), shapes=shapes)
    decided = stage(run.records, "decide")
    grid = set(length_grid(work, shapes).shapes)
    assert run.trials >= SMALL.trials and {r.shape for r in stage(run.records, "search")} <= set(shapes)
    assert len({r.shape for r in decided}) > 3 and {r.shape for r in decided} <= grid
    dispatcher = train_dispatcher(choose_portfolio(run, max_kernels=4))
    assert len(dispatcher.micro_kernels) <= 4
    assert {dispatcher.plan(shape).rows for shape in grid} == {shape["T"] for shape in grid}


# Candidates and grids


def test_candidates_are_what_was_measured_and_its_lower_relatives(whole: dict[str, TuningRun]) -> None:
    run = whole["hot"]
    shapes = tuple(length_grid(run.space.workload, run.shapes, 16))
    plans, measured = candidate_plans(run, shapes), set(run.schemes)
    assert list(plans) == sorted(set(plans)) and measured <= set(plans)
    families = {plan.family for plan in set(plans) - measured}
    assert 0 < len(families) <= 10
    for family in families:
        tallest = max(kernel.rows for kernel in measured if kernel.family == family)
        for edge in ("even", "rest"):
            found = sorted(p.rows for p in plans if p.family == family and p.edge == edge)
            assert found == list(range(1, tallest + 1))


def test_best_together_is_greedy(whole: dict[str, TuningRun]) -> None:
    run = whole["hot"]
    shapes = run.shapes.shapes
    kernels = run.schemes
    chosen = best_together(run, shapes, 4)
    assert len(set(chosen)) == 4 and best_together(run, shapes, 2) == chosen[:2]
    logs = dict(zip(kernels, np.log(run.seconds_table(kernels, shapes)), strict=True))
    assert logs[chosen[0]].mean() == min(row.mean() for row in logs.values())
    assert len(best_together(run, shapes, 10_000)) == len(kernels)


def test_dense_shapes_share_the_weight_of_their_nearest() -> None:
    work = Dense(T=Dim(1, 40), N=64, K=32)
    given_shapes = ShapeSet.weighted(work, {10: 3.0, 30: 1.0})
    dense = length_grid(work, given_shapes)
    assert [s["T"] for s in dense] == list(range(1, 41))
    assert sum(dense.weight(Shape.of(T=t)) for t in range(1, 20)) == pytest.approx(0.75 * 19 / 20)
    assert len({round(dense.weight(Shape.of(T=t)), 12) for t in range(1, 20)}) == 1


def test_a_grid_over_layers_fills_gaps_of_lengths_and_shares_their_weight() -> None:
    work = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
    layers = ShapeSet.layers([(64, 32)], {1: 1.0, 5: 3.0, 9: 1.0}, work)
    grid = length_grid(work, layers)
    of_layer = {s["T"]: grid.weight(s) for s in grid if (s["N"], s["K"]) == (64, 32)}
    assert sorted(of_layer) == [1, 2, 3, 5, 9, 17, 33, 64]
    assert of_layer[1] == of_layer[2] == of_layer[3] == pytest.approx(0.75 * 0.2 / 3)
    assert of_layer[5] == pytest.approx(0.75 * 0.6) and of_layer[9] == pytest.approx(0.75 * 0.2)
    unnamed = {grid.weight(s) for s in grid if (s["N"], s["K"]) != (64, 32)}
    assert unnamed == {of_layer[64]} and sum(grid.weights) == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 24, 96, 700])
def test_a_grid_over_scattered_shapes_grows_no_faster_than_they_do(count: int) -> None:
    work = Dense(T=Dim(1, 512), N=Dim(64, 4096), K=Dim(64, 4096))
    given = ShapeSet.log_uniform(work, count)
    grid = length_grid(work, given)
    assert len(grid) <= 2.5 * max(256, len(given)) and sum(grid.weights) == pytest.approx(1)
    layers = {shape.without("T") for shape in grid}
    lengths = {shape["T"] for shape in grid}
    assert len(grid) == len(layers) * len(lengths), "no layer has a gap in its rows"
    ordered = sorted(lengths)
    assert (ordered[0], ordered[-1]) == (1, 512)
    assert all(high <= 2 * low + 1 for low, high in pairwise(ordered))
    # The weight stays where the shapes are: three quarters of it, the rest is the whole range's.
    means = [
        np.average(np.log([[shape[name] for name in "TNK"] for shape in some]), axis=0, weights=some.weights)
        for some in (grid, given)
    ]
    middle = np.log([512, 64 * 4096, 64 * 4096]) / 2
    assert np.abs(means[0] - (0.75 * means[1] + 0.25 * middle)).max() < 0.3


def test_a_grid_of_images_has_the_widths_between_those_of_a_layer() -> None:
    side = Dim(4, 80)
    work = Conv2d(N=Dim(1, 8), H=side, W=side, IC=Dim(64, 512), OC=64)
    given = ShapeSet.of(
        {
            Shape.of(N=1, H=4, W=4, IC=512): 1.0,
            Shape.of(N=1, H=8, W=6, IC=512): 1.0,
            Shape.of(N=8, H=30, W=20, IC=64): 1.0,
            Shape.of(N=8, H=60, W=80, IC=64): 1.0,
        }
    )
    grid = length_grid(work, given)
    assert set(given) <= set(grid) and sum(grid.weights) == pytest.approx(1) and len(grid) <= 280
    layer = {(s["H"], s["W"]): grid.weight(s) for s in grid if (s["N"], s["IC"]) == (1, 512)}
    assert sorted(layer) == [(4, 4), (5, 4), (6, 5), (7, 6), (8, 6)]
    assert sum(layer.values()) == pytest.approx(0.75 / 2)
    wide = sorted(s["W"] for s in grid if (s["N"], s["IC"]) == (8, 64) and grid.weight(s) > 0.005)
    assert len(wide) == 2 + 8 and max(high - low for low, high in pairwise(wide)) <= 7
    # Where only the number of images varies, the grid is that of the lengths of layers.
    fixed = replace(work, H=9, W=9)
    assert {s["N"] for s in length_grid(fixed, ShapeSet.of({Shape.of(N=1, IC=512): 1.0}))} <= set(range(1, 9))


@pytest.mark.parametrize("limit", [3, 4, 7, 64, 256])
@pytest.mark.parametrize("dim", [Dim(1, 5000), Dim(17, 17), Dim(3, 128), Dim(1000, 1001)])
def test_dense_shapes_reach_from_end_to_end_and_are_few(limit: int, dim: Dim) -> None:
    work = Dense(T=dim, N=1, K=1)
    given = ShapeSet.uniform(work, 4)
    extents = [s["T"] for s in length_grid(work, given, limit)]
    assert extents == sorted(set(extents)) and (extents[0], extents[-1]) == (dim.low, dim.high)
    assert len(extents) == len(dim) if len(dim) <= limit else len(extents) <= limit + 2 * len(given) + 1
    assert {shape["T"] for shape in given} <= set(extents)
    assert set(range(dim.low, min(dim.high, dim.low + limit // 2))) <= set(extents)


def test_a_grid_of_long_lengths_has_whole_tiles_and_the_length_after_each() -> None:
    """Where one more tile begins, another plan may be the best: a tree whose grid passes by such a length
    chooses wrongly at the very lengths that are asked for most."""
    work = Dense(T=Dim(1, 4096), N=4096, K=4096)
    extents = {s["T"] for s in length_grid(work, ShapeSet.weighted(work, {1: 1.0, 500: 1.0, 2048: 1.0}))}
    assert {256, 257, 500, 501, 512, 513, 1024, 1025, 2048, 2049, 4096} <= extents
    assert all(T % 64 in (0, 1) for T in extents - {500, 501} if T > 128)


# Deciding


@dataclass(frozen=True)
class Told:
    """Times that one shape has in common with all others, and their doubts, by scheme."""

    found: Mapping[Scheme, tuple[float, float]]

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> np.ndarray:
        return np.array([[self.found.get(scheme, (9.0, 0.0))[0]] * len(shapes) for scheme in schemes])

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> np.ndarray:
        return np.array([[self.found.get(scheme, (9.0, 0.0))[1]] * len(shapes) for scheme in schemes])


PADDED = build_space(SHORT, HARDWARE, ("padded",)).schemes[:3]
SHIPS, HOPED, SLOW = PADDED


def decision(found: Mapping[Scheme, tuple[float, float]], **others: Any) -> Decision:
    """A decision between three padded schemes, for a library of one micro-kernel; all were measured once."""
    space = build_space(SHORT, HARDWARE, ("padded",)).restricted_to(PADDED)
    records = others.pop(
        "records", tuple(RUNNER.measure(SHORT, [Trial(s, LENGTHS.shapes[:1]) for s in space]))
    )
    known = Known(space, others.pop("shapes", LENGTHS), records, Told(found))
    return Decision(known, **{"max_kernels": 1, **others})


OPEN = {SHIPS: (1.0, 0.01), HOPED: (1.02, 0.1), SLOW: (2.0, 0.1)}


def test_the_rivals_of_a_shape_are_measured_together_and_no_others() -> None:
    trials = decision(OPEN).trials(8)
    assert [trial.scheme for trial in trials] == sorted([SHIPS, HOPED])
    assert trials[0].shapes == trials[1].shapes and len(trials[0].shapes) == 4
    lengths = [shape["T"] for shape in trials[0].shapes]
    assert min(b / a for a, b in pairwise(lengths)) > 1.4, "shapes far from each other"


def test_what_would_ship_is_among_the_rivals_of_each_round(short: Space) -> None:
    """On each shape that a round asks for, the scheme that is fastest of a library at its time at worst."""
    rounds = 0
    for tuner, proposal in by_hand(tuner_of(short, max_kernels=2)):
        if proposal.round.stage == "search":
            continue
        rounds += 1
        dispatched = choose_portfolio(tuner.known, max_kernels=2)
        table, shapes = np.array(dispatched.seconds), dispatched.shapes.shapes
        by_shape: dict[Shape, set[Scheme]] = {}
        for scheme, shape in proposal.pairs:
            by_shape.setdefault(shape, set()).add(scheme)
        agreed = [dispatched.schemes[table[:, shapes.index(s)].argmin()] in by_shape[s] for s in by_shape]
        assert all(1 <= len(schemes) <= 4 for schemes in by_shape.values())
        assert max(map(len, by_shape.values())) > 1
        assert np.mean(agreed) > 0.5, (proposal.round, agreed)
    assert rounds > 1


@pytest.mark.parametrize(
    "found",
    [
        {SHIPS: (1.0, 0.0), HOPED: (1.02, 0.0), SLOW: (2.0, 0.0)},
        {SHIPS: (1.0, 0.01), HOPED: (1.2, 0.1), SLOW: (2.0, 0.1)},
    ],
    ids=["nothing is doubted", "no rival is near"],
)
def test_nothing_is_left_to_decide_between_what_is_known(
    found: Mapping[Scheme, tuple[float, float]],
) -> None:
    assert decision(found).expected_loss == 0 and decision(found).trials(8) == ()
    assert decision(OPEN).expected_loss > 0


def test_less_is_hoped_for_the_more_was_decided() -> None:
    losses = [decision(OPEN, progress=progress).expected_loss for progress in (0.0, 0.5, 1.0)]
    assert losses == sorted(losses, reverse=True) and losses[0] > 2 * losses[-1] > 0


def test_a_scheme_that_failed_is_no_rival() -> None:
    records = (
        *RUNNER.measure(SHORT, [Trial(SHIPS, LENGTHS.shapes[:1])]),
        Record(HOPED, LENGTHS.shapes[0], "crashed", reason="signal 11"),
    )
    assert decision(OPEN).trials(8) and decision(OPEN, records=records).trials(8) == ()


def test_only_pairs_that_can_be_measured_are_rivals() -> None:
    pairs = {(scheme, Shape.of(T=t)) for scheme in PADDED for t in range(1, 33, 3)}
    pairs -= {(HOPED, Shape.of(T=t)) for t in range(1, 17)}
    trials = decision(OPEN, measurable=frozenset(pairs)).trials(30)
    asked = {(trial.scheme, shape) for trial in trials for shape in trial.shapes}
    assert {scheme for scheme, _ in asked} == {SHIPS, HOPED} and asked <= pairs


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_a_decision_asks_for_no_more_than_it_may(count: int) -> None:
    assert sum(len(trial.shapes) for trial in decision(OPEN).trials(count)) == count // 2 * 2


@pytest.mark.parametrize("decisions", [0, 10, 21])
def test_decisions_end_at_the_number_of_the_effort(decisions: int, short: Space) -> None:
    run = tuned(short, effort=replace(SMALL, decisions=decisions))
    decided = stage(run.records, "decide")
    assert decisions - 4 < len(decided) <= decisions
    assert max(Counter(r.asked_by for r in decided).values(), default=0) <= SMALL.decision_batch


def test_decisions_end_once_little_can_be_lost(short: Space) -> None:
    effort = replace(SMALL, decisions=200, decision_batch=24, decided_loss=0.08)
    left, last = [], tuner_of(short, effort)
    for asking, proposal in by_hand(last):
        last = told(asking, proposal)
        if proposal.round.stage == "decide":
            left.append(Decision(asking.known, 8, asking.decided / 200).expected_loss)
    assert left and min(left) > 0.08 and last.decided < 190
    assert Decision(last.known, 8, last.decided / 200).expected_loss <= 0.08
    content = tuned(short, effort=replace(effort, decided_loss=max(left) + 0.01))
    assert not stage(content.records, "decide")


def library_loss(known: Known, max_kernels: int) -> float:
    """The weighted mean logarithm of the library's time over that of the best scheme of the space, as the
    synthetic machine really is."""
    work, grid = known.space.workload, length_grid(known.space.workload, known.shapes)
    dispatcher = train_dispatcher(choose_portfolio(known, max_kernels=max_kernels))
    ours = [RUNNER.seconds(work, dispatcher.scheme(shape), shape) for shape in grid]
    best = [min(RUNNER.seconds(work, scheme, shape) for scheme in known.space) for shape in grid]
    return float(np.average(np.log(np.divide(ours, best)), weights=grid.weights))


@pytest.mark.parametrize(
    ("effort", "others"),
    [
        (replace(SMALL, decisions=60, decision_batch=30), {}),
        (
            replace(SMALL, trials=16, decisions=48, decision_batch=24),
            {"strategy": "marginal", "predictor": LearnedPredictor()},
        ),
    ],
    ids=["a guess", "the model"],
)
def test_a_library_loses_less_after_deciding_than_before(
    effort: Effort, others: dict[str, Any], short: Space
) -> None:
    before, after = [], []
    for seed in range(3):
        tuner = tuner_of(short, effort, seed=seed, max_kernels=4, **others)
        searched = next(asking for asking, p in by_hand(tuner) if p.round.stage == "decide")
        before.append(library_loss(searched.known, 4))
        after.append(library_loss(ended(searched).known, 4))
    assert np.mean(after) < np.mean(before), (before, after)


@each_cache
def test_held_out_shapes_are_never_measured(effort: Effort, short: Space) -> None:
    shapes = ShapeSet.every(SHORT).split(0.75)
    run = tuned(short, effort=effort, shapes=shapes)
    assert shapes.held_out and stage(run.records, "decide")
    assert not {r.shape for r in run.records} & shapes.held_out


@each_cache
@pytest.mark.parametrize("share", [1.0, 0.7], ids=["all pairs", "some pairs"])
def test_a_replay_asks_only_for_what_was_recorded(share: float, effort: Effort, short: Space) -> None:
    every = build_space(SHORT, HARDWARE)
    families = sorted({scheme.family for scheme in short})[::8]
    pool = every.restricted_to(scheme for scheme in every if scheme.family in families)
    lengths = (*LENGTHS.shapes, *(Shape.of(T=t) for t in range(2, 32, 4)))
    draw = Random(2)
    trials = [Trial(s, tuple(x for x in sorted(set(lengths)) if draw.random() < share)) for s in pool]
    runner = ReplayRunner(RUNNER.measure(SHORT, trials))
    for max_kernels in (2, 8):
        run = tuned(pool, runner, effort, max_kernels=max_kernels, measurable=runner.pairs)
        assert len(stage(run.records, "decide")) > 4
        assert {(r.scheme, r.shape) for r in run.records} <= runner.pairs
    assert tuned(pool, runner, effort).records == tuned(pool, runner, effort, measurable=runner.pairs).records


# Interruptions


def test_grid_search_ends_with_the_space(space: Space) -> None:
    tiny = few(space, 5)
    run = tuned(tiny, effort=replace(SMALL, decisions=0), shapes=SHAPES, strategy="grid")
    assert run.schemes == tiny.schemes and run.trials == 5


@dataclass
class Troubled:
    """Measures like the synthetic machine, except that some candidates crash, such as those that are
    of no space, and Ctrl-C comes once."""

    crash: frozenset[Scheme] = frozenset()
    strangers_to: Space | None = None
    interrupt_after: int | None = None
    asked: int = 0

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for trial in trials:
            for shape in trial.shapes:
                if self.asked == self.interrupt_after:
                    self.interrupt_after = None
                    raise KeyboardInterrupt
                self.asked += 1
                stranger = self.strangers_to is not None and trial.scheme not in self.strangers_to
                if stranger or trial.scheme in self.crash:
                    yield Record(trial.scheme, shape, "crashed", reason="signal 11")
                else:
                    yield from RUNNER.measure(workload, [Trial(trial.scheme, (shape,))])


def in_store(path: Path, space: Space, runner: Measures, effort: Effort = SMALL, **others: Any) -> TuningRun:
    store = RecordStore(path, {"workload": SHORT.to_json()})
    return tuned(space, runner, effort, store=store, **others)


def bounds(run: TuningRun) -> list[int]:
    """The number of records before each round but the first."""
    names = [record.asked_by for record in run.records]
    return [n for n in range(1, len(names)) if names[n] != names[n - 1]]


@pytest.mark.parametrize("name", BOTH)
def test_a_run_resumed_between_rounds_equals_the_uninterrupted_one(
    name: str, short: Space, whole: dict[str, TuningRun], tmp_path: Path
) -> None:
    run, effort = whole[name], BOTH[name]
    assert len(bounds(run)) >= 4
    for after in (0, *bounds(run)):
        path = tmp_path / f"{after}.jsonl"
        with pytest.raises(KeyboardInterrupt):
            in_store(path, short, Troubled(interrupt_after=after), effort)
        resumed = in_store(path, short, RUNNER, effort)
        assert resumed.records == run.records and resumed.held_out_metrics == run.held_out_metrics
        tables = [found.seconds_table(run.schemes, LENGTHS.shapes) for found in (run, resumed)]
        np.testing.assert_array_equal(*tables)


@pytest.mark.parametrize("name", BOTH)
def test_a_run_resumed_within_a_round_keeps_every_record_and_doubles_none(
    name: str, short: Space, whole: dict[str, TuningRun], tmp_path: Path
) -> None:
    """In the middle of each round of the search and of deciding; where weights rotate, of each second one."""
    run, effort = whole[name], BOTH[name]
    begins = (0, *bounds(run))[:: 1 if name == "hot" else 2]
    for after in [bound + 4 for bound in begins if bound + 4 < len(run.records)]:
        path, broken = tmp_path / f"{after}.jsonl", run.records[after].asked_by
        with pytest.raises(KeyboardInterrupt):
            in_store(path, short, Troubled(interrupt_after=after), effort)
        kept = RecordStore(path, {"workload": SHORT.to_json()}).records
        assert tuple(kept) == run.records[:after]
        runner = Troubled()
        resumed = in_store(path, short, runner, effort)
        assert resumed.records[:after] == tuple(kept) and runner.asked == len(resumed.records) - after
        assert distinct(resumed.records) and broken is not None
        rest = replace(broken, part=1)
        assert {r.asked_by for r in resumed.records if r.asked_by and r.asked_by.part} == {rest}
        asked = [(r.scheme, r.shape) for r in run.records if r.asked_by == broken]
        assert asked == [(r.scheme, r.shape) for r in resumed.records if r.asked_by in (broken, rest)]
    again = Troubled()
    assert in_store(path, short, again, effort).records == resumed.records and again.asked == 0


def test_each_part_of_a_round_that_was_interrupted_twice_is_a_round_of_its_own(
    short: Space, tmp_path: Path
) -> None:
    for after in (3, 2):
        with pytest.raises(KeyboardInterrupt):
            in_store(tmp_path / "r.jsonl", short, Troubled(interrupt_after=after))
    run = in_store(tmp_path / "r.jsonl", short, RUNNER)
    rounds = [str(record.asked_by) for record in run.records[:6]]
    assert rounds == ["search 0"] * 3 + ["search 0.1"] * 2 + ["search 0.2"]
    assert distinct(run.records) and len({r.scheme for r in run.records[:6]}) == 6


@dataclass
class Slow:
    """The synthetic machine, on which each measurement takes ``seconds`` of ``now``."""

    seconds: float = 1.0
    now: float = 0.0
    closed: bool = False

    def clock(self) -> float:
        return self.now

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for record in RUNNER.measure(workload, trials):
            self.now += self.seconds
            yield replace(record, phases=PhaseSeconds(compile=2.0, measure=self.seconds))

    def close(self) -> None:
        self.closed = True


def measured_with(run: TuningRun) -> list[Any]:
    return [(record.scheme, record.shape, record.seconds) for record in run.records]


@pytest.mark.parametrize("seconds", [1, 3, 17, 40])
def test_a_budget_ends_a_run_in_time_and_the_next_goes_on(seconds: int, short: Space, tmp_path: Path) -> None:
    whole = in_store(tmp_path / "whole.jsonl", short, RUNNER)
    assert len(whole.records) > 40
    runner = Slow()
    budget = Budget(seconds, runner.clock)
    run = in_store(tmp_path / "r.jsonl", short, runner, budget=budget)
    assert budget.stopped and seconds - 1 <= len(run.records) == runner.now <= seconds
    assert measured_with(run) == measured_with(whole)[: len(run.records)]
    assert np.isfinite(run.seconds_table(run.schemes, LENGTHS.shapes)).all()
    resumed = in_store(tmp_path / "r.jsonl", short, RUNNER, budget=Budget(math.inf))
    assert measured_with(resumed) == measured_with(whole) and distinct(resumed.records)


def test_a_budget_keeps_what_the_end_takes(short: Space) -> None:
    budget = Budget(10, (runner := Slow()).clock)
    budget.thought(2.0)
    run = tuned(short, runner, SMALL, budget=budget)
    assert len(run.records) == 7 and budget.stopped
    enough = Budget(1000, (runner := Slow()).clock)
    assert len(tuned(short, runner, SMALL, budget=enough).records) > 40 and not enough.stopped


def test_a_budget_lasts_until_something_is_measured(short: Space, tmp_path: Path) -> None:
    runner = Slow()
    budget = Budget(5, runner.clock)
    runner.now = 5.5
    with pytest.raises(BudgetSpentError, match=r"got 5 s, and 5\.5 s were spent before tuning began\. Give"):
        in_store(tmp_path / "r.jsonl", short, runner, budget=budget)
    for none in (0, -1, math.nan):
        with pytest.raises(DietlabError, match=r"^a budget must be above 0 seconds; got"):
            Budget(none)


@pytest.mark.parametrize("name", BOTH)
def test_a_finished_run_measures_nothing_when_it_is_repeated(
    name: str, short: Space, whole: dict[str, TuningRun], tmp_path: Path
) -> None:
    first = in_store(tmp_path / "r.jsonl", short, RUNNER, BOTH[name])
    runner = Troubled()
    again = in_store(tmp_path / "r.jsonl", short, runner, BOTH[name])
    assert runner.asked == 0 and again.records == first.records == whole[name].records
    assert again.held_out_metrics == first.held_out_metrics


def test_a_finished_run_with_a_model_measures_nothing_when_it_is_repeated(short: Space) -> None:
    store, runner = RecordStore(), Troubled()
    first = tuned(short, effort=FITTED, store=store, **MODEL)
    again = tuned(short, runner, FITTED, store=store, **MODEL)
    assert runner.asked == 0 and again.records == first.records and stage(first.records, "decide")


@each_cache
def test_a_higher_effort_in_the_same_store_measures_only_what_it_lacks(effort: Effort, short: Space) -> None:
    store, runner, higher = RecordStore(), Troubled(), replace(effort, trials=30, decisions=48)
    first = tuned(short, effort=effort, store=store)
    fresh = tuned(short, effort=higher)
    raised = tuned(short, runner, higher, store=store)
    assert raised.records[: len(first.records)] == first.records and distinct(raised.records)
    assert runner.asked == len(raised.records) - len(first.records)
    assert runner.asked < len(fresh.records) - effort.trials
    assert {r.scheme for r in raised.records} >= {r.scheme for r in stage(fresh.records, "search")}
    again = Troubled()
    assert tuned(short, again, higher, store=store).records == raised.records and again.asked == 0
    assert tuned(short, again, effort, store=store).records == raised.records and again.asked == 0


# Failures


def test_failing_candidates_are_records_and_not_tried_again(short: Space) -> None:
    pool = short.restricted_to(short.schemes[:18])
    crash = frozenset(pool.schemes[::2])
    run = tuned(pool, Troubled(crash))
    assert {r.scheme for r in run.records if not r.ok} == crash == {*pool} - set(run.schemes)
    assert len([r for r in run.records if not r.ok]) == run.failures == 9
    assert stage(run.records, "decide")


def test_a_scheme_that_failed_in_a_decision_is_not_asked_for_again(short: Space) -> None:
    """Lower tiles of what was searched are of no space; here all of them crash."""
    run = tuned(short, Troubled(strangers_to=short))
    asked: dict[Scheme, set[Round | None]] = {}
    for record in run.records:
        if not record.ok:
            asked.setdefault(record.scheme, set()).add(record.asked_by)
    assert asked and {len(rounds) for rounds in asked.values()} == {1}
    assert len(stage(run.records, "decide")) > len([r for r in run.records if not r.ok])


def test_only_failures_is_an_error_that_points_at_the_records(space: Space) -> None:
    pool, store = few(space, 6), RecordStore()
    said = "at least one candidate must be measured; got 6 failures, the first of which crashed: signal 11"
    with pytest.raises(ModelError, match=rf"{said}\. .*dietlab doctor"):
        tune(pool, SHAPES, Troubled(frozenset(pool)), SMALL, store=store)
    assert len(store.records) == 6


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    names = ", ".join(STRATEGIES)
    with pytest.raises(SpaceError, match=f"a strategy is one of {names}; got 'best'"):
        strategy_named("best")
    with pytest.raises(DietlabError, match="an effort is one of smoke, brief, quick, full; got 'huge'"):
        effort_named("huge")


# Progress


def rises_to_the_end(seen: Recorder) -> None:
    """Asserts that each stage is told to its end, and none goes back."""
    done, total = 0, 0
    for event in seen.events:
        if isinstance(event, StageStarted):
            assert done == total, "the stage before went to its end"
            done, total = event.done, event.total
            assert 0 <= done <= total
        elif isinstance(event, StageAdvanced):
            assert done <= event.done <= total
            done = event.done
    assert done == total


@each_cache
def test_observers_see_every_trial_with_rising_progress(effort: Effort, short: Space) -> None:
    seen = Recorder()
    run = tuned(short, effort=effort, observers=[seen])
    measured, stages = seen.of(TrialMeasured), seen.of(StageStarted)
    assert [e.trials for e in measured] == list(range(1, len(run.measurements) + 1))
    assert [e.scheme for e in measured] == [r.scheme.key for r in run.measurements]
    assert [(e.stage, e.total, e.done) for e in stages] == [
        ("search", effort.trials, 0),
        ("decide", effort.decisions, 0),
    ]
    rises_to_the_end(seen)
    rounds, fits = seen.of(RoundFinished), seen.of(ModelFitted)
    assert [e.round for e in rounds] == [e.round for e in fits] == list(range(1, len(rounds) + 1))
    ends = [*bounds(run), len(run.records)]
    assert [e.trials for e in rounds] == [len(each_once(run.records[:end])) for end in ends]
    assert len(ends) > 4
    assert [e.samples for e in fits] == [len({r.scheme for r in run.records[:end]}) for end in ends]


@each_cache
def test_progress_rises_to_the_end_of_a_stage_that_ends_early(effort: Effort, short: Space) -> None:
    seen = Recorder()
    run = tuned(short, effort=replace(effort, decisions=200, decided_loss=0.08), observers=[seen])
    assert 0 < len(stage(run.records, "decide")) < 190
    rises_to_the_end(seen)


@each_cache
@pytest.mark.parametrize("after", [3, 8, 17, 20, 33])
def test_progress_of_a_resumed_run_rises_from_where_it_was(after: int, effort: Effort, short: Space) -> None:
    store = RecordStore()
    with pytest.raises(KeyboardInterrupt):
        tuned(short, Troubled(interrupt_after=after), effort, store=store)
    seen = Recorder()
    known = len({record.scheme for record in stage(store.records, "search")})
    tuned(short, effort=effort, store=store, observers=[seen])
    assert next(e.done for e in seen.of(StageStarted)) == known
    rises_to_the_end(seen)


@each_cache
def test_progress_of_a_higher_effort_rises_to_the_end(effort: Effort, short: Space) -> None:
    store, seen = RecordStore(), Recorder()
    tuned(short, effort=effort, store=store)
    tuned(short, effort=replace(effort, trials=30, decisions=40), store=store, observers=[seen])
    assert seen.of(TrialMeasured)
    rises_to_the_end(seen)


def test_seconds_add_up_the_phases_of_the_records(short: Space) -> None:
    run = tuned(short, Slow())
    measured = len({(record.scheme, record.shape) for record in run.records})
    assert len(run.records) > measured == len(run.measurements), "some are asked for again"
    assert run.seconds.compile == 2.0 * measured and run.seconds.measure == measured
    assert run.seconds.model > 0 and run.seconds.total == pytest.approx(sum(run.seconds.__dict__.values()))
    frame = run.to_frame()
    assert len(frame) == len(run.records) and set(frame["status"]) == {"ok"}


def test_time_that_neither_runner_nor_model_took_is_search(space: Space) -> None:
    slow = Slow(100.0)
    clock = PhaseTimer(slow.clock)

    def passes(seconds: float) -> None:
        slow.now += seconds

    trials = [Trial(kernel, tuple(SHAPES)) for kernel in list(space)[:2]]
    passes(3.0)
    clock.fit(lambda: passes(20.0))
    for _ in clock.watched(slow.measure(space.workload, trials)):
        passes(1.0)
    assert (clock.seconds.model, clock.seconds.search) == (20.0, 3.0 + 2 * len(SHAPES))
    Answering(slow).close()  # what a run that breaks off calls, if there is one
    assert slow.closed
    Answering(RUNNER).close()


def test_a_replay_counts_each_record_once(short: Space) -> None:
    """It may answer with a record in every round that asks, and the record was measured once."""
    few = short.restricted_to(list(short)[::2])
    trials = [Trial(scheme, LENGTHS.shapes) for scheme in few]
    stamped = [
        replace(
            made,
            phases=PhaseSeconds(compile=2.0, measure=1.0),
            at=f"2026-01-01T{number // 60:02}:{number % 60:02}:00",
        )
        for number, made in enumerate(RUNNER.measure(SHORT, trials))
    ]
    seen = Recorder()
    run = tuned(few, ReplayRunner(stamped), effort=replace(SMALL, decisions=80), observers=[seen])
    assert len(run.records) > len(run.measurements) and {*run.measurements} <= {*stamped}
    once = len(run.measurements)
    assert (run.seconds.compile, run.seconds.measure) == (2.0 * once, once)
    measured = seen.of(TrialMeasured)
    assert [event.trials for event in measured] == [*range(1, once + 1)]
    assert sum(event.phases.compile for event in measured) == 2.0 * once
    last = seen.of(RoundFinished)[-1]
    assert (last.trials, last.seconds.compile) == (once, 2.0 * once)
    assert tuning_facts(run)["measurements"] == once
