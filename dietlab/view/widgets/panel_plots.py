"""Figures of the tuning panel, in two halves: ``frame_x`` and ``plot_x`` of a :class:`TuningState`.

A live figure gets what ``draw_x`` makes: the same as plain dictionaries, since plotly's objects take ten
times as long to make and to check, which counts while somebody tunes.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.cost import too_few_pairs
from dietlab.scheme import with_parameters
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.tuning import frame_phases
from dietlab.view.lab import lab_imports
from dietlab.view.theme import PALETTE
from dietlab.view.widgets.panel_state import MAX_POINTS, TuningState

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Drawing = dict[str, Any]
"""A figure as plotly.js takes it: ``data`` and ``layout``."""

HEIGHT, LEGEND = 250, 70
"""Of one figure and of what is below its x axis, in pixels."""

LOW, BAR = 100, 26
"""Of a figure of bars without its bars, and of one of them, in pixels."""

REASON_CHARACTERS = 160
"""Of what a failure said: compilers say a lot."""

WORDS = {
    "ok": "measured",
    "build_failed": "did not build",
    "wrong": "wrong result",
    "crashed": "crashed",
    "timeout": "took too long",
    "refused": "refused",
    "failed": "failed",
}

RANKING = {"pairwise": PALETTE["accent1"], "peak@1": PALETTE["ours"], "peak@5": PALETTE["accent3"]}
"""Metrics that are drawn: shares of which 1 is perfect."""

MEANINGS = {
    "pairwise": "this share of the pairs that differ by more than the noise is ordered right",
    "peak@1": "the predicted fastest reaches this share of the best throughput",
    "peak@5": "the best of the five predicted fastest reaches this share of the best throughput",
}


NOTHING, UNPREDICTED = "nothing was measured", "no round was predicted before it was measured"
"""Why a figure is empty; the second is the cost model's, which a search of one round does not judge."""


# --- tables -----------------------------------------------------------------------------------


def frame_progress(state: TuningState) -> pd.DataFrame:
    """Returns trial, seconds spent tuning, GFLOP/s (0 where it failed), the highest so far, and the
    micro-kernel with its parameters: at most :data:`~dietlab.view.widgets.panel_state.MAX_POINTS` rows, of a
    long run the fastest of some trials in a row."""
    return with_parameters(_progress(state), column="scheme")


def _progress(state: TuningState) -> pd.DataFrame:
    """Returns the table without parameters, which cost more than drawing it."""
    import pandas as pd

    rows = [
        (p.trial, p.seconds, p.gflops, p.best_gflops, p.scheme, p.shape, p.status) for p in state.curve.points
    ]
    columns = ["trial", "seconds", "gflops", "best_gflops", "scheme", "shape", "status"]
    return pd.DataFrame(rows, columns=columns)


def frame_best(state: TuningState) -> pd.DataFrame:
    """Returns the highest GFLOP/s of each shape and the micro-kernel with its parameters, in the order of the
    extents; some of the shapes, evenly, if there are very many."""
    return with_parameters(_best(state), column="scheme")


def _best(state: TuningState) -> pd.DataFrame:
    """Returns the table without parameters."""
    import pandas as pd

    shapes = sorted(state.shapes, key=_extents)
    stride = -(-len(shapes) // MAX_POINTS) or 1
    rows = [(s, state.shapes[s].gflops, state.shapes[s].scheme) for s in shapes[::stride]]
    return pd.DataFrame(rows, columns=["shape", "gflops", "scheme"])


def frame_outcomes(state: TuningState) -> pd.DataFrame:
    """Trials (``count`` and ``share``) by what became of them, with what the last one said: success first,
    then failures, the most frequent first."""
    import pandas as pd

    found = sorted(state.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1].count))
    total = sum(outcome.count for _, outcome in found)
    rows = [(status, WORDS.get(status, status), o.count, o.count / total, o.reason) for status, o in found]
    return pd.DataFrame(rows, columns=["status", "outcome", "count", "share", "reason"])


def frame_quality(state: TuningState) -> pd.DataFrame:
    """Returns every metric of every fit of the cost model: round, records it was fitted on, metric, value."""
    import pandas as pd

    rows = [
        (fit.round, fit.samples, metric, value) for fit in state.fits for metric, value in fit.metrics.items()
    ]
    return pd.DataFrame(rows, columns=["round", "samples", "metric", "value"])


def _extents(shape: str) -> tuple[tuple[str, int], ...]:
    """Returns ``"B=2,T=43"`` as pairs that sort as numbers do."""
    pairs = (binding.partition("=") for binding in shape.split(","))
    return tuple((name, int(extent) if extent.isdigit() else 0) for name, _, extent in pairs)


# --- figures ----------------------------------------------------------------------------------


def plot_progress(state: TuningState, template: str | None = None) -> go.Figure:
    """Trials as dots, failures as crosses, and the best so far as a line, over the time spent tuning."""
    return _figure(draw_progress(state, template))


def plot_best(state: TuningState, template: str | None = None) -> go.Figure:
    """Draws the highest throughput found for each shape."""
    return _figure(draw_best(state, template))


def plot_outcomes(state: TuningState, template: str | None = None) -> go.Figure:
    """Draws how many trials were measured, and why the others were not."""
    return _figure(draw_outcomes(state, template))


def plot_quality(state: TuningState, template: str | None = None) -> go.Figure:
    """Draws the ranking metrics of the cost model, fit by fit."""
    return _figure(draw_quality(state, template))


def plot_seconds(state: TuningState, template: str | None = None) -> go.Figure:
    """Draws where the time went, phase by phase: the table is
    :func:`dietlab.view.figures.tuning.frame_phases`."""
    return _figure(draw_seconds(state, template))


def draw_progress(state: TuningState, template: str | None = None) -> Drawing:
    frame = _progress(state)
    title = "Best micro-kernel so far"
    if state.best_gflops:
        title += f": {state.best_gflops:.1f} GFLOP/s in {state.trials} trials"
    every = f", the fastest of {state.curve.stride}" if state.curve.stride > 1 else ""
    failed = frame["gflops"] <= 0
    traces = [
        _dots(frame[~failed], "trial", every, PALETTE["muted"], "circle", "%{y:.1f} GFLOP/s"),
        _dots(frame[failed], "failed", every, PALETTE["bad"], "x", "failed (%{customdata[3]})"),
        {
            "type": "scatter",
            "name": "best so far",
            "mode": "lines",
            "x": frame["seconds"].tolist(),
            "y": frame["best_gflops"].tolist(),
            "line": {"shape": "hv", "color": PALETTE["ours"]},
            "hovertemplate": "best after %{x:.1f} s: %{y:.1f} GFLOP/s<extra></extra>",
        },
    ]
    axes = ("time spent tuning (s)", "throughput (GFLOP/s)")
    layout = _layout(title, *axes, template, empty="" if len(frame) else NOTHING, below=LEGEND)
    return {"data": traces if len(frame) else [], "layout": layout}


def _dots(part: pd.DataFrame, name: str, every: str, colour: str, symbol: str, result: str) -> dict[str, Any]:
    """Returns a trace of single trials."""
    columns = (part[column] for column in ("trial", "scheme", "shape", "status"))
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": part["seconds"].tolist(),
        "y": part["gflops"].tolist(),
        "customdata": [(trial, *map(escape, texts)) for trial, *texts in zip(*columns, strict=True)],
        "hovertemplate": (
            f"trial %{{customdata[0]}}{every}, after %{{x:.1f}} s: {result}<br>"
            "%{customdata[1]} at %{customdata[2]}<extra></extra>"
        ),
        "marker": {"symbol": symbol, "color": colour, "size": 5, "opacity": 0.6},
    }


def draw_best(state: TuningState, template: str | None = None) -> Drawing:
    frame = _best(state)
    extents = [_extents(shape) for shape in frame["shape"]]
    one = bool(extents) and {len(pairs) for pairs in extents} == {1}
    trace = {
        "type": "scatter",
        "name": "best",
        "mode": "lines+markers",
        "y": frame["gflops"].tolist(),
        "x": [pairs[0][1] for pairs in extents] if one else [escape(shape) for shape in frame["shape"]],
        "line": {"color": PALETTE["ours"], "width": 1},
        "hoverinfo": "text",
        "hovertext": [
            f"{escape(shape)}: {gflops:.1f} GFLOP/s<br>with {escape(kernel)}"
            for shape, gflops, kernel in zip(*(frame[column] for column in frame), strict=True)
        ],
    }
    x_title = f"{escape(extents[0][0][0])} (extent)" if one else "shape (extents)"
    title = "Best throughput of each shape"
    layout = _layout(title, x_title, "throughput (GFLOP/s)", template, empty="" if len(frame) else NOTHING)
    return {"data": [trace] if len(frame) else [], "layout": layout}


def draw_outcomes(state: TuningState, template: str | None = None) -> Drawing:
    frame = frame_outcomes(state)
    trace = {
        "type": "bar",
        "orientation": "h",
        "hoverinfo": "text",
        "x": frame["count"].tolist(),
        "y": [escape(outcome) for outcome in frame["outcome"]],
        "text": [f"{n} ({100 * p:.0f} %)" for n, p in zip(frame["count"], frame["share"], strict=True)],
        "hovertext": [_told(*row[1:]) for row in zip(*(frame[column] for column in frame), strict=True)],
        "marker": {"color": [PALETTE["good"] if s == "ok" else PALETTE["bad"] for s in frame["status"]]},
    }
    title = "What became of the trials"
    layout = _layout(
        title, "trials (count)", "outcome", template, empty="" if len(frame) else NOTHING, bars=True
    )
    layout["height"] = LOW + BAR * max(1, len(frame))
    return {"data": [trace] if len(frame) else [], "layout": layout}


def _told(outcome: str, count: int, share: float, reason: str) -> str:
    said = f"<br>the last one: {escape(reason[:REASON_CHARACTERS])}" if reason else ""
    return f"{count} trials ({100 * share:.1f} %): {escape(outcome)}{said}"


def draw_quality(state: TuningState, template: str | None = None) -> Drawing:
    frame = frame_quality(state)
    drawn = [(metric, frame[frame["metric"] == metric]) for metric in RANKING]
    unknown = too_few_pairs(state.fits[-1].metrics) if state.fits else {}
    traces = [
        {
            "type": "scatter",
            "name": metric if len(part) else f"{metric}: {unknown[metric]}",
            "mode": "lines+markers",
            "line": {"color": RANKING[metric]},
            "x": part["samples"].tolist(),
            "y": part["value"].tolist(),
            "customdata": part["round"].tolist(),
            "hovertemplate": (
                f"after round %{{customdata}}, {metric} is %{{y:.2f}}:<br>{MEANINGS[metric]}<extra></extra>"
            ),
        }
        for metric, part in drawn
        if len(part) or metric in unknown
    ]
    x_title, y_title = "records it was fitted on (count)", "ranking (share, 1 is perfect)"
    title = "Quality of the cost model"
    nothing = UNPREDICTED if state.trials else NOTHING
    layout = _layout(title, x_title, y_title, template, empty="" if traces else nothing, below=LEGEND)
    return {"data": traces, "layout": layout}


def draw_seconds(state: TuningState, template: str | None = None) -> Drawing:
    frame = frame_phases(state.seconds)
    rows = list(zip(frame["phase"], frame["seconds"], 100 * frame["share"], strict=True))
    trace = {
        "type": "bar",
        "orientation": "h",
        "hoverinfo": "text",
        "marker": {"color": PALETTE["ours"]},
        "x": frame["seconds"].tolist(),
        "y": frame["phase"].tolist(),
        "text": [f"{percent:.0f} %" for _, _, percent in rows],
        "hovertext": [f"{phase}: {s:.1f} s, {percent:.0f} % of the time" for phase, s, percent in rows],
    }
    title = f"Where {state.seconds.total:.0f} s of tuning went"
    layout = _layout(title, "wall-clock time (s)", "phase", template, bars=True)
    return {"data": [trace], "layout": layout}


def _figure(drawing: Drawing) -> go.Figure:
    with lab_imports("figures"):
        import plotly.graph_objects as go

    return go.Figure(drawing)


def _layout(
    title: str,
    x_title: str,
    y_title: str,
    template: str | None,
    *,
    empty: str = "",
    bars: bool = False,
    below: int = 40,
) -> dict[str, Any]:
    """Returns the layout of a low figure, since several stand side by side. ``empty`` says why nothing is
    drawn. ``bars`` run from top to bottom; ``below`` the x axis there is room for its title and, if it is
    ``LEGEND``, for a legend."""
    common = _common_layout(template, empty)
    y_axis = {"autorange": "reversed"} if bars else {"rangemode": "tozero"}
    return {
        **common,
        "height": HEIGHT,
        "margin": {"l": 60, "r": 15, "t": 40, "b": below},
        "title": {"text": title, "font": {"size": 14}},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": {**common.get("xaxis", {}), "title": {"text": x_title}},
        "yaxis": {**common.get("yaxis", {}), **y_axis, "title": {"text": y_title}, "automargin": True},
    }


@cache
def _common_layout(template: str | None, empty: str) -> dict[str, Any]:
    """Returns the style that all figures share."""
    import pandas as pd

    frame = pd.DataFrame() if empty else pd.DataFrame({"something": [1]})
    layout: dict[str, Any] = new_figure(frame, "", template, empty).layout.to_plotly_json()
    return layout
