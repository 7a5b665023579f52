"""The parts of every figure: its layout, axes that double, and units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

from dietlab.compare.results.report import Report
from dietlab.problem.dims import Shape
from dietlab.view.lab import lab_imports
from dietlab.view.theme import CLEAR, GRID, OPEN, PALETTE, TEXT, ring

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MICRO = 1e6
"""Microseconds in a second: tables hold seconds, figures show microseconds."""

WIDE = 8
"""The least number of doublings between the ends of an axis that make it logarithmic."""

CORNER = 0.3
"""The share of a linear axis below which half of the lengths make it logarithmic: evenly spread lengths take
half of the axis, doubling ones less than this."""

DOUBLINGS: dict[str, Any] = {"type": "log", "dtick": math.log10(2), "tickformat": "d"}
"""The settings of a logarithmic axis with a tick at each doubling, written in full: 16384, not 16.384k."""


Axis = tuple[str, Mapping[str, Any]]
"""The column that goes on the x axis, and plotly's settings of it."""

RATIO_TICKS = [0.05, 0.1, 0.2, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 200]


def new_figure(
    frame: pd.DataFrame, title: str, template: str | None, nothing: str = "nothing was measured"
) -> go.Figure:
    """Returns an empty figure in the common style; it says ``nothing`` if there is nothing in ``frame`` to
    draw.

    Args:
        template: the name of plotly's template, such as ``"plotly_dark"``; None is a clear ground, which
            reads on light and on dark pages.
    """
    with lab_imports("figures"):
        import plotly.graph_objects as go
    cache = f" ({frame['cache'].iloc[0]} cache)" if "cache" in frame and len(frame) else ""
    figure = go.Figure()
    figure.update_layout(title_text=escape(title + cache), margin={"l": 70, "r": 20, "t": 50, "b": 50})
    if template is not None:
        figure.update_layout(template=template)
    else:
        figure.update_layout(template="none", paper_bgcolor=CLEAR, plot_bgcolor=CLEAR, font_color=TEXT)
        figure.update_xaxes(gridcolor=GRID, zerolinecolor=GRID)
        figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID)
    if frame.empty:
        middle = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
        figure.add_annotation(text=nothing, showarrow=False, **middle)
    return figure


def shape_axis(report: Report, shapes: Iterable[Shape] | None = None) -> Axis:
    """Returns the axis of a report's shapes, or of others: extents of one dimension, else texts."""
    dims = report.dims
    if len(dims) != 1:
        return "shape", {"title_text": "shape (extents)"}
    shown = (row.shape for row in report.rows) if shapes is None else shapes
    return extent_axis(dims[0], (shape[dims[0]] for shape in shown))


def extent_axis(dim: str, extents: Iterable[int]) -> Axis:
    """Returns the axis of a dimension, logarithmic if :func:`is_wide`."""
    return dim, {"title_text": f"{dim} (extent)", **(DOUBLINGS if is_wide(extents) else {})}


def in_order(texts: Iterable[str]) -> dict[str, Any]:
    """Returns the settings of an axis that has a place for each text, in their order."""
    return {"type": "category", "categoryorder": "array", "categoryarray": list(dict.fromkeys(texts))}


def speedup_title(report: Report) -> str:
    """Returns the title of an axis of speedups, which says who is faster above 1."""
    return f"speedup (above 1: {report.maker} faster)"


def is_wide(extents: Iterable[int]) -> bool:
    """Returns whether an axis is logarithmic: its ends are far apart, or half of the extents lie in the first
    :data:`CORNER` of a linear one. An extent of 0 has no place on a logarithmic axis."""
    every = {*extents}
    if not every or min(every) < 1:
        return False
    low, high = min(every), max(every)
    return high >= low << WIDE or (len(every) > 2 and median(every) - low < CORNER * (high - low))


def hovering(rows: pd.DataFrame, words: Callable[[Any], str]) -> dict[str, Any]:
    """Returns plotly's settings of a trace that shows ``words`` of each row under the pointer (HTML)."""
    return {"hoverinfo": "text", "hovertext": [words(row) for row in rows.itertuples()]}


def add_ring(figure: go.Figure, x: Any, y: Any, name: str, size: int = 16, **place: Any) -> None:
    """Adds rings around what was chosen, ``size`` pixels wide; their ``name`` is HTML."""
    look = {"mode": "markers", "hoverinfo": "skip", "marker": ring(size)}
    figure.add_scatter(x=x, y=y, name=name, **look, **place)


def add_legend_key(figure: go.Figure, name: str, colour: str, symbol: str = "square", size: int = 10) -> None:
    """Adds to the legend what a mark means; its ``name`` is HTML."""
    look = {"symbol": symbol, "size": size, "color": colour}
    figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=look)


def add_held_out_key(figure: go.Figure, frame: pd.DataFrame) -> None:
    """Adds what open marks mean to the legend, if the figure has any."""
    if frame["held_out"].any():
        add_legend_key(figure, "held out from tuning", PALETTE["muted"], f"circle{OPEN}", 7)
