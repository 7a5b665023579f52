"""The picture that several puzzles share: work that is needed, and what is lost on top of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dietlab.view.figures.base import new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

NEEDED, LOST = PALETTE["needed"], PALETTE["wasted"]
"""Colours of every picture: work that an output needs, and what is lost."""

FEW = 16
"""The most bars that are all named."""


def stacked_bars(frame: pd.DataFrame, parts: Mapping[str, str], title: str, y_title: str) -> go.Figure:
    """Draws two columns of a table as stacked bars over its first column.

    Args:
        parts: the needed and the lost column by name, each with its words for people.
        y_title: of the vertical axis, with its unit.
    """
    figure = new_figure(frame, title, None)
    x = str(frame.columns[0])
    for (column, words), colour in zip(parts.items(), (NEEDED, LOST), strict=True):
        hover = [f"{x} {at}: {count} {words}" for at, count in zip(frame[x], frame[column], strict=True)]
        figure.add_bar(
            x=frame[x],
            y=frame[column],
            name=words,
            marker={"color": colour},
            hovertext=hover,
            hoverinfo="text",
        )
    figure.update_layout(barmode="stack", bargap=0.1)
    figure.update_xaxes(title_text="T (rows)" if x == "T" else f"{x} (number)")
    if len(frame) <= FEW:
        figure.update_xaxes(tickvals=list(frame[x]))
    figure.update_yaxes(title_text=y_title)
    return figure
