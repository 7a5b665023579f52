"""Cost models by name, how they are judged, and what is carried over from other records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import cli
from hypothesis import given, settings
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.base.errors import ModelError, RecordError, StudyError
from dietlab.base.shipped import data_path
from dietlab.compare.study import PRIOR, Study
from dietlab.compare.study_manifest import MANIFEST
from dietlab.cost import (
    COST_MODELS,
    Calibrated,
    LearnedPredictor,
    Prior,
    Survey,
    adaptation_cost,
    frame_judgements,
    judge,
    predictor_named,
    with_prior,
)
from dietlab.cost.boosted import BoostedPredictor
from dietlab.cost.judging import judge_operator, judged_by
from dietlab.cost.loop_features import pair_features, table_features
from dietlab.cost.measured import Measured
from dietlab.cost.prior import FOREIGN_POINTS
from dietlab.lab.strategies.transfer import gains, quality, transfer_curves
from dietlab.machine import Hardware
from dietlab.measure import Record, RecordFile, Round, SyntheticRunner, Trial, read_records, write_compressed
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import EDGES, build_space
from dietlab.targets.cpu.cost import reach
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.tuning import Tuner, effort_named, tune
from dietlab.tuning.strategies.registry import strategy_named

HERE, ELSEWHERE = Hardware.preset("haswell-1core"), Hardware.preset("cascadelake-1core")
LAYERS = Dense(T=Dim(1, 128), N=Dim(64, 4096), K=Dim(64, 4096))
FORMULAS = adaptation_cost(LAYERS, HERE).formulas
SCORES = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nt")
LENGTHS = (1, 7, 24, 43, 90, 128)
SIZES = ((256, 256), (768, 256), (256, 768))


def shapes_of(work: Workload, sizes: Sequence[tuple[int, int]] = SIZES) -> list[Shape]:
    if work is LAYERS:
        return [Shape.of(T=t, N=n, K=k) for n, k in sizes for t in LENGTHS]
    return [Shape.of(T=t) for t in LENGTHS]


@cache
def recorded(
    work: Workload = LAYERS, hardware: Hardware = HERE, rounds: int = 1, noise: float = 0.0
) -> RecordFile:
    """Returns a survey of 40 schemes on every shape by a simple machine, in rounds that differ by noise."""
    random, space = np.random.default_rng(0), build_space(work, hardware)
    chosen = Random(1).sample(space.schemes, 40)
    exact = list(SyntheticRunner(hardware).measure(work, [Trial(s, tuple(shapes_of(work))) for s in chosen]))

    def times(record: Record) -> float:
        return (record.seconds or 0.0) * float(np.exp(noise * random.normal()))

    surveys = [Round("survey", number) for number in range(rounds)]
    records = [replace(r, seconds=times(r), asked_by=survey) for survey in surveys for r in exact]
    header = {"workload": work.to_json(), "hardware": hardware.to_json(), "cache": "hot"}
    return RecordFile(header, tuple(records))


def survey(*arguments: object) -> Survey:
    return Survey.of(recorded(*arguments), "synthetic")  # type: ignore[arg-type]


def layer(file: RecordFile, *sizes: tuple[int, int]) -> RecordFile:
    kept = [r for r in file.records if (r.shape["N"], r.shape["K"]) in sizes]
    return replace(file, records=tuple(kept))


# Cost models by name


@pytest.mark.parametrize("name", COST_MODELS)
def test_every_cost_model_ranks_what_it_never_saw(name: str) -> None:
    (found,) = judge([survey()], [name], ["pairs"], [240], seeds=1)
    least = {"analytic": 0.55, "paper": 0.8, "ranking": 0.75}.get(name, 0.85)
    assert least < found.metrics["pairwise"] <= 1 and found.metrics["peak@5"] > 0.9


@pytest.mark.parametrize("name", ["ranking", "ensemble"])
def test_the_same_records_and_seed_predict_the_same(name: str) -> None:
    one, schemes = survey(), survey().space.schemes[:5]
    fits = [predictor_named(name, seed=seed).fit(one.space, one.first[:60]) for seed in (1, 1, 2)]
    first, again, other = (fitted.seconds(schemes, shapes_of(LAYERS)[:3]) for fitted in fits)
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize("name", COST_MODELS)
def test_every_cost_model_answers_with_a_table(name: str) -> None:
    one = survey()
    fitted = predictor_named(name).fit(one.space, one.first[:60])
    schemes, shapes = one.space.schemes[:5], shapes_of(LAYERS)[:3]
    for table in (fitted.seconds(schemes, shapes), fitted.doubt(schemes, shapes)):
        assert table.shape == (5, 3) and (table > 0).all() and np.isfinite(table).all()


@pytest.mark.parametrize("name", ["analytic", "blended"])
def test_a_tuning_takes_a_cost_model_by_name(name: str) -> None:
    work = Dense(T=Dim(1, 32), N=128, K=64)
    space, shapes = build_space(work, HERE), ShapeSet.uniform(work, 4)
    run = tune(space, shapes, SyntheticRunner(HERE), "smoke", predictor=name)
    assert type(run.predictor) is type(predictor_named(name).fit(run.space, run.records))
    assert {r.asked_by.stage for r in run.records if r.asked_by} == {"search", "decide"}


def test_an_unknown_cost_model_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ModelError, match=r"one of learned, analytic.*got 'loop'. Did you mean 'loops'"):
        predictor_named("loop")
    shapes = ShapeSet.of({Shape.of(T=1, N=64, K=64): 1.0})
    with pytest.raises(ModelError, match="one of learned"):
        tune(build_space(LAYERS, HERE), shapes, SyntheticRunner(HERE), predictor="x")
    mine = LearnedPredictor(seed=3)
    assert predictor_named(mine) is mine


@pytest.mark.parametrize("name", sorted(set(COST_MODELS) - {"analytic"}))
def test_no_successful_record_is_an_error(name: str) -> None:
    with pytest.raises(ModelError, match="successful records"):
        predictor_named(name).fit(build_space(LAYERS, HERE), [])


def test_loads_and_prefetches_lower_the_bound_of_a_tile() -> None:
    lanes = HERE.limits.lanes
    assert reach(cpu_scheme(1, 2 * lanes).kernel, HERE) == pytest.approx(1 / (1 + 3 / 2))
    assert reach(cpu_scheme(4, 2 * lanes).kernel, HERE) == pytest.approx(1 / (1 + 6 / 8))
    assert reach(cpu_scheme(4, 2 * lanes, prefetch=8).kernel, HERE) == pytest.approx(1 / (1 + 7 / 8))


def test_the_first_round_asks_a_model_that_needs_no_measurement() -> None:
    space, shapes = build_space(LAYERS, HERE), ShapeSet.of(dict.fromkeys(shapes_of(LAYERS), 1.0))
    asked, dealt = (
        Tuner(space, shapes, effort_named("smoke"), strategy_named("marginal"), predictor_named(name)).ask()
        for name in ("analytic", "loops")
    )
    assert asked is not None and dealt is not None and set(asked.new) != set(dealt.new)


# What the models see


SCHEMES = st.builds(
    cpu_scheme,
    st.integers(1, 14),
    st.sampled_from([8, 16, 24]),
    unroll=st.sampled_from([1, 8]),
    order=st.sampled_from(["ws", "is"]),
    edge=st.sampled_from(EDGES),
    block=st.sampled_from([0, 256]),
)
SHAPES = st.builds(Shape.of, T=st.integers(1, 128), N=st.integers(64, 4096), K=st.integers(64, 4096))


@pytest.mark.parametrize("seen", ["knobs", "loops"])
@settings(max_examples=25)
@given(st.lists(SCHEMES, min_size=2, max_size=4), st.lists(SHAPES, min_size=2, max_size=3))
def test_features_of_a_table_are_those_of_its_pairs(
    seen: Any, schemes: list[CpuScheme], shapes: list[Shape]
) -> None:
    table = table_features(seen, FORMULAS, schemes, shapes)
    pairs = [(k, s) for k in schemes for s in shapes]
    single = pair_features(seen, FORMULAS, [k for k, _ in pairs], [s for _, s in pairs])
    np.testing.assert_array_equal(table.reshape(len(pairs), -1), single)
    assert np.isfinite(table).all()


def test_loops_tell_orders_and_blocks_apart_by_the_bytes_between_two_uses() -> None:
    shape = Shape.of(T=64, N=1024, K=1024)
    orders = ({"order": "ws"}, {"order": "is"}, {"order": "ws", "block": 256})
    schemes: list[Any] = [cpu_scheme(4, 16, edge="even", **order) for order in orders]  # type: ignore[arg-type]
    stays, moves, blocked = pair_features("loops", FORMULAS, schemes, [shape] * 3)
    weights, inputs, output = -4, -3, -2
    tile = 4 * (4 * 1024 + 16 * 1024 + 4 * 16)
    assert stays[weights] == moves[inputs] == pytest.approx(np.log2(tile), rel=1e-6)
    panel, row = 4 * (64 * 1024 + 16 * 1024 + 64 * 16), 4 * (4 * 1024 + 1024 * 1024 + 4 * 1024)
    assert stays[inputs] == pytest.approx(np.log2(panel), rel=1e-6)
    assert moves[weights] == pytest.approx(np.log2(row), rel=1e-6)
    assert stays[output] < 0 < blocked[output]


def test_a_program_that_two_schemes_share_counts_once() -> None:
    shape = Shape.of(T=8, N=64, K=64)
    records = [Record(cpu_scheme(rows, 16, edge="even"), shape, "ok", seconds=1e-5) for rows in (8, 8, 4)]
    again = [replace(records[0], asked_by=Round("search", n)) for n in range(3)]
    found = Measured.of(LAYERS, again + records[2:])
    assert len(found.seconds) == 2 and found.times.tolist() == [3, 1]


# Judging


def test_a_model_that_knows_the_times_is_judged_perfect() -> None:
    one = survey(LAYERS, HERE, 2, 0.03)
    known = {(r.scheme, r.shape): r.seconds for r in one.truth}

    class Knows:
        def seconds(self, schemes: Sequence, shapes: Sequence) -> np.ndarray:  # type: ignore[type-arg]
            return np.array([[known[k, s] for s in shapes] for k in schemes])

        def doubt(self, schemes: Sequence, shapes: Sequence) -> np.ndarray:  # type: ignore[type-arg]
            return np.full((len(schemes), len(shapes)), 0.1)

    found = judged_by(Knows(), one.truth)
    assert (found["pairwise"], found["peak@1"], found["rmse"], found["inside 1"]) == (1, 1, 0, 1)


def test_the_noise_of_a_survey_is_what_its_rounds_differ_by() -> None:
    one, exact = survey(LAYERS, HERE, 4, 0.05), survey()
    spread = np.median([r.spread for r in one.truth])
    assert np.log1p(spread) == pytest.approx(2 * np.sqrt(2) * 0.05 / 2, rel=0.15)
    true = {(r.scheme, r.shape): r.seconds or 0.0 for r in exact.truth}
    off = [np.log((r.seconds or 0.0) / true[r.scheme, r.shape]) for r in one.truth]
    assert np.std(off) == pytest.approx(0.05 / 2, rel=0.2)


def test_measuring_again_is_judged_like_a_model() -> None:
    again, model = judge([survey(LAYERS, HERE, 2, 0.05)], ["analytic"], ["pairs"], [100], seeds=1)
    assert (again.model, model.model) == ("measured again", "analytic")
    assert again.metrics["rmse"] == pytest.approx(0.05 * np.sqrt(2), rel=0.1)
    assert 0.9 < again.metrics["pairwise"] < 1 and "inside 1" not in again.metrics
    assert {j.model for j in judge([survey()], ["analytic"], ["pairs"], [100], seeds=1)} == {"analytic"}


@pytest.mark.parametrize("split", ["kernels", "shapes", "layers"])
def test_what_is_held_out_is_never_fitted(split: str) -> None:
    one = survey()
    for seed in range(3):
        held_out = one.held_out(split, seed)
        assert held_out is not None
        test, train = ([r for r in one.first if held_out(r) == out] for out in (True, False))
        key = {
            "kernels": lambda r: r.scheme.kernel,
            "shapes": lambda r: r.shape,
            "layers": lambda r: one.layer_of(r.shape),
        }
        assert test and train and not {*map(key[split], test)} & {*map(key[split], train)}
    assert survey(SCORES).held_out("layers", 0) is None


def test_more_measurements_predict_better_and_the_table_has_intervals() -> None:
    frame = frame_judgements(judge([survey()], ["learned"], ["pairs"], [24, 240], seeds=3))
    few, many = frame.to_dict("records")
    assert few["mape"] > many["mape"] and few["pairwise"] < many["pairwise"] and many["seeds"] == 3
    assert (frame["pairwise low"] <= frame["pairwise"]).all()
    assert (frame["pairwise"] <= frame["pairwise high"]).all()


def test_boosted_models_are_asked_about_another_operator() -> None:
    found = judge_operator(survey(), survey(SCORES), ["analytic", "ensemble"], [240], seeds=1)
    assert [one.model for one in found] == ["analytic", "ensemble"]
    assert found[1].metrics["pairwise"] > 0.7
    with pytest.raises(ModelError, match="must predict another operator; got learned"):
        judge_operator(survey(), survey(SCORES), ["learned"])


def test_an_ensemble_doubts_more_where_it_saw_nothing() -> None:
    one = survey()
    near = [r for r in one.first if r.shape["K"] == 256]
    fitted = BoostedPredictor("loops", True, fits=8).fit(one.space, near)
    unseen = Shape.of(T=90, N=4096, K=4096)
    doubts = [fitted.doubt(one.space.schemes, [s]).mean() for s in (near[0].shape, unseen)]
    assert doubts[0] < doubts[1]


# Transfer


def other_layers() -> Prior:
    return Prior.fit([layer(recorded(), *SIZES[1:])])


def test_a_prior_ranks_a_layer_before_anything_is_measured() -> None:
    one = survey()
    target = [r for r in one.truth if one.layer_of(r.shape) == SIZES[0]]
    fitted = LearnedPredictor(prior=other_layers()).fit(one.space, [])
    analytic = judged_by(predictor_named("analytic").fit(one.space, []), target)
    assert judged_by(fitted, target)["pairwise"] > analytic["pairwise"]
    assert quality(fitted, target) > 0.97


def test_a_prior_saves_measurements_and_ends_no_worse() -> None:
    one = survey()
    shapes = shapes_of(LAYERS, SIZES[:1])
    effort = replace(effort_named("smoke"), trials=16, batch=4, decisions=16, decision_batch=16)
    curves = transfer_curves(one, shapes, other_layers(), range(1), effort)
    for gain in gains(curves):
        assert gain.from_prior is not None and gain.from_prior <= gain.from_nothing and gain.ends > 0.985
    assert {c.start for c in curves} == {"nothing", "prior"}
    assert all(c.measurements[0] == (0 if c.start == "prior" else c.measurements[0]) for c in curves)


def test_a_prior_that_is_wrong_counts_nothing_once_measurements_say_so() -> None:
    file = recorded()
    reversed_ = (replace(r, seconds=1e-9 / (r.seconds or 1.0)) for r in file.records)
    upside_down = replace(file, records=tuple(reversed_))
    one = survey()
    train = [r for r in one.first if one.layer_of(r.shape) == SIZES[0]][::2]
    alone = LearnedPredictor().fit(one.space, train)
    misled = LearnedPredictor(prior=Prior.fit([upside_down])).fit(one.space, train)
    schemes, shapes = one.space.schemes[:9], shapes_of(LAYERS, SIZES[:1])
    np.testing.assert_array_equal(misled.seconds(schemes, shapes), alone.seconds(schemes, shapes))


def test_records_of_another_processor_wait_for_calibration_and_are_described() -> None:
    foreign, one = Prior.fit([recorded(LAYERS, ELSEWHERE)]), survey()
    predictor = LearnedPredictor(prior=foreign)
    with pytest.raises(ModelError, match="successful records"):
        predictor.fit(one.space, [])
    few, enough = one.first[: FOREIGN_POINTS - 1], one.first[::8]
    schemes, shapes = one.space.schemes[:9], shapes_of(LAYERS)[:4]
    for some, same in ((few, True), (enough, False)):
        alone, adapted = (by.fit(one.space, some) for by in (LearnedPredictor(), predictor))
        equal = alone.seconds(schemes, shapes) == adapted.seconds(schemes, shapes)
        assert equal.all() if same else not equal.all()
    text = foreign.describe(HERE)
    assert ELSEWHERE.name in text and HERE.name in text and "counts once 12 pairs are measured here" in text
    assert "once" not in Prior.fit([recorded()]).describe(HERE)


def test_records_of_another_machine_start_a_replayed_tuning_of_the_same_layer() -> None:
    """Of the surveys that come with dietlab: from Zen 4 to Zen 3."""
    surveys = ("quickstart", "cost/dense")
    other, here = (read_records(data_path(f"{name}/records.jsonl.gz")) for name in surveys)
    target = Survey.of(here, "dense")
    shapes = sorted({r.shape for r in target.truth if target.layer_of(r.shape) == (2304, 768)})
    prior = Prior.fit([replace(other, records=other.records[::60])])
    assert prior.other_processors(target.space.hardware) and len(shapes) == 8
    effort = replace(effort_named("smoke"), trials=15, batch=3, decisions=16, decision_batch=16)
    nothing, started = transfer_curves(target, shapes[::2], prior, [0], effort)
    points = list(zip(nothing.measurements, nothing.quality, started.quality, strict=False))
    # Until enough is measured here, they count nothing.
    early = [point for point in points if point[0] < FOREIGN_POINTS]
    assert early and all(one == other for _, one, other in early) and nothing.measurements[0] > 0
    assert started.quality != nothing.quality
    (gain,) = gains([nothing, started])
    assert gain.from_nothing >= nothing.measurements[0] and 0.9 < gain.ends < 1.1


def test_a_prior_says_what_it_is_from_and_is_read_without_code(tmp_path: Path) -> None:
    prior = Prior.fit([recorded(), recorded(SCORES, ELSEWHERE)])
    sources = [(LAYERS, HERE.name), (SCORES, ELSEWHERE.name)]
    assert [(s.workload, s.hardware.name) for s in prior.sources] == sources
    prior.save(tmp_path / "prior.json")
    loaded, others = Prior.load(tmp_path / "prior.json"), (f"{ELSEWHERE.name} (1 cores)",)
    cost = predictor_named("analytic").fit(build_space(LAYERS, HERE), []).cost  # type: ignore[attr-defined]
    assert loaded == prior
    assert loaded.other_processors(HERE) == prior.other_processors(HERE) == others
    schemes, shapes = survey().space.schemes[:5], shapes_of(LAYERS)[:2]
    np.testing.assert_array_equal(loaded.values(cost, schemes, shapes), prior.values(cost, schemes, shapes))


def test_a_prior_whose_trees_or_fields_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path, whole = tmp_path / "prior.json", other_layers().to_json()
    for name in ("sources", "missed", "booster"):
        path.write_text(json.dumps({field: value for field, value in whole.items() if field != name}))
        with pytest.raises(
            ModelError, match=rf"a prior must have all its fields; got .*prior\.json: no '{name}'"
        ):
            Prior.load(path)
    later = {**whole["booster"], "version": [99, 0, 0]}
    damaged = {**later, "version": [3, 0, 0], "learner": 3}
    for booster, told in ((later, r"XGBoost 99\.0 wrote"), (damaged, "must be able to read the trees")):
        path.write_text(json.dumps({**whole, "booster": booster}))
        with pytest.raises(ModelError, match=told):
            Prior.load(path)


def test_a_damaged_empty_or_unfit_prior_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    other_layers().save(path)
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(ModelError, match=r"prior's file must be readable JSON; got .*prior\.json"):
        Prior.load(path)
    path.write_text(json.dumps({**json.loads(text), "schema_version": 0}))
    with pytest.raises(ModelError, match=r"a prior must have schema 1.*Fit it again"):
        Prior.load(path)
    with pytest.raises(ModelError, match="readable JSON"):
        Prior.load(tmp_path / "nowhere.json")
    with pytest.raises(ModelError, match="fitting a prior needs records; got none"):
        Prior.fit([])
    with pytest.raises(ModelError, match="successful records; got none"):
        Prior.fit([replace(recorded(), records=())])
    gpu = Hardware.preset("t4")
    with pytest.raises(ModelError, match="needs one kind of processor; got cpu and cuda"):
        Prior.fit([recorded(), replace(recorded(), header={**recorded().header, "hardware": gpu.to_json()})])
    space = build_space(Dense(T=Dim(1, 32), N=128, K=64), gpu)
    with pytest.raises(ModelError, match="that is tuned for, cuda; got a prior for cpu"):
        tune(space, ShapeSet.uniform(space.workload, 2), SyntheticRunner(gpu), "smoke", prior=other_layers())
    with pytest.raises(
        ModelError, match="a prior can only be used with the cost model learned; got BoostedPredictor"
    ):
        with_prior(predictor_named("loops"), other_layers())


def test_files_that_were_joined_or_of_another_version_are_errors(tmp_path: Path) -> None:
    first, second = (recorded(LAYERS, hardware) for hardware in (HERE, ELSEWHERE))
    lines = [json.dumps({"schema_version": 1, **file.header}) for file in (first, second)]
    record = json.dumps(first.records[0].to_json())
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([lines[0], record, lines[1], record, ""]))
    with pytest.raises(RecordError, match=r"one header.*line 3.*records merge"):
        read_records(path)
    path.write_text("\n".join([lines[0].replace('"schema_version": 1', '"schema_version": 9'), record, ""]))
    with pytest.raises(RecordError, match="header of schema 1"):
        read_records(path)


# A study and the command line


def small_study(folder: Path, **more: object) -> Study:
    work = Dense(T=Dim(1, 32), N=128, K=64)
    return Study.create(folder, work, HERE, ShapeSet.uniform(work, 4), "smoke", **more)  # type: ignore[arg-type]


def test_a_study_keeps_its_cost_model_and_its_prior(tmp_path: Path) -> None:
    trees = small_study(tmp_path / "trees", cost_model="loops")
    run = trees.tune(SyntheticRunner(HERE))
    again = Study.open(tmp_path / "trees").run()
    schemes, shapes = run.schemes[:4], tuple(run.shapes)
    np.testing.assert_array_equal(again.seconds_table(schemes, shapes), run.seconds_table(schemes, shapes))
    with pytest.raises(StudyError, match=r"own cost_model; got learned. It has loops"):
        small_study(tmp_path / "trees")
    prior = Prior.fit([read_records(trees.folder / "records.jsonl")])
    started = small_study(tmp_path / "started", prior=prior)
    run = started.tune(SyntheticRunner(HERE))
    assert isinstance(run.predictor, Calibrated) and run.predictor.prior == prior
    again = Study.open(tmp_path / "started").run()
    np.testing.assert_array_equal(again.seconds_table(schemes, shapes), run.seconds_table(schemes, shapes))
    with pytest.raises(StudyError, match="a prior must be left out, or be the one"):
        small_study(tmp_path / "started", prior=other_layers())
    (started.folder / PRIOR).write_text('{"schema_version": 1, "sour')
    with pytest.raises(ModelError, match="readable JSON"):
        Study.open(started.folder).run()


def test_a_study_from_before_cost_models_had_names_opens(tmp_path: Path) -> None:
    study = small_study(tmp_path / "old")
    value = json.loads((study.folder / MANIFEST).read_text())
    del value["cost_model"]
    (study.folder / MANIFEST).write_text(json.dumps(value))
    assert Study.open(study.folder).cost_model == "learned"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl.gz"
    write_compressed(path, dict(recorded().header), recorded().records)
    return path


def test_the_command_judges_records_and_lists_models(mine: Path) -> None:
    listed = cli("cost-models").output
    assert all(name in listed for name in COST_MODELS)
    options = ["--model", "analytic,knobs", "--split", "pairs,layers", "--told", "60", "--seeds", "2"]
    rows = json.loads(cli("cost-models", mine, *options, "--json").output)
    assert [(r["split"], r["model"]) for r in rows] == [*product(("pairs", "layers"), ("analytic", "knobs"))]
    text = cli("cost-models", mine, *options).output
    assert "peak@1" in text and " to " in text
    wrong = cli("cost-models", mine, "--model", "knob", exits=2)
    assert "cost models are learned, analytic" in wrong.stderr


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--told 5 --seeds 2", "models are listed; the list can only be combined with --json; got --told, "),
        ("--drafts", "name FILES to judge the models on"),
        (
            "FILE --drafts --model learned",
            "--drafts can only be combined with --told, --seeds, --json; got --model",
        ),
        ("FILE --drafts --operator-from FILE", "got --operator-from. Leave --operator-from out."),
        ("FILE --operator-from FILE --split pairs", "--told, --seeds, --json; got --split. Leave"),
        ("FILE --told 8,many", "--told must have numbers, as in 64,400; got many"),
    ],
)
def test_options_of_cost_models_that_do_not_go_together_are_refused(line: str, sentence: str) -> None:
    done = cli("cost-models", *line.replace("FILE", "quickstart").split(), exits=2)
    assert sentence in done.stderr and not done.stdout


def test_the_command_judges_models_on_another_operator(mine: Path) -> None:
    options = ["--model", "analytic", "--told", "0,60", "--seeds", "1", "--json"]
    rows = json.loads(cli("cost-models", mine, "--operator-from", mine, *options).stdout)
    assert [(r["split"], r["told"]) for r in rows] == [("operator, from mine", told) for told in (0, 60)]


def test_tune_explains_its_cost_models_and_refuses_what_it_cannot_start_from(tmp_path: Path) -> None:
    shown = " ".join(cli("tune", "--help").output.split())
    assert all(f"{name}:" in shown for name in COST_MODELS) and "--transfer-from" in shown
    nowhere = cli("tune", "--out", tmp_path / "x", "--transfer-from", "nowhere", exits=2)
    assert "nowhere" in nowhere.stderr and not (tmp_path / "x").exists()
