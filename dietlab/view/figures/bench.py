"""Figures of a bench: speedup over T with the worst shapes named, and the share of the roofline."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.speedups import JUDGES
from dietlab.compare.results.table import ResultTable
from dietlab.view.figures.base import DOUBLINGS, RATIO_TICKS, is_wide, name_x_axis, new_figure, speedup_title
from dietlab.view.figures.results import frame_speedup, frame_throughput, plot_speedup
from dietlab.view.theme import PALETTE, TIE, marks, ring

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

WORST = 3
"""Shapes that are named in the legend: more would cover the curves."""


LAYER_JUDGES = ("own", *JUDGES[:1], "oracle")
"""Contenders that layers are drawn against: their own libraries, vendors, and the fastest known plan."""


def frame_worst(report: Report, cache: str, count: int = WORST) -> pd.DataFrame:
    """Returns the shapes on which the maker's programs lose most against the best vendors, the worst first.

    Args:
        report: of a bench's study or of :func:`~dietlab.evaluate`.
        cache: the cache state.
        count: the most rows.
    """
    frame = frame_speedup(report, cache).astype({"speedup": float})
    judge = next((name for name in JUDGES if (frame["contender"] == name).any()), None)
    return frame[frame["contender"] == judge].nsmallest(count, "speedup")


def plot_bench_speedup(
    table: ResultTable, workload: str, threads: int = 1, cache: str = "hot", template: str | None = None
) -> go.Figure:
    """Draws the speedup over every contender against T. Open marks were held out from tuning; the worst
    shapes against the best prepacked vendor (or plain, if none is prepacked) are named.

    Args:
        table: results of a suite.
        workload: its name in the table.
        threads: cores.
        cache: the cache state.
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    report = table.report(workload, threads)
    figure = plot_speedup(report, cache, template)
    figure.update_layout(title_text=f"{escape(workload)}, {report.used}, {cache}: speedup")
    worst = frame_worst(report, cache)
    figure.add_scatter(
        x=worst[name_x_axis(figure, report)],
        y=worst["speedup"],
        mode="markers",
        name="worst: " + "<br>".join(f"{r.shape} {r.speedup:.2f}x" for r in worst.itertuples()),
        hoverinfo="skip",
        marker=ring(14),
    )
    return figure


def plot_bench_roofline(
    table: ResultTable, workload: str, threads: int = 1, template: str | None = None
) -> go.Figure:
    """Draws the share of the roofline that the report's maker reaches against T, a line for each cache state.

    Args:
        table: results of a suite.
        workload: its name in the table.
        threads: cores.
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    report = table.report(workload, threads)
    whole = frame_throughput(report).drop(columns="cache")
    figure = new_figure(whole, f"{workload}, {report.used}: share of the roofline", template)
    x = name_x_axis(figure, report)
    for cache, dash in zip(report.caches, ("solid", "dash", "dot"), strict=False):
        frame = frame_throughput(report, cache)
        mine = frame[(frame["contender"] == report.maker) & frame["roofline"].notna()]
        figure.add_scatter(
            x=mine[x],
            y=100 * mine["roofline"],
            name=cache,
            mode="lines+markers",
            line={"color": PALETTE["ours"], "dash": dash, "width": 2},
            marker={"symbol": marks("circle", mine["held_out"])},
            hovertext=[f"{r.shape}: {100 * r.roofline:.0f} %" for r in mine.itertuples()],
            hoverinfo="text",
        )
    figure.add_hline(y=100, line=TIE)
    figure.update_yaxes(rangemode="tozero", title_text="share of the roofline (%)")
    return figure


def bench_layer_figures(
    table: ResultTable, workload: str, threads: int = 1, cache: str = "rotating", template: str | None = None
) -> list[go.Figure]:
    """Draws the speedup of every layer against T, a figure for each of :data:`LAYER_JUDGES` that took part.
    Open marks were held out from tuning."""
    report = table.report(workload, threads)
    frame = frame_speedup(report, cache)
    figures = []
    for judge in LAYER_JUDGES:
        part = frame[frame["contender"] == judge]
        if len(part):
            figure = new_figure(part, f"{workload}, {report.used}: over {judge}", template)
            figures.append(_layer_lines(figure, part, report))
    return figures


def _layer_lines(figure: go.Figure, frame: pd.DataFrame, report: Report) -> go.Figure:
    """Adds a line for each layer; names a layer held out if all of its shapes are."""
    for (depth, cols), layer in frame.groupby(["K", "N"], sort=True):
        note = " (held out)" if layer["held_out"].all() else ""
        figure.add_scatter(
            x=layer[LENGTH],
            y=layer["speedup"],
            name=f"N={cols} K={depth}{note}",
            mode="lines+markers",
            marker={"symbol": marks("circle", layer["held_out"])},
            hovertext=[f"{r.shape}: {r.speedup:.2f}x, {r.fastest}" for r in layer.itertuples()],
            hoverinfo="text",
        )
    figure.add_hline(y=1, line=TIE)
    figure.update_yaxes(type="log", tickvals=RATIO_TICKS, title_text=speedup_title(report))
    figure.update_xaxes(title_text=f"{LENGTH} (extent)")
    if is_wide(frame[LENGTH]):
        figure.update_xaxes(**DOUBLINGS)
    return figure
