"""Lines over shapes, one for each contender, layer or idea: ratios on a log axis, and texts about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.view.figures.base import RATIO_TICKS, Axis, add_held_out_key, hovering, new_figure
from dietlab.view.theme import TIE, Style, legend_rank, marks, styles

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MANY = 40
"""The least number of points of a line with small marks; large ones would hide the line."""

Hover = Callable[[Any], str]
"""A function from a row of a table, a named tuple, to the hover text (HTML) of its point."""


def plot_ratios(
    frame: pd.DataFrame,
    title: str,
    template: str | None,
    axis: Axis,
    hover: Hover,
    y_title: str,
    y: str = "speedup",
    ticks: Sequence[float] = RATIO_TICKS,
    tie: bool = True,
    **look: Any,
) -> go.Figure:
    """Draws a ratio over shapes, layers or lengths, as lines of :func:`plot_lines` on a log axis with
    ``ticks``. ``tie`` adds a line at 1, where both times are equal."""
    figure = plot_lines(frame, title, template, axis, y, hover, **look)
    if tie:
        figure.add_hline(y=1, line=TIE)
    texts = [f"{tick:g}" for tick in ticks]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=texts, title_text=y_title)
    return figure


def plot_lines(
    frame: pd.DataFrame,
    title: str,
    template: str | None,
    axis: Axis,
    y: str,
    hover: Hover,
    by: str = "contender",
    looks: Mapping[str, Style] | None = None,
    ends: tuple[str, str] | None = None,
    size: float | None = None,
    mode: str = "lines+markers",
) -> go.Figure:
    """Draws a line for each value of the column ``by``; shapes held out from tuning have open marks.

    Args:
        frame: a table with one row for each point.
        axis: the column on the x axis, and plotly's settings of this axis.
        y: the column that is drawn.
        looks: the lines' styles by name; lines are drawn in the order of the table. By default lines are
            contenders, and headlines are drawn above the rivals and named first.
        ends: the columns with the lower and the upper end of a bar about each point.
        size: the width of the marks, in pixels (default: by the line's width; small if there are many).
        mode: plotly's mode of the traces, such as ``"lines+markers"``.
    """
    figure = new_figure(frame, title, template)
    x, settings = axis
    figure.update_xaxes(**settings)
    found = styles(frame[by]) if looks is None else looks
    ranks = {name: legend_rank(name if looks is None else "") for name in found}
    parts = ((str(name), part) for name, part in frame.groupby(by, sort=False))
    for name, part in sorted(parts, key=lambda named: -ranks[named[0]]):
        look = found[name]
        figure.add_scatter(
            x=part[x],
            y=part[y],
            name=escape(name),
            mode=mode,
            error_y=None if ends is None else _bars(part, y, *ends),
            line=look.line,
            marker={
                "symbol": marks(look.symbol, part["held_out"]),
                "size": size or (4 if len(part) > MANY else 4 + look.width),
            },
            legendrank=ranks[name],
            **hovering(part, hover),
        )
    add_held_out_key(figure, frame)
    return figure


def _bars(part: pd.DataFrame, y: str, low: str, high: str) -> dict[str, Any]:
    above, below = (part[high] - part[y]).clip(lower=0), (part[y] - part[low]).clip(lower=0)
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1}


def faster_words(ratio: float, one: str, other: str) -> str:
    """Returns which of two contenders is faster and by how much (HTML). The ratio is the other's time over
    the time of ``one``."""
    faster, slower = (one, other) if ratio >= 1 else (other, one)
    return f"<b>{escape(faster)} is {max(ratio, 1 / ratio):.2f} times as fast as {escape(slower)}</b>"


def where_words(row: Any, where: str) -> str:
    """Returns a text: a shape or a layer, and whether it was held out."""
    return f"{escape(where)}{', held out from tuning' if row.held_out else ''}"
