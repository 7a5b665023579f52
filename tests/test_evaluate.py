"""The evaluation: statistics, the report's arithmetic, and real contenders, right, wrong and absent."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import DispatchError, MissingDependencyError, RecordError
from dietlab.base.statistics import median_interval, paired_ratio, regret
from dietlab.compare import evaluate, lineup
from dietlab.compare.evaluate import _without_again
from dietlab.compare.presence import require_present
from dietlab.compare.results import ContenderInfo, Report, Row
from dietlab.compare.results.first_calls import FIRST_CAPTION
from dietlab.compare.results.trust import Trust
from dietlab.compare.session import TimingSession
from dietlab.compare.vendor import IN_FLOAT32
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.measure.timing.disturbance import Taken
from dietlab.measure.timing.turns import Player
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet
from dietlab.scheme import build_space
from dietlab.tuning import (
    EFFORTS,
    Operator,
    TuningRun,
    build,
    candidate_plans,
    choose_portfolio,
    train_dispatcher,
    tune,
)
from dietlab.view.pages.report import render_html, render_text

WORK = Dense(T=Dim(1, 16), N=64, K=32)
samples = st.lists(st.floats(1e-7, 1e-1), min_size=1, max_size=31)

# Statistics


@given(samples)
def test_interval_holds_the_median_within_the_samples(values: list[float]) -> None:
    found = median_interval(values)
    assert found.median == pytest.approx(float(np.median(values)))
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found == median_interval(values)


def test_interval_narrows_with_more_samples_and_covers_the_truth() -> None:
    random = np.random.default_rng(0)
    few, many = random.normal(10, 1, 9), random.normal(10, 1, 301)
    wide, narrow = median_interval(few.tolist()), median_interval(many.tolist())
    assert narrow.high - narrow.low < wide.high - wide.low
    drawn = (random.normal(10, 1, 15).tolist() for _ in range(200))
    hits = [found.low <= 10 <= found.high for found in map(median_interval, drawn)]
    assert 0.85 <= np.mean(hits) <= 1


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=9), st.integers(0, 9))
def test_plan_that_is_fastest_in_every_block_has_no_regret(times: list[float], others: int) -> None:
    finalists = {0: times} | {n: [(1.01 + n / 10) * t for t in times] for n in range(1, others + 1)}
    assert regret(finalists, 0) == 0
    for n in range(1, others + 1):
        assert regret(finalists, n) == pytest.approx(0.01 + n / 10)


def test_regret_among_equal_plans_is_not_the_noise_between_them() -> None:
    draw = np.random.default_rng(0)
    found, least = [], []
    for _ in range(300):
        times = {n: list(1 + 0.1 * draw.standard_normal(7)) for n in range(5)}
        found.append(regret(times, 4))
        medians = [np.median(samples) for samples in times.values()]
        least.append(medians[4] / min(medians) - 1)
    assert np.mean(least) > 0.03
    assert abs(np.mean(found)) < 0.015


moments = st.tuples(st.floats(1e-6, 1), st.floats(0.5, 4))


@given(st.lists(moments, min_size=1, max_size=21), st.floats(0.1, 10))
def test_slow_moments_that_hit_both_drop_out_of_a_paired_ratio(
    pairs: list[tuple[float, float]], ratio: float
) -> None:
    ours = [seconds * slow for seconds, slow in pairs]
    theirs = [ratio * seconds * slow for seconds, slow in pairs]
    assert paired_ratio(theirs, ours) == pytest.approx(ratio)


# The report


def row(contender: str, t: int, seconds: float, **changed: Any) -> Row:
    made = Row(Shape.of(T=t), t == 2, contender, "hot", seconds, seconds, seconds, 1.0, True)
    return replace(made, **changed)


def report(*rows: Row) -> Report:
    contenders = (
        ContenderInfo("dietlab", "ours"),
        ContenderInfo("a", "plain", "1.0"),
        ContenderInfo("b", "plain"),
        ContenderInfo("p", "prepacked"),
        ContenderInfo("gone", "plain", absent="not installed"),
    )
    tuning, library = {"trials": 3}, {"bytes": 9}
    return Report(WORK.to_json(), {"name": "m"}, {"dietlab": "0"}, tuning, library, rows, contenders)


HAND_MADE = report(
    row("dietlab", 1, 1.0, regret=0.1, padding_waste=0.25),
    row("dietlab", 2, 2.0, regret=0.0),
    row("a", 1, 2.0, speedup=2.0),
    row("a", 2, 1.0, speedup=0.5),
    row("b", 1, 1.5, speedup=1.5),
    row("b", 2, 16.0, speedup=8.0),
    row("p", 1, math.nan, speedup=None, correct=False, gflops=0.0),
    row("p", 2, 6.0, speedup=3.0),
)


def test_summary_is_the_geometric_mean_and_the_worst_case() -> None:
    found = {s.contender: s for s in HAND_MADE.summary}
    assert set(found) == {"a", "b", "p", "best plain vendor", "best prepacked vendor"}
    a, b, best = found["a"], found["b"], found["best plain vendor"]
    assert a.geomean_speedup == pytest.approx(1.0) and (a.worst_speedup, a.worst_shape) == (0.5, {"T": 2})
    assert b.geomean_speedup == pytest.approx(math.sqrt(12))
    assert (b.worst_speedup, b.worst_shape) == (1.5, {"T": 1})
    assert a.geomean_speedup_held_out == pytest.approx(0.5) and a.shapes == 2
    # The best plain vendor is b on T=1 and a on T=2.
    assert best.geomean_speedup == pytest.approx(math.sqrt(1.5 * 0.5)) and best.worst_shape == {"T": 2}


def test_wrong_results_count_in_no_summary() -> None:
    prepacked = {s.contender: s for s in HAND_MADE.summary}["p"]
    assert prepacked.shapes == 1 and prepacked.geomean_speedup == pytest.approx(3.0)
    fast_liar = row("a", 1, 0.001, speedup=0.001, correct=False)
    assert not report(row("dietlab", 1, 1.0), fast_liar).summary


def test_what_gave_no_result_is_not_wrong(tmp_path: Path) -> None:
    refused = row("b", 1, math.nan, correct=None, gflops=0.0, plan="the worker must succeed; got no memory")
    wrong = row("a", 1, math.nan, correct=False, gflops=0.0, plan="an error of 1e+00 is above 1e-05")
    found = report(row("dietlab", 1, 1.0), wrong, refused)
    text = render_text(found)
    assert "wrong results, not counted\n  a (hot cache): 1 shape, the first T=1: an error of" in text
    assert (
        "no results\n  b (hot cache): 1 shape, the first T=1: the worker must succeed; got no memory" in text
    )
    page = render_html(found)
    assert page.index("Wrong results") < page.index("an error of") < page.index("No results")
    assert page.index("No results") < page.index("no memory")
    assert "No results" not in render_html(report(row("dietlab", 1, 1.0), wrong))
    assert found.to_frame()["correct"].tolist() == [True, False, False]
    found.save(tmp_path / "report.json")
    assert [r.correct for r in Report.load(tmp_path / "report.json").rows] == [True, False, None]


def test_report_without_a_right_result_replaces_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    HAND_MADE.save(path)
    before = path.read_bytes()
    nothing = row("dietlab", 1, math.nan, correct=None, gflops=0.0, plan="signal 6")
    for empty, found in ((report(), "0 rows without one"), (report(nothing), "1 rows without one: signal 6")):
        for place in (path, tmp_path / "new.json"):
            with pytest.raises(
                RecordError, match=f"must have a correct result; got {found}. Nothing was written.$"
            ):
                empty.save(place)
    assert path.read_bytes() == before and not (tmp_path / "new.json").exists()


def test_cache_states_are_summarised_apart() -> None:
    rotating = [replace(r, cache="rotating", speedup=r.speedup and 2 * r.speedup) for r in HAND_MADE.rows]
    both = report(*HAND_MADE.rows, *rotating)
    found = {(s.contender, s.cache): s.geomean_speedup for s in both.summary}
    assert both.caches == ("hot", "rotating")
    assert found["b", "rotating"] == pytest.approx(2 * found["b", "hot"])


def test_report_survives_its_file_as_strict_json_with_the_promised_keys(tmp_path: Path) -> None:
    HAND_MADE.save(tmp_path / "report.json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    value = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    parts = "schema_version workload hardware versions tuning library rows summary"
    assert set(parts.split()) <= set(value)
    times = "seconds_median seconds_low seconds_high gflops"
    promised = {*f"shape held_out contender cache {times} correct padding_waste regret".split()}
    assert all(promised <= set(r) for r in value["rows"])
    keys = {"contender", "cache", "geomean_speedup", "worst_speedup", "worst_shape"}
    assert all(keys <= set(s) for s in value["summary"]) and len(value["summary"]) == 5
    loaded = Report.load(tmp_path / "report.json")
    assert loaded.to_json() == HAND_MADE.to_json() and loaded.summary == HAND_MADE.summary
    assert loaded.contenders == HAND_MADE.contenders
    assert math.isnan(loaded.rows[6].seconds_median) and loaded.rows[:6] == HAND_MADE.rows[:6]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "readable JSON"),
        ('{"schema_version": 5}', "schema 1 or 2 or 3; got 5"),
        ("[]", "schema|readable"),
        ("null", "schema|readable"),
    ],
)
def test_foreign_report_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(RecordError, match=complaint):
        Report.load(tmp_path / "report.json")


def test_report_of_the_first_schema_is_read_with_equal_weights(tmp_path: Path) -> None:
    value = HAND_MADE.to_json()
    old = {k: v for k, v in value.items() if k not in ("shapes", "trace", "padding")}
    for made in old["rows"]:
        del made["again"], made["first_seconds"]
    (tmp_path / "report.json").write_text(json.dumps({**old, "schema_version": 1}))
    loaded = Report.load(tmp_path / "report.json")
    assert loaded.shape_set is None and loaded.weights == {Shape.of(T=1): 0.5, Shape.of(T=2): 0.5}
    assert loaded.to_json() == HAND_MADE.to_json()


@pytest.mark.parametrize("name", ["zen4-1core", "zen4-2core"])
def test_committed_reports_are_read(name: str) -> None:
    path = Path(__file__).parent.parent / f"data/results/{name}.report.json.gz"
    loaded = Report.from_json(json.loads(gzip.decompress(path.read_bytes())))
    assert len(loaded.weights) == 128 and loaded.trace[0].contender == "dietlab"
    waste = {line.policy: line.waste for line in loaded.padding}
    assert waste["to multiples of 128"] == pytest.approx(1 - 64.5 / 128)


def test_times_are_summed_over_the_trace_by_weight() -> None:
    shapes = ShapeSet.of({Shape.of(T=1): 3.0, Shape.of(T=2): 1.0})
    found = {line.contender: line for line in replace(HAND_MADE, shape_set=shapes).trace}
    assert list(found) == ["dietlab", "a", "b", "p", "best prepacked vendor", "best plain vendor"]
    ours, a = found["dietlab"], found["a"]
    assert (ours.seconds, ours.speedup, ours.share) == (pytest.approx(1.25), None, 1)
    assert (a.seconds, a.share) == (pytest.approx(1.75), 1)
    assert a.speedup == pytest.approx(1.75 / 1.25)
    # p is right on T=2 only, where ours took 2 s and it 6 s.
    assert (found["p"].seconds, found["p"].share, found["p"].speedup) == (6, 0.25, 3)
    assert found["best plain vendor"].speedup == pytest.approx((0.75 * 1.5 + 0.25 * 1.0) / 1.25)


def test_the_bound_over_a_trace_is_that_of_each_shape() -> None:
    """The oracle's plan was timed in turns with ours; its library was timed at other moments."""
    ours, oracle = (
        HAND_MADE.ours[0],
        replace(HAND_MADE.ours[0], contender="oracle", speedup=0.8, seconds_median=9.0),
    )
    (mine, bound) = replace(HAND_MADE, rows=(ours, oracle), shape_set=ShapeSet.of({ours.shape: 1.0})).trace
    assert (bound.contender, bound.speedup) == ("oracle", pytest.approx(0.8))
    assert bound.seconds == pytest.approx(0.8 * mine.seconds)


def test_padding_over_the_trace_needs_our_waste_on_every_shape() -> None:
    assert "dietlab's plans" not in {line.policy for line in HAND_MADE.padding}
    ours = (replace(r, padding_waste=0.5) for r in HAND_MADE.rows if r.contender == "dietlab")
    known = report(*ours, *(r for r in HAND_MADE.rows if r.contender != "dietlab"))
    assert {line.policy: line.waste for line in known.padding} == {
        "dietlab's plans": 0.5,
        "to multiples of 16": pytest.approx(1 - 1.5 / 16),
        "to powers of two": 0,
        "to multiples of 128": pytest.approx(1 - 1.5 / 128),
    }
    assert replace(HAND_MADE, workload={"operator": "unheard of"}).padding == ()


def test_trace_and_its_source_survive_the_file(tmp_path: Path) -> None:
    chosen = ShapeSet.of({Shape.of(T=1): 0.3, Shape.of(T=2): 0.1}, held_out=[Shape.of(T=2)])
    shapes = replace(chosen, source="serving:2", dropped=0.25)
    made = replace(HAND_MADE, shape_set=shapes)
    made.save(tmp_path / "report.json")
    loaded = Report.load(tmp_path / "report.json")
    assert loaded.shape_set == shapes and loaded.to_json() == made.to_json()
    assert loaded.shape_set is not None
    assert (loaded.shape_set.source, loaded.shape_set.dropped) == ("serving:2", 0.25)


def test_report_is_a_tidy_table() -> None:
    frame = HAND_MADE.to_frame()
    assert len(frame) == 8 and set(frame["T"]) == {1, 2}
    assert len(HAND_MADE.summary_frame()) == 5
    assert set(HAND_MADE.summary_frame()["worst_shape"]) <= {"T=1", "T=2"}
    alone = replace(HAND_MADE, rows=tuple(row for row in HAND_MADE.rows if not row.held_out)).summary_frame()
    assert alone["geomean_speedup_held_out"].dtype == float and alone["geomean_speedup_held_out"].isna().all()
    assert list(replace(HAND_MADE, rows=()).to_frame()["reason"]) == []


def test_frame_of_a_report_has_the_parameters_of_a_plan_or_the_reason_why_there_is_none() -> None:
    ours, other, *_ = HAND_MADE.rows
    rows = (replace(ours, plan="6x64.u2.ws.p24a.k512.even"), replace(other, correct=None, plan="it hung"))
    first, second = replace(HAND_MADE, rows=rows).to_frame().to_dict("records")
    assert (first["scheme"], first["rows"], first["cols"]) == ("6x64.u2.ws.p24a.k512.even", 6, 64)
    assert (first["prefetch"], first["ahead"], first["block"]) == (24, True, 512)
    assert pd.isna(first["reason"]) and pd.isna(second["rows"]) and pd.isna(second["scheme"])
    assert (second["reason"], second["correct"]) == ("it hung", False)


# Real contenders

BLOCKED = 'raise ImportError("blocked in this test")\n'
WRONG_MATMUL = """
import numpy
right = numpy.matmul
def wrong(x, w, out):
    right(x, w, out)
    if len(x) > 4:
        out[-1, -1] += 1
numpy.matmul = wrong
"""


@pytest.fixture(scope="module")
def run(here: Hardware) -> TuningRun:
    shapes = ShapeSet.extents(WORK, [1, 4, 16])
    return tune(build_space(WORK, here), shapes, SyntheticRunner(here), "smoke")


@pytest.fixture(scope="module")
def op(run: TuningRun, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return build(train_dispatcher(choose_portfolio(run, max_kernels=3)), tmp_path_factory.mktemp("op"))


BRIEF = replace(EFFORTS["smoke"], evaluation_block_seconds=0.0005)


def test_evaluation_of_every_shape_is_right_and_complete(
    op: Operator, run: TuningRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    shapes = ShapeSet.every(WORK).hold_out_all_but(run.shapes)
    names = ("openblas", "torch", "largest-shape", "oracle")
    found = evaluate(op, shapes, names, skip_absent=True, effort=BRIEF, tuned=run, caches=("hot",))
    by_name = {c.name: c for c in found.contenders}
    assert "blocked in this test" in by_name["torch"].absent
    assert not by_name["openblas"].absent and by_name["openblas"].version
    present = {"dietlab", "openblas", "largest-shape", "oracle"}
    pairs = {(name, length) for name in present for length in range(1, 17)}
    assert {(r.contender, r.shape["T"]) for r in found.rows} == pairs
    assert len(found.rows) == 4 * 16
    for made in found.rows:
        assert made.correct, made
        assert 0 < made.seconds_low <= made.seconds_median <= made.seconds_high
        assert made.gflops == pytest.approx(WORK.flops(made.shape) / made.seconds_median / 1e9)
        assert made.held_out == (made.shape not in run.shapes.shapes)
        ours = made.contender == "dietlab"
        assert (made.regret is not None) == (made.again is not None) == ours == (made.speedup is None)
        assert made.padding_waste is None or 0 <= made.padding_waste < 1
        if made.shape["T"] == 1 or made.contender == "oracle":
            assert made.first_seconds is None
    others = present - {"dietlab"}
    assert {s.contender for s in found.summary} == others | {"best plain vendor"}
    plans = {plan.key for plan in candidate_plans(run, run.shapes.shapes)}
    assert {r.plan for r in found.rows if r.contender == "oracle"} <= plans
    regrets = {r.shape: r.regret for r in found.rows if r.regret is not None}
    for made in found.rows:
        if made.contender == "oracle":  # one definition, wherever it is read
            assert made.speedup == pytest.approx(1 / (1 + regrets[made.shape]))
    assert found.trust and found.trust.pairs == 16 and by_name.keys() == {*present, "torch"}
    assert render_text(found).splitlines()[2] == f"How far to trust this: {found.trust}."
    assert str(found.trust) in render_html(found) and "on one shape is noise" in str(found.card.facts)
    first = {line.contender: line.shapes for line in found.first_calls}
    assert first and first.keys() <= present - {"oracle"} and max(first.values()) <= 15
    assert found.shape_set == shapes and [line.share for line in found.trace] == pytest.approx([1.0] * 5)
    assert found.tuning["trials"] == run.trials and found.library["kernels"] == len(op.micro_kernels)
    assert found.library["bytes"] == op.manifest["code_bytes"]
    assert IN_FLOAT32 in found.notes and IN_FLOAT32 in render_text(found)
    found.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json").summary == found.summary


@given(st.lists(st.floats(0.2, 5.0), min_size=2, max_size=60))
def test_of_what_was_timed_twice_95_percent_differ_by_no_more_than_is_said(ratios: list[float]) -> None:
    told = Trust.of(row("dietlab", 1 + n, 1.0, again=ratio) for n, ratio in enumerate(ratios))
    assert told and told.low == min(ratios) and told.high == max(ratios) and told.pairs == len(ratios)
    inside = [max(ratio, 1 / ratio) <= (1 + told.noise) * (1 + 1e-12) for ratio in ratios]
    assert np.mean(inside) >= 0.95
    turned = Trust.of(row("dietlab", 1 + n, 1.0, again=1 / ratio) for n, ratio in enumerate(ratios))
    assert turned and turned.noise == pytest.approx(told.noise), "it does not matter which was the first"


def test_what_is_told_of_noise_holds_for_the_next_evaluation() -> None:
    draw = np.random.default_rng(0)
    inside = []
    for _ in range(100):
        first, second = np.exp(0.05 * draw.standard_normal((2, 30)))
        told = Trust.of(row("dietlab", 1 + n, 1.0, again=ratio) for n, ratio in enumerate(first))
        assert told
        inside.append(np.mean(np.abs(np.log(second)) <= np.log1p(told.noise)))
    assert 0.95 <= np.mean(inside) < 0.98


def test_without_anything_timed_twice_nothing_is_told() -> None:
    wrong = row("dietlab", 1, 1.0, again=1.5, correct=False)
    assert Trust.of([wrong, row("a", 1, 1.0)]) is None and HAND_MADE.trust is None
    assert "to trust this" not in render_text(HAND_MADE) + render_html(HAND_MADE)
    one = report(row("dietlab", 1, 1.0, again=1.25), row("a", 1, 2.0, speedup=2.0))
    assert "timed twice on one shape, took 1.25x the second time." in render_text(one)


def test_the_first_call_at_a_shape_stands_beside_the_later_ones() -> None:
    found = report(
        row("dietlab", 1, 1e-4),
        row("dietlab", 2, 2e-4, first_seconds=2.2e-4),
        row("a", 2, 1.7e-3, first_seconds=6.2e-3),
        row("a", 3, 2e-3, first_seconds=3e-3),
        row("a", 4, 4e-3, first_seconds=8e-3),
        row("b", 2, 1.0),
        row("p", 2, 1e-3, first_seconds=1.0, correct=False),
        row("p", 3, math.nan, first_seconds=1.0, correct=None),
    )
    lines = render_text(found).splitlines()
    start = lines.index(FIRST_CAPTION)
    assert lines[start + 1 : start + 6] == [
        "cache  contender  shapes  median   most  most at  first call  later ones",
        "-----  ---------  ------  ------  -----  -------  ----------  ----------",
        "hot    a               3   2.00x  3.65x      T=2     6.20 ms     1.70 ms",
        "hot    dietlab         1   1.10x  1.10x      T=2      220 us      200 us",
        "",
    ]
    page = render_html(found)
    assert FIRST_CAPTION in page and "<td>3.65x</td><td>T=2</td><td>6.20 ms</td>" in page
    assert "First calls" in page and "First calls" in found.card.html
    assert HAND_MADE.first_calls == ()
    assert "irst call" not in render_text(HAND_MADE) + render_html(HAND_MADE) + HAND_MADE.card.html


def turn(correct: bool | None, reason: str, seconds: tuple[float, ...]) -> Player:
    """A contender on one shape, after its blocks."""
    seat: Any = None
    blocks = {"hot": [Taken(one, 0, False, None) for one in seconds]}
    return Player(seat, Shape.of(T=1), None, correct, reason, blocks=blocks)


@pytest.mark.parametrize(
    ("ours", "again", "correct", "told"),
    [
        (turn(True, "", (1.0, 2.0)), turn(True, "", (1.1, 2.2)), True, 1.1),
        (turn(True, "", (1.0,)), turn(False, "1 is above 0", ()), False, None),
        (turn(True, "", (1.0,)), turn(None, "crashed", ()), True, None),
        (turn(False, "1 is above 0", ()), turn(True, "", (1.0,)), False, None),
    ],
)
def test_a_second_process_with_another_result_speaks_for_both(
    ours: Player, again: Player, correct: bool, told: float | None
) -> None:
    others, found = _without_again({"dietlab": ours, "a": ours, "dietlab again": again})
    assert [*others] == ["dietlab", "a"] and others["dietlab"].correct == correct
    assert found == (told and pytest.approx(told))


def test_contender_that_computes_something_else_is_incorrect_and_out_of_the_summary(
    op: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRONG_MATMUL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    shapes, caches = ShapeSet.extents(WORK, [3, 9]), ("hot", "rotating")
    found = evaluate(op, shapes, ("openblas",), effort=BRIEF, caches=caches)
    verdicts = {(r.contender, r.shape["T"], r.cache): r for r in found.rows}
    assert len(verdicts) == 8
    for (name, t, _), made in verdicts.items():
        assert made.correct == (name == "dietlab" or t == 3)
        assert math.isnan(made.seconds_median) == (not made.correct) == (made.gflops == 0)
    assert "is above" in str(verdicts["openblas", 9, "hot"].plan)
    openblas = [s for s in found.summary if s.contender == "openblas"]
    assert [(s.shapes, s.worst_shape) for s in openblas] == [(1, {"T": 3})] * 2


REFUSING_MATMUL = """
import numpy
right = numpy.matmul
def refusing(x, w, out):
    if len(x) > 4:
        raise MemoryError("no room")
    right(x, w, out)
numpy.matmul = refusing
"""


def test_contender_that_refuses_a_shape_has_no_result_there(
    op: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(REFUSING_MATMUL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = evaluate(op, ShapeSet.extents(WORK, [3, 9]), ("openblas",), effort=BRIEF, caches=("hot",))
    verdicts = {(r.contender, r.shape["T"]): r.correct for r in found.rows}
    ours, theirs = ("dietlab", 3), ("openblas", 3)
    assert verdicts == {ours: True, ("dietlab", 9): True, theirs: True, ("openblas", 9): None}
    assert "MemoryError: no room" in str(found.rows[-1].plan)
    text = render_text(found)
    assert "no results\n  openblas (hot cache): 1 shape, the first T=9" in text and "wrong" not in text


@pytest.mark.parametrize(
    ("caches", "complaint"),
    [
        (("warm",), "got warm"),
        (("hot", "cold", "warm"), "got cold, warm"),
        ((), "got none of them"),
        ("hot", r"got the string 'hot'\. Give a list of them, as in \['hot'\]\."),
    ],
)
def test_unknown_cache_states_are_refused_before_anything_starts(
    caches: Any, complaint: str, op: Operator, run: TuningRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evaluate.__globals__, "contest", None)
    shapes = ShapeSet.extents(WORK, [1])
    for names in (("openblas",), ("openblas", "oracle")):
        with pytest.raises(DispatchError, match=f"cache states are hot, interleaved, rotating; {complaint}$"):
            evaluate(op, shapes, names, effort=BRIEF, tuned=run, caches=caches)


@pytest.mark.parametrize("others", [(), ("oracle",)])
def test_a_contender_that_is_named_and_absent_ends_it_before_anything_is_built_or_timed(
    others: tuple[str, ...], op: Operator, run: TuningRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(TimingSession, "play", None)
    monkeypatch.setattr(lineup, "with_oracle", None)
    told = r"every contender that is named must be available; got torch is absent: .*blocked.*[Nn]ame others"
    with pytest.raises(MissingDependencyError, match=told):
        evaluate(op, ShapeSet.extents(WORK, [1]), ("openblas", "torch", *others), effort=BRIEF, tuned=run)


def test_a_vendor_is_required_of_one_workload_only(here: Hardware) -> None:
    """A batched product has no packed weights, and a bench has both."""
    product = BatchMatmul(T=Dim(1, 8), B=2, D=4, form="nt")
    require_present([product, WORK], here, ["openblas", "mkl-packed"])
    with pytest.raises(
        MissingDependencyError, match="mkl-packed is absent: a contender that packs weights needs constant"
    ):
        require_present([product], here, ["openblas", "mkl-packed"])


def test_a_report_stays_where_another_holds_less(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    whole = replace(HAND_MADE, library={"micro_kernels": ["8x32"]})
    whole.save(path)
    fewer = replace(whole, rows=tuple(row for row in whole.rows if row.contender != "a"))
    told = r"must not replace one with more results; got it has 7 results, of which this one has 5: .* a\."
    with pytest.raises(RecordError, match=told):
        fewer.save(path)
    assert Report.load(path).summary == whole.summary
    for other in (whole, replace(fewer, library={"micro_kernels": ["4x16"]})):
        other.save(path)
        assert Report.load(path).summary == other.summary


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("openblas", "cublas", "nobody"), r"contenders on .* are openblas, mkl.*oracle; got cublas, nobody"),
        ("mkl", r"contenders on .* are .*; got the string 'mkl'\. Give a list of them"),
        (("oracle",), r"need the tuning run.*got tuned=None. Pass tuned=run"),
    ],
)
def test_impossible_line_ups_are_refused(names: Any, told: str, op: Operator) -> None:
    with pytest.raises(DispatchError, match=told):
        evaluate(op, ShapeSet.extents(WORK, [1]), names, effort=BRIEF)
