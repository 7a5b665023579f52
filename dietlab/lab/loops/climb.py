"""The climb as a reader sees it: each step's reason, primitives and loops, and the figure that climbs."""

from __future__ import annotations

import inspect
import math
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError
from dietlab.lab.loops.programs import BERT, Layer, nest, scheduled
from dietlab.lab.loops.records import DIETLAB, Climb, step_named
from dietlab.lab.loops.steps import STEPS, before, change_of
from dietlab.view.figures.base import new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROOM = 2.5
"""The ratio of the ends of the y-axis to the lowest and the highest of what the whole climb shows."""

LINES = {DIETLAB: ("oracle", "dot"), "peak": ("muted", "solid")}
"""Roles of colours, and dashes, of the goal and the peak."""


def bounds(climb: Climb, layer: Layer) -> dict[str, float]:
    """Returns the roofline's two bounds on a layer's throughput, in GFLOP/s: the multiply-adds' peak, and
    what the last-level cache can deliver if each byte moves once.

    Args:
        climb: whose machine it is.
        layer: of which the operations and bytes are counted.

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
    """Returns the steps up to one: throughput with its interval (GFLOP/s), the gain over the step that it
    changes (a ratio) and the share of the roofline (of 1).

    Args:
        climb: times of steps.
        upto: the name of the last step shown.
        T: the length, in rows.

    Raises:
        RecordError: for a step or a length that was not timed.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for step in STEPS[: STEPS.index(step_named(upto)) + 1]:
        timed = climb.of(step.name, T)
        operations = timed.layer.flops / 1e9
        rows.append(
            {
                "step": step.name,
                "gflops": timed.gflops,
                "gflops_low": operations / timed.seconds_high,
                "gflops_high": operations / timed.seconds_low,
                "gain": timed.gflops / climb.of(before(step).name, T).gflops if rows else math.nan,
                "roofline": timed.gflops / min(bounds(climb, timed.layer).values()),
            }
        )
    return pd.DataFrame(rows).set_index("step")


def plot_climb(climb: Climb, upto: str = STEPS[-1].name, T: int = BERT.T) -> go.Figure:
    """Draws the steps so far as bars, the last one strong, below the roofline and the goal; those to come
    have their place on the axis and no bar.

    Args:
        climb: times of steps.
        upto: the name of the last step shown.
        T: the length, in rows.

    Raises:
        DietlabError: if the machine's peak and bandwidth were not measured.
        RecordError: for a step or a length that was not timed.
    """
    frame, names = frame_climb(climb, upto, T), [step.name for step in STEPS]
    layer = climb.of(STEPS[0].name, T).layer
    lines = {**bounds(climb, layer), DIETLAB: climb.of(DIETLAB, T).gflops}
    low = min(climb.of(name, T).gflops for name in names) / ROOM
    figure = new_figure(frame, f"The climb at T = {T}", None)
    _draw_bars(figure, frame, upto, low)
    for name, value in lines.items():
        colour, dash = LINES.get(name, ("accent4", "dash"))
        look = {"color": PALETTE[colour], "dash": dash, "width": 2}
        ends = {"x": [names[0], names[-1]], "y": [value, value]}
        figure.add_scatter(**ends, mode="lines", line=look, name=f"{name}: {value:,.0f}", hoverinfo="name")
    shown = [math.log10(low), math.log10(max(lines.values()) * ROOM)]
    figure.update_xaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(names) - 0.4])
    figure.update_yaxes(title_text="throughput (GFLOP/s)", type="log", range=shown, dtick=1)
    figure.update_layout(showlegend=True)
    return figure


def _draw_bars(figure: go.Figure, frame: pd.DataFrame, upto: str, low: float) -> None:
    """Draws a bar for each step, its value at its foot, where no line crosses it."""
    names = list(frame.index)
    figure.add_bar(
        x=names,
        y=frame["gflops"],
        marker={"color": [PALETTE["ours"] if name == upto else PALETTE["needed"] for name in names]},
        error_y={
            "type": "data",
            "array": frame["gflops_high"] - frame["gflops"],
            "arrayminus": frame["gflops"] - frame["gflops_low"],
            "color": PALETTE["muted"],
        },
        hoverinfo="text",
        hovertext=[f"<b>{name}</b>: {v:.3g} GFLOP/s" for name, v in frame["gflops"].items()],
        showlegend=False,
    )
    figure.add_scatter(
        x=names,
        y=[1.05 * low] * len(names),
        mode="text",
        text=[f"{v:.3g}" for v in frame["gflops"]],
        textposition="top center",
        textfont={"color": "white"},
        hoverinfo="skip",
        showlegend=False,
    )


def told(name: str, layer: Layer = BERT) -> str:
    """Returns a step as a text: why, the schedule's primitives, and the loops before and after.

    Args:
        name: of a step.
        layer: the extents of the loops.

    Raises:
        MissingDependencyError: without TVM.
        RecordError: for another name.
    """
    step = step_named(name)
    after = nest(scheduled(step, layer))
    if not step.recipe:
        return f"{step.why}\n\n{after}"
    source = inspect.getsource(change_of(step))
    primitives = dedent(source.rpartition('"""')[2]).strip()
    earlier = nest(scheduled(before(step), layer))
    return f"{step.why}\n\n{primitives}\n\nbefore\n{indent(earlier, '  ')}\nafter\n{indent(after, '  ')}"
