"""Figures of a cost model: predicted against measured time of every record, and the importance of
features."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import ModelError
from dietlab.cost import CostModel, fit_cost_model
from dietlab.tuning import TuningRun
from dietlab.view.figures.base import MICRO, add_ring, hovering, new_figure
from dietlab.view.theme import OPEN, PALETTE, SCALE, TEXT, TIE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS = ("record", "scheme", "shape", "held_out", "seconds", "predicted_seconds", "ratio")
TILE = ("rows", "cols")
"""The sides of the micro-kernel's tile: points can be coloured by them, or by a dimension."""
LEADING = 12
"""The most features that a figure draws."""


def fit_first(run: TuningRun, count: int) -> CostModel:
    """Returns a cost model fitted on the first ``count`` records of a run. The model is of the same kind as
    the run's own."""
    if not 1 <= count <= len(run.records):
        raise ModelError(f"a fit takes 1 to {len(run.records)} records of the run", count)
    cost, first = run.model.cost, run.records[:count]
    return fit_cost_model(cost.workload, cost.hardware, first, cost.kind, cache=cost.cache)


def frame_predictions(run: TuningRun, model: CostModel, count: int) -> pd.DataFrame:
    """Returns one row for each successful record: its micro-kernel with the parameters, measured ``seconds``
    and ``predicted_seconds``, and ``ratio``, predicted over measured.

    Args:
        run: the run whose records are compared.
        model: the cost model that predicts.
        count: the number of records that the model was fitted on; later records are ``held_out``.
    """
    import pandas as pd

    numbered = [(number, r) for number, r in enumerate(run.records, 1) if r.ok and r.seconds]
    pairs = [(r.scheme, r.shape) for _, r in numbered]
    predicted: list[float] = model.seconds_of(pairs).tolist() if pairs else []
    rows = [
        {
            **r.shape.to_json(),
            "record": number,
            **r.scheme.columns,
            "shape": str(r.shape),
            "held_out": number > count,
            "seconds": r.seconds or 0.0,
            "predicted_seconds": guess,
            "ratio": guess / (r.seconds or 1.0),
        }
        for (number, r), guess in zip(numbered, predicted, strict=True)
    ]
    return pd.DataFrame(rows, columns=None if rows else [*run.space.workload.dims, *COLUMNS])


def frame_importances(model: CostModel) -> pd.DataFrame:
    """Returns one row for each feature, the most important first. ``share`` is the part of the removed loss
    that splits on this feature removed.

    Args:
        model: a fitted cost model of trees.
    """
    import pandas as pd

    return pd.DataFrame(model.importances().items(), columns=["feature", "share"])


def plot_predictions(
    frame: pd.DataFrame, colour: str, scheme: str = "", template: str | None = None
) -> go.Figure:
    """Draws a table of :func:`frame_predictions` on log axes. On the drawn line, predictions are exact.

    Args:
        frame: a table of :func:`frame_predictions`.
        colour: the column that gives the colour of points: a dimension, or the tile's ``rows`` or ``cols``.
        scheme: the scheme whose records have rings.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    figure = new_figure(frame, "Predicted and measured time", template)
    if frame.empty:
        return figure
    for held_out, name in ((False, "fitted"), (True, "held out from the fit")):
        part = frame[frame["held_out"].astype(bool) == held_out]
        figure.add_scatter(
            x=MICRO * part["seconds"],
            y=MICRO * part["predicted_seconds"],
            mode="markers",
            name=name,
            marker=_markers(part, frame, colour, held_out),
            **hovering(part, _hover),
        )
    marked = frame[frame["scheme"] == scheme]
    if len(marked):
        add_ring(figure, MICRO * marked["seconds"], MICRO * marked["predicted_seconds"], escape(scheme), 15)
    times = MICRO * frame[["seconds", "predicted_seconds"]].to_numpy(float)
    ends = [float(times.min()), float(times.max())]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", name="prediction = measurement", hoverinfo="skip", line=TIE
    )
    ticks = _ticks(*ends)
    figure.update_xaxes(type="log", tickvals=ticks, title_text="measured time (us)")
    figure.update_yaxes(type="log", tickvals=ticks, title_text="predicted time (us)")
    figure.update_layout(height=520, legend={"orientation": "h", "y": -0.18})
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """Returns the ticks 1, 2, 5, 10, 20, ... up to a little above the greatest value."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**power for power in powers for digit in (1, 2, 5)]


def _markers(part: pd.DataFrame, frame: pd.DataFrame, colour: str, held_out: bool) -> dict[str, Any]:
    """Returns markers with colours on a log scale over the whole frame, so that both kinds of records share
    it."""
    look: dict[str, Any] = {"symbol": f"circle{OPEN}" if held_out else "circle", "size": 7}
    if part.empty:
        return {**look, "color": TEXT}
    low, high = (math.log2(float(end)) for end in (frame[colour].min(), frame[colour].max()))
    powers = range(math.ceil(low), math.floor(high) + 1)
    bar = {
        "title": {"text": f"{colour} of<br>the tile" if colour in TILE else f"{colour}<br>(extent)"},
        "tickvals": list(powers),
        "ticktext": [str(2**power) for power in powers],
    }
    return {
        **look,
        "color": [math.log2(float(value)) for value in part[colour]],
        "cmin": low,
        "cmax": max(high, low + 1),
        "colorscale": SCALE,
        "colorbar": bar,
        "showscale": not held_out,
    }


def _hover(row: Any) -> str:
    how = "held out from the fit" if row.held_out else "fitted"
    return (
        f"<b>{escape(row.scheme)} at {escape(row.shape)}</b><br>measured {MICRO * row.seconds:.1f} us, "
        f"predicted {MICRO * row.predicted_seconds:.1f} us: {100 * row.ratio:.0f} % of it"
        f"<br>record {row.record}, {how}"
    )


def plot_importances(frame: pd.DataFrame, template: str | None = None) -> go.Figure:
    """Draws the leading features of a table of :func:`frame_importances` as bars.

    Args:
        frame: a table of :func:`frame_importances`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    figure = new_figure(frame, "What the cost model looks at", template)
    shown = frame.head(LEADING)
    figure.add_bar(
        x=100 * shown["share"],
        y=[feature_words(name) for name in shown["feature"]],
        orientation="h",
        marker={"color": PALETTE["accent1"]},
        **hovering(shown, _feature_hover),
    )
    figure.update_xaxes(title_text="share of the loss removed (%)", rangemode="tozero")
    figure.update_yaxes(title_text="feature", autorange="reversed", automargin=True)
    return figure


def _feature_hover(row: Any) -> str:
    share = f"<b>{feature_words(row.feature)}: {100 * row.share:.1f} %</b>"
    return f"{share}<br>of what all splits remove from the loss"


def feature_words(name: str) -> str:
    """Returns a feature's name in words: ``"loads per multiply add"``."""
    return name.replace("_", " ")


def leading_words(frame: pd.DataFrame) -> str:
    """Returns the first three features and their shares: ``"rows (41 %), accumulators (20 %)"``."""
    found = frame.head(3).itertuples()
    return ", ".join(f"{feature_words(row.feature)} ({100 * row.share:.0f} %)" for row in found)
