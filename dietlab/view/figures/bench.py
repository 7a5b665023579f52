"""Figures of a bench: speedup over T with the worst shapes named, and the share of the roofline."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.speedups import JUDGES
from dietlab.compare.results.table import ResultTable
from dietlab.view.figures.base import add_ring, extent_axis, hovering, new_figure, shape_axis, speedup_title
from dietlab.view.figures.ratios import plot_ratios
from dietlab.view.figures.results import frame_speedup, frame_throughput, plot_speedup
from dietlab.view.theme import DASHES, PALETTE, TIE, accented, marks

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

WORST = 3
"""The most shapes that the legend names: a longer legend would cover the curves."""

LAYER_JUDGES = ("own", *JUDGES[:1], "oracle")
"""Contenders of the figures by layer: each layer's own library, the best prepacked vendor, and the fastest
known plan."""


def frame_worst(report: Report, cache: str, count: int = WORST) -> pd.DataFrame:
    """Returns, the worst first, the shapes on which the maker's programs lose most against the best vendors.

    Args:
        report: the report of a bench's study or of :func:`~dietlab.evaluate`.
        cache: the cache state.
        count: the greatest number of rows.
    """
    frame = frame_speedup(report, cache).astype({"speedup": float})
    judge = next((name for name in JUDGES if (frame["contender"] == name).any()), None)
    return frame[frame["contender"] == judge].nsmallest(count, "speedup")


def plot_bench_speedup(
    table: ResultTable, workload: str, threads: int = 1, cache: str = "hot", template: str | None = None
) -> go.Figure:
    """Draws the speedup over every contender against T. Open marks are shapes held out from tuning. The
    legend names the worst shapes against the best prepacked vendor, or the best plain one if no vendor is
    prepacked.

    Args:
        table: the results of a bench.
        workload: the name of the workload in the table.
        threads: the number of cores.
        cache: the cache state.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    report = table.report(workload, threads)
    figure = plot_speedup(report, cache, template)
    figure.update_layout(title_text=f"{escape(workload)}, {report.used}, {cache}: speedup")
    worst = frame_worst(report, cache)
    named = "<br>".join(f"{r.shape} {r.speedup:.2f}x" for r in worst.itertuples())
    add_ring(figure, worst[shape_axis(report)[0]], worst["speedup"], f"worst: {named}", 14)
    return figure


def plot_bench_roofline(
    table: ResultTable, workload: str, threads: int = 1, template: str | None = None
) -> go.Figure:
    """Draws against T the share of the roofline that the report's maker reaches, a line for each cache state.

    Args:
        table, workload, threads, template: as in :func:`plot_bench_speedup`.
    """
    report = table.report(workload, threads)
    whole = frame_throughput(report).drop(columns="cache")
    figure = new_figure(whole, f"{workload}, {report.used}: share of the roofline", template)
    x, settings = shape_axis(report)
    figure.update_xaxes(**settings)
    for cache, dash in zip(report.caches, DASHES, strict=False):
        frame = frame_throughput(report, cache)
        mine = frame[(frame["contender"] == report.maker) & frame["roofline"].notna()]
        figure.add_scatter(
            x=mine[x],
            y=100 * mine["roofline"],
            name=cache,
            mode="lines+markers",
            line={"color": PALETTE["ours"], "dash": dash, "width": 2},
            marker={"symbol": marks("circle", mine["held_out"])},
            **hovering(mine, lambda row: f"{row.shape}: {100 * row.roofline:.0f} %"),
        )
    figure.add_hline(y=100, line=TIE)
    figure.update_yaxes(rangemode="tozero", title_text="share of the roofline (%)")
    return figure


def bench_layer_figures(
    table: ResultTable, workload: str, threads: int = 1, cache: str = "rotating", template: str | None = None
) -> list[go.Figure]:
    """Draws the speedup of every layer against T, a figure for each of :data:`LAYER_JUDGES` that took part.
    Open marks are shapes held out from tuning."""
    report = table.report(workload, threads)
    frame = frame_speedup(report, cache)
    parts = {judge: frame[frame["contender"] == judge] for judge in LAYER_JUDGES}
    return [_by_layer(part, judge, report, template) for judge, part in parts.items() if len(part)]


def _by_layer(frame: pd.DataFrame, judge: str, report: Report, template: str | None) -> go.Figure:
    """Draws a line for each layer; the legend calls a layer held out if all of its shapes are."""
    frame = frame.sort_values(["K", "N", LENGTH])
    unseen = frame.groupby(["K", "N"])["held_out"].transform("all")
    notes = unseen.map({True: " (held out)", False: ""})
    frame["layer"] = "N=" + frame["N"].astype(str) + " K=" + frame["K"].astype(str) + notes
    return plot_ratios(
        frame,
        f"{report.name}, {report.used}: over {judge}",
        template,
        extent_axis(LENGTH, frame[LENGTH]),
        lambda row: f"{row.shape}: {row.speedup:.2f}x, {row.fastest}",
        speedup_title(report),
        by="layer",
        looks={name: accented(number) for number, name in enumerate(frame["layer"].unique())},
    )
