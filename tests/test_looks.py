"""How figures look: colours by role that can be told apart, titles that fit, and a key for every colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from matplotlib.colors import same_color, to_rgb

from dietlab.base.shipped import data_path
from dietlab.compare.results import ResultTable
from dietlab.compare.results.row import OURS, TimeShares
from dietlab.compare.target import BOUNDS, evaluation_target
from dietlab.lab import lessons
from dietlab.lab.models.runtimes import KINDS, OURS_COMPILED, OURS_EAGER
from dietlab.machine.target import TARGETS
from dietlab.problem import Conv2d, Dim, Shape, ShapeSet
from dietlab.tuning import TuningRun, choose_portfolio, train_dispatcher
from dietlab.view import theme
from dietlab.view.figures import results as plots
from dietlab.view.figures.bench import plot_bench_roofline, plot_bench_speedup
from dietlab.view.figures.dispatch_tree import plot_dispatch
from dietlab.view.figures.padding import plot_tiling, plot_waste
from dietlab.view.figures.plans import plot_plans
from dietlab.view.figures.predictions import (
    fit_first,
    frame_importances,
    frame_predictions,
    plot_importances,
    plot_predictions,
)
from dietlab.view.figures.slowdown import plot_slowdown
from dietlab.view.figures.speedup import frame_parts, plot_against
from dietlab.view.figures.tile_picture import plot_tile_reads
from dietlab.view.figures.time_shares import plot_time_shares
from dietlab.view.figures.traffic import plot_traffic
from dietlab.view.figures.tuning import plot_phases, plot_portfolio_curve
from dietlab.view.static.picture import redraw
from dietlab.view.theme import ACCENTS, DASHES, HEADLINES, PALETTE, RIVALS, SYMBOLS, styles
from dietlab.view.widgets.cost_lab import plot_ranking
from dietlab.view.widgets.space_explorer import plot_funnel

LEAST_CONTRAST = 3.0
"""Contrast of a line to the page, as the web's accessibility guidelines (WCAG 2, 1.4.11) ask."""

DARK = "#111111"
"""JupyterLab's dark page."""

PIXELS_A_CHARACTER = 7.3
"""More than the mean width of plotly's letters at 14 pixels: two titles in Chromium have 6.7 and 7.1."""


# --- colours ------------------------------------------------------------------------------------------


def linear(colour: str) -> Any:
    parts = np.array(to_rgb(colour))
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


SEEN = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
"""What colour-blind readers see of linear colours (Machado, Oliveira and Fernandes, 2009)."""


def perceived(colour: str, seen: str) -> Any:
    """Returns the colour in OKLab, where distances are those that people see; black to white is 1."""
    light = np.clip(SEEN[seen] @ linear(colour), 0, 1)
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]) @ light
    mixed = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return mixed @ np.cbrt(cones)


def apart(one: str, other: str, seen: str) -> float:
    return float(np.linalg.norm(perceived(one, seen) - perceived(other, seen)))


@pytest.mark.parametrize("role", PALETTE)
def test_colour_reads_as_a_line_on_white_and_on_dark(role: str) -> None:
    assert contrast(PALETTE[role], "white") >= LEAST_CONTRAST
    assert contrast(PALETTE[role], DARK) >= 0.98 * LEAST_CONTRAST


def test_text_reads_on_white() -> None:
    assert contrast(theme.TEXT, "white") >= 4.5


def test_colours_side_by_side_differ_for_every_reader() -> None:
    strong = [PALETTE[role] for role in ("ours", "best_vendor", "oracle", "selected", "muted")]
    neighbours = [*combinations(strong, 2), *pairwise(ACCENTS), (PALETTE["needed"], PALETTE["wasted"])]
    for pair in neighbours:
        assert apart(*pair, "normal") > 0.12, pair
        assert min(apart(*pair, seen) for seen in SEEN) > 0.05, pair
    assert len(set(ACCENTS)) == len(ACCENTS) >= 8


def test_headlines_are_strong_and_rivals_grey_with_a_look_each() -> None:
    names = [*HEADLINES, *RIVALS, *(f"vendor{number}" for number in range(8))]
    looks = styles(names)
    assert list(looks) == names
    for name, look in looks.items():
        assert (look.colour == PALETTE["muted"]) == (name not in HEADLINES)
        assert look.width >= 2 or name not in HEADLINES
    assert looks[OURS].colour == PALETTE["ours"]
    assert looks["best prepacked vendor"].colour == PALETTE["best_vendor"]
    assert looks["oracle"].colour == PALETTE["oracle"]
    assert len({(look.dash, look.symbol, look.colour) for look in looks.values()}) == len(names)


def test_every_contender_has_its_own_look() -> None:
    """A new contender goes to the end of RIVALS, so that the others keep their looks."""
    registered = {name for kind in TARGETS.own for name in evaluation_target(kind).VENDORS.own}
    registered |= {*BOUNDS, *KINDS} - {*HEADLINES, OURS_EAGER, OURS_COMPILED}
    assert registered <= {*RIVALS} and len({*RIVALS}) == len(RIVALS) < theme.PLACES


def test_a_rival_keeps_its_look_from_figure_to_figure() -> None:
    for name in (*RIVALS, "newcomer"):
        assert styles([name])[name] == styles([*RIVALS[::-1], "newcomer", OURS])[name]
    assert len({theme.muted(number) for number in range(theme.PLACES)}) == len(DASHES) * len(SYMBOLS)


def test_roles_are_the_only_colours() -> None:
    """A colour that a figure mixes itself would escape the tests above."""
    allowed = {colour.lower() for colour in PALETTE.values()}
    report = lessons.report()
    drawn = [trace.line.color for trace in plots.plot_speedup(report).data if trace.line.color]
    assert drawn and {colour.lower() for colour in drawn} <= allowed


# --- every figure -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def figures(synthetic_run: TuningRun) -> Mapping[str, go.Figure]:
    """One figure of each kind, of real reports and a synthetic run."""
    report, run = lessons.report(), synthetic_run
    bench = ResultTable.load(data_path(lessons.BENCH))
    study = bench.reports[0]
    portfolio = choose_portfolio(run)
    dispatcher = train_dispatcher(portfolio)
    model = fit_first(run, 40)
    shape = run.shapes.shapes[0]
    parts = frame_parts(run.model, dispatcher.scheme(shape).key, shape, "hot")
    bert = replace(report, shape_set=ShapeSet.traffic(lessons.workload(), "bert"))
    kernel = run.schemes[0]
    profiled = replace(report, rows=tuple(replace(row, shares=TimeShares(0.5, 0.25)) for row in report.rows))
    return {
        "speedup": plots.plot_speedup(report),
        "latency": plots.plot_latency(report),
        "throughput": plots.plot_throughput(report),
        "padding": plots.plot_padding(report),
        "traffic": plot_traffic(bert),
        "against": plot_against(report, "best prepacked vendor", shape=str(shape)),
        "parts": plot_against(report, "openblas", shape=str(shape), parts=parts),
        "bench": plot_bench_speedup(bench, study.name, study.threads, "rotating"),
        "roofline": plot_bench_roofline(bench, study.name, study.threads),
        "slowdown": plot_slowdown(lessons.lines("03"), lessons.vendor_line()),
        "phases": plot_phases(run.seconds),
        "portfolio": plot_portfolio_curve(portfolio.curve),
        "predictions": plot_predictions(frame_predictions(run, model, 40), "rows"),
        "importances": plot_importances(frame_importances(model)),
        "ranking": plot_ranking(run, [20, 40]),
        "dispatch": plot_dispatch(run, dispatcher, 43),
        "plans": plot_plans(dispatcher, run.model),
        "funnel": plot_funnel(run.space),
        "waste": plot_waste(run.space.workload, kernel),
        "tiling": plot_tiling(kernel, 43, 768),
        "reads": plot_tile_reads(CONV, Shape.of(H=14, W=14), 38, 8, step=4),
        "shares": plot_time_shares(profiled),
    }


CONV = Conv2d(N=1, H=Dim(7, 80), W=Dim(7, 80), IC=64, OC=96, kernel=3, padding=1)
BENCH_FIGURES = "speedup latency throughput padding traffic against parts bench roofline slowdown"
RUN_FIGURES = (
    "phases portfolio predictions importances ranking dispatch plans funnel waste tiling reads shares"
)
FIGURES = (*BENCH_FIGURES.split(), *RUN_FIGURES.split())


def test_every_figure_is_looked_at(figures: Mapping[str, go.Figure]) -> None:
    assert tuple(figures) == FIGURES


def room(figure: go.Figure, axis: Any) -> float:
    """Returns the length of a y axis on a live figure, in pixels."""
    margin, height = figure.layout.margin, figure.layout.height or 450
    low, high = axis.domain or (0, 1)
    top, bottom = (80 if end is None else end for end in (margin.t, margin.b))
    return float((high - low) * (height - top - bottom))


@pytest.mark.parametrize("name", FIGURES)
def test_live_y_titles_are_as_long_as_their_axis_at_most(name: str, figures: Mapping[str, go.Figure]) -> None:
    figure, seen = figures[name], 0
    for key in figure.layout:
        if key.startswith("yaxis") and (text := figure.layout[key].title.text):
            seen += 1
            lines = text.split("<br>")
            assert PIXELS_A_CHARACTER * max(map(len, lines)) <= room(figure, figure.layout[key]), text
    assert seen


@pytest.mark.parametrize("name", FIGURES)
def test_texts_around_a_picture_are_whole_and_cover_nothing(
    name: str, figures: Mapping[str, go.Figure]
) -> None:
    canvas = redraw(figures[name], "A caption.")
    canvas.draw_without_rendering()
    titled = [axes for axes in canvas.axes if axes.get_ylabel()]
    assert titled
    heading = next(text for text in canvas.texts if text.get_text())
    for axes in titled:
        box = axes.yaxis.label.get_window_extent()
        assert box.height <= 1.01 * axes.get_window_extent().height, axes.get_ylabel()
        assert not box.overlaps(heading.get_window_extent()), axes.get_ylabel()
    for legend in canvas.legends:
        assert not any(legend.get_window_extent().overlaps(axes.get_window_extent()) for axes in canvas.axes)


def coloured_by_number(figure: go.Figure) -> Sequence[Any]:
    return [t for t in figure.data if t.type == "scatter" and isinstance(t.marker.color, (tuple, np.ndarray))]


def test_points_coloured_by_number_have_a_key_in_the_picture(figures: Mapping[str, go.Figure]) -> None:
    figure = figures["predictions"]
    fitted, held_out = coloured_by_number(figure)
    (main,) = redraw(figure).axes
    (bar,) = main.child_axes
    assert bar.get_title() == "rows of\nthe tile"
    assert [t.get_text() for t in bar.get_yticklabels()] == list(fitted.marker.colorbar.ticktext)
    assert bar.get_ylim() == pytest.approx((fitted.marker.cmin, fitted.marker.cmax))
    # Both kinds of points take their colours from the range of the key, not from their own.
    for dots, trace in zip(main.collections, (fitted, held_out), strict=False):
        low, high = fitted.marker.cmin, fitted.marker.cmax
        share = (trace.marker.color[0] - low) / (high - low)
        ends = np.array([to_rgb(colour) for _, colour in theme.SCALE])
        expected = ends[0] + share * (ends[1] - ends[0])
        assert dots.get_edgecolors()[0][:3] == pytest.approx(expected, abs=0.01)


def test_plans_of_a_tree_have_eight_colours(figures: Mapping[str, go.Figure]) -> None:
    strip = [t for t in figures["dispatch"].data if t.line.width and t.line.width > 10]
    colours = [trace.line.color for trace in strip]
    assert colours == [ACCENTS[int(trace.name.split(":")[0]) % len(ACCENTS)] for trace in strip]
    assert len(set(colours)) == min(8, len(strip)) >= 2


def test_headlines_are_drawn_over_rivals_and_named_first(figures: Mapping[str, go.Figure]) -> None:
    (legend,) = redraw(figures["latency"]).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[0] == OURS and "oracle" in names[:2]
    lines = [line for line in redraw(figures["speedup"]).axes[0].lines if len(line.get_xdata()) > 2]
    strong = [line for line in lines if same_color(line.get_color(), PALETTE["best_vendor"])]
    grey = [line for line in lines if same_color(line.get_color(), PALETTE["muted"])]
    assert min(line.get_linewidth() for line in strong) > max(line.get_linewidth() for line in grey)


def test_a_scale_that_traces_share_has_one_key_and_one_range() -> None:
    import plotly.express as px

    panels = {"facet_col": ["a", "a", "b", "b"], "color": [10, 20, 30, 50]}
    figure = px.scatter(x=[1, 2, 3, 4], y=[1, 2, 3, 4], **panels)
    panels = redraw(figure).axes
    bars = [bar for axes in panels for bar in axes.child_axes]
    assert [bar.get_title() for bar in bars] == ["color"]
    assert bars[0].get_ylim() == (10, 50)
    first, last = panels[0].collections[0], panels[1].collections[0]
    assert not same_color(first.get_edgecolors()[0], last.get_edgecolors()[0])
    assert not same_color(first.get_edgecolors()[1], last.get_edgecolors()[1])


def test_points_without_a_scale_of_numbers_have_no_key() -> None:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 2], mode="markers", marker={"color": ["red", "blue"]}))
    (axes,) = redraw(figure).axes
    assert not axes.child_axes
