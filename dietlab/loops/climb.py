"""The figure that climbs: steps on x, throughput on y, up to the roofline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dietlab.errors import DietlabError
from dietlab.loops.programs import BERT, Layer
from dietlab.loops.records import DIETLAB, Climb, step_named
from dietlab.loops.steps import STEPS
from dietlab.view.figures.base import new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROOM = 2.0
"""The ratio of the ends of the y-axis to the lowest and the highest of what the whole climb shows."""


def bounds(climb: Climb, layer: Layer) -> dict[str, float]:
    """Returns the roofline's two bounds on a layer's throughput, in GFLOP/s: the multiply-adds' peak, and
    what the last-level cache can deliver if each byte moves once.

    Raises:
        DietlabError: if the machine's were not measured.
    """
    hardware = climb.hardware
    if hardware.peak_gflops is None or hardware.l3_gbps is None:
        raise DietlabError("the machine's peak and bandwidth are measured", hardware.name)
    return {
        "peak": hardware.peak_gflops,
        "cache's bandwidth": hardware.l3_gbps * layer.flops / layer.moved_bytes,
    }


def frame_climb(climb: Climb, upto: str = STEPS[-1].name, T: int = BERT.T) -> pd.DataFrame:
    """Returns the steps up to one: throughput with its interval (GFLOP/s), the gain over the step before (a
    ratio) and the share of the roofline (of 1).

    Args:
        climb: times of steps.
        upto: the name of the last step shown.
        T: the length, in rows.

    Raises:
        RecordError: for a step or a length that was not timed.
    """
    import pandas as pd

    names = [step.name for step in STEPS]
    rows: list[dict[str, Any]] = []
    for name in names[: names.index(step_named(upto).name) + 1]:
        timed = climb.of(name, T)
        operations = timed.layer.flops / 1e9
        rows.append(
            {
                "step": name,
                "gflops": timed.gflops,
                "gflops_low": operations / timed.seconds_high,
                "gflops_high": operations / timed.seconds_low,
                "gain": timed.gflops / rows[-1]["gflops"] if rows else math.nan,
                "roofline": timed.gflops / min(bounds(climb, timed.layer).values()),
            }
        )
    return pd.DataFrame(rows).set_index("step")


def plot_climb(
    climb: Climb, upto: str = STEPS[-1].name, T: int = BERT.T, prediction: float | None = None
) -> go.Figure:
    """Draws the steps so far as bars, the last one strong, below the roofline and the goal; those to come
    have their place on the axis and no bar.

    Args:
        climb: times of steps.
        upto: the name of the last step shown.
        T: the length, in rows.
        prediction: GFLOP/s that a reader expects of the last step, drawn as a mark.

    Raises:
        DietlabError: for a prediction that is not positive.
        RecordError: for a step or a length that was not timed.
    """
    if prediction is not None and not prediction > 0:
        raise DietlabError("a predicted throughput is above 0 GFLOP/s", prediction)
    frame, names = frame_climb(climb, upto, T), [step.name for step in STEPS]
    figure = new_figure(frame, f"The climb at T = {T}", None)
    strong = [PALETTE["ours"] if name == upto else PALETTE["needed_too"] for name in frame.index]
    figure.add_bar(
        x=list(frame.index),
        y=frame["gflops"],
        marker={"color": strong},
        error_y={
            "type": "data",
            "array": frame["gflops_high"] - frame["gflops"],
            "arrayminus": frame["gflops"] - frame["gflops_low"],
            "color": PALETTE["muted"],
        },
        text=[f"{v:.3g}" for v in frame["gflops"]],
        textposition="outside",
        hoverinfo="text",
        hovertext=[f"<b>{n}</b>: {v:.3g} GFLOP/s" for n, v in frame["gflops"].items()],
    )
    if prediction is not None:
        mark = {"symbol": "diamond-wide", "size": 14, "color": PALETTE["selected"]}
        figure.add_scatter(x=[upto], y=[prediction], mode="markers", marker=mark, name="your prediction")
    layer, goal = climb.of(STEPS[0].name, T).layer, climb.of(DIETLAB, T).gflops
    lines = {**bounds(climb, layer), DIETLAB: goal}
    _draw_lines(figure, lines)
    low = min(climb.of(name, T).gflops for name in names)
    ends = [math.log10(low / ROOM), math.log10(max(lines.values()) * ROOM)]
    figure.update_xaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(names) - 0.4])
    figure.update_yaxes(title_text="throughput (GFLOP/s)", type="log", range=ends, dtick=1)
    figure.update_layout(showlegend=False)
    return figure


def _draw_lines(figure: go.Figure, lines: dict[str, float]) -> None:
    """Draws a level for each bound and the goal, its name above it at the left where no bar is high; the
    names of two that lie close stand beside each other."""
    looks = {DIETLAB: ("oracle", "dot"), "peak": ("muted", "solid")}
    below = 0.0
    for place, (name, value) in enumerate(sorted(lines.items(), key=lambda item: item[1])):
        colour, dash = looks.get(name, ("accent4", "dash"))
        figure.add_hline(y=value, line={"color": PALETTE[colour], "dash": dash, "width": 2})
        beside = below and value < 1.6 * below
        figure.add_annotation(
            x=0.26 if beside and place % 2 else 0.01,
            xref="paper",
            y=math.log10(value),
            text=f"{name}: {value:.3g}",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"color": PALETTE[colour]},
        )
        below = value
