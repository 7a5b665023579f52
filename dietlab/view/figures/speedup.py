"""One contender against a report's maker, shape by shape, and the predicted parts of one shape's time."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.compare.results.report import Report
from dietlab.cost import CostModel
from dietlab.measure import CACHE_STATES
from dietlab.problem import Shape
from dietlab.scheme import Scheme
from dietlab.view.figures.base import MICRO, RATIO_TICKS, add_ring, shape_axis, speedup_title
from dietlab.view.figures.plans import PARTS
from dietlab.view.figures.ratios import faster_words, plot_ratios, where_words
from dietlab.view.figures.results import frame_latency, frame_speedup
from dietlab.view.theme import GRID, HEADLINES, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ENDS = ("seconds_low", "seconds_high")
"""The columns with the ends of the 95 % interval of a median."""

CLOSE = 2.0
"""The greatest ratio of speedups, the greatest over the least (at most 1), below which the axis has the ticks
:data:`CLOSE_TICKS`."""
CLOSE_TICKS = [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3]


def frame_against(report: Report, contender: str, cache: str | None = None) -> pd.DataFrame:
    """Returns one contender's rows of :func:`dietlab.view.figures.results.frame_speedup`, with the
    intervals of both times.

    ``seconds_low`` and ``seconds_high`` are the ends of the 95 % interval of the contender's median,
    ``own_seconds_low`` and ``own_seconds_high`` are the ends for the maker's median. ``speedup_low`` and
    ``speedup_high`` are the least and the greatest ratio that both intervals allow together. Their range is
    wider than an interval of the ratio itself would be; this needs the blocks of both. The speedup, a median
    over blocks, may lie slightly outside.

    Args:
        report: the report of :func:`~dietlab.evaluate`.
        contender: a contender of the report, ``best prepacked vendor`` or ``best plain vendor``.
        cache: the cache state; None is the first one of the report.

    Raises:
        RecordError: if the report has no such cache state.
    """
    frame = frame_speedup(report, cache)
    frame = frame[frame["contender"] == contender]
    times = frame_latency(report, cache)[["shape", "contender", *ENDS]]
    ours = times[times["contender"] == report.maker].drop(columns="contender")
    ours = ours.rename(columns={end: f"own_{end}" for end in ENDS})
    theirs = times.rename(columns={"contender": "fastest"})
    frame = frame.merge(theirs, how="left", on=["shape", "fastest"]).merge(ours, how="left", on="shape")
    frame["speedup"] = frame["speedup"].astype(float)
    frame["speedup_low"] = frame["seconds_low"].astype(float) / frame["own_seconds_high"].astype(float)
    frame["speedup_high"] = frame["seconds_high"].astype(float) / frame["own_seconds_low"].astype(float)
    return frame


def frame_parts(model: CostModel, plan: str, shape: Shape, cache: str) -> pd.DataFrame:
    """Returns one row for each predicted part of a plan's time on one shape: ``seconds``, and ``share`` of
    the sum.

    Args:
        model: the cost model that predicts the parts.
        plan: the key of the plan's scheme.
        shape: a shape within the ranges of the model's operator.
        cache: the cache state. For a state that the model does not know, it predicts the state that it was
            fitted in.

    Raises:
        SpaceError: if ``plan`` is no key.
    """
    import pandas as pd

    state = next((known for known in CACHE_STATES if known == cache), model.cost.cache)
    parts = replace(model, cost=model.cost.with_cache(state)).parts(Scheme.from_key(plan), shape)
    rows = [(label, getattr(parts, field)) for field, (label, _) in PARTS.items()]
    frame = pd.DataFrame(rows, columns=["part", "predicted_seconds"])
    frame["share"] = frame["predicted_seconds"] / (frame["predicted_seconds"].sum() or 1.0)
    return frame


def plot_against(
    report: Report,
    contender: str,
    cache: str | None = None,
    shape: str = "",
    parts: pd.DataFrame | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws the speedup over one contender against the shape, with bars over what both intervals allow.

    Args:
        report, contender, cache: as in :func:`frame_against`.
        shape: the shape with a ring, such as ``"T=43"``.
        parts: the parts of this shape's time (:func:`frame_parts`), drawn below, next to the measured time.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_against(report, contender, cache)
    close = frame["speedup"].max() < CLOSE * min(1.0, frame["speedup"].min())
    figure = plot_ratios(
        frame,
        f"Speedup of {report.maker} over {contender}",
        template,
        shape_axis(report),
        partial(_hover, report.maker),
        speedup_title(report),
        ticks=CLOSE_TICKS if close else RATIO_TICKS,
        looks={contender: HEADLINES.get(contender, HEADLINES["best prepacked vendor"])._replace(width=2)},
        ends=("speedup_low", "speedup_high"),
        size=8,
    )
    chosen = frame[frame["shape"] == shape]
    if len(chosen):
        add_ring(figure, chosen[shape_axis(report)[0]], chosen["speedup"], escape(shape))
        if parts is not None and len(parts):
            _add_parts(figure, parts, report.maker, shape, MICRO * float(chosen["own_seconds"].iloc[0]))
    return figure


def _hover(maker: str, row: Any) -> str:
    who = row.contender if row.fastest == row.contender else f"{row.contender} ({row.fastest})"
    times = [f"{escape(name)} {time}" for name, time in both_times(row, maker, who).items()]
    where = f"{where_words(row, row.shape)}; click to see its plan"
    return "<br>".join([faster_words(row.speedup, maker, row.contender), *times, where])


def both_times(row: Any, maker: str, rival: str) -> dict[str, str]:
    """Returns both times of a row of :func:`frame_against` as texts, by contender; empty if only the ratio
    was published."""
    times = {
        maker: (row.own_seconds, row.own_seconds_low, row.own_seconds_high),
        rival: (row.seconds_median, row.seconds_low, row.seconds_high),
    }
    unknown = all(median is None or math.isnan(median) for median, _, _ in times.values())
    return {} if unknown else {name: time_words(*time) for name, time in times.items()}


def time_words(median: float | None, low: float | None, high: float | None) -> str:
    """Returns ``"82.9 us (82.5 to 83.0)"`` from a median and the ends of its 95 % interval, in seconds."""
    if median is None or math.isnan(median):
        return "was not measured"
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return f"{MICRO * median:.1f} us"
    return f"{MICRO * median:.1f} us ({MICRO * low:.1f} to {MICRO * high:.1f})"


def _add_parts(figure: go.Figure, parts: pd.DataFrame, maker: str, shape: str, measured_us: float) -> None:
    """Adds a stacked bar below the speedups."""
    predicted = f"predicted time of {escape(maker)} (us)"
    figure.update_layout(
        height=560,
        barmode="stack",
        yaxis={"domain": [0.36, 1.0]},
        xaxis2={"anchor": "y2", "gridcolor": GRID, "title": {"text": predicted}},
        yaxis2={"anchor": "x2", "domain": [0.0, 0.12], "gridcolor": GRID},
    )
    colours, below = dict(PARTS.values()), {"xaxis": "x2", "yaxis": "y2"}
    for row in parts.itertuples():
        us, percent = MICRO * row.predicted_seconds, 100 * row.share
        said = f"<b>{row.part}: {us:.1f} us</b><br>{percent:.0f} % of what is predicted for"
        figure.add_bar(
            x=[us],
            y=[shape],
            orientation="h",
            name=row.part,
            **below,
            marker={"color": colours[row.part], "line": {"width": 0}},
            hovertext=[f"{said} {escape(shape)}"],
            hoverinfo="text",
        )
    if not math.isnan(measured_us):
        figure.add_scatter(
            x=[measured_us],
            y=[shape],
            name="measured",
            mode="markers",
            **below,
            marker={"symbol": "diamond", "size": 12, "color": PALETTE["ours"]},
            hoverinfo="text",
            hovertext=[f"<b>measured: {measured_us:.1f} us</b><br>{escape(shape)}"],
        )
