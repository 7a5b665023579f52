"""The explorers of results: speedup, dispatch, and the cost-model lab."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, trace
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import CHIP, EVERY, LENGTHS, TUNED, layers_report

from dietlab.base.errors import DispatchError, ModelError, RecordError, WorkloadError
from dietlab.compare.results import ResultTable
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.study import Study
from dietlab.cost import evaluate_model
from dietlab.machine import Hardware
from dietlab.measure import Record, ReplayRunner, SyntheticRunner, Timing, read_records
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.scheme import Leaf, Scheme, Split, Tree, build_space, intervals, route
from dietlab.tuning import (
    EFFORTS,
    Dispatcher,
    Portfolio,
    TuningRun,
    choose_portfolio,
    lost,
    train_dispatcher,
    tune,
)
from dietlab.view.figures.dispatch_tree import dispatcher_at, last_drawn, mean_slowdown, only_dim, path_words
from dietlab.view.figures.folding import root_of
from dietlab.view.figures.plan_styles import BAR_WIDTH
from dietlab.view.figures.plans import frame_plans, plot_plans
from dietlab.view.figures.predictions import (
    fit_first,
    frame_importances,
    frame_predictions,
    plot_importances,
    plot_predictions,
)
from dietlab.view.figures.shape_map import frame_map
from dietlab.view.figures.speedup import frame_against, frame_parts, plot_against, time_words
from dietlab.view.figures.tree_traces import ENDS
from dietlab.view.static.picture import picture
from dietlab.view.widgets.cost_lab import (
    NONE,
    RANKING,
    cost_lab,
    draw_ranking,
    frame_ranking,
    plot_ranking,
    usual_counts,
)
from dietlab.view.widgets.dispatch_board import Board, board_of, by_hand
from dietlab.view.widgets.dispatch_explorer import (
    BY_HAND,
    NOTHING,
    TRAINED,
    dispatch_explorer,
    frame_dispatch,
    plot_dispatch,
)
from dietlab.view.widgets.speedup_explorer import by_setting, plan_words, speedup_explorer

HOSTILE = "<script>alert('x')</script>"
BENCH = ROOT / "data" / "results" / "zen4-bench.csv.gz"
XEON = ROOT / "data" / "results" / "xeon-bench.csv.gz"
RECORDS = ROOT / "data" / "quickstart" / "records.jsonl.gz"
HARDWARE = Hardware.preset("haswell-1core")
WORK = Dense(T=Dim(1, 64), N=768, K=256)
PLAN = "6x16.u4.ws.p0.even"


def text_of(explorer: Any) -> str:
    """Everything that an explorer says."""
    drawn = explorer.drawn
    return " ".join([drawn.note, *drawn.numbers, *drawn.numbers.values()])


# --- speedup ----------------------------------------------------------------------------------


def row(extent: int, contender: str, us: float, ours: float | None = None, **changed: Any) -> Row:
    s = us / 1e6
    made = Row(Shape.of(T=extent), extent == 64, contender, "hot", s, 0.9 * s, 1.2 * s, 10.0, True)
    made = replace(made, speedup=us / ours if ours else None, plan=None if ours else PLAN)
    return replace(made, **changed)


def rows_of(extent: int, ours: float, cache: str = "hot", **others: float) -> list[Row]:
    """Our row and those of others, whose times are multiples of ours."""
    named = {name.replace("_", "-"): factor for name, factor in others.items()}
    theirs = [row(extent, name, ours * factor, ours, cache=cache) for name, factor in named.items()]
    return [row(extent, "dietlab", ours, cache=cache), *theirs]


PLAIN, PACKED, SCHEDULER = "plain", "prepacked", "scheduler"
KINDS = {"mkl": PLAIN, "openblas": PLAIN, "mkl-packed": PACKED, "ansor": SCHEDULER, HOSTILE: PLAIN}


def facts(name: str = "qkv", threads: int = 1, **changed: Any) -> Report:
    contenders = tuple(ContenderInfo(who, kind) for who, kind in KINDS.items())
    hardware = HARDWARE.with_cores(threads).to_json()
    return replace(Report(WORK.to_json(), hardware, contenders=contenders, name=name), **changed)


def bench(parts: Mapping[tuple[str, int], Iterable[Row]], *more: Report) -> ResultTable:
    reports = (facts(name, threads, rows=tuple(rows)) for (name, threads), rows in parts.items())
    return ResultTable((*reports, *more))


ONE_CORE = [
    *rows_of(8, 100.0, mkl=1.5, openblas=2.5, mkl_packed=1.2, ansor=1.1),
    *rows_of(64, 400.0, mkl=2.0, openblas=1.8, mkl_packed=0.8),
    *rows_of(8, 150.0, "rotating", mkl=1.5),
]
TWO_CORES = rows_of(8, 60.0, openblas=3.0)
TABLE = bench({("qkv", 1): ONE_CORE, ("qkv", 2): TWO_CORES, ("other", 1): rows_of(8, 10.0, mkl=1.0)})


@pytest.fixture
def report() -> Report:
    return TABLE.report("qkv", 1)


def test_both_intervals_bound_the_speedup(report: Report) -> None:
    frame = frame_against(report, "mkl", "hot")
    assert frame["T"].tolist() == [8, 64]
    first = frame.iloc[0]
    assert first["speedup"] == pytest.approx(1.5)
    assert (first["seconds_low"], first["seconds_high"]) == pytest.approx((135e-6, 180e-6))
    assert first[["own_seconds_low", "own_seconds_high"]].tolist() == pytest.approx([90e-6, 120e-6])
    assert (first["speedup_low"], first["speedup_high"]) == pytest.approx((135 / 120, 180 / 90))
    best = frame_against(report, "best plain vendor", "hot")
    assert best["fastest"].tolist() == ["mkl", "openblas"]
    assert best["seconds_low"].tolist() == pytest.approx([135e-6, 0.9 * 720e-6])


times = st.floats(1.0, 1e6)
spreads = st.floats(0.0, 0.9)


@given(ours=times, theirs=times, below=st.tuples(spreads, spreads), above=st.tuples(spreads, spreads))
def test_the_bar_holds_the_ratio_of_the_medians(
    ours: float, theirs: float, below: tuple[float, float], above: tuple[float, float]
) -> None:
    def timed(contender: str, us: float, number: int, **more: Any) -> Row:
        low, high = us * (1 - below[number]), us * (1 + above[number])
        return row(8, contender, us, seconds_low=low / 1e6, seconds_high=high / 1e6, **more)

    both = [timed("dietlab", ours, 0), timed("mkl", theirs, 1, speedup=theirs / ours)]
    (found,) = frame_against(bench({("qkv", 1): both}).report("qkv", 1), "mkl").itertuples()
    slack = 1 + 1e-9
    assert found.speedup_low <= slack * theirs / ours
    assert found.speedup_high >= theirs / ours / slack
    if not any((*below, *above)):
        assert found.speedup_low == pytest.approx(found.speedup_high)


def test_speedups_are_drawn_with_bars_rings_and_held_out_shapes(report: Report) -> None:
    figure = plot_against(report, "mkl", "hot", "T=64")
    line = figure.data[0]
    assert (line.name, list(line.marker.symbol)) == ("mkl", ["circle", "circle-open"])
    assert list(line.error_y.array) == pytest.approx([0.5, 2 * 1.2 / 0.9 - 2])
    assert list(line.error_y.arrayminus) == pytest.approx([1.5 - 1.125, 2 - 2 * 0.9 / 1.2])
    assert line.hovertext[1] == (
        "<b>dietlab is 2.00 times as fast as mkl</b><br>dietlab 400.0 us (360.0 to 480.0)"
        "<br>mkl 800.0 us (720.0 to 960.0)<br>T=64, held out from tuning; click to see its plan"
    )
    assert list(trace(figure, "T=64").x) == [64]
    assert 1.1 not in figure.layout.yaxis.tickvals
    assert 1.1 in plot_against(report, "ansor", "hot").layout.yaxis.tickvals
    assert trace(figure, "held out from tuning").marker.symbol == "circle-open"
    assert figure.layout.yaxis.title.text == "speedup (above 1: dietlab faster)"
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis.type) == ("T (extent)", None)
    slower = plot_against(report, "mkl-packed", "hot").data[0].hovertext[1]
    assert slower.startswith("<b>mkl-packed is 1.25 times as fast as dietlab</b>")


def test_a_wide_range_has_a_logarithmic_axis() -> None:
    rows = [*rows_of(1, 10.0, mkl=2.0), *rows_of(2048, 999.0, mkl=2.0)]
    figure = plot_against(bench({("qkv", 1): rows}).report("qkv", 1), "mkl")
    assert figure.layout.xaxis.type == "log"


def test_times_in_words() -> None:
    assert time_words(82.91e-6, 82.48e-6, 83.01e-6) == "82.9 us (82.5 to 83.0)"
    assert time_words(82.91e-6, math.nan, 83e-6) == "82.9 us"
    assert time_words(math.nan, 1.0, 2.0) == time_words(None, None, None) == "was not measured"


def test_plans_in_words(report: Report) -> None:
    assert plan_words(report, Shape.of(T=8), PLAN) == f"T=8: dietlab covers it by 2 x 4 rows of {PLAN}."
    assert plan_words(report, Shape.of(T=8), None) == "T=8: the plan is unknown."
    assert plan_words(report, Shape.of(T=8), "no key") == "T=8: no key."
    assert plan_words(replace(report, workload={}), Shape.of(T=8), PLAN) == f"T=8: {PLAN}."


def test_dropdowns_offer_what_was_measured() -> None:
    explorer = speedup_explorer(TABLE)
    offered = {name: control.options for name, control in explorer.controls.items()}
    assert [name for name, _ in offered.pop("beside")] == [
        f"{HARDWARE.name}, {name}" for name in ("qkv, one core", "qkv, 2 cores", "other, one core")
    ]
    assert offered == {
        "hardware": (HARDWARE.name,),
        "workload": ("qkv", "other"),
        "threads": (1, 2),
        "cache": ("hot", "rotating"),
        "contender": ("best prepacked vendor", "best plain vendor", "mkl", "openblas", "mkl-packed", "ansor"),
        "shape": ("T=8", "T=64"),
    }
    explorer.set(contender="openblas", shape="T=64")
    assert explorer.figure.data[0].name == "openblas"
    assert "1.80 times" in text_of(explorer)
    # On two cores and for the other workload less was measured: what is gone becomes another option.
    explorer.controls["threads"].value = 2
    assert explorer.values["contender"] == "openblas" and explorer.values["shape"] == "T=8"
    assert explorer.frame["speedup"].tolist() == [3.0]
    explorer.controls["workload"].value = "other"
    assert explorer.values["threads"] == 1 and explorer.controls["threads"].options == (1,)
    assert explorer.values["contender"] == "best plain vendor"
    assert explorer.frame["own_seconds"].tolist() == [1e-5]


def test_a_click_on_a_shape_tells_its_plan_and_a_click_elsewhere_nothing() -> None:
    explorer = speedup_explorer(TABLE)
    assert "T=8: dietlab covers it by 2 x 4 rows" in explorer.drawn.note
    explorer.live.clicked = {"trace": 0, "point": 1, "x": 64, "y": 2.0, "count": 1}
    assert explorer.values["shape"] == "T=64"
    assert f"T=64: dietlab covers it by 9 x 6 + 2 x 5 rows of {PLAN}" in explorer.drawn.note
    assert list(trace(explorer.figure, "T=64").x) == [64]
    for number, point in enumerate([{"trace": 1, "point": 0}, {"trace": 0, "point": 99}, {"trace": 0}], 2):
        explorer.live.clicked = {**point, "x": 8, "count": number}
        assert explorer.values["shape"] == "T=64"


def test_several_sources_are_never_mixed(report: Report, tmp_path: Path) -> None:
    TABLE.save(tmp_path / "first.csv")
    explorer = speedup_explorer([tmp_path / "first.csv", TABLE, replace(report, name="")])
    names = explorer.controls["hardware"].options
    assert names == (HARDWARE.name, f"{HARDWARE.name} (2)")
    assert explorer.controls["workload"].options == ("qkv", "other", str(WORK))
    assert len(by_setting([TABLE, TABLE, TABLE])) == 3 * len(by_setting([TABLE]))
    explorer.controls["hardware"].value = names[1]
    assert explorer.controls["workload"].options == ("qkv", "other")


def test_several_settings_are_drawn_over_each_other() -> None:
    explorer = speedup_explorer(TABLE)
    explorer.set(contender="openblas")
    alone = len(explorer.figure.data)
    settings_ = list(by_setting([TABLE]))
    explorer.controls["beside"].value = tuple(settings_)
    # The chosen one is drawn once, and the other workload was not compared with openblas.
    assert len(explorer.figure.data) == alone + 1
    line = explorer.figure.data[-1]
    assert line.name == f"dietlab: {HARDWARE.name}, qkv, 2 cores" and list(line.y) == [3.0]
    not_compared = f"{HARDWARE.name}, other, one core: dietlab was not compared with openblas there."
    assert not_compared in text_of(explorer)
    again = speedup_explorer(TABLE).restore(json.loads(json.dumps(explorer.state())))
    assert again.values == explorer.values and len(again.figure.data) == alone + 1
    explorer.controls["beside"].value = ()
    assert len(explorer.figure.data) == alone
    assert "beside" not in speedup_explorer(bench({("qkv", 1): ONE_CORE})).controls


def test_of_several_sources_one_that_cannot_be_read_is_left_out(report: Report, tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"rows": [', encoding="utf-8")
    (tmp_path / "study").mkdir()
    explorer = speedup_explorer([report, tmp_path / "half.json", tmp_path / "study"])
    assert explorer.drawn.note.count("Left out: a report must be readable JSON") == 2
    assert len(explorer.frame) == 2
    nothing = speedup_explorer([tmp_path / "half.json"])
    assert "There is no row to compare. Left out: " in nothing.drawn.note
    with pytest.raises(RecordError, match="a report must be readable JSON"):
        speedup_explorer(tmp_path / "study")


def test_hostile_names_are_escaped() -> None:
    table = bench({("qkv", 1): [row(8, "dietlab", 100.0), row(8, HOSTILE, 150.0, 100.0)]})
    explorer = speedup_explorer(table)
    explorer.controls["contender"].value = HOSTILE
    shown = [t.name for t in explorer.figure.data] + list(explorer.figure.data[0].hovertext)
    assert not [text for text in [*shown, explorer.figure.layout.title.text] if HOSTILE in text]
    assert HOSTILE not in explorer._numbers.value


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("runs") / "study"
    made = Study.create(folder, WORK, HARDWARE, ShapeSet.uniform(WORK, 4), "smoke")
    made.tune(SyntheticRunner(HARDWARE))
    return made


def test_a_study_predicts_the_parts_of_a_shape(study: Study) -> None:
    model = study.run().model
    explorer = speedup_explorer(TABLE, runs={("qkv", 1): study.folder})
    explorer.set(shape="T=64", cache="hot")
    hot = replace(model, cost=model.cost.with_cache("hot"))
    expected = hot.parts(Scheme.from_key(PLAN), Shape.of(T=64))
    bars = [t for t in explorer.figure.data if t.type == "bar"]
    assert len(bars) == 5
    assert sum(bar.x[0] for bar in bars) == pytest.approx(1e6 * expected.total)
    assert bars[0].hovertext[0].startswith(f"<b>multiply-adds: {1e6 * expected.compute:.1f} us</b>")
    assert list(trace(explorer.figure, "measured").x) == [400.0]
    assert f"Predicted: {1e6 * expected.total:.1f} us, of which" in explorer.drawn.note
    # No study of the other threads was given.
    explorer.controls["threads"].value = 2
    assert "Predicted" not in explorer.drawn.note
    assert not [t for t in explorer.figure.data if t.type == "bar"]


def test_parts_add_up(study: Study) -> None:
    frame = frame_parts(study.run().model, PLAN, Shape.of(T=13), "hot")
    assert frame["share"].sum() == pytest.approx(1)
    assert (frame["predicted_seconds"] >= 0).all()
    # Weights come from memory: it never takes less time.
    cold = frame_parts(study.run().model, PLAN, Shape.of(T=13), "rotating")
    assert cold["predicted_seconds"].sum() >= frame["predicted_seconds"].sum()


def test_a_study_that_says_nothing_of_the_shape_is_a_sentence(study: Study, tmp_path: Path) -> None:
    missing = speedup_explorer(TABLE, runs={("qkv", 1): tmp_path / "no study"})
    assert (
        "Its parts cannot be predicted: a study folder must have a readable manifest.json"
        in missing.drawn.note
    )
    assert len(missing.frame) == 2
    elsewhere = facts(hardware={**HARDWARE.to_json(), "name": "another CPU"}, rows=tuple(ONE_CORE))
    table = ResultTable((elsewhere,))
    other = speedup_explorer(table, runs={("qkv", 1): study.folder})
    assert f"The cost model is of {HARDWARE.name}: it predicts nothing here." in other.drawn.note


def test_tables_without_a_row_say_so() -> None:
    for empty in (ResultTable(()), [], Report({}, {}, {}, {}, {}, ())):
        explorer = speedup_explorer(empty)
        assert explorer.figure.layout.annotations[0].text == "nothing was measured"
        assert explorer.drawn.note == "There is no row to compare."
    failed = bench({}, facts(threads=2, failure="the compiler is missing"))
    explorer = speedup_explorer(failed)
    assert explorer.drawn.note.endswith("qkv, 2 cores: the compiler is missing")
    assert explorer.frame["failure"].tolist() == ["the compiler is missing"]
    alone = speedup_explorer(bench({("qkv", 1): [row(8, "dietlab", 100.0)]}))
    assert alone.drawn.note == "dietlab was compared with nobody in the hot state."
    for explorer in (speedup_explorer([]), alone):
        assert picture(explorer.figure)[:4] == b"\x89PNG"
    with pytest.raises(RecordError, match="a readable CSV"):
        speedup_explorer("no-such-table.csv")


def test_a_wrong_result_of_ours_has_no_time() -> None:
    wrong = row(8, "dietlab", math.nan, correct=False, plan="an error of 1e+00 is above 1e-05")
    explorer = speedup_explorer(bench({("qkv", 1): [wrong, row(8, "mkl", 150.0, 100.0)]}))
    explorer.controls["contender"].value = "mkl"
    assert explorer.drawn.numbers["dietlab"] == "was not measured"
    assert "T=8: an error of 1e+00 is above 1e-05." in explorer.drawn.note


def test_every_choice_of_the_shipped_bench_agrees_with_its_summary() -> None:
    explorer = speedup_explorer(BENCH)
    table = ResultTable.load(BENCH)
    seen = 0
    for threads in explorer.controls["threads"].options:
        report = table.report(explorer.values["workload"], threads)
        explorer.set(threads=threads)
        for summary in report.summary:
            explorer.set(cache=summary.cache, contender=summary.contender)
            shown, mean = explorer.drawn.numbers, f"{summary.geomean_speedup:.2f} times"
            assert shown["geometric mean"] == f"{mean} over {summary.shapes} shapes"
            (worst,) = (f"{name}={extent}" for name, extent in summary.worst_shape.items())
            assert shown["worst shape"] == f"{summary.worst_speedup:.2f} times at {worst}"
            assert (explorer.frame["speedup_low"] <= explorer.frame["speedup_high"]).all()
            seen += 1
    assert seen >= 12
    both = speedup_explorer([BENCH, XEON])
    assert len(both.controls["hardware"].options) == 2


# --- dispatch ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composed(portfolio_of: Callable[[int], Portfolio]) -> Portfolio:
    return portfolio_of(8)


@pytest.fixture(scope="module")
def board(synthetic_run: TuningRun, composed: Portfolio) -> Board:
    return board_of(synthetic_run, composed)


@pytest.fixture(scope="module")
def replayed() -> TuningRun:
    """The first notebook's run: a search over the shipped records, with local padding."""
    recorded = read_records(RECORDS)
    work = Dense.from_json(recorded.header["workload"])
    hardware = Hardware.from_json(recorded.header["hardware"])
    runner = ReplayRunner(recorded.records)
    space = build_space(work, hardware, edges=["padded"]).restricted_to(runner.schemes)
    effort = replace(EFFORTS["quick"], decisions=96, timing=Timing())
    return tune(space, ShapeSet.uniform(work, n=8), runner, effort)


def trees(high: int = 64) -> st.SearchStrategy[Tree]:
    def split(tree: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.builds(Split, st.just("T"), st.integers(1, high), tree, tree)

    return st.recursive(st.builds(Leaf, st.integers(0, 5)), split, max_leaves=12)


@given(tree=trees(), extent=st.integers(1, 80))
def test_the_nodes_that_an_extent_reaches_are_its_path(tree: Tree, extent: int) -> None:
    root = root_of(tree, 1, 80)
    met = [node for node in root.every() if node.holds(extent)]
    assert [node.level for node in met] == list(range(len(met)))
    assert met[0] is root and all(b in a.below for a, b in pairwise(met))
    assert met[-1].rules == (route(tree, Shape.of(T=extent)),)
    assert [node.at_most is None for node in met] == [False] * (len(met) - 1) + [True]
    reached = [node.span for node in root.every() if node.at_most is None]
    assert sorted(e for low, high in reached for e in range(low, high + 1)) == list(range(1, 81))


def test_the_table_of_a_dispatcher_is_what_it_was_trained_on(
    synthetic_run: TuningRun, composed: Portfolio, board: Board
) -> None:
    dispatcher = train_dispatcher(composed)
    frame = frame_dispatch(synthetic_run, dispatcher)
    assert frame["T"].tolist() == list(range(1, 129))
    assert mean_slowdown(frame) == pytest.approx(dispatcher.expected_slowdown)
    assert (frame["slowdown"] >= 1).all() and frame["weight"].sum() == pytest.approx(1)
    for r in frame.itertuples():
        assert dispatcher.schemes[r.plan] == Scheme.from_key(r.scheme)
        assert r.scheme == dispatcher.scheme(Shape.of(T=r.T)).key and r.low <= r.T <= r.high
    known = board.table(dispatcher)
    assert known["expected_seconds"].tolist() == pytest.approx(frame["expected_seconds"].tolist())
    assert (known["best_seconds"] <= frame["best_seconds"] * (1 + 1e-12)).all()


def test_a_path_in_words() -> None:
    plans = tuple(map(Scheme.from_key, ("6x16.u4.ws.p0.even", "8x32.u4.ws.p0.rest")))
    tree = Split("T", 64, Split("T", 16, Leaf(0), Leaf(1)), Leaf(0))
    dispatcher = Dispatcher(WORK, HARDWARE, plans, tree)
    assert path_words(dispatcher, Shape.of(T=19)) == (
        "T=19: T <= 64? yes. T <= 16? no. So plan 1: 2 x 8 + 1 x 3 rows of 8x32.u4.ws.p0.rest."
    )
    assert path_words(dispatcher, Shape.of(T=70)).startswith("T=70: T <= 64? no. So plan 0: ")


def test_the_figure_shows_tree_range_and_losses(synthetic_run: TuningRun, composed: Portfolio) -> None:
    dispatcher = train_dispatcher(composed)
    figure = plot_dispatch(synthetic_run, dispatcher, extent=43)
    layout = figure.layout
    assert (layout.xaxis.title.text, layout.xaxis.type) == ("T (extent)", "log")
    assert layout.yaxis.title.text == "comparisons (count)"
    assert layout.yaxis2.title.text == "slowdown (times)"
    path = trace(figure, "path of T=43")
    root = root_of(dispatcher.tree, 1, last_drawn(Dim(1, 128)))
    assert list(path.y) == [n.level for n in root.every() if n.holds(43)]
    loss = trace(figure, "dispatcher")
    frame = frame_dispatch(synthetic_run, dispatcher)
    assert (loss.yaxis, list(loss.y)) == ("y2", frame["slowdown"].tolist())
    assert loss.hovertext[42].startswith("<b>T=43: ")
    # Every plan in use has its part of the bar, and together they are the range.
    bars = [t for t in figure.data if t.name and ": " in t.name and t.line.width == BAR_WIDTH]
    assert {int(t.name.partition(":")[0]) for t in bars} == set(range(len(dispatcher.schemes)))
    whole = sorted(x for t in bars for x in t.x if x is not None and float(x).is_integer())
    assert whole == list(range(1, 129))
    splits = next(t for t in figure.data if t.text and any("≤" in text for text in t.text))
    assert len(splits.text) + 1 == len(figure.data[ENDS].x)
    assert "+" in plot_dispatch(synthetic_run, dispatcher, levels=2).data[ENDS].text
    assert all(text.startswith("<b>T ≤ ") for text in splits.hovertext)


def test_without_a_micro_kernel_the_tree_compiles_the_others(board: Board) -> None:
    tried = []
    for dropped in board.portfolio.micro_kernels:
        rest = set(board.portfolio.micro_kernels) - {dropped}
        left = [number for number, kernel in enumerate(board.choice.kernels) if kernel in rest]
        if not board.choice.covered(left).any(axis=0).all():
            with pytest.raises(DispatchError, match=f"without {re.escape(dropped.key)} .* no plan for T="):
                board.without(dropped)
            continue
        portfolio = board.without(dropped)
        tried.append(dropped)
        dispatcher = train_dispatcher(portfolio)
        assert set(portfolio.micro_kernels) == rest
        frame = board.table(dispatcher)
        assert mean_slowdown(frame) == pytest.approx(dispatcher.expected_slowdown, rel=1e-9)
        for r in frame.itertuples():
            needed = {region.kernel for region in dispatcher.plan(Shape.of(T=r.T)).regions}
            assert needed <= rest, r.shape
    assert tried


def test_dropping_a_padded_micro_kernel_never_helps(replayed: TuningRun) -> None:
    portfolio = choose_portfolio(replayed, max_kernels=8)
    board = board_of(replayed, portfolio)
    assert set(board.choice.schemes) == {*portfolio.schemes, portfolio.safe_scheme}

    def price(chosen: Portfolio) -> float:
        """What the tree minimises: what its choices lose, and rules."""
        dispatcher = train_dispatcher(chosen)
        frame = board.table(dispatcher)
        losses = lost(frame["slowdown"].to_numpy()) @ frame["weight"].to_numpy()
        return float(losses) + 0.0003 * len(intervals(dispatcher.tree))

    # The safe plan joins the others, as it does where a micro-kernel is left out.
    schemes, seconds = board.choice.schemes, tuple(map(tuple, board.choice.table.tolist()))
    whole = price(replace(portfolio, schemes=schemes, seconds=seconds))
    more = [price(board.without(dropped)) - whole for dropped in portfolio.micro_kernels]
    assert min(more) >= -1e-9 and max(more) > 0.001


@settings(max_examples=40)
@given(data=st.data())
def test_a_tree_by_hand_serves_what_its_cuts_say(board: Board, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, 128), max_size=3))
    plan = st.sampled_from(board.portfolio.schemes)
    plans = data.draw(st.lists(plan, min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    dispatcher = by_hand(board.portfolio, cuts, plans)
    for extent in range(1, 129):
        assert dispatcher.scheme(Shape.of(T=extent)) == plans[sum(cut < extent for cut in cuts)]
    assert dispatcher.scheme(Shape.of(T=129)) == board.portfolio.safe_scheme
    assert (board.table(dispatcher)["slowdown"] >= 1).all()
    with pytest.raises(DispatchError, match=f"{len(cuts)} cuts need {len(cuts) + 1} plans"):
        by_hand(board.portfolio, cuts, [*plans, plans[0]])


def test_the_trained_cuts_by_hand_lose_the_same(board: Board) -> None:
    trained = train_dispatcher(board.portfolio)
    inside = [(plan, high) for plan, _, high in intervals(trained.tree) if high is not None]
    plans = [trained.schemes[plan] for plan, _ in inside]
    mine = by_hand(board.portfolio, [high for _, high in inside[:-1]], plans)
    assert mean_slowdown(board.table(mine)) == pytest.approx(mean_slowdown(board.table(trained)))


def test_a_plan_that_is_not_on_the_board_is_named(board: Board) -> None:
    stranger = Scheme.from_key("1x8.u1.is.p0")
    with pytest.raises(DispatchError, match=r"on the board; got 1x8\.u1\.is\.p0"):
        board.table(by_hand(board.portfolio, [], [stranger]))


def test_the_explorer_retrains_and_lets_you_play(synthetic_run: TuningRun, composed: Portfolio) -> None:
    explorer = dispatch_explorer(synthetic_run, composed)
    dispatcher = train_dispatcher(composed)
    first = explorer.drawn.numbers["expected mean regret, trained"]
    assert first == f"{100 * (mean_slowdown(explorer.frame) - 1):.2f} %"
    assert explorer.frame["scheme"].tolist() == [dispatcher.scheme(Shape.of(T=t)).key for t in range(1, 129)]
    explorer.controls["shape"].value = 43
    assert explorer.drawn.note.startswith("T=43: T <= 128? yes.")
    assert "path of T=43" in [drawn.name for drawn in explorer.figure.data]
    explorer.controls["shape"].value = 150
    assert explorer.drawn.note.startswith("T=150: T <= 128? no. So plan ")
    # The game begins with one plan for every shape; the trained tree is never slower.
    explorer.controls["tree"].value = BY_HAND
    assert explorer.frame["scheme"].nunique() == 1
    assert "slower than the trained one. Can you do better?" in explorer.drawn.note
    before = explorer.drawn.numbers["by hand"]
    beside = frame_dispatch(synthetic_run, dispatcher)["slowdown"].tolist()
    assert list(trace(explorer.figure, "trained tree").y) == pytest.approx(beside)
    other = next(key for key in explorer.controls["plan_1"].options if key != explorer.values["plan_1"])
    explorer.set(plan_1=other, cut_1=20)
    assert explorer.drawn.numbers["by hand"] != before
    assert explorer.frame["scheme"].tolist()[:21] == [other] * 20 + [explorer.values["plan_2"]]


def test_the_explorer_leaves_out_a_micro_kernel(replayed: TuningRun) -> None:
    explorer = dispatch_explorer(replayed)
    whole = mean_slowdown(explorer.frame)
    codes = explorer.controls["without"].options[1:]
    assert codes == tuple(kernel.key for kernel in choose_portfolio(replayed).micro_kernels)
    for code in codes:
        explorer.controls["without"].value = code
        offered = explorer.controls["plan_1"].options
        used = {Scheme.from_key(key).kernel.key for key in (*explorer.frame["scheme"], *offered)}
        assert used <= set(codes) - {code}
        percent = 100 * (mean_slowdown(explorer.frame) / whole - 1)
        assert f"Without {code} a call takes {percent:.2f} % longer on average." in explorer.drawn.note
        assert f"expected mean regret, trained without {code}" in explorer.drawn.numbers
        assert trace(explorer.figure, "whole portfolio").line.dash == "dash"
    explorer.controls["without"].value = NOTHING
    assert mean_slowdown(explorer.frame) == pytest.approx(whole)


def test_the_last_micro_kernel_cannot_be_left_out(replayed: TuningRun) -> None:
    explorer = dispatch_explorer(replayed, choose_portfolio(replayed, max_kernels=1))
    explorer.controls["without"].value = explorer.controls["without"].options[1]
    assert "the portfolio must still cover every shape; got no plan for T=1, T=2" in explorer.drawn.note
    assert "The whole portfolio is shown." in explorer.drawn.note
    assert len(explorer.frame) == 128


def test_a_click_in_the_tree_chooses_a_shape(synthetic_run: TuningRun, composed: Portfolio) -> None:
    explorer = dispatch_explorer(synthetic_run, composed)
    for count, (x, chosen) in enumerate([(43, 43), (1e9, 160), (0.5, 1), (None, 1)], 1):
        explorer.live.clicked = {"trace": 5, "point": 0, "x": x, "count": count}
        assert explorer.values["shape"] == chosen


def test_dispatch_needs_one_dynamic_dimension() -> None:
    with pytest.raises(WorkloadError, match=r"one dynamic dimension; got 0 \(none\)"):
        only_dim(Dense(T=16, N=64, K=32))


def failed(run: TuningRun) -> TuningRun:
    records = [Record(k, Shape.of(T=8), status) for k in run.schemes[:3] for status in ("wrong", "timeout")]
    return replace(run, records=tuple(records[:5]))


@pytest.mark.parametrize("open_", [dispatch_explorer, cost_lab])
def test_a_run_with_only_failures_says_so(synthetic_run: TuningRun, open_: Any) -> None:
    explorer = open_(failed(synthetic_run))
    assert explorer.figure.layout.annotations[0].text == "nothing was measured"
    assert "one successful record; got 3 wrong, 2 timeout" in explorer.drawn.note
    assert explorer.frame.to_dict("list") == {"status": ["wrong", "timeout"], "records": [3, 2]}
    assert "got no records" in open_(replace(synthetic_run, records=())).drawn.note


def test_figures_of_a_run_with_only_failures_say_so(synthetic_run: TuningRun, composed: Portfolio) -> None:
    run = failed(synthetic_run)
    figures = [
        plot_dispatch(run, train_dispatcher(composed), extent=3),
        plot_ranking(run, [1, 5]),
        plot_predictions(frame_predictions(run, run.model, 2), "T"),
        draw_ranking(frame_ranking(run, []), 3),
    ]
    for figure in figures:
        assert figure.layout.annotations[0].text == "nothing was measured"
        assert picture(figure)[:4] == b"\x89PNG"


# --- cost-model lab ---------------------------------------------------------------------------


def test_a_fit_on_all_records_is_the_runs_own(synthetic_run: TuningRun) -> None:
    model = fit_first(synthetic_run, len(synthetic_run.records))
    kernels, shapes = synthetic_run.schemes[:9], [Shape.of(T=7), Shape.of(T=100)]
    assert model.seconds(kernels, shapes) == pytest.approx(synthetic_run.model.seconds(kernels, shapes))
    assert model.cost == synthetic_run.model.cost
    for count in (0, len(synthetic_run.records) + 1):
        with pytest.raises(ModelError, match=f"a fit takes 1 to .* records of the run; got {count}"):
            fit_first(synthetic_run, count)


def test_predictions_stand_beside_measurements(synthetic_run: TuningRun) -> None:
    model = fit_first(synthetic_run, 40)
    frame = frame_predictions(synthetic_run, model, 40)
    assert len(frame) == sum(r.ok for r in synthetic_run.records)
    assert frame["record"].tolist() == list(range(1, len(frame) + 1))
    assert frame["held_out"].tolist() == [number > 40 for number in frame["record"]]
    last, record = frame.iloc[-1], synthetic_run.records[-1]
    assert last["seconds"] == record.seconds
    guess = model.seconds([record.scheme], [record.shape])[0, 0]
    assert (last["predicted_seconds"], last["ratio"]) == pytest.approx((guess, guess / (record.seconds or 1)))
    assert (last["scheme"], last["shape"]) == (record.scheme.key, str(record.shape))


def test_predictions_are_drawn_on_log_axes_with_held_out_records_marked(synthetic_run: TuningRun) -> None:
    frame = frame_predictions(synthetic_run, fit_first(synthetic_run, 40), 40)
    key = str(frame["scheme"].iloc[-1])
    figure = plot_predictions(frame, "rows", key)
    fitted, rest = trace(figure, "fitted"), trace(figure, "held out from the fit")
    assert (len(fitted.x), fitted.marker.symbol) == (40, "circle")
    assert (len(rest.x), rest.marker.symbol) == (len(frame) - 40, "circle-open")
    assert fitted.marker.cmin == rest.marker.cmin == math.log2(frame["rows"].min())
    assert list(rest.marker.color) == pytest.approx(np.log2(frame["rows"][40:]).tolist())
    assert len(trace(figure, key).x) == (frame["scheme"] == key).sum()
    line = trace(figure, "prediction = measurement")
    assert list(line.x) == list(line.y)
    axes = figure.layout.xaxis, figure.layout.yaxis
    for axis in axes:
        assert axis.tickvals[0] <= line.x[0] and axis.tickvals[-1] >= line.x[1]
    titles = [("measured time (us)", "log"), ("predicted time (us)", "log")]
    assert [(axis.title.text, axis.type) for axis in axes] == titles
    assert rest.hovertext[-1].startswith(f"<b>{key} at {frame['shape'].iloc[-1]}</b><br>measured ")
    assert rest.hovertext[-1].endswith("held out from the fit")


def test_importances_are_shares_in_words(synthetic_run: TuningRun) -> None:
    frame = frame_importances(synthetic_run.model)
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["share"].is_monotonic_decreasing
    figure = plot_importances(frame)
    assert figure.data[0].y[0] == frame["feature"].iloc[0].replace("_", " ")
    assert figure.layout.xaxis.title.text == "share of the loss removed (%)"


def test_ranking_is_judged_on_what_the_fit_has_not_seen(synthetic_run: TuningRun) -> None:
    total = len(synthetic_run.records)
    frame = frame_ranking(synthetic_run, [16, 64, total])
    assert frame["records"].tolist() == [16, 64, total]
    assert frame["judged"].tolist() == [total - 16, total - 64, 0]
    for number, count in enumerate((16, 64)):
        expected = evaluate_model(fit_first(synthetic_run, count), synthetic_run.records[count:])
        assert frame.iloc[number][list(expected)].tolist() == pytest.approx(list(expected.values()))
    assert frame["pairwise"].isna().tolist() == [False, False, True]
    figure = draw_ranking(frame, 64)
    line = trace(figure, "pairs in the right order (pairwise)")
    assert list(line.x) == [16, 64]
    assert list(line.y) == pytest.approx((100 * frame["pairwise"][:2]).tolist())
    assert line.hovertext[0].startswith("<b>after 16 records ")
    assert line.hovertext[0].endswith(f"judged on {total - 16} records that it has not seen")
    assert [shape.x0 for shape in figure.layout.shapes] == [64]
    assert figure.layout.yaxis.title.text == "ranking quality (%; 100 is perfect)"
    with pytest.raises(ModelError, match="records of the run; got 0"):
        frame_ranking(synthetic_run, [0])


def test_records_that_failed_teach_nothing(synthetic_run: TuningRun) -> None:
    broken = [Record(k, Shape.of(T=8), "crashed") for k in synthetic_run.schemes[:10]]
    run = replace(synthetic_run, records=(*broken, *synthetic_run.records[:30]))
    frame = frame_ranking(run, [5, 20])
    assert frame["samples"].iloc[0] == 0 and frame["pairwise"].isna().iloc[0]
    assert frame["samples"].iloc[1] > 0
    assert usual_counts(run)[0] == 11 and usual_counts(run)[-1] == 40
    explorer = cost_lab(run)
    explorer.controls["records"].value = 11
    assert "11 records of 1 schemes" in explorer.drawn.numbers["fitted on"]


@given(total=st.integers(1, 3000), broken=st.integers(0, 40))
def test_numbers_of_records_ascend_to_all(synthetic_run: TuningRun, total: int, broken: int) -> None:
    good = next(record for record in synthetic_run.records if record.ok)
    bad = replace(good, status="wrong", seconds=None)
    counts = usual_counts(replace(synthetic_run, records=(bad,) * broken + (good,) * total))
    assert counts == sorted(set(counts)) and counts[-1] == total + broken
    assert broken < counts[0] and len(counts) <= 9
    assert usual_counts(replace(synthetic_run, records=(bad,) * broken)) == []


def test_the_lab_fits_on_more_records_as_the_slider_moves(replayed: TuningRun) -> None:
    lab = cost_lab(replayed)
    counts = usual_counts(replayed)
    assert lab.controls["records"].options == tuple(counts)
    assert lab.values["scheme"] == NONE
    for count in (counts[0], counts[-1]):
        lab.controls["records"].value = count
        held_out = lab.frame["held_out"].sum()
        assert held_out == len(replayed.records) - count
        assert lab.drawn.numbers["held out"] == f"{held_out} records"
    assert lab.drawn.numbers["pairs in the right order"] == "unknown"
    lab.controls["records"].value = counts[3]
    quality = frame_ranking(replayed, [counts[3]]).iloc[0]
    assert lab.drawn.numbers["pairs in the right order"] == f"{100 * quality['pairwise']:.1f} %"
    lab.controls["show"].value = RANKING
    expected = frame_ranking(replayed, counts)
    assert lab.frame.equals(expected)
    lab.controls["show"].value = "feature importances"
    assert lab.frame.equals(frame_importances(fit_first(replayed, counts[3])))
    feature = lab.frame["feature"].iloc[0].replace("_", " ")
    assert lab.drawn.note.startswith(f"The model looks most at {feature} (")


def test_the_lab_takes_a_run_with_a_bare_cost_model(replayed: TuningRun) -> None:
    lab = cost_lab(replace(replayed, predictor=fit_first(replayed, len(replayed.records))))
    assert lab.frame.equals(cost_lab(replayed).frame) and len(lab.frame) > 0


def test_a_click_on_a_record_rings_its_micro_kernel(replayed: TuningRun) -> None:
    lab = cost_lab(replayed)
    held_out = lab.frame[lab.frame["held_out"]]
    lab.live.clicked = {"trace": 1, "point": 2, "x": 1.0, "count": 1}
    key = held_out["scheme"].iloc[2]
    assert lab.values["scheme"] == key
    assert len(trace(lab.figure, key).x) == (lab.frame["scheme"] == key).sum()
    lab.live.clicked = {"trace": 3, "point": 0, "x": 1.0, "count": 2}
    assert lab.values["scheme"] == key
    lab.controls["show"].value = RANKING
    lab.live.clicked = {"trace": 1, "point": 0, "x": 1.0, "count": 3}
    assert lab.values["scheme"] == key


def test_every_view_has_a_static_picture(replayed: TuningRun, study: Study) -> None:
    with_parts = speedup_explorer(TABLE, runs={("qkv", 1): study.folder})
    game = dispatch_explorer(replayed)
    game.controls["tree"].value = BY_HAND
    for explorer in (speedup_explorer(BENCH), with_parts, game, cost_lab(replayed)):
        data, _ = explorer._repr_mimebundle_()
        assert data["image/png"].startswith("iVBOR")
    assert TRAINED in game.controls["tree"].options


# --- several dynamic dimensions ---------------------------------------------------------------

BERT_LAYER = {"N": 2304, "K": 768}


@pytest.fixture(scope="module")
def every_layer() -> tuple[TuningRun, Portfolio]:
    run = tune(build_space(EVERY, CHIP), TUNED, SyntheticRunner(CHIP), "smoke")
    return run, choose_portfolio(run, max_kernels=6)


def test_a_tree_is_shown_at_a_layer(every_layer: tuple[TuningRun, Portfolio]) -> None:
    run, portfolio = every_layer
    dispatcher = train_dispatcher(portfolio)
    frame = frame_dispatch(run, dispatcher, BERT_LAYER)
    assert frame.columns[0] == "T" and set(LENGTHS) <= set(frame["T"])
    for r in frame.itertuples():
        shape = Shape.of(T=r.T, **BERT_LAYER)
        assert r.scheme == dispatcher.scheme(shape).key and r.low <= r.T <= (r.high or r.T)
        expected = run.expected_seconds([dispatcher.scheme(shape)], [shape])[0, 0]
        assert r.expected_seconds == pytest.approx(expected)
    figure = plot_dispatch(run, dispatcher, extent=24, layer=BERT_LAYER)
    assert figure.layout.title.text == "Dispatch of dense T=1..256 N=2304 K=768"
    assert "path of T=24" in [drawn.name for drawn in figure.data]
    elsewhere = frame_dispatch(run, dispatcher, {"N": 5000, "K": 7})
    assert elsewhere["T"].tolist() == frame["T"].tolist() and elsewhere["weight"].nunique() == 1
    assert set(elsewhere["scheme"]) == {portfolio.safe_scheme.key}
    for layer in (None, {}, {"N": 2304}):
        with pytest.raises(WorkloadError, match="for each dynamic dimension but T: N, K; got missing"):
            plot_dispatch(run, dispatcher, layer=layer)


def test_the_board_has_the_times_of_a_layer(every_layer: tuple[TuningRun, Portfolio]) -> None:
    run, portfolio = every_layer
    board, dispatcher = board_of(run, portfolio), train_dispatcher(portfolio)
    frame = board.table(dispatcher_at(dispatcher, BERT_LAYER), BERT_LAYER)
    assert frame.columns[0] == "T" and frame["weight"].sum() == pytest.approx(1)
    for r in frame.itertuples():
        shape = Shape.of(T=r.T, **BERT_LAYER)
        there = portfolio.shapes.shapes.index(shape)
        scheme = board.choice.schemes.index(dispatcher.scheme(shape))
        assert r.expected_seconds == board.choice.table[scheme, there]
        assert r.best_seconds == board.best[there]
    unknown, told = {"N": 5, "K": 7}, r"must be of the layer; got K=7,N=5\. The set has \d+ layers, such as "
    with pytest.raises(WorkloadError, match=told):
        board.table(dispatcher_at(dispatcher, unknown), unknown)


def test_without_a_micro_kernel_no_shape_of_any_layer_needs_it(
    every_layer: tuple[TuningRun, Portfolio],
) -> None:
    run, portfolio = every_layer
    board = board_of(run, portfolio)
    for dropped in portfolio.micro_kernels:
        assert dropped not in train_dispatcher(board.without(dropped)).micro_kernels


def test_the_dispatch_explorer_has_layers_and_maps(every_layer: tuple[TuningRun, Portfolio]) -> None:
    run, portfolio = every_layer
    dispatcher = train_dispatcher(portfolio)
    explorer = dispatch_explorer(run, portfolio)
    options = explorer.controls["layer"].options
    assert options[:4] == ("K=768,N=768", "K=768,N=2304", "K=768,N=3072", "K=3072,N=768")
    assert len(options) == len({shape.without("T") for shape in portfolio.shapes})
    explorer.set(layer="K=768,N=2304", shape=24)
    assert explorer.drawn.note.startswith("T=24: T <= 256? yes.")
    assert explorer.figure.layout.title.text == "Dispatch of dense T=1..256 N=2304 K=768"
    frame = frame_dispatch(run, dispatcher, BERT_LAYER)
    assert explorer.frame["scheme"].tolist() == frame["scheme"].tolist()
    expected = f"{100 * (dispatcher.expected_slowdown - 1):.2f} %"
    assert explorer.drawn.numbers["over all layers"] == expected
    explorer.controls["tree"].value = BY_HAND
    assert explorer.frame["scheme"].nunique() == 1 and "trained one" in explorer.drawn.note
    maps = [f"map over {first} and {second}" for first, second in ("TN", "TK", "NK")]
    assert explorer.controls["show"].options == ("along T", *maps)
    maps = [f"map over {first} and {second}" for first, second in ("TN", "TK", "NK")]
    assert explorer.controls["show"].options == ("along T", *maps)
    explorer.controls["show"].value = "map over T and N"
    assert explorer.frame.equals(frame_map(dispatcher, x="T", y="N", fixed={"K": 768}))
    ring = trace(explorer.figure, "K=768,N=2304,T=24")
    assert (list(ring.x), list(ring.y)) == ([24], [2304])
    explorer.live.clicked = {"trace": 0, "point": 0, "x": 60.4, "y": 3000, "count": 1}
    assert explorer.values["shape"] == 60
    explorer.controls["show"].value = "map over N and K"
    explorer.live.clicked = {"trace": 0, "point": 0, "x": 3000, "y": 3000, "count": 2}
    assert explorer.values["shape"] == 60
    assert explorer._repr_mimebundle_()[0]["image/png"].startswith("iVBOR")


def test_one_dimension_has_neither_layers_nor_maps(synthetic_run: TuningRun, composed: Portfolio) -> None:
    assert not {"layer", "show"} & set(dispatch_explorer(synthetic_run, composed).controls)
    assert not {"layer", "show"} & set(speedup_explorer(TABLE).controls)


def test_plans_are_shown_at_a_layer(every_layer: tuple[TuningRun, Portfolio]) -> None:
    run, portfolio = every_layer
    dispatcher = train_dispatcher(portfolio)
    frame = frame_plans(dispatcher, run.model, [1, 8, 30], BERT_LAYER)
    shape = Shape.of(T=30, **BERT_LAYER)
    assert frame["T"].tolist() == [1, 8, 30] and frame["scheme"].iloc[2] == dispatcher.scheme(shape).key
    parts = run.model.parts(dispatcher.scheme(shape), shape)
    assert frame["predicted_seconds"].iloc[2] == pytest.approx(parts.total)
    figure = plot_plans(dispatcher, run.model, [1, 8, 30], layer=BERT_LAYER)
    assert figure.layout.title.text == "Plans of dense T=1..256 N=2304 K=768"
    with pytest.raises(WorkloadError, match="but T: N, K; got missing K, N"):
        plot_plans(dispatcher, run.model)


def test_the_speedup_explorer_has_layers_and_a_map() -> None:
    report = layers_report("hot", "rotating")
    explorer = speedup_explorer(report)
    assert list(explorer.controls["layer"].options) == [str(layer) for layer in report.layers]
    explorer.set(layer="K=768,N=2304", shape="T=24")
    expected = frame_against(report.of_layer(BERT_LAYER), "best prepacked vendor", "hot")
    assert explorer.frame.equals(expected)
    assert explorer.figure.layout.xaxis.title.text == "T (extent)"
    assert "T=24: dietlab covers it by " in explorer.drawn.note
    explorer.controls["show"].value = "map of all layers"
    assert explorer.frame.equals(frame_map(report, contender="best prepacked vendor", cache="hot"))
    chosen = trace(explorer.figure, "K=768,N=2304,T=24")
    assert (list(chosen.x), list(chosen.y)) == ([24], ["K=768,N=2304"])
    explorer.live.clicked = {"trace": 0, "point": 2, "x": 8, "y": "K=333,N=100", "count": 1}
    assert (explorer.values["layer"], explorer.values["shape"]) == ("K=333,N=100", "T=8")
    explorer.set(contender="oracle", cache="rotating")
    assert explorer.frame.equals(frame_map(report, contender="oracle", cache="rotating"))
    assert explorer._repr_mimebundle_()[0]["image/png"].startswith("iVBOR")


def test_reports_of_one_and_of_several_dimensions_stand_side_by_side() -> None:
    explorer = speedup_explorer([layers_report(), TABLE])
    explorer.controls["workload"].value = "qkv"
    assert explorer.controls["layer"].options == ("the only one",)
    assert explorer.controls["show"].options == ("along the length",)
    assert explorer.frame["T"].tolist() == [8, 64]


def test_the_parts_of_a_layers_time_are_of_the_whole_shape(every_layer: tuple[TuningRun, Portfolio]) -> None:
    from dietlab.view.widgets.speedup_explorer import _parts, chosen

    report, (run, _) = layers_report(), every_layer
    choice = chosen(by_setting([report]), {"layer": "K=768,N=2304", "shape": "T=24"})
    parts, words = _parts(choice, Shape.of(T=24), choice.row, lambda: run.model)
    assert parts is not None and words.startswith("Predicted: ")
    assert parts.equals(frame_parts(run.model, PLAN, Shape.of(T=24, **BERT_LAYER), "hot"))
