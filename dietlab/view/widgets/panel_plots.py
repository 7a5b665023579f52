"""Figures of the tuning panel, each of a part of a :class:`TuningState`, with the tables behind them.

They are drawn as plain dictionaries, since plotly's objects take ten times as long to make and to check. This
time would be lost to the tuning run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.events import TrialMeasured
from dietlab.cost import too_few_pairs
from dietlab.scheme import with_parameters
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.tuning import frame_phases
from dietlab.view.theme import PALETTE
from dietlab.view.widgets.cost_lab import LINES, MEANINGS
from dietlab.view.widgets.panel_state import MAX_POINTS, Point, TuningState

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Drawing = dict[str, Any]
"""A figure as plotly.js takes it: ``data`` and ``layout``."""

HEIGHT, LEGEND = 250, 70
"""The height of a figure, and of the legend and title below its x axis, in pixels."""

LOW, BAR = 100, 26
"""The height of a figure of bars without its bars, and of one bar, in pixels."""

REASON_CHARACTERS = 160
"""The most characters of a failure's reason: compilers' messages are long."""

WORDS = {
    "ok": "measured",
    "build_failed": "did not build",
    "wrong": "wrong result",
    "crashed": "crashed",
    "timeout": "took too long",
    "refused": "refused",
    "failed": "failed",
}

NOTHING, UNPREDICTED = "nothing was measured", "no round was predicted before it was measured"
"""The texts of empty figures. The second one is for the cost model, which a search of one round does not
judge."""


# --- tables -----------------------------------------------------------------------------------


def frame_progress(state: TuningState) -> pd.DataFrame:
    """Returns at most :data:`~dietlab.view.widgets.panel_state.MAX_POINTS` rows: trial, seconds spent tuning,
    GFLOP/s (0 for a failure), the highest so far, and the micro-kernel with its parameters. In a long run, a
    row is the fastest of several successive trials."""
    return with_parameters(_frame(state.curve.points, Point._fields), column="scheme")


def frame_best(state: TuningState) -> pd.DataFrame:
    """Returns the highest GFLOP/s of each shape and the micro-kernel with its parameters, in the order of the
    extents. Of very many shapes, returns an even selection."""
    rows = [(trial.shape, trial.gflops, trial.scheme) for trial in _best(state)]
    return with_parameters(_frame(rows, ("shape", "gflops", "scheme")), column="scheme")


def frame_outcomes(state: TuningState) -> pd.DataFrame:
    """Returns one row for each outcome of trials: ``count``, ``share``, and the reason of the last such
    trial. Success is first, then come failures, the most frequent first."""
    return _frame(_outcomes(state), ("status", "outcome", "count", "share", "reason"))


def frame_quality(state: TuningState) -> pd.DataFrame:
    """Returns one row for each metric of each fit of the cost model: round, number of fitted records, metric,
    value."""
    rows = [(fit.round, fit.samples, *metric) for fit in state.fits for metric in fit.metrics.items()]
    return _frame(rows, ("round", "samples", "metric", "value"))


def _frame(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=[*columns])


def _best(state: TuningState) -> list[TrialMeasured]:
    shapes = sorted(state.shapes, key=_extents)
    return [state.shapes[shape] for shape in shapes[:: -(-len(shapes) // MAX_POINTS) or 1]]


def _outcomes(state: TuningState) -> list[tuple[str, str, int, float, str]]:
    found = sorted(state.outcomes.items(), key=lambda item: (item[0] != "ok", -item[1].count))
    total = sum(outcome.count for _, outcome in found)
    return [(status, WORDS.get(status, status), o.count, o.count / total, o.reason) for status, o in found]


def _extents(shape: str) -> tuple[tuple[str, int], ...]:
    """Returns a text like ``"B=2,T=43"`` as pairs of a name and an extent, which sort as numbers do."""
    pairs = (binding.partition("=") for binding in shape.split(","))
    return tuple((name, int(extent) if extent.isdigit() else 0) for name, _, extent in pairs)


# --- figures ----------------------------------------------------------------------------------


def draw_progress(state: TuningState) -> Drawing:
    """Draws trials as dots, failures as crosses and the best so far as a line, over the time spent."""
    points, title = state.curve.points, "Best micro-kernel so far"
    if state.best_gflops:
        title += f": {state.best_gflops:.1f} GFLOP/s in {state.trials} trials"
    every = f", the fastest of {state.curve.stride}" if state.curve.stride > 1 else ""
    good, failed = ([p for p in points if (p.gflops > 0) == ok] for ok in (True, False))
    best = {
        "type": "scatter",
        "name": "best so far",
        "mode": "lines",
        "x": [p.seconds for p in points],
        "y": [p.best_gflops for p in points],
        "line": {"shape": "hv", "color": PALETTE["ours"]},
        "hovertemplate": "best after %{x:.1f} s: %{y:.1f} GFLOP/s<extra></extra>",
    }
    traces = [
        _dots(good, "trial", every, PALETTE["muted"], "circle", "%{y:.1f} GFLOP/s"),
        _dots(failed, "failed", every, PALETTE["bad"], "x", "failed (%{customdata[3]})"),
        best,
    ]
    axes = ("time spent tuning (s)", "throughput (GFLOP/s)")
    return _drawing(title, *axes, traces if points else [], below=LEGEND)


def _dots(
    points: Sequence[Point], name: str, every: str, colour: str, symbol: str, result: str
) -> dict[str, Any]:
    """Returns a trace of single trials."""
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": [p.seconds for p in points],
        "y": [p.gflops for p in points],
        "customdata": [(p.trial, *map(escape, (p.scheme, p.shape, p.status))) for p in points],
        "hovertemplate": (
            f"trial %{{customdata[0]}}{every}, after %{{x:.1f}} s: {result}<br>"
            "%{customdata[1]} at %{customdata[2]}<extra></extra>"
        ),
        "marker": {"symbol": symbol, "color": colour, "size": 5, "opacity": 0.6},
    }


def draw_best(state: TuningState) -> Drawing:
    """Draws the highest throughput found for each shape."""
    best = _best(state)
    extents = [_extents(trial.shape) for trial in best]
    one = bool(extents) and {len(pairs) for pairs in extents} == {1}
    trace = {
        "type": "scatter",
        "name": "best",
        "mode": "lines+markers",
        "x": [pairs[0][1] for pairs in extents] if one else [escape(trial.shape) for trial in best],
        "y": [trial.gflops for trial in best],
        "line": {"color": PALETTE["ours"], "width": 1},
        "hoverinfo": "text",
        "hovertext": [
            f"{escape(trial.shape)}: {trial.gflops:.1f} GFLOP/s<br>with {escape(trial.scheme)}"
            for trial in best
        ],
    }
    x_title = f"{escape(extents[0][0][0])} (extent)" if one else "shape (extents)"
    return _drawing("Best throughput of each shape", x_title, "throughput (GFLOP/s)", [trace] if best else [])


def draw_quality(state: TuningState) -> Drawing:
    """Draws the ranking metrics of the cost model, fit by fit."""
    unknown = too_few_pairs(state.fits[-1].metrics) if state.fits else {}
    known = {metric: [fit for fit in state.fits if metric in fit.metrics] for metric in LINES}
    traces = [
        {
            "type": "scatter",
            "name": metric if fits else f"{metric}: {unknown[metric]}",
            "mode": "lines+markers",
            "line": {"color": LINES[metric][1]},
            "x": [fit.samples for fit in fits],
            "y": [fit.metrics[metric] for fit in fits],
            "customdata": [fit.round for fit in fits],
            "hovertemplate": (
                f"after round %{{customdata}} {MEANINGS[metric].format('%{y:.0%}')}<extra>{metric}</extra>"
            ),
        }
        for metric, fits in known.items()
        if fits or metric in unknown
    ]
    axes = ("records it was fitted on (count)", "ranking (share, 1 is perfect)")
    nothing = UNPREDICTED if state.trials else NOTHING
    return _drawing("Quality of the cost model", *axes, traces, nothing=nothing, below=LEGEND)


def draw_seconds(state: TuningState) -> Drawing:
    """Draws where the time went, phase by phase."""
    total, bars = state.seconds.total, []
    for phase, seconds in vars(state.seconds).items():
        percent = f"{100 * seconds / (total or 1):.0f} %"
        hover = f"{phase}: {seconds:.1f} s, {percent} of the time"
        bars.append((phase, seconds, percent, hover, PALETTE["ours"]))
    return _bars(f"Where {total:.0f} s of tuning went", "wall-clock time (s)", "phase", bars)


def draw_outcomes(state: TuningState) -> Drawing:
    """Draws how many trials were measured, and why the others were not."""
    bars = []
    for status, outcome, count, share, reason in _outcomes(state):
        hover = f"{count} trials ({100 * share:.1f} %): {escape(outcome)}"
        hover += f"<br>the last one: {escape(reason[:REASON_CHARACTERS])}" if reason else ""
        colour = PALETTE["good" if status == "ok" else "bad"]
        bars.append((escape(outcome), count, f"{count} ({100 * share:.0f} %)", hover, colour))
    drawing = _bars("What became of the trials", "trials (count)", "outcome", bars)
    drawing["layout"]["height"] = LOW + BAR * max(1, len(bars))
    return drawing


def _bars(
    title: str, x_title: str, y_title: str, bars: Sequence[tuple[str, float, str, str, str]]
) -> Drawing:
    """Returns a figure of bars from top to bottom: their names, lengths, texts, hover texts and colours."""
    names, lengths, texts, hovers, colours = zip(*bars, strict=True) if bars else [()] * 5
    trace = {
        "type": "bar",
        "orientation": "h",
        "hoverinfo": "text",
        "x": lengths,
        "y": names,
        "text": texts,
        "hovertext": hovers,
        "marker": {"color": colours},
    }
    return _drawing(title, x_title, y_title, [trace] if bars else [], order={"autorange": "reversed"})


def _drawing(
    title: str,
    x_title: str,
    y_title: str,
    traces: Sequence[Mapping[str, Any]],
    *,
    nothing: str = NOTHING,
    below: int = 40,
    order: Mapping[str, str] = {"rangemode": "tozero"},
) -> Drawing:
    """Returns a figure that is low enough for several side by side; it shows the text ``nothing`` if there
    are no traces. ``below`` is the room below the x axis in pixels (:data:`LEGEND` for a legend); ``order``
    has settings of the y axis."""
    common = _common_layout("" if traces else nothing)
    layout = {
        **common,
        "height": HEIGHT,
        "margin": {"l": 60, "r": 15, "t": 40, "b": below},
        "title": {"text": title, "font": {"size": 14}},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": {**common["xaxis"], "title": {"text": x_title}},
        "yaxis": {**common["yaxis"], **order, "title": {"text": y_title}, "automargin": True},
    }
    return {"data": [*traces], "layout": layout}


@cache
def _common_layout(empty: str) -> dict[str, Any]:
    """Returns the style that all figures share."""
    frame = _frame([] if empty else [(1,)], ["something"])
    layout: dict[str, Any] = new_figure(frame, "", None, empty).layout.to_plotly_json()
    return layout


# --- all of them ------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A figure of the panel: its label, the part of the state that it shows, its table and its drawing
    function."""

    words: str
    part: str
    frame: Callable[[TuningState], pd.DataFrame]
    draw: Callable[[TuningState], Drawing]

    def plot(self, state: TuningState) -> go.Figure:
        """Returns the figure of a state."""
        import plotly.graph_objects as go

        return go.Figure(self.draw(state))


VIEWS: Mapping[str, View] = {
    "progress": View("progress", "curve", frame_progress, draw_progress),
    "best": View("best of each shape", "shapes", frame_best, draw_best),
    "quality": View("cost model", "fits", frame_quality, draw_quality),
    "seconds": View("time", "seconds", lambda state: frame_phases(state.seconds), draw_seconds),
    "outcomes": View("outcomes", "outcomes", frame_outcomes, draw_outcomes),
}
