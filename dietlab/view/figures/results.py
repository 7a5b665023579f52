"""Figures in two halves: ``frame_x`` gives a tidy table, ``plot_x`` draws it with plotly.

Figures have no background, so they read on light and on dark pages; give ``template="plotly_white"`` or
``"plotly_dark"`` for a figure that stands alone. Wrong results are in the tables (``correct`` is False) but
are never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import Row, fastest, with_reasons
from dietlab.view.figures.base import MICRO, shape_axis, speedup_title
from dietlab.view.figures.ratios import Hover, faster_words, plot_lines, plot_ratios, where_words
from dietlab.view.theme import TIE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


# --- tables -----------------------------------------------------------------------------------


def frame_speedup(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns, for each shape, the speedup of the report's maker (usually dietlab) over each contender: a
    ratio, above 1 where the maker is faster.

    Besides the contenders there are ``best prepacked vendor`` and ``best plain vendor``, the fastest of their
    kind for each shape (``fastest`` names it), as in ``report.summary``. The table also has both medians (the
    maker's is ``own_seconds``) and the maker's scheme. Wrong results are left out.

    Args:
        report: the report of :func:`~dietlab.evaluate`.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
    """
    every = _rows(report, cache)
    rows = [r for r in every if r.correct and r.speedup and math.isfinite(r.speedup)]
    rows = [r for r in rows if r.contender != report.maker]
    ours = {r.shape: r for r in every if r.contender == report.maker}
    kinds = {c.name: c.kind for c in report.contenders}
    named = [(row.contender, row) for row in rows]
    for kind in ("prepacked", "plain"):
        best = fastest([r for r in rows if kinds.get(r.contender) == kind])
        named += [(f"best {kind} vendor", row) for row in best]

    def more(name: str, row: Row) -> dict[str, Any]:
        own = ours.get(row.shape)
        known = {"own_seconds": own.seconds_median, "plan": own.plan} if own else {"plan": None}
        return {"contender": name, "fastest": row.contender, **known}

    columns = ("speedup", "seconds_median", "own_seconds", "fastest", "plan")
    return _table(report, columns, ((row, more(name, row)) for name, row in named))


def frame_latency(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns the median time and its 95 % interval, in seconds, for each shape and contender.

    Args:
        report, cache: as in :func:`frame_speedup`.
    """
    columns = ("seconds_median", "seconds_low", "seconds_high", "correct", "plan")
    return _table(report, columns, _judged(report, cache))


def frame_throughput(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns, for each shape and contender, GFLOP/s and two reached shares (1 is all): of the ``peak`` (the
    FMA peak of all cores) and of the ``roofline``.

    Args:
        report, cache: as in :func:`frame_speedup`.
    """
    frame = _table(report, ("gflops", "peak", "roofline", "correct", "plan"), _judged(report, cache))
    peak = peak_gflops(report)
    return frame if peak is None else frame.assign(peak=frame["gflops"] / peak)


def frame_padding(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns the share of the maker's multiply-adds that no output needs, for each shape.

    Args:
        report, cache: as in :func:`frame_speedup`.
    """
    rows = (r for r in _rows(report, cache) if r.contender == report.maker and r.padding_waste is not None)
    return _table(report, ("padding_waste", "plan"), ((row, {}) for row in rows))


def peak_gflops(report: Report) -> float | None:
    """Returns the FMA peak of all cores together; None where it was never measured."""
    one = report.hardware.get("peak_gflops")
    return None if one is None else float(one) * int(report.hardware.get("cores", 1))


def cache_of(report: Report, cache: str | None) -> str | None:
    """Returns the given cache state. For None, returns the report's first one, or None if the report has
    none."""
    if cache is not None and cache not in report.caches:
        rule = "the report must have the cache state"
        raise RecordError(rule, repr(cache), f"It has: {', '.join(report.caches) or 'none'}.")
    return cache if cache is not None else next(iter(report.caches), None)


def _rows(report: Report, cache: str | None) -> list[Row]:
    chosen = cache_of(report, cache)
    return [row for row in report.rows if row.cache == chosen]


def _judged(report: Report, cache: str | None) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields every row together with ``correct``, False for a wrong or a missing result."""
    for row in _rows(report, cache):
        yield row, {"correct": bool(row.correct)}


def _table(
    report: Report, columns: Sequence[str], rows: Iterable[tuple[Row, Mapping[str, Any]]]
) -> pd.DataFrame:
    """Returns a table of rows, each with its extra values, sorted by the dimensions; a table without rows has
    the same columns. A ``plan`` becomes its ``scheme`` with the parameters, and a ``reason``: see
    :meth:`Report.to_frame`."""
    import pandas as pd

    dims, names = list(report.dims), ("held_out", "contender", "cache", *columns)
    values = [
        {
            **row.shape.to_json(),
            "shape": str(row.shape),
            **{name: getattr(row, name, None) for name in names},
            **more,
        }
        for row, more in rows
    ]
    frame = pd.DataFrame(values, columns=[*dims, "shape", *names])
    frame = with_reasons(frame, [report.hardware.get("kind", "cpu")])
    return frame.sort_values(dims, kind="stable", ignore_index=True) if dims else frame


# --- figures ----------------------------------------------------------------------------------


def plot_speedup(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the speedup of the report's maker over each contender against the shape; the line at 1 is a tie.

    Args:
        report, cache: as in :func:`frame_speedup`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_speedup(report, cache)
    title = f"Speedup of {report.maker} over each contender"
    hover = partial(_speedup_hover, report.maker)
    return plot_ratios(frame, title, template, shape_axis(report), hover, speedup_title(report))


def plot_latency(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the median time of each contender with its 95 % interval.

    Args:
        report, cache, template: as in :func:`plot_speedup`.
    """
    frame = frame_latency(report, cache)
    us = {name: MICRO * frame[f"seconds_{name}"] for name in ("low", "median", "high")}
    shown = frame.assign(**us)[frame["correct"].eq(True)]
    look = {"ends": ("low", "high")}
    figure = _lines(report, shown, "Time of one call", template, "median", _latency_words, **look)
    figure.update_yaxes(type="log", title_text="time (us, median with 95 % interval)")
    return figure


def plot_throughput(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws GFLOP/s of each contender below the FMA peak of the cores used.

    Args:
        report, cache, template: as in :func:`plot_speedup`.
    """
    frame = frame_throughput(report, cache)
    shown = frame[frame["correct"].eq(True)]
    figure = _lines(report, shown, "Throughput", template, "gflops", _throughput_words)
    peak = peak_gflops(report)
    if peak is not None:
        note = f"FMA peak {peak:.0f} GFLOP/s"
        figure.add_hline(y=peak, line=TIE, annotation_text=note, annotation_position="top left")
    figure.update_yaxes(rangemode="tozero", title_text="throughput (GFLOP/s)")
    return figure


def plot_padding(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the share of the maker's work that is padding, for each shape.

    Args:
        report, cache, template: as in :func:`plot_speedup`.
    """
    frame = frame_padding(report, cache)
    frame = frame.assign(percent=100 * frame["padding_waste"])
    title = f"Padding waste of {report.maker}"

    def words(row: Any) -> str:
        return f"<b>{row.percent:.1f} % of the multiply-adds are padding</b>"

    figure = _lines(report, frame, title, template, "percent", words)
    figure.update_yaxes(rangemode="tozero", title_text="padding waste (% of multiply-adds)")
    return figure


def _lines(
    report: Report, frame: pd.DataFrame, title: str, template: str | None, y: str, words: Hover, **look: Any
) -> go.Figure:
    def hover(row: Any) -> str:
        return f"{words(row)}{_where(report.maker, row)}"

    return plot_lines(frame, title, template, shape_axis(report), y, hover, **look)


def _where(maker: str, row: Any) -> str:
    plan = f"<br>plan of {escape(maker)}: {escape(row.scheme)}" if isinstance(row.scheme, str) else ""
    return f"<br>{where_words(row, row.shape)}{plan}"


def _speedup_hover(maker: str, row: Any) -> str:
    who = "" if row.fastest == row.contender else f" ({row.fastest})"
    # A shape that the maker got wrong or skipped has no time; a published ratio may have none at all.
    times = {maker: row.own_seconds, row.contender + who: row.seconds_median}
    known = {name: time for name, time in times.items() if time is not None and not math.isnan(time)}
    said = "".join(f"<br>{escape(name)} {MICRO * time:.0f} us" for name, time in known.items())
    return f"{faster_words(row.speedup, maker, row.contender)}{said}{_where(maker, row)}"


def _latency_words(row: Any) -> str:
    interval = f"95 % interval {row.low:.1f} to {row.high:.1f} us"
    return f"<b>{escape(row.contender)}: {row.median:.1f} us</b><br>{interval}"


def _throughput_words(row: Any) -> str:
    limits = {"FMA peak": row.peak, "roofline": row.roofline}
    known = {name: share for name, share in limits.items() if share is not None and not math.isnan(share)}
    said = "".join(f"<br>{100 * share:.0f} % of the {name}" for name, share in known.items())
    return f"<b>{escape(row.contender)}: {row.gflops:.1f} GFLOP/s</b>{said}"
