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
"""The number of microseconds in a second: tables hold seconds, figures show microseconds."""

WIDE = 8
"""The least number of doublings between the ends of an axis that make the axis logarithmic."""

CORNER = 0.3
"""The first share of a linear axis: if half of the extents lie in it, the axis becomes logarithmic. Half of
evenly spread extents take half of the axis; half of doubling extents take less than this share."""

DOUBLINGS: dict[str, Any] = {"type": "log", "dtick": math.log10(2), "tickformat": "d"}
"""The settings of a logarithmic axis with a tick at each doubling. Numbers are written in full: 16384, not
16.384k."""


Axis = tuple[str, Mapping[str, Any]]
"""The column that goes on the x axis, and plotly's settings of it."""

RATIO_TICKS = [0.05, 0.1, 0.2, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 200]


def new_figure(
    frame: pd.DataFrame, title: str, template: str | None, nothing: str = "nothing was measured"
) -> go.Figure:
    """Returns an empty figure in the common style; it shows the text ``nothing`` if ``frame`` has no rows.

    Args:
        template: a plotly template, such as ``"plotly_dark"``; None gives a transparent background, which
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
    """Returns the axis of ``shapes`` (default: the report's): extents if there is one dimension, else
    texts."""
    dims = report.dims
    if len(dims) != 1:
        return "shape", {"title_text": "shape (extents)"}
    shown = (row.shape for row in report.rows) if shapes is None else shapes
    return extent_axis(dims[0], (shape[dims[0]] for shape in shown))


def extent_axis(dim: str, extents: Iterable[int]) -> Axis:
    """Returns the axis of a dimension; it is logarithmic if :func:`is_wide` holds."""
    return dim, {"title_text": f"{dim} (extent)", **(DOUBLINGS if is_wide(extents) else {})}


def in_order(texts: Iterable[str]) -> dict[str, Any]:
    """Returns plotly's settings of an axis of texts, in the given order."""
    return {"type": "category", "categoryorder": "array", "categoryarray": list(dict.fromkeys(texts))}


def speedup_title(report: Report) -> str:
    """Returns the title of an axis of speedups; the title names the report's maker, which is faster above
    1."""
    return f"speedup (above 1: {report.maker} faster)"


def is_wide(extents: Iterable[int]) -> bool:
    """Returns whether an axis is logarithmic. It is if its ends are at least :data:`WIDE` doublings apart, or
    if half of the extents lie in the first :data:`CORNER` of a linear axis. An axis with an extent of 0 is
    linear."""
    every = {*extents}
    if not every or min(every) < 1:
        return False
    low, high = min(every), max(every)
    return high >= low << WIDE or (len(every) > 2 and median(every) - low < CORNER * (high - low))


def hovering(rows: pd.DataFrame, words: Callable[[Any], str]) -> dict[str, Any]:
    """Returns plotly's settings of a trace whose hover texts (HTML) are ``words(row)`` for each row."""
    return {"hoverinfo": "text", "hovertext": [words(row) for row in rows.itertuples()]}


def add_ring(figure: go.Figure, x: Any, y: Any, name: str, size: int = 16, **place: Any) -> None:
    """Adds rings around the points ``x, y``, ``size`` pixels wide; ``name`` is their legend entry (HTML)."""
    look = {"mode": "markers", "hoverinfo": "skip", "marker": ring(size)}
    figure.add_scatter(x=x, y=y, name=name, **look, **place)


def add_legend_key(figure: go.Figure, name: str, colour: str, symbol: str = "square", size: int = 10) -> None:
    """Adds a legend entry that explains a mark; ``name`` is HTML."""
    look = {"symbol": symbol, "size": size, "color": colour}
    figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=look)


def add_held_out_key(figure: go.Figure, frame: pd.DataFrame) -> None:
    """Adds a legend entry that explains open marks, if the figure has any."""
    if frame["held_out"].any():
        add_legend_key(figure, "held out from tuning", PALETTE["muted"], f"circle{OPEN}", 7)
