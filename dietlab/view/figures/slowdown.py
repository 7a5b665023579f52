"""The figure of several lines' times over the time of a reference, against T."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.view.figures.base import MICRO, extent_axis
from dietlab.view.figures.ratios import faster_words, plot_ratios
from dietlab.view.theme import HEADLINES, PALETTE, Style, muted

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Times = Mapping[int, float]
"""The time of one call in microseconds, by T."""

TICKS = [0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100]

Y_TITLE = "time ratio (below 1: faster)"
"""The title of the y axis, without the name of the reference so that it always fits: the figure's title has
the name."""


def frame_slowdown(lines: Mapping[str, Times], reference: tuple[str, Times]) -> pd.DataFrame:
    """Returns one row for each line and each T that both the line and the reference have: ``seconds`` and
    ``reference_seconds`` of a call, and ``slowdown``, their ratio (below 1 the line is faster).

    Args:
        lines: the lines by name, each with microseconds by T; a T may be missing.
        reference: a name and its microseconds by T.

    Raises:
        RecordError: if a time is not positive and finite, or a line shares no T with the reference.
    """
    import pandas as pd

    judge, known = reference
    rows: list[tuple[str, int, float, float, float]] = []
    for name, times in {**lines, judge: known}.items():
        for extent, time in times.items():
            if not (time > 0 and math.isfinite(time)):
                raise RecordError("a time must be positive and finite, in us", f"{time} ({name}, T={extent})")
    for name, times in lines.items():
        shared = sorted(set(times) & set(known))
        if not shared:
            raise RecordError(
                f"a line must have a T in common with {judge}", name, "Ratios need both times of one shape."
            )
        rows += [(name, int(t), times[t] / MICRO, known[t] / MICRO, times[t] / known[t]) for t in shared]
    return pd.DataFrame(rows, columns=["line", "T", "seconds", "reference_seconds", "slowdown"])


def plot_slowdown(
    lines: Mapping[str, Times], reference: tuple[str, Times], template: str | None = None
) -> go.Figure:
    """Draws each line's time over the reference's against T, on a log axis; the reference is the dashed line
    at 1. A line has points only where the reference has a time, too. The last line and a line called
    ``oracle`` stand out; the others are grey.

    Args:
        lines: the lines by name, each with microseconds by T.
        reference: a name and its microseconds by T; each line is divided by it.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_slowdown(lines, reference)
    judge = reference[0]
    newest = next((name for name in reversed(list(lines)) if name not in HEADLINES), None)
    figure = plot_ratios(
        frame.assign(held_out=False),
        f"Time of one call against {judge}",
        template,
        extent_axis("T", frame["T"]),
        partial(_hover, judge),
        Y_TITLE,
        "slowdown",
        TICKS,
        tie=False,
        by="line",
        looks={name: _look(name, number, newest) for number, name in enumerate(lines)},
        size=7,
    )
    _add_reference(figure, frame, reference)
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    return figure


def _look(name: str, number: int, newest: str | None) -> Style:
    """Returns the look of a line. Its number decides its symbol and, if it is grey, its dash, so that later
    lines change neither."""
    if name in HEADLINES:
        return HEADLINES[name]
    look = muted(number)
    return look._replace(colour=PALETTE["ours"], dash="solid", width=3) if name == newest else look


def _add_reference(figure: go.Figure, frame: pd.DataFrame, reference: tuple[str, Times]) -> None:
    """Adds the dashed line at 1, as far as the lines go."""
    judge, times = reference
    low, high = (frame["T"].min(), frame["T"].max()) if len(frame) else (min(times), max(times))
    extents = sorted(extent for extent in times if low <= extent <= high)
    figure.add_scatter(
        x=extents,
        y=[1.0] * len(extents),
        name=escape(judge),
        mode="lines",
        line={"color": PALETTE["best_vendor"], "dash": "dash", "width": 2},
        hoverinfo="text",
        hovertext=[f"<b>{escape(judge)}: {times[t]:.0f} us</b><br>T={t}" for t in extents],
    )


def _hover(judge: str, row: Any) -> str:
    times = f"{MICRO * row.seconds:.0f} us against {MICRO * row.reference_seconds:.0f} us"
    return f"{faster_words(1 / row.slowdown, row.line, judge)}<br>T={row.T}: {times}"
