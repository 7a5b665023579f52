"""Figures of a bench: speedup over T with the worst shapes named, and the share of the roofline."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dietlab.bench.table import BenchTable
from dietlab.evaluation.report import OURS, Report
from dietlab.view.bench_text import cores
from dietlab.view.lab import lab_imports
from dietlab.view.palette import GREY, styles
from dietlab.view.plots import HELD_OUT, TUNED, frame_speedup, frame_throughput, plot_speedup

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

WORST = 3
"""So many shapes are named."""
WIDE = 8
"""A range whose ends are further apart than this many doublings has a logarithmic axis."""
JUDGES = ("best prepacked vendor", "best plain vendor")
"""Whom the worst shapes are against: the first that there is."""


def frame_worst(report: Report, cache: str, count: int = WORST) -> pd.DataFrame:
    """The shapes on which ours stands worst against the best vendors, worst first."""
    frame = frame_speedup(report, cache).astype({"speedup": float})
    judge = next((name for name in JUDGES if (frame["contender"] == name).any()), None)
    return frame[frame["contender"] == judge].nsmallest(count, "speedup")


def plot_bench_speedup(
    table: BenchTable, workload: str, threads: int = 1, cache: str = "hot", template: str | None = None
) -> go.Figure:
    """Speedup over every contender against T. Open diamonds were held out from tuning; the worst
    shapes against the best prepacked vendor (or plain, if none is prepacked) are named."""
    report = table.report(workload, threads)
    figure = plot_speedup(report, cache, template)
    figure.update_layout(title_text=f"{escape(workload)}, {cores(threads)}, {cache}: speedup")
    worst = frame_worst(report, cache)
    (dim,) = report.rows[0].shape.to_json()
    figure.add_scatter(
        x=worst[dim],
        y=worst["speedup"],
        mode="markers+text",
        name="worst shapes",
        hoverinfo="skip",
        text=[f"{r.shape} {r.speedup:.2f}x" for r in worst.itertuples()],
        textposition="bottom center",
        marker={"symbol": "circle-open", "size": 14, "color": GREY, "line": {"width": 2}},
    )
    return _with_axis(figure, report)


def plot_bench_roofline(
    table: BenchTable, workload: str, threads: int = 1, template: str | None = None
) -> go.Figure:
    """How much of the roofline our times reach against T, a line for each cache state."""
    with lab_imports("figures"):
        import plotly.graph_objects as go

    report = table.report(workload, threads)
    figure = go.Figure()
    if template is None:
        clear = "rgba(0,0,0,0)"
        figure.update_layout(template="none", paper_bgcolor=clear, plot_bgcolor=clear, font_color=GREY)
    else:
        figure.update_layout(template=template)
    (dim,) = report.rows[0].shape.to_json()
    for cache, dash in zip(report.caches, ("solid", "dash", "dot"), strict=False):
        frame = frame_throughput(report, cache)
        mine = frame[(frame["contender"] == OURS) & frame["roofline_percent"].notna()]
        figure.add_scatter(
            x=mine[dim],
            y=mine["roofline_percent"],
            name=cache,
            mode="lines+markers",
            line={"color": styles([OURS])[OURS].colour, "dash": dash},
            marker={"symbol": [HELD_OUT if held_out else TUNED for held_out in mine["held_out"]]},
            hovertext=[f"{r.shape}: {r.roofline_percent:.0f} %" for r in mine.itertuples()],
            hoverinfo="text",
        )
    figure.update_layout(title_text=f"{escape(workload)}, {cores(threads)}: share of the roofline")
    figure.add_hline(y=100, line={"color": GREY, "width": 1, "dash": "dash"})
    figure.update_yaxes(rangemode="tozero", title_text="share of the roofline (%)")
    figure.update_xaxes(title_text=f"{dim} (extent)")
    return _with_axis(figure, report)


def _with_axis(figure: go.Figure, report: Report) -> go.Figure:
    lengths = [row.shape.bindings[0][1] for row in report.rows]
    if max(lengths) > min(lengths) << WIDE:
        figure.update_xaxes(type="log", dtick="D2")
    return figure
