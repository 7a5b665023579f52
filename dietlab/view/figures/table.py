"""Any table as a figure: its columns as lines, or as bars side by side."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dietlab.view.figures.base import DOUBLINGS, new_figure
from dietlab.view.theme import HEADLINES, accented

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def plot_table(table: pd.DataFrame, title: str, x: str, y: str, log_x: bool = False) -> go.Figure:
    """Draws each column of a table as a line over the table's index; missing values are skipped.

    Args:
        x, y: titles of the axes, with units.
        log_x: whether the x axis is logarithmic.
    """
    figure = new_figure(table, title, None)
    for number, name in enumerate(map(str, table.columns)):
        look = HEADLINES.get(name, accented(number))
        line = table[name].dropna()
        figure.add_scatter(
            x=line.index,
            y=line,
            name=escape(name),
            mode="lines+markers",
            hoverinfo="text",
            line=look.line,
            marker={"symbol": look.symbol},
            hovertext=[f"<b>{escape(name)}: {v:.4g}</b><br>{x}: {i}" for i, v in line.items()],
        )
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(title_text=x, **(DOUBLINGS if log_x else {}))
    figure.update_yaxes(title_text=y)
    return figure


def plot_bars(table: pd.DataFrame, title: str, y: str, x: str = "") -> go.Figure:
    """Draws the columns of a table as bars over its index, side by side. All rows have the same width, even
    if their names are numbers.

    Args:
        x, y: titles of the axes, with units.
    """
    figure = new_figure(table, title, None)
    for number, name in enumerate(map(str, table.columns)):
        bars = table[name].dropna()
        figure.add_bar(
            x=[str(place) for place in bars.index],
            y=bars,
            name=escape(name),
            marker={"color": accented(number).colour},
            hovertext=[f"<b>{escape(name)}: {v:.4g}</b><br>{escape(str(i))}" for i, v in bars.items()],
            hoverinfo="text",
        )
    figure.update_layout(barmode="group", legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(type="category", title_text=x)
    figure.update_yaxes(title_text=y)
    return figure
