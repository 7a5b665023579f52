"""Strategies compared on surveys, the method without a part, and fleets in virtual time."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, MissingDependencyError, RecordError
from dietlab.cli import main
from dietlab.cost import Analytic, LearnedPredictor, Survey
from dietlab.lab import lessons
from dietlab.lab.strategies.comparison import (
    Comparison,
    Course,
    Surveyed,
    compare_strategies,
    load_comparison,
    save_comparison,
    surveyed,
    synthetic_survey,
)
from dietlab.lab.strategies.figures import (
    ablation_table,
    comparison_table,
    fleet_table,
    plot_fleet,
    plot_strategies,
)
from dietlab.lab.strategies.fleet import (
    AHEAD,
    WAITS,
    Costs,
    Fleet,
    Job,
    Priced,
    RoundWork,
    load_tunings,
    scaling,
    simulate,
    tunings_to_json,
    worked,
)
from dietlab.lab.strategies.method_ablation import MethodAblation, Whole, ablate_method
from dietlab.machine import Hardware
from dietlab.measure import Record, RecordFile, Round, SyntheticRunner, Trial
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.scheme import Scheme, Space, build_space
from dietlab.tuning import EFFORTS, SearchState, Tuner, tune
from dietlab.tuning.strategies.autotvm import AnnealingStrategy
from dietlab.tuning.strategies.knobs import knobs_of
from dietlab.tuning.strategies.paper import Evolution, PaperStrategy
from dietlab.tuning.strategies.registry import strategy_named

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 64), N=2304, K=768)
RUNNER = SyntheticRunner(HARDWARE)
LENGTHS = tuple(Shape.of(T=t) for t in (1, 5, 13, 24, 43, 64))


@pytest.fixture(scope="module")
def space() -> Space:
    whole = build_space(WORK, HARDWARE, edges=("padded",))
    return whole.restricted_to(Random(1).sample(whole.schemes, 160))


@pytest.fixture(scope="module")
def survey(space: Space) -> Surveyed:
    return synthetic_survey(space, LENGTHS)


@pytest.fixture(scope="module")
def compared(survey: Surveyed) -> Comparison:
    effort = replace(EFFORTS["quick"], trials=32, batch=8)
    return compare_strategies(survey, ("draft", "paper", "random", "grid"), range(3), effort)


def state_of(space: Space, tried: int) -> SearchState:
    """After ``tried`` schemes at random, by a model that knows the machine."""
    shapes = ShapeSet.of(dict.fromkeys(LENGTHS, 1.0))
    trials = [Trial(scheme, LENGTHS[:1]) for scheme in Random(3).sample(space.schemes, tried)]
    records = tuple(RUNNER.measure(WORK, trials))
    return SearchState(space, shapes, records, Oracle() if tried else None)


class Oracle:
    """Knows every time of the synthetic machine."""

    def seconds(self, schemes: Any, shapes: Any) -> np.ndarray:
        return np.array([[RUNNER.seconds(WORK, scheme, shape) for shape in shapes] for scheme in schemes])


# --- strategies -------------------------------------------------------------------------------------


def test_neighbours_differ_in_one_knob_and_are_mutual(space: Space) -> None:
    knobs = knobs_of(space)
    assert len(knobs.names) >= 4 and len(set(knobs.codes)) == len(space)
    for number in range(0, len(space), 7):
        for other in knobs.neighbours(number):
            pairs = zip(knobs.codes[number], knobs.codes[other], strict=True)
            assert sum(one != two for one, two in pairs) == 1 and number in knobs.neighbours(other)


def test_the_nearest_scheme_to_its_own_codes_is_itself(space: Space) -> None:
    knobs = knobs_of(space)
    every = range(len(space))
    assert all(knobs.nearest(knobs.codes[n], every, lambda _: 0.0) == n for n in range(0, len(space), 9))
    assert knobs.nearest(knobs.codes[0], [3], lambda _: 0.0) == 3


def test_grid_spreads_over_the_space_and_halves_its_steps(space: Space) -> None:
    state = SearchState(space, ShapeSet.of(dict.fromkeys(LENGTHS, 1.0)), (), None)
    places = [space.schemes.index(s) for s in strategy_named("grid").propose(state, 200, Random(0))]
    assert sorted(places) == list(range(len(space)))
    for count in (4, 8, 16, 32):
        steps = np.diff(sorted(places[:count]))
        assert steps.max() <= 4 * len(space) / count


def test_the_draft_begins_with_distinct_tiles_and_deals_the_rest_over_access_patterns(space: Space) -> None:
    state = SearchState(space, ShapeSet.of(dict.fromkeys(LENGTHS, 1.0)), (), None)
    first = strategy_named("draft").propose(state, 16, Random(0))
    tiles = Counter((scheme.rows, scheme.cols) for scheme in first[:8])
    assert max(tiles.values()) == 1
    patterns = Counter((s.order, s.kernel.access_pattern) for s in first[8:])
    assert max(patterns.values()) - min(patterns.values()) <= 1
    again = strategy_named("draft").propose(state, 16, Random(9))
    assert again[:8] == first[:8] and again[8:] != first[8:]


def test_the_draft_of_a_gpu_ranks_its_tiles() -> None:
    hardware = Hardware.preset("h100")
    gpu = build_space(Dense(T=Dim(1, 64), N=1024, K=1024, dtype="float32"), hardware)
    some = gpu.restricted_to(Random(0).sample(gpu.schemes, 60))
    predicted = Analytic.of(some).seconds(some.schemes, LENGTHS)
    assert predicted.shape == (60, 6) and np.isfinite(predicted).all() and (predicted > 0).all()
    measured = SyntheticRunner(hardware)
    true = [measured.seconds(some.workload, scheme, LENGTHS[-1]) for scheme in some]
    assert np.corrcoef(np.log(predicted[:, -1]), np.log(true))[0, 1] > 0.3


@pytest.mark.parametrize("name", ["annealing", "genetic", "tpe", "paper", "draft"])
def test_a_guided_round_is_better_than_a_random_one(name: str, space: Space, survey: Surveyed) -> None:
    """With a model that knows the machine, picks are faster on their best shape than random ones."""

    def worth(schemes: Any) -> float:
        return float(np.mean([survey.efficiency[survey.number[s]].max() for s in schemes]))

    found = []
    warm = PaperStrategy(warm_up=30) if name == "paper" else strategy_named(name)
    for rival in (warm, strategy_named("random")):
        state = state_of(space, 40)
        found.append(np.mean([worth(rival.propose(state, 12, Random(k))) for k in range(4)]))
    assert found[0] > found[1], found


def test_chains_that_gain_nothing_end_early(space: Space) -> None:
    state = state_of(space, 40)
    long = AnnealingStrategy(steps=10**6, early_stop=5).propose(state, 12, Random(0))
    assert len(set(long)) == 12


def test_without_optuna_the_error_names_the_extra(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = r"the strategy tpe needs the extra optuna.*dietlab\[optuna\]"
    with pytest.raises(MissingDependencyError, match=said):
        strategy_named("tpe").propose(state_of(space, 0), 4, Random(0))


# --- the paper's evolution --------------------------------------------------------------------------


def evolution(space: Space, tried: int, **constants: Any) -> Evolution:
    return Evolution(PaperStrategy(**constants), state_of(space, tried))


def test_until_the_model_is_warm_the_paper_ranks_by_adaptation_alone(space: Space) -> None:
    cold, warm = evolution(space, 30), evolution(space, 30, warm_up=30)
    assert cold.scores.max() <= 1 < warm.scores.max()
    assert evolution(space, 0).scores.max() <= 1


def test_the_paper_mutates_one_axis_by_a_divisor_and_never_above_the_target(space: Space) -> None:
    found = evolution(space, 40, warm_up=30)
    random, changed = Random(0), 0
    for number, target in product(range(len(space)), range(len(LENGTHS))):
        child = space.schemes[found._mutated(number, target, random)]
        parent = space.schemes[found._shrunk(number, target)]
        ours, theirs = parent.parameters, child.parameters
        differing = [name for name in ours if ours[name] != theirs[name]]
        assert len(differing) <= 1
        for name in {"rows", "cols", "unroll"} & set(differing):
            assert max(ours[name], theirs[name]) % min(ours[name], theirs[name]) == 0
        changed += bool(differing)
    assert changed > 20


def test_the_papers_target_is_where_the_time_goes(space: Space) -> None:
    found = evolution(space, 40, warm_up=30)
    table = Oracle().seconds(found.state.measured, LENGTHS).min(axis=0)
    assert np.allclose(np.array(found.targets) / sum(found.targets), table / table.sum())


def test_selection_sharpens_with_trials(space: Space) -> None:
    """Parents drawn after many trials are fitter than after few."""
    population = list(range(len(space)))
    means = []
    for sharpening in (1000, 4):
        found = evolution(space, 40, warm_up=30, sharpening=sharpening, mutation=0.0)
        means.append(np.mean(found.fitness[found._next(population * 4, Random(1))]))
    assert means[1] > means[0]


# --- surveys and comparisons ------------------------------------------------------------------------


def test_a_survey_is_of_schemes_that_were_timed_on_every_shape(survey: Surveyed) -> None:
    header = {"workload": WORK.to_json(), "hardware": HARDWARE.to_json(), "cache": "hot"}
    records = list(survey.records)
    gone = records.pop(0).scheme

    def of(records: Sequence[Record]) -> Survey:
        return Survey.of(RecordFile(header, tuple(records)), "recorded")

    found = surveyed(of(records))
    assert gone not in found.space and len(found.space) == len(survey.space) - 1
    assert found.efficiency.max(axis=0).tolist() == [1.0] * len(LENGTHS)
    later = Round("survey", 1)
    twice = [replace(r, seconds=4 * r.seconds, asked_by=later) for r in records if r.seconds]
    doubled = surveyed(of([*records, *twice]))
    assert np.allclose(doubled.seconds, 2 * found.seconds)
    fewer = surveyed(of(records), LENGTHS[1:])
    assert fewer.shapes.shapes == LENGTHS[1:] and gone in fewer.space
    with pytest.raises(RecordError, match="timed on every shape"):
        surveyed(of([records[0], records[-1]]))


def test_a_course_rises_and_its_trials_are_where_it_first_reached() -> None:
    course = Course("x", 0, (0.5, 0.9, 0.97, 0.97, 1.0), (1.0, 2.0, 4.0, 5.0, 6.0), 0.9)
    assert (course.trials_to(), course.seconds_to()) == (3, 4.0)
    assert course.trials_to(1.1) == math.inf == course.seconds_to(1.1)


def test_the_quality_of_trials_is_that_of_the_best_of_each_shape(
    survey: Surveyed, compared: Comparison
) -> None:
    for course in compared.courses:
        assert len(course.quality) == len(course.seconds) == 32
        assert list(course.quality) == sorted(course.quality) and 0 < course.quality[-1] <= 1
        assert list(course.seconds) == sorted(course.seconds) and course.chosen <= course.quality[-1] + 1e-9
    grid = [space for _, space in zip(range(32), strategy_order(survey), strict=False)]
    best = survey.efficiency[[survey.number[scheme] for scheme in grid]].max(axis=0)
    assert compared.of("grid")[0].quality[-1] == pytest.approx(survey.quality(best))


def strategy_order(survey: Surveyed) -> list[Scheme]:
    state = SearchState(survey.space, survey.shapes, (), None)
    return list(strategy_named("grid").propose(state, 32, Random(0)))


def test_the_summary_sets_every_strategy_beside_random_search(compared: Comparison) -> None:
    table = compared.summary().set_index("strategy")
    assert set(table.index) == {"draft", "paper", "random", "grid"}
    assert table.loc["random", "times_random"] == 1
    trials = {name: np.median([c.trials_to() for c in compared.of(name)]) for name in table.index}
    for name, median in trials.items():
        if median < math.inf:
            assert table.loc[name, "trials"] == median
            assert table.loc[name, "times_random"] == pytest.approx(median / table.loc["random", "trials"])
            assert table.loc[name, "trials_low"] <= median <= table.loc[name, "trials_high"]
    # The text tells the same number under the same name.
    header, rows = comparison_table(compared)
    told = {row[0]: row[header.index("times random's")] for row in rows}
    assert told == {name: f"{table.loc[name, 'times_random']:.2f}" for name in table.index}
    bands = compared.bands()
    assert (bands["low"] <= bands["median"]).all() and (bands["median"] <= bands["high"]).all()
    assert len(compared.to_frame()) == 4 * 3 * 32


def test_a_comparison_is_kept_and_shown(compared: Comparison, tmp_path: Path) -> None:
    save_comparison(compared, tmp_path / "c.json")
    kept = load_comparison(tmp_path / "c.json")
    assert (kept.survey, kept.strategies) == (compared.survey, compared.strategies)
    for found, course in zip(kept.courses, compared.courses, strict=True):
        assert np.allclose(found.quality, course.quality, atol=1e-5) and found.chosen == course.chosen
        assert np.allclose(found.seconds, course.seconds, atol=1e-3)
    header, rows = comparison_table(compared)
    assert {row[0] for row in rows} == {"draft", "paper", "random", "grid"}
    assert all(len(row) == len(header) for row in rows)
    for x in ("trials", "seconds"):
        figure = plot_strategies(compared, x, ("draft", "random"))
        assert [trace.name for trace in figure.data if trace.name] == ["draft", "random"]
    (tmp_path / "c.json").write_text('{"survey": 1}')
    with pytest.raises(DietlabError, match="a comparison must be a file of"):
        load_comparison(tmp_path / "c.json")


def test_an_unknown_strategy_is_answered_with_the_known_ones(survey: Surveyed) -> None:
    with pytest.raises(DietlabError, match=r"strategies are draft, marginal.*; got best"):
        compare_strategies(survey, ["best"])


def test_on_recorded_times_the_draft_needs_half_of_randoms_trials_and_no_more_than_the_papers() -> None:
    """The target, on the shipped survey; the draft alone, without a measurement, reaches 90 %."""
    survey = surveyed(Survey.of(lessons.recorded(), "quickstart"))
    effort = replace(EFFORTS["quick"], trials=32)
    found = compare_strategies(survey, ("draft", "paper", "random"), range(3), effort)
    trials = found.summary().set_index("strategy")["trials"]
    assert trials["draft"] <= trials["random"] / 2 and trials["draft"] <= trials["paper"], trials
    assert found.analytic >= 0.90


def test_the_command_compares_and_keeps(tmp_path: Path) -> None:
    arguments = ["compare", "quickstart", "--strategies", "draft,random", "--seeds", "2", "--effort", "smoke"]
    out = tmp_path / "courses.json"
    done = CliRunner().invoke(main, [*arguments, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert [row["strategy"] for row in facts["strategies"]] == ["draft", "random"]
    assert {course.strategy for course in load_comparison(out).courses} == {"draft", "random"}
    done = CliRunner().invoke(main, [*arguments, "--quiet"])
    assert done.exit_code == 0 and "| draft " in done.stdout and "97 % of the exhaustive" in done.stdout


# --- the method without a part ----------------------------------------------------------------------


def test_the_method_is_ablated_on_a_survey(survey: Surveyed, tmp_path: Path) -> None:
    effort = replace(EFFORTS["quick"], trials=24, batch=8, decisions=16, decision_batch=8)
    found = ablate_method(survey, range(2), effort)
    table = found.to_frame().set_index(["without", "instead", "shapes"]).sort_index()
    assert len(table) == 10 and (table["low"] <= table["ratio"]).all() and (table["seeds"] == 2).all()
    assert table.loc[("micro-kernels for every shape", "the best divisor", "all"), "ratio"] >= 1
    smaller = [table.loc[("8 micro-kernels", f"{n} at most", "all"), "ratio"] for n in (1, 2, 4)]
    assert smaller[0] > smaller[2] - 1e-9
    found.save(tmp_path / "a.json")
    kept = MethodAblation.load(tmp_path / "a.json")
    assert replace(kept, tunings={}) == replace(found, tunings={}) and all(0 < q <= 1 for q in found.quality)
    assert {way: len(of) for way, of in kept.tunings.items()} == {WAITS: 2, AHEAD: 2}
    assert len(ablation_table(found)[1]) == 10
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(DietlabError, match="an ablation must be a file of"):
        MethodAblation.load(tmp_path / "a.json")


def test_the_command_ablates_records_as_well_as_studies(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    command = ["ablate", "quickstart", "--effort", "smoke", "--seeds", "1", "--out", str(out)]
    done = CliRunner().invoke(main, [*command, "--devices", "1,3"])
    assert done.exit_code == 0 and "| adaptation cost" in done.stdout, done.output
    assert "| 3       |" in done.stdout and AHEAD in done.stdout
    assert MethodAblation.load(out).survey == "quickstart"
    done = CliRunner().invoke(main, [*command, "--devices", "many"])
    assert done.exit_code == 2 and "devices must be numbers, as in 1,2; got 'many'" in done.stderr
    done = CliRunner().invoke(main, ["ablate", str(tmp_path / "nothing")])
    assert done.exit_code == 2 and "Such a name is" in done.stderr


def test_separate_measurement_has_the_same_budget(survey: Surveyed) -> None:
    tuned = ShapeSet.of(dict.fromkeys(survey.shapes.shapes[::2], 1.0))
    effort = replace(EFFORTS["quick"], trials=16, batch=8, decisions=0)
    whole = Whole(survey, tuned, tune(survey.space, tuned, survey.runner, effort), 0)
    alone, tree = whole.separate(), whole.tree()
    for column, shape in enumerate(survey.shapes):
        near = min(tuned, key=lambda one: abs(math.log(one["T"] / shape["T"])))
        assert alone[column] == alone[survey.shapes.shapes.index(near)], shape
    assert whole.ratio(whole.optimum(), whole.optimum()) == 1 <= whole.ratio(alone, whole.optimum())
    parts = [whole.ratio(alone, tree, judged) for judged in ("tuned", "held out")]
    assert whole.ratio(alone, tree) == pytest.approx(math.sqrt(parts[0] * parts[1]))
    fitting = whole.divisors()
    for number, shape in zip(fitting, survey.shapes, strict=True):
        assert number < 0 or shape["T"] % survey.space.schemes[number].rows == 0


# --- fleets -----------------------------------------------------------------------------------------

ROUNDS = st.lists(
    st.builds(
        RoundWork,
        st.floats(0, 5),
        st.lists(
            st.builds(Job, st.floats(0, 2), st.lists(st.floats(0.01, 3), max_size=4).map(tuple)), max_size=8
        ).map(tuple),
        told=st.floats(0, 1),
    ),
    min_size=1,
    max_size=4,
)


def ahead_of(rounds: list[RoundWork]) -> list[RoundWork]:
    """The same rounds, each proposed while the one before is measured."""
    return [replace(work, ahead=number > 0) for number, work in enumerate(rounds)]


@settings(max_examples=60)
@given(rounds=ROUNDS, devices=st.integers(1, 20), ahead=st.booleans())
def test_a_fleet_does_all_work_and_no_faster_than_it_can(
    rounds: list[RoundWork], devices: int, ahead: bool
) -> None:
    fleet = Fleet(devices, builders=4, latency=0.1)
    some = ahead_of(rounds) if ahead else rounds
    found = simulate(some, fleet)
    measures = [seconds for work in rounds for job in work.jobs for seconds in job.measures]
    assert found.busy == pytest.approx(sum(measures) + 0.1 * len(measures))
    assert found.seconds >= found.busy / devices - 1e-6 and found.lost == 0
    serial, told = sum(work.serial for work in rounds), sum(work.told for work in rounds)
    assert told - 1e-6 <= found.serial <= serial + told + 1e-6
    assert found.seconds >= (serial + told if not ahead else max(work.serial for work in rounds)) - 1e-6
    assert simulate(ahead_of(rounds), fleet).seconds <= simulate(rounds, fleet).seconds + 1e-6
    assert simulate(some, fleet) == found


def test_equal_work_of_sixteen_devices_is_sixteen_times_faster_until_the_tuner_is_waited_for() -> None:
    jobs = tuple(Job(0.0, (1.0,)) for _ in range(64))
    fleet, slow = Fleet(1, latency=0.0), [RoundWork(4.0, jobs)] * 5
    table = scaling({WAITS: [[RoundWork(0.0, jobs)] * 5]}, fleet).set_index("devices")
    assert table["times_faster"].tolist() == [1, 2, 4, 8, 16, 32, 64] and (table["serial"] == 0).all()
    both = scaling({WAITS: [slow] * 3, AHEAD: [ahead_of(slow)] * 3}, fleet).set_index(["proposed", "devices"])
    assert both.loc[(WAITS, 16), "times_faster"] == pytest.approx((64 + 4) / (4 + 4))
    assert both.loc[(AHEAD, 16), "times_faster"] > 13 and both.loc[(AHEAD, 64), "serial"] > 15
    assert (both["low"] == both["times_faster"]).all() and (both["high"] == both["times_faster"]).all()


def test_a_dead_device_costs_its_own_measurement_and_is_asked_for_once_more() -> None:
    jobs = tuple(Job(0.0, (1.0,)) for _ in range(400))
    whole = simulate([RoundWork(0.0, jobs)], Fleet(8, latency=0.0))
    failing = simulate([RoundWork(0.0, jobs)], Fleet(8, latency=0.0, failure=0.1, timeout=10.0))
    assert whole.lost == 0 < failing.lost < 20 and failing.seconds > whole.seconds
    every = simulate([RoundWork(0.0, jobs)], Fleet(8, failure=1.0, timeout=10.0))
    assert every.lost == 400 and every.busy == pytest.approx(2 * 10.0 * 400)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_work_of_rounds_is_that_of_the_tuning(ahead: bool, space: Space, tmp_path: Path) -> None:
    costs, ticks = Costs(build=2.0, check=0.25, time=0.5), iter(range(10**6))
    shapes = ShapeSet.of(dict.fromkeys(LENGTHS, 1.0))
    effort = replace(EFFORTS["quick"], trials=24, batch=8, decisions=16, decision_batch=8)
    predictor = LearnedPredictor(cache=effort.timing.cache)
    first = Tuner(space, shapes, effort, strategy_named("draft"), predictor)
    tuner, rounds = worked(first, Priced(RUNNER, costs), ahead=ahead, now=lambda: float(next(ticks)))
    run = tune(space, shapes, RUNNER, effort, ahead=ahead)
    ours, theirs = ([(r.scheme, r.shape, r.asked_by) for r in of.records] for of in (tuner, run))
    assert ours == theirs
    *asked, last = rounds
    assert [work.stage for work in asked] == ["search"] * 3 + ["decide"] * (len(asked) - 3) and not last.jobs
    # The second round waits for what the first one tells.
    assert [work.ahead for work in asked[:4]] == [False, False, ahead, ahead]
    jobs = [job for work in rounds for job in work.jobs]
    assert sum(len(job.measures) for job in jobs) == len(run.records)
    assert sum(job.build for job in jobs) == 2.0 * len({record.scheme for record in run.records})
    assert {seconds for job in jobs for seconds in job.measures} == {0.75}
    (tmp_path / "r.json").write_text(json.dumps({"tunings": tunings_to_json({WAITS: [rounds]})}))
    (kept,) = load_tunings(tmp_path / "r.json")[WAITS]
    assert [sorted(work.jobs, key=repr) for work in kept] == [sorted(w.jobs, key=repr) for w in rounds]
    assert [replace(work, jobs=()) for work in kept] == [replace(work, jobs=()) for work in rounds]
    (other,) = load_tunings(tmp_path / "r.json", 1.0)[WAITS]
    assert {seconds for work in other for job in work.jobs for seconds in job.measures} == {1.0}
    (tmp_path / "r.json").write_text("{}")
    with pytest.raises(DietlabError, match="the file must hold the tunings"):
        load_tunings(tmp_path / "r.json")
    table = scaling({WAITS: [rounds], AHEAD: [rounds]}, Fleet(1))
    assert [trace.name for trace in plot_fleet(table).data] == [WAITS, AHEAD, "as many"]
    assert len(fleet_table(table)[1]) == 7
