"""Speedups of a report over several dynamic dimensions: by layer and by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.compare.results import Part, Report
from dietlab.problem import Shape
from dietlab.view.figures.base import in_order, speedup_title
from dietlab.view.figures.ratios import plot_ratios, where_words
from dietlab.view.figures.results import cache_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

NUMBERS = ("shapes", "geomean_speedup", "geomean_speedup_held_out", "worst_speedup", "worst_shape")


def frame_layers(report: Report) -> pd.DataFrame:
    """Returns a table with one row for each cache state, layer and contender; layers ascend.

    Columns: ``cache``, ``contender`` (with ``best prepacked vendor`` and ``best plain vendor``), ``layer`` as
    a text, one column for each of the layer's extents, ``held_out`` (whether all shapes are held out),
    ``shapes`` (their number), ``geomean_speedup``, ``geomean_speedup_held_out`` (missing if no shape is held
    out), ``worst_speedup`` and ``worst_shape``. Speedups are above 1 where the report's maker is faster.

    Args:
        report: a report over layers of several sizes.

    Raises:
        RecordError: if the report does not have several dynamic dimensions.
    """
    return _frame(report, report.by_layer, "layer")


def frame_lengths(report: Report) -> pd.DataFrame:
    """Returns the table of :func:`frame_layers` by length, over all layers. Instead of the columns of the
    layer it has ``length`` as a text and the least and the greatest length, such as ``low_T`` and ``high_T``.

    Args:
        report: a report over layers of several sizes.

    Raises:
        RecordError: if the report does not have several dynamic dimensions.
    """
    return _frame(report, report.by_length, "length")


def _frame(report: Report, parts: Sequence[Part], what: str) -> pd.DataFrame:
    import pandas as pd

    if len(report.dims) < 2:
        raise RecordError(
            f"a report by {what} must have several dynamic dimensions",
            ", ".join(report.dims) or "none",
            "frame_speedup() and plot_speedup() show a report of one dimension.",
        )
    ascending = sorted(parts, key=lambda part: tuple(part.columns.values()))
    ordered = sorted(ascending, key=lambda part: report.caches.index(part.summary.cache))
    rows = [
        {
            "cache": part.summary.cache,
            "contender": part.summary.contender,
            what: part.where,
            **part.columns,
            "held_out": part.held_out,
            **{name: asdict(part.summary)[name] for name in NUMBERS},
            "worst_shape": str(Shape.from_json(part.summary.worst_shape)),
        }
        for part in ordered
    ]
    frame = pd.DataFrame(rows, columns=None if rows else ["cache", "contender", what, "held_out", *NUMBERS])
    return frame.astype({"geomean_speedup_held_out": float})


def plot_layers(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the speedup over each contender by layer: the geometric mean over the layer's lengths, and a line
    down to the worst length. Open marks are layers without a tuned shape.

    Args:
        report: a report over layers of several sizes.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        RecordError: if the report does not have several dynamic dimensions, or no such cache state.
    """
    return _drawn(frame_layers(report), report, cache, "layer", template)


def plot_lengths(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the speedup over each contender by length: the geometric mean over all layers, and a line down to
    the worst layer.

    Args:
        report, cache, template: as in :func:`plot_layers`.

    Raises:
        RecordError: as :func:`plot_layers`.
    """
    return _drawn(frame_lengths(report), report, cache, "length", template)


def _drawn(
    frame: pd.DataFrame, report: Report, cache: str | None, what: str, template: str | None
) -> go.Figure:
    shown = frame[frame["cache"] == cache_of(report, cache)]
    maker = escape(report.maker)

    def hover(row: Any) -> str:
        where = where_words(row, getattr(row, what))
        return (
            f"<b>{maker} is {row.geomean_speedup:.2f} times as fast as {escape(row.contender)}</b>"
            f"<br>{where}: geometric mean over {row.shapes} shapes"
            f"<br>worst {row.worst_speedup:.2f} at {escape(row.worst_shape)}"
        )

    return plot_ratios(
        shown,
        f"Speedup of {report.maker} by {what}",
        template,
        (what, {"title_text": f"{what} (extents)", **in_order(shown[what])}),
        hover,
        speedup_title(report),
        y="geomean_speedup",
        ends=("worst_speedup", "geomean_speedup"),
        size=8,
        # A line between layers would say that there is something in between.
        mode="markers" if what == "layer" else "lines+markers",
    )
