"""Figures of a whole model's time by part: contractions, attention, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.compare.results.report import Report
from dietlab.view.figures.base import hovering, in_order, new_figure
from dietlab.view.theme import GRID, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

PARTS = {"contractions": PALETTE["accent1"], "attention": PALETTE["accent2"], "rest": PALETTE["muted"]}
"""The colour of each part of a call, in the order in which the bars are stacked."""

PANELS = 4
"""The most lengths that are drawn by default: the bars of more lengths could not be compared."""

MILLI = 1e3
"""The number of milliseconds in a second."""

GAP = 0.03
"""The gap between two panels, as a share of the figure's width."""


def frame_time_shares(report: Report) -> pd.DataFrame:
    """Returns one row for each length, contender and part of its call: ``share`` (0 to 1) and ``seconds`` of
    the median call. There are no rows if the model was not profiled (``dietlab model --shares``).

    Args:
        report: the report of a model that was profiled.
    """
    import pandas as pd

    rows = [
        {
            "T": row.shape[report.length],
            "contender": row.contender,
            "part": part,
            "share": getattr(row.shares, part),
            "seconds": getattr(row.shares, part) * row.seconds_median,
        }
        for row in report.rows
        if row.shares is not None
        for part in PARTS
    ]
    return pd.DataFrame(rows, columns=["T", "contender", "part", "share", "seconds"])


def plot_time_shares(
    report: Report, lengths: Sequence[int] | None = None, template: str | None = None
) -> go.Figure:
    """Draws a panel for each length, with a bar for each contender: the milliseconds of a call by part.

    Args:
        report: the report of a model that was profiled.
        lengths: the lengths to draw (default: at most :data:`PANELS`, from the shortest to the longest).
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        RecordError: if a length was not profiled.
    """
    frame = frame_time_shares(report)
    known = sorted(frame["T"].unique())
    if unknown := sorted(set(lengths or ()) - set(known)):
        raise RecordError(
            "a length must have been profiled", unknown, f"Known are {', '.join(map(str, known)) or 'none'}."
        )
    chosen = list(lengths) if lengths else _spread(known)
    figure = new_figure(frame, "Time of a call by part", template)
    for number, length in enumerate(chosen):
        _add_panel(figure, frame[frame["T"] == length], number, len(chosen))
    if chosen:
        # From the top; a contender that has no bar at a length keeps its place.
        names = list(dict.fromkeys(frame["contender"]))
        figure.update_yaxes(range=[len(names) - 0.5, -0.5], **in_order(names))
        figure.update_layout(yaxis={"title": {"text": "contender", "standoff": 10}})
    figure.update_layout(barmode="stack", legend={"orientation": "h", "y": -0.25}, margin={"l": 130})
    return figure


def _spread(known: Sequence[int]) -> list[int]:
    """Returns at most :data:`PANELS` lengths, spread evenly over the list, with both ends."""
    last = min(PANELS, len(known)) - 1
    return [known[round(number * (len(known) - 1) / max(1, last))] for number in range(last + 1)]


def _add_panel(figure: go.Figure, frame: pd.DataFrame, number: int, panels: int) -> None:
    """Adds the bars of one length on axes next to the previous length's."""
    axis = str(number + 1) if number else ""
    width = (1 + GAP) / panels
    for part, colour in PARTS.items():
        bars = frame[frame["part"] == part]
        figure.add_bar(
            x=MILLI * bars["seconds"],
            y=bars["contender"],
            orientation="h",
            name=part,
            legendgroup=part,
            showlegend=number == 0,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": colour, "line": {"width": 0}},
            **hovering(bars, _hover),
        )
    across = {
        "domain": [number * width, number * width + width - GAP],
        "anchor": f"y{axis}",
        "title": {"text": f"T={frame['T'].iloc[0]} (ms)"},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
    }
    down = {"anchor": f"x{axis}", "showticklabels": number == 0, "gridcolor": GRID}
    figure.update_layout({f"xaxis{axis}": across, f"yaxis{axis}": down})


def _hover(row: Any) -> str:
    where = f"<br>{row.share:.0%} of a call at T={row.T}"
    return f"<b>{escape(row.contender)}: {MILLI * row.seconds:.2f} ms in {row.part}</b>{where}"
