"""Figures and the HTML and text report, on a small report made by hand."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from bisect import bisect
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pandas as pd
import pytest
from conftest import Golden
from layers import CHIP, EVERY, LENGTHS, ODD, TUNED, layers_report
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from schemes import cpu_scheme

from dietlab.base.errors import DietlabError, DispatchError, RecordError, WorkloadError
from dietlab.base.events import PhaseSeconds
from dietlab.compare.results.parts import length_place
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.measure import SyntheticRunner
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Leaf, Scheme, Split, build_space, route
from dietlab.tuning import Dispatcher, Portfolio, TuningRun, choose_portfolio, train_dispatcher, tune
from dietlab.view.figures.base import DOUBLINGS, is_wide
from dietlab.view.figures.layers import frame_layers, frame_lengths, plot_layers, plot_lengths
from dietlab.view.figures.results import (
    frame_latency,
    frame_padding,
    frame_speedup,
    frame_throughput,
    plot_latency,
    plot_padding,
    plot_speedup,
    plot_throughput,
)
from dietlab.view.figures.shape_map import frame_map, plot_map
from dietlab.view.figures.table import plot_bars
from dietlab.view.figures.traffic import frame_traffic, plot_traffic, traffic_words
from dietlab.view.figures.tuning import (
    frame_phases,
    frame_portfolio_curve,
    frame_tuning,
    plot_phases,
    plot_portfolio_curve,
    plot_tuning,
)
from dietlab.view.pages.report import render_html, render_text, write_html
from dietlab.view.static.picture import picture, redraw
from dietlab.view.theme import ACCENTS, PALETTE

HOSTILE = "<script>alert('x')</script>"


def row(extent: int, contender: str, microseconds: float, **more: Any) -> Row:
    ours = {8: 300.0, 64: 2000.0}[extent]
    values: dict[str, Any] = {
        "shape": Shape.of(T=extent),
        "held_out": extent == 64,
        "contender": contender,
        "cache": "hot",
        "seconds_median": microseconds / 1e6,
        "seconds_low": 0.9 * microseconds / 1e6,
        "seconds_high": 1.2 * microseconds / 1e6,
        "gflops": 30.4,
        "correct": True,
        "speedup": microseconds / ours,
    }
    return Row(**{**values, **more})


@pytest.fixture
def report() -> Report:
    rows = (
        row(8, "dietlab", 300, speedup=None, padding_waste=0.0, plan="8x48.u4.ws.p16", roofline=0.8),
        row(8, "mkl-packed", 450),
        row(8, "openblas", 1200),
        row(64, "dietlab", 2000, speedup=None, padding_waste=0.125, plan="9x48.u4.ws.p16"),
        row(64, "mkl-packed", 1600),
        row(64, "openblas", 500, correct=False),
        row(8, "dietlab", 600, speedup=None, cache="rotating"),
        row(8, "mkl-packed", 660, speedup=1.1, cache="rotating"),
    )
    return Report(
        workload={"operator": "dense", "T": [1, 128], "N": 2304, "K": 768, "bias": True, "dtype": "float32"},
        hardware={"name": "a CPU", "cores": 2, "peak_gflops": 150.0, "limits": {"l2_bytes": 1048576}},
        versions={"dietlab": "0.1.0", "tvm": "0.27.0"},
        tuning={"seconds": {"compile": 100.0, "measure": 85.0}, "trials": 64, "failures": 3},
        library={"bytes": 20480, "kernels": 4},
        rows=rows,
        contenders=(
            ContenderInfo("mkl-packed", "prepacked", "2026.2"),
            ContenderInfo("openblas", "plain", "0.3.30"),
            ContenderInfo("onednn", "prepacked", absent="the package onednn is not installed"),
        ),
        notes=("one core only",),
    )


def axis_titles(figure: Any) -> tuple[str, str]:
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


def trace(figure: Any, name: str) -> Any:
    return next(t for t in figure.data if t.name == name)


@pytest.fixture
def serving(report: Report) -> Report:
    """The same rows on a trace in which the short shape is nine times as frequent."""
    shapes = ShapeSet.of({Shape.of(T=8): 9.0, Shape.of(T=64): 1.0})
    return replace(report, shape_set=replace(shapes, source="serving", dropped=0.302))


# --- tables and figures -----------------------------------------------------------------------


def test_speedup_has_contenders_and_best_of_kind_without_wrong_results(report: Report) -> None:
    frame = frame_speedup(report)
    columns = ["T", "shape", "held_out", "contender", "cache", "speedup", "seconds_median", "own_seconds"]
    assert list(frame.columns) == [*columns, "fastest", *cpu_scheme(8, 48).columns, "reason"]
    prepacked = dict.fromkeys(("mkl-packed", "best prepacked vendor"), 1.5)
    plain = dict.fromkeys(("openblas", "best plain vendor"), 4.0)
    assert frame[frame["T"] == 8].set_index("contender")["speedup"].to_dict() == {**prepacked, **plain}
    longer = frame[frame["T"] == 64].set_index("contender")["speedup"].to_dict()
    assert longer == pytest.approx(dict.fromkeys(prepacked, 0.8)), "without openblas, whose result is wrong"


def test_speedup_agrees_with_the_summary(report: Report) -> None:
    for cache in report.caches:
        worst = frame_speedup(report, cache).groupby("contender")["speedup"].min().to_dict()
        summary = {s.contender: s.worst_speedup for s in report.summary if s.cache == cache}
        assert worst == pytest.approx(summary)


def test_speedup_figure_marks_held_out_shapes_and_the_tie(report: Report) -> None:
    figure = plot_speedup(report)
    assert axis_titles(figure) == ("T (extent)", "speedup (above 1: dietlab faster)")
    assert figure.layout.yaxis.type == "log"
    assert [shape.y0 for shape in figure.layout.shapes] == [1]
    line = trace(figure, "mkl-packed")
    assert list(line.marker.symbol) == ["square", "square-open"]
    assert line.hovertext[0] == (
        "<b>dietlab is 1.50 times as fast as mkl-packed</b><br>dietlab 300 us<br>mkl-packed 450 us"
        "<br>T=8<br>plan of dietlab: 8x48.u4.ws.p16"
    )
    assert "mkl-packed is 1.25 times as fast as dietlab" in line.hovertext[1]
    assert "T=64, held out from tuning" in line.hovertext[1]
    assert trace(figure, "held out from tuning").marker.symbol == "circle-open"
    assert "(mkl-packed) 450 us" in trace(figure, "best prepacked vendor").hovertext[0]


def test_an_unknown_cache_state_names_the_known_ones(report: Report) -> None:
    with pytest.raises(RecordError, match=r"'cold'.*hot, rotating"):
        frame_speedup(report, "cold")


def test_latency_is_in_seconds_and_drawn_in_microseconds(report: Report) -> None:
    frame = frame_latency(report)
    first = frame[(frame["T"] == 8) & (frame["contender"] == "mkl-packed")].iloc[0]
    assert first[["seconds_low", "seconds_median", "seconds_high"]].tolist() == pytest.approx(
        [405e-6, 450e-6, 540e-6]
    )
    figure = plot_latency(report)
    assert axis_titles(figure) == ("T (extent)", "time (us, median with 95 % interval)")
    bars = trace(figure, "mkl-packed").error_y
    assert list(bars.array) == pytest.approx([90, 320])
    assert list(bars.arrayminus) == pytest.approx([45, 160])
    assert len(trace(figure, "openblas").x) == 1  # its wrong result is not drawn
    assert len(frame[frame["contender"] == "openblas"]) == 2


def test_throughput_has_the_peak_of_all_cores(report: Report) -> None:
    frame = frame_throughput(report)
    assert frame["peak"].tolist() == pytest.approx([30.4 / 300] * 6)
    assert frame["roofline"].iloc[0] == pytest.approx(0.8)
    figure = plot_throughput(report)
    assert axis_titles(figure)[1] == "throughput (GFLOP/s)"
    assert figure.layout.shapes[0].y0 == 300
    assert figure.layout.annotations[0].text == "FMA peak 300 GFLOP/s"
    assert "10 % of the FMA peak<br>80 % of the roofline" in trace(figure, "dietlab").hovertext[0]
    unmeasured = replace(report, hardware={"name": "a CPU", "cores": 2, "peak_gflops": None})
    assert not plot_throughput(unmeasured).layout.shapes
    assert frame_throughput(unmeasured)["peak"].isna().all()


def test_padding_is_ours_as_a_share(report: Report) -> None:
    assert frame_padding(report)["padding_waste"].tolist() == pytest.approx([0, 0.125])
    figure = plot_padding(report)
    assert axis_titles(figure) == ("T (extent)", "padding waste (% of multiply-adds)")


def test_traffic_has_the_weights_and_the_waste_of_each_policy(serving: Report) -> None:
    frame = frame_traffic(serving)
    assert frame["weight"].tolist() == pytest.approx([0.9, 0.1])
    assert frame["dietlab's plans"].tolist() == [0, 0.125]
    assert frame["to multiples of 16"].tolist() == [0.5, 0]
    assert frame["to powers of two"].tolist() == [0, 0]
    assert frame["to multiples of 128"].tolist() == [0.9375, 0.5]
    figure = plot_traffic(serving)
    assert axis_titles(figure) == ("T (extent)", "calls (%)")
    assert figure.layout.yaxis2.title.text == "waste (%)"
    assert trace(figure, "calls").hovertext[0] == "<b>90.00 % of the calls</b><br>T=8"
    # Executed: 0.9 * 16 + 0.1 * 64 rows where 0.9 * 8 + 0.1 * 64 are needed.
    dots = trace(figure, "to multiples of 16: 34.6 % over the trace")
    assert (dots.yaxis, list(dots.x), list(dots.y)) == ("y2", [8, 64], [50, 0])
    assert dots.hovertext[1] == (
        "<b>0.0 % of the multiply-adds are padding</b><br>to multiples of 16<br>T=64"
    )
    assert [t.name.partition(":")[0] for t in figure.data[1:]] == list(frame.columns[3:])
    assert figure.layout.xaxis.type is None


def test_long_traces_have_a_logarithmic_axis(report: Report) -> None:
    work = {**report.workload, "T": [1, 2048]}
    shapes = ShapeSet.of({Shape.of(T=8): 1.0, Shape.of(T=2048): 1.0})
    figure = plot_traffic(replace(report, workload=work, shape_set=shapes))
    assert figure.layout.xaxis.type == "log"
    # Our plans are unknown for 2048: there is no figure of theirs for the trace.
    assert [t.name.partition(":")[0] for t in figure.data][1] == "to multiples of 16"


def test_weights_are_said_in_words(report: Report, serving: Report) -> None:
    assert traffic_words(report) == "2 shapes, each as often as the others"
    outside = "30.2 % of the traffic lies outside the range and is left out"
    words = f"2 shapes, by their weights (serving); {outside}"
    assert traffic_words(serving) == words
    assert f"trace: {words}\n" in render_text(serving)
    assert "hot       dietlab                    470.0        -           100 %\n" in render_text(serving)
    page = Page(render_html(serving))
    assert f"The trace: {words}." in page.text and {"470.0", "1.20x", "34.6 %"} <= set(page.text)


def test_tuning_keeps_the_best_and_the_failures(synthetic_run: TuningRun) -> None:
    first, second, *others = synthetic_run.records
    broken = replace(first, status="wrong", seconds=None, reason="off by one")
    run = replace(synthetic_run, records=(broken, second, *others))
    frame = frame_tuning(run)
    speeds = [record.gflops(run.space.workload) for record in run.records]
    assert frame["gflops"].fillna(0).tolist() == speeds and speeds[0] == 0
    assert len(set(frame["best_gflops"])) > 2
    assert frame["best_gflops"].tolist() == [max(speeds[: i + 1]) for i in range(len(speeds))]
    assert frame["scheme"][1] == second.scheme.key and frame["shape"][1] == str(second.shape)
    assert frame["rows"][1] == second.scheme.rows and frame["seconds"][1] == second.seconds
    figure = plot_tuning(run)
    assert axis_titles(figure) == ("records (count)", "throughput (GFLOP/s)")
    assert list(trace(figure, "failed").x) == [1] and len(trace(figure, "measured").x) == len(others) + 1
    assert "wrong: off by one" in trace(figure, "failed").hovertext[0]
    nothing = replace(run, records=())
    assert frame_tuning(nothing).empty
    assert plot_tuning(nothing).layout.annotations[0].text == "nothing was measured"


def test_phases_add_up() -> None:
    seconds = PhaseSeconds(compile=30, measure=60, search=10)
    frame = frame_phases(seconds).set_index("phase")
    assert frame.loc["measure"].tolist() == pytest.approx([60, 0.6])
    assert frame["share"].sum() == pytest.approx(1)
    assert axis_titles(plot_phases(seconds)) == ("wall-clock time (s)", "phase")
    assert frame_phases(PhaseSeconds())["share"].tolist() == [0] * 5


def test_portfolio_curve() -> None:
    curve = [(1, 1.4), (2, 1.1)]
    assert frame_portfolio_curve(curve)["mean_slowdown"].tolist() == [1.4, 1.1]
    figure = plot_portfolio_curve(curve)
    assert axis_titles(figure)[0] == "micro-kernels in the portfolio (count)"
    assert figure.data[0].hovertext[1] == "2 micro-kernels: 10.0 % slower than the best plans"


def test_an_empty_report_draws_and_has_the_same_columns(report: Report) -> None:
    empty = replace(report, rows=())
    full_columns = set(frame_latency(report).columns)
    assert full_columns - set(frame_latency(empty).columns) == {"T"}
    for plot in (plot_speedup, plot_latency, plot_throughput, plot_padding):
        assert plot(empty).layout.annotations[0].text == "nothing was measured"


def test_two_dynamic_dimensions_share_one_axis(report: Report) -> None:
    rows = tuple(replace(r, shape=Shape.of(B=2, T=r.shape["T"])) for r in report.rows)
    figure = plot_speedup(replace(report, rows=rows))
    assert axis_titles(figure)[0] == "shape (extents)"
    assert list(trace(figure, "mkl-packed").x) == ["B=2,T=8", "B=2,T=64"]


def test_figures_have_no_background_unless_a_template_gives_one(report: Report) -> None:
    assert plot_speedup(report).layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert plot_speedup(report, template="plotly_dark").layout.paper_bgcolor is None


# --- the report as HTML and as text -----------------------------------------------------------


class Page(HTMLParser):
    """Collects what a browser would load, and the visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []
        self.scripts = 0
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.scripts += tag == "script"
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style") and data.strip():
            self.text.append(data.strip())


def test_a_page_that_cannot_be_written_is_told(report: Report, tmp_path: Path) -> None:
    with pytest.raises(DietlabError, match=r"report.html must be writable; got .*another path, in a folder"):
        write_html(report, tmp_path / "missing" / "report.html")


def test_html_is_self_contained_and_has_the_numbers(report: Report, tmp_path: Path) -> None:
    html = write_html(report, tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.loads == []
    assert "@import" not in html.partition("<script>")[0]
    assert "Plotly.newPlot" in html
    assert html.count('class="plotly-graph-div"') == 8  # three for each of two caches, padding, traffic
    assert "dense T=1..128 N=2304 K=768 +bias" in page.text
    numbers = {"1.10x", "0.80x", "T=64", "1 min 40 s", "3 min 05 s", "20.0 KiB", "64", "0.27.0"}
    assert numbers | {"one core only", "openblas (hot cache): 1 shape, the first T=64"} <= set(page.text)
    absent = re.search(r'<table id="absent">.*?</table>', html, re.S)
    assert absent and "onednn" in absent[0] and "the package onednn is not installed" in absent[0]
    assert "prefers-color-scheme: dark" in html


def test_hostile_names_are_escaped(report: Report) -> None:
    plain = Page(render_html(report))
    names = {"openblas": HOSTILE}
    rows = (
        replace(r, contender=names.get(r.contender, r.contender), plan=HOSTILE, cache=HOSTILE)
        for r in report.rows
        if r.cache == "hot"
    )
    hostile = replace(
        report,
        rows=tuple(rows),
        contenders=(ContenderInfo(HOSTILE, HOSTILE, HOSTILE, absent=HOSTILE, detail=HOSTILE),),
        notes=(HOSTILE,),
        workload={"operator": HOSTILE},
        versions={HOSTILE: HOSTILE},
        hardware={"name": HOSTILE, "cores": 1},
        tuning={HOSTILE: HOSTILE},
    )
    html = render_html(hostile)
    assert HOSTILE not in html
    # Each figure has two scripts of plotly's; the page has two of its own. The other cache's three figures
    # are gone, and that of the traffic: nobody knows how an unknown operator pads.
    assert Page(html).scripts == plain.scripts - 4 * (plain.scripts - 2) // 8
    assert HOSTILE in "".join(Page(html).text)


@pytest.mark.parametrize(
    ("extents", "log"),
    [
        ([16, 32, 64, 80, 128, 256, 384, 512, 688, 992, 1296, 1600, 1904, 2048], True),  # an H200's
        ([16, 32, 64, 128], True),
        (range(1, 129), False),
        ([5, 24, 43, 62, 81, 100, 119, 128], False),
        ([1, 256], True),
        ([0, 1, 2, 1000], False),  # 0 has no place on a logarithmic axis
        ([8], False),
        ([], False),
    ],
)
def test_an_axis_is_logarithmic_where_short_lengths_would_be_squeezed(extents: list[int], log: bool) -> None:
    assert is_wide(extents) is log


def test_bars_over_numbers_have_the_same_room() -> None:
    """On an axis of numbers those of 1, 8 and 97 would be hairlines."""
    figure = plot_bars(pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 3.0]}, index=[1, 97]), "t", "y", "T (rows)")
    assert (figure.layout.xaxis.type, figure.layout.xaxis.title.text) == ("category", "T (rows)")
    assert figure.data[0].x == ("1", "97")


def test_ticks_of_lengths_are_written_in_full() -> None:
    assert DOUBLINGS["tickformat"] == "d"  # else plotly writes 16.384k


def test_text_report(report: Report, golden: Golden) -> None:
    golden("report.txt", render_text(report))


def test_text_report_of_nothing(report: Report) -> None:
    empty = Report({}, {}, {}, {}, {}, ())
    assert "an unknown processor" in render_text(empty)
    assert "no contender was measured beside dietlab" in render_html(empty)


def test_light_imports() -> None:
    code = (
        "import sys, dietlab.view.progress, dietlab.view.figures.results, dietlab.view.pages.report\n"
        "heavy = {'plotly', 'ipywidgets', 'pandas', 'jinja2', 'IPython', 'tvm'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


# --- several dynamic dimensions ---------------------------------------------------------------


def test_a_report_is_told_by_layer_and_by_length() -> None:
    report = layers_report("hot", "rotating")
    assert report.dims == ("K", "N", "T") and report.length == "T" and len(report.layers) == 5
    vendor = [part for part in report.by_layer if part.summary.contender == "best prepacked vendor"]
    assert len(vendor) == 2 * 5
    for part in vendor:
        rows = [
            r for r in report.groups(part.summary.cache)["mkl-packed"] if str(r.shape).startswith(part.where)
        ]
        speedups = [r.speedup for r in rows if r.speedup]
        assert part.summary.shapes == len(rows) == 6
        assert part.summary.geomean_speedup == pytest.approx(geometric_mean(speedups))
        assert part.summary.worst_speedup == min(speedups)
        assert Shape.from_json(part.summary.worst_shape).without("T") == Shape.of(**part.columns)
        assert (
            part.held_out == (part.where == str(ODD)) == (part.summary.geomean_speedup_held_out is not None)
        )
    lengths = [part for part in report.by_length if part.summary.contender == "oracle"]
    assert [part.where for part in lengths] == 2 * [f"T={length}" for length in LENGTHS]
    assert {part.summary.shapes for part in lengths} == {5} and not any(part.held_out for part in lengths)


def test_many_lengths_share_a_line_from_each_power_of_two_to_the_next() -> None:
    place = length_place("T", range(1, 40))
    shares = {T: place(Shape.of(N=9, T=T)) for T in range(1, 40)}
    assert shares[1] == ("T=1", {"low_T": 1, "high_T": 1}) and shares[2][0] == "T=2"
    assert shares[33] == ("T=33..64", {"low_T": 33, "high_T": 64})
    assert all(columns["low_T"] <= T <= columns["high_T"] for T, (_, columns) in shares.items())
    assert length_place("T", (5, 6))(Shape.of(N=9, T=6))[0] == "T=6"


def test_the_texts_have_tables_by_layer_and_by_length(report: Report) -> None:
    several = layers_report()
    text = render_text(several)
    assert "speedup of dietlab by layer, in times\ncache  contender              layer  " in text
    odd = [line.split() for line in text.splitlines() if "K=333,N=100   " in line]
    vendor = "hot best prepacked vendor K=333,N=100 6 1.15x 1.15x 1.10x K=333,N=100,T=200"
    assert odd[0] == vendor.split() and odd[1][1] == "oracle"
    assert "speedup of dietlab by length, in times" in text
    page = Page(render_html(several))
    assert {"Speedup by layer", "Speedup by length", "K=768,N=2304", "T=200"} <= set(page.text)
    assert "Speedup by layer" not in render_html(report) and "by layer" not in render_text(report)
    assert report.by_layer == report.by_length == ()
    assert "Speedup by layer" in several._repr_html_() and "by layer" not in report._repr_html_()


def test_the_report_of_a_layer_is_like_any_of_one_dimension() -> None:
    several = layers_report("hot", "rotating")
    report = several.of_layer({"N": 2304, "K": 768})
    assert report.title == "dense T=1..256 N=2304 K=768" and report.dims == ("T",)
    whole = frame_speedup(several, "rotating")
    mine = whole[(whole["N"] == 2304) & (whole["K"] == 768)]
    assert frame_speedup(report, "rotating")["speedup"].tolist() == mine["speedup"].tolist()
    assert axis_titles(plot_speedup(report))[0] == "T (extent)"
    assert sum(report.weights.values()) == pytest.approx(1) and len(report.weights) == len(LENGTHS)
    assert plot_traffic(report).data and report.padding
    assert all(row.held_out for row in several.of_layer(ODD.to_json()).rows)
    assert Report.from_json(report.to_json()) == report
    with pytest.raises(
        WorkloadError,
        match=r"must be of the layer; got K=768,N=5\. The set has 5 layers, such as K=333,N=100; ",
    ):
        several.of_layer({"N": 5, "K": 768})
    with pytest.raises(WorkloadError, match=r"dimension but T: N, K; got missing K\. Give layer="):
        several.of_layer({"N": 2304})
    with pytest.raises(WorkloadError, match=r"dimension but T: none; got unknown N\. Give no layer\."):
        report.of_layer({"N": 2304})
    assert report.of_layer({}) == report


def test_layers_and_lengths_are_drawn_with_their_worst(report: Report) -> None:
    several = layers_report("hot", "rotating")
    frame = frame_layers(several)
    assert len(frame) == 2 * 5 * 5
    assert frame.columns[:6].tolist() == ["cache", "contender", "layer", "K", "N", "held_out"]
    figure = plot_layers(several, "rotating")
    vendor = trace(figure, "best prepacked vendor")
    shown = frame[(frame["cache"] == "rotating") & (frame["contender"] == "best prepacked vendor")]
    assert list(vendor.x) == shown["layer"].tolist() == [str(layer) for layer in several.layers]
    ends = [y - below for y, below in zip(vendor.y, vendor.error_y.arrayminus, strict=True)]
    assert ends == pytest.approx(shown["worst_speedup"].tolist())
    assert list(vendor.marker.symbol) == ["circle-open", *4 * ["circle"]] and vendor.mode == "markers"
    assert figure.layout.title.text == "Speedup of dietlab by layer (rotating cache)"
    lengths = frame_lengths(several)
    assert lengths[["low_T", "high_T"]].drop_duplicates().to_numpy().tolist() == [[n, n] for n in LENGTHS]
    assert list(trace(plot_lengths(several), "oracle").x) == [f"T={n}" for n in LENGTHS]
    with pytest.raises(
        RecordError, match=r"by layer must have several dynamic dimensions; got T\. frame_speedup"
    ):
        frame_layers(report)
    with pytest.raises(RecordError, match="the report must have the cache state; got 'cold'"):
        plot_layers(several, "cold")


def test_the_page_of_several_dimensions_has_maps() -> None:
    report = layers_report("hot", "rotating")
    html = render_html(report)
    # For each cache state: by layer, by length, and maps of speedup, regret, padding waste and roofline.
    assert html.count('class="plotly-graph-div"') == 2 * 6
    stranger = replace(report, workload={"operator": HOSTILE})
    assert stranger.length == "T" and HOSTILE not in render_html(stranger)


@pytest.fixture(scope="module")
def every_layer() -> tuple[TuningRun, Portfolio, Dispatcher]:
    run = tune(build_space(EVERY, CHIP), TUNED, SyntheticRunner(CHIP), "smoke")
    portfolio = choose_portfolio(run, max_kernels=6)
    return run, portfolio, train_dispatcher(portfolio)


TREE = Split("T", 10, Split("N", 1000, Leaf(0), Leaf(2)), Split("K", 900, Leaf(1), Leaf(0)))


@pytest.fixture
def by_tree() -> Dispatcher:
    keys = ("8x32.u4.ws.p0.even", "6x16.u2.ws.p24.even", "1x64.u8.ws.p0.even")
    return Dispatcher(EVERY, CHIP, tuple(map(Scheme.from_key, keys)), Split("T", 256, TREE, Leaf(2)))


def test_a_map_of_a_tree_has_the_plan_of_every_shape(by_tree: Dispatcher) -> None:
    for fixed in ({"K": 100}, {"K": 901}):
        frame, figure = frame_map(by_tree, fixed=fixed), plot_map(by_tree, fixed=fixed)
        cells = next(t for t in figure.data if t.type == "heatmap")
        assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
        assert axis_titles(figure) == ("T (extent)", "N (extent)")
        for T, N in product((1, 10, 11, 256, 257, 320), (64, 1000, 1001, 4096)):
            shape = Shape.of(T=T, N=N, **fixed)
            plan = route(by_tree.tree, shape)
            inside = frame[(frame["low_T"] <= T) & (frame["low_N"] <= N)]
            inside = inside[(inside["high_T"].fillna(T) >= T) & (inside["high_N"].fillna(N) >= N)]
            assert inside["plan"].tolist() == [plan]
            assert inside["scheme"].tolist() == [by_tree.scheme(shape).key]
            place = bisect(cells.y, N) - 1, bisect(cells.x, T) - 1
            assert cells.z[place[0]][place[1]] == plan
            text = f"<b>plan {plan}: {by_tree.scheme(shape).key}</b>"
            assert cells.text[place[0]][place[1]].startswith(text)
    assert plot_map(by_tree).layout.title.text == f"Plans of {EVERY}, K=512"
    across = plot_map(by_tree, x="N", y="K", fixed={"T": 5})
    assert axis_titles(across) == ("N (extent)", "K (extent)")
    assert {t.name for t in across.data if t.name} == {f"{n}: {by_tree.schemes[n].key}" for n in (0, 2)}


def test_a_map_of_a_report_has_means_over_the_shapes_of_a_place() -> None:
    report = layers_report("hot", "rotating")
    layers = frame_map(report)
    assert len(layers) == 5 * len(LENGTHS) and (layers["shapes"] == 1).all()
    assert layers.columns.tolist() == ["T", "layer", "speedup", "worst", "shapes", "held_out"]
    assert layers.loc[layers["layer"] == str(ODD), "held_out"].all()
    mean = frame_map(report, y="N", contender="mkl-packed")
    here = mean[(mean["T"] == 8) & (mean["N"] == 768)].iloc[0]
    rows = [r for r in report.groups("hot")["mkl-packed"] if r.shape["T"] == 8 and r.shape["N"] == 768]
    speedups = [r.speedup for r in rows if r.speedup]
    assert here["shapes"] == len(speedups) == 2
    assert (here["speedup"], here["worst"]) == pytest.approx((geometric_mean(speedups), min(speedups)))
    assert (frame_map(report, y="N", fixed={"K": 768})["shapes"] == 1).all()
    figure = plot_map(report, cache="rotating")
    points = figure.data[0]
    assert figure.layout.title.text == "Speedup of dietlab over best prepacked vendor (rotating cache)"
    assert list(points.marker.color) == pytest.approx([math.log2(s) for s in layers["speedup"]])
    assert points.marker.cmin == -points.marker.cmax and list(points.y) == layers["layer"].tolist()
    assert points.marker.symbol[0] == "square-open" and figure.layout.yaxis.type == "category"
    regret = plot_map(report, "regret", y="K")
    assert max(regret.data[0].marker.color) == pytest.approx(100 * 0.02 * 5)
    assert regret.layout.title.text == "Regret of dietlab, any N (hot cache)"
    assert plot_map(report, "roofline").data[0].marker.colorscale[0][1] == PALETTE["wasted"]


def test_a_map_of_a_portfolio_has_what_is_lost(every_layer: tuple[TuningRun, Portfolio, Dispatcher]) -> None:
    _, portfolio, dispatcher = every_layer
    best, chosen = frame_map(portfolio), frame_map(portfolio, dispatcher=dispatcher)
    assert len(best) == len(portfolio.shapes) and (chosen["slowdown"] >= best["slowdown"] - 1e-12).all()
    names = {(row.T, row.layer): row.slowdown for row in chosen.itertuples()}
    weights = portfolio.shapes.weights
    logs = [
        weight * math.log(names[shape["T"], str(shape.without("T"))])
        for shape, weight in zip(portfolio.shapes, weights, strict=True)
    ]
    assert math.exp(sum(logs)) == pytest.approx(dispatcher.expected_slowdown)
    figure = plot_map(portfolio, dispatcher=dispatcher, y="N")
    assert figure.layout.title.text == "Expected loss of the dispatcher, any K"
    stranger = replace(dispatcher, schemes=tuple(Scheme.from_key(f"{n}x16.u1.is.p0") for n in range(1, 9)))
    with pytest.raises(
        DispatchError,
        match=r"must have been trained on the portfolio of the map; got the scheme .*, which it lacks",
    ):
        frame_map(portfolio, dispatcher=stranger)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"x": "Q"}, "dimensions of the map are T, K, N; got Q"),
        ({"x": "N", "y": "N"}, "two different dimensions; got N on both axes"),
        (
            {"x": "N", "y": "layer"},
            "the length as its other axis; got N and layers of a Report. Give two dim",
        ),
        ({"fixed": {"K": 768}}, "dimensions that can be fixed are ; got K"),
        ({"y": "N", "fixed": {"K": 0}}, "an extent must be at least 1; got 0"),
        (
            {"y": "N", "fixed": {"K": 7}},
            "a shape must have the fixed extents; got K=7. For example K=333,N=100,T=1 ",
        ),
        ({"value": "plan"}, "values of this map are speedup, regret, padding_waste, roofline; got plan"),
        ({"contender": "nobody"}, "contenders of the report are .*; got nobody"),
        ({"cache": "cold"}, "must have the cache state; got 'cold'"),
    ],
    ids=str,
)
def test_a_map_refuses_what_it_cannot_draw(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DietlabError, match=complaint):
        plot_map(layers_report(), **arguments)


def test_a_map_has_two_dimensions(report: Report, by_tree: Dispatcher) -> None:
    for shown, y, complaint in (
        (report, "N", r"two dynamic dimensions; got T\. plot_dispatch\(\) and plot_speedup"),
        (by_tree, "layer", "the length as its other axis; got T and layers of a Dispatcher"),
        (EVERY, "N", "a Dispatcher, a Portfolio or a Report; got a value of class Dense"),
    ):
        with pytest.raises(DietlabError, match=complaint):
            plot_map(shown, y=y)  # type: ignore[arg-type]


def test_maps_have_static_pictures(
    by_tree: Dispatcher, every_layer: tuple[TuningRun, Portfolio, Dispatcher]
) -> None:
    figures = (*map(plot_map, (by_tree, every_layer[1], layers_report())), plot_layers(layers_report()))
    for figure in figures:
        assert picture(figure)[:4] == b"\x89PNG"
        assert not [t for t in redraw(figure).texts if "Not in this picture" in t.get_text()]
    regions = redraw(figures[0]).axes[0]
    mesh = next(c for c in regions.collections if isinstance(c, QuadMesh))
    assert mesh.get_array().shape == (len(figures[0].data[0].y) - 1, len(figures[0].data[0].x) - 1)
    assert (regions.get_xscale(), regions.get_yscale()) == ("log", "log")
    assert regions.get_xlim() == pytest.approx((0.5, 320.5))
    assert to_rgb(mesh.to_rgba([1.0])[0][:3]) == pytest.approx(to_rgb(ACCENTS[1]))
    layers = [label.get_text() for label in redraw(figures[2]).axes[0].get_yticklabels()]
    assert layers == [str(layer) for layer in layers_report().layers]
