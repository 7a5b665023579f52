"""Figures in two halves: ``frame_x`` gives a tidy table, ``plot_x`` draws it with plotly.

Figures have no background, so they read on light and on dark pages; give
``template="plotly_white"`` or ``"plotly_dark"`` for one that stands alone. Results that were
wrong are in the tables (``correct``) but never drawn: a wrong result has no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import Row, fastest, with_reasons
from dietlab.view.figures.base import (
    MICRO,
    RATIO_TICKS,
    add_held_out_key,
    name_x_axis,
    new_figure,
    speedup_title,
)
from dietlab.view.theme import TIE, legend_rank, marks, styles

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MANY = 40
"""Points of a line from which on they are drawn small: they would hide the line."""


# --- tables -----------------------------------------------------------------------------------


def frame_speedup(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns the speedup of the report's maker, dietlab, over each contender (a ratio; above 1: the maker is
    faster) for each shape.

    Besides the contenders there are ``best prepacked vendor`` and ``best plain vendor``, the
    fastest of their kind for each shape, as in ``report.summary``; ``fastest`` is who. Beside the medians
    of both, ``own_seconds`` being the maker's, stands the maker's scheme. ``cache=None`` is the first cache
    state of the report. Wrong results are left out.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
    """
    rows = [r for r in _rows(report, cache) if r.correct and r.speedup and math.isfinite(r.speedup)]
    rows = [r for r in rows if r.contender != report.maker]
    ours = {r.shape: r for r in _rows(report, cache) if r.contender == report.maker}
    kinds = {c.name: c.kind for c in report.contenders}
    named = [(row.contender, row) for row in rows]
    for kind in ("prepacked", "plain"):
        best = fastest([r for r in rows if kinds.get(r.contender) == kind])
        named += [(f"best {kind} vendor", row) for row in best]
    columns = ("speedup", "seconds_median", "own_seconds", "fastest", "plan")
    return _table(
        report,
        columns,
        (
            {
                **_key(row),
                "contender": name,
                "speedup": row.speedup,
                "seconds_median": row.seconds_median,
                "fastest": row.contender,
                "own_seconds": ours[row.shape].seconds_median if row.shape in ours else None,
                "plan": ours[row.shape].plan if row.shape in ours else None,
            }
            for name, row in named
        ),
    )


def frame_latency(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns the median time and its 95 % interval, in seconds, for each shape and contender.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
    """
    return _table(
        report,
        ("seconds_median", "seconds_low", "seconds_high", "correct", "plan"),
        (
            {
                **_key(row),
                "seconds_median": row.seconds_median,
                "seconds_low": row.seconds_low,
                "seconds_high": row.seconds_high,
                "correct": bool(row.correct),
                "plan": row.plan,
            }
            for row in _rows(report, cache)
        ),
    )


def frame_throughput(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns GFLOP/s, and as shares of 1 the ``peak`` (the FMA peak of all cores) and the ``roofline``
    reached.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
    """
    peak = peak_gflops(report)
    return _table(
        report,
        ("gflops", "peak", "roofline", "correct", "plan"),
        (
            {
                **_key(row),
                "gflops": row.gflops,
                "correct": bool(row.correct),
                "plan": row.plan,
                "peak": None if peak is None else row.gflops / peak,
                "roofline": row.roofline,
            }
            for row in _rows(report, cache)
        ),
    )


def frame_padding(report: Report, cache: str | None = None) -> pd.DataFrame:
    """Returns the share of the maker's multiply-adds that no output needs, for each shape.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
    """
    return _table(
        report,
        ("padding_waste", "plan"),
        (
            {**_key(row), "padding_waste": row.padding_waste, "plan": row.plan}
            for row in _rows(report, cache)
            if row.contender == report.maker and row.padding_waste is not None
        ),
    )


def peak_gflops(report: Report) -> float | None:
    """Returns the FMA peak of all cores together; None where it was never measured."""
    one = report.hardware.get("peak_gflops")
    return None if one is None else float(one) * int(report.hardware.get("cores", 1))


def cache_of(report: Report, cache: str | None) -> str | None:
    """Returns the cache state, or the report's first one for None; None if it has none.

    Raises:
        RecordError: if the report does not have it.
    """
    if cache is not None and cache not in report.caches:
        raise RecordError(
            "the report has this cache state", repr(cache), f"It has: {', '.join(report.caches) or 'none'}."
        )
    return cache if cache is not None else next(iter(report.caches), None)


def _rows(report: Report, cache: str | None) -> list[Row]:
    chosen = cache_of(report, cache)
    return [row for row in report.rows if row.cache == chosen]


def _key(row: Row) -> dict[str, Any]:
    return {
        **row.shape.to_json(),
        "shape": str(row.shape),
        "held_out": row.held_out,
        "contender": row.contender,
        "cache": row.cache,
    }


def _table(report: Report, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Returns a table with equal columns whether or not there are rows, in order of the dimensions. A
    ``plan`` becomes its ``scheme`` with the parameters, and a ``reason``: see
    :meth:`Report.to_frame`."""
    import pandas as pd

    dims = list(report.dims)
    frame = pd.DataFrame(list(rows), columns=[*dims, "shape", "held_out", "contender", "cache", *columns])
    frame = with_reasons(frame, [report.hardware.get("kind", "cpu")])
    return frame.sort_values(dims, kind="stable", ignore_index=True) if dims else frame


# --- figures ----------------------------------------------------------------------------------


def plot_speedup(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the speedup of the report's maker over each contender against the shape; the line at 1 is a tie.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    frame = frame_speedup(report, cache)
    figure = new_figure(frame, f"Speedup of {report.maker} over each contender", template)
    x = name_x_axis(figure, report)
    _add_lines(figure, frame, x, report, "speedup", partial(_speedup_hover, maker=report.maker))
    figure.add_hline(y=1, line=TIE)
    figure.update_yaxes(type="log", tickvals=RATIO_TICKS, title_text=speedup_title(report))
    return figure


def plot_latency(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the median time of each contender with its 95 % interval.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    frame = frame_latency(report, cache)
    figure = new_figure(frame, "Time of one call", template)
    x = name_x_axis(figure, report)
    shown = frame.assign(us=MICRO * frame["seconds_median"])[frame["correct"].eq(True)]
    _add_lines(figure, shown, x, report, "us", _latency_hover, interval=True)
    figure.update_yaxes(type="log", title_text="time (us, median with 95 % interval)")
    return figure


def plot_throughput(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws GFLOP/s of each contender below the FMA peak of the cores used.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    frame = frame_throughput(report, cache)
    figure = new_figure(frame, "Throughput", template)
    x = name_x_axis(figure, report)
    _add_lines(figure, frame[frame["correct"].eq(True)], x, report, "gflops", _throughput_hover)
    peak = peak_gflops(report)
    if peak is not None:
        note = f"FMA peak {peak:.0f} GFLOP/s"
        figure.add_hline(y=peak, line=TIE, annotation_text=note, annotation_position="top left")
    figure.update_yaxes(rangemode="tozero", title_text="throughput (GFLOP/s)")
    return figure


def plot_padding(report: Report, cache: str | None = None, template: str | None = None) -> go.Figure:
    """Draws the share of the maker's work that is padding, for each shape.

    Args:
        report: what :func:`~dietlab.evaluate` measured.
        cache: the cache state to show, as in ``report.caches`` (default: the first).
        template: name of plotly's template, such as ``"plotly_dark"`` (default: a clear ground, for light and
            dark pages).
    """
    frame = frame_padding(report, cache)
    figure = new_figure(frame, f"Padding waste of {report.maker}", template)
    x = name_x_axis(figure, report)
    frame = frame.assign(percent=100 * frame["padding_waste"])
    _add_lines(figure, frame, x, report, "percent", _padding_hover)
    figure.update_yaxes(rangemode="tozero", title_text="padding waste (% of multiply-adds)")
    return figure


Hover = Callable[[Any], str]


def _add_lines(
    figure: go.Figure,
    frame: pd.DataFrame,
    x: str,
    report: Report,
    y: str,
    hover: Hover,
    interval: bool = False,
) -> None:
    """Adds a line for each contender; shapes held out from tuning have open marks."""
    looks = styles(frame["contender"])
    parts = sorted(frame.groupby("contender", sort=False), key=lambda item: -legend_rank(str(item[0])))
    for name, part in parts:  # headlines last: they are drawn above the rivals
        look = looks[str(name)]
        bars = _interval_bars(part) if interval else None
        figure.add_scatter(
            x=part[x],
            y=part[y],
            name=escape(str(name)),
            mode="lines+markers",
            error_y=bars,
            line=look.line,
            marker={
                "symbol": marks(look.symbol, part["held_out"]),
                "size": 4 if len(part) > MANY else 4 + look.width,
            },
            legendrank=legend_rank(str(name)),
            hovertext=[hover(row) + _where(row, report.maker) for row in part.itertuples()],
            hoverinfo="text",
        )
    add_held_out_key(figure, frame)


def _interval_bars(part: pd.DataFrame) -> dict[str, Any]:
    low, middle, high = (MICRO * part[f"seconds_{name}"] for name in ("low", "median", "high"))
    above, below = high - middle, middle - low
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1}


def _where(row: Any, maker: str) -> str:
    held_out = ", held out from tuning" if row.held_out else ""
    plan = f"<br>plan of {escape(maker)}: {escape(row.scheme)}" if isinstance(row.scheme, str) else ""
    return f"<br>{escape(row.shape)}{held_out}{plan}"


def _speedup_hover(row: Any, maker: str) -> str:
    faster, slower = (maker, row.contender) if row.speedup >= 1 else (row.contender, maker)
    ratio = max(row.speedup, 1 / row.speedup)
    who = "" if row.fastest == row.contender else f" ({row.fastest})"
    # A shape that the maker got wrong or skipped has no time; of a ratio that others told nobody's is known.
    times = {maker: row.own_seconds, row.contender + who: row.seconds_median}
    known = {name: time for name, time in times.items() if time is not None and not math.isnan(time)}
    said = "".join(f"<br>{escape(name)} {MICRO * time:.0f} us" for name, time in known.items())
    return f"<b>{escape(faster)} is {ratio:.2f} times as fast as {escape(slower)}</b>{said}"


def _latency_hover(row: Any) -> str:
    interval = f"95 % interval {MICRO * row.seconds_low:.1f} to {MICRO * row.seconds_high:.1f} us"
    return f"<b>{escape(row.contender)}: {row.us:.1f} us</b><br>{interval}"


def _throughput_hover(row: Any) -> str:
    return f"<b>{escape(row.contender)}: {row.gflops:.1f} GFLOP/s</b>{''.join(_shares(row))}"


def _shares(row: Any) -> Iterator[str]:
    for share, limit in ((row.peak, "FMA peak"), (row.roofline, "roofline")):
        if share is not None and not math.isnan(share):
            yield f"<br>{100 * share:.0f} % of the {limit}"


def _padding_hover(row: Any) -> str:
    return f"<b>{row.percent:.1f} % of the multiply-adds are padding</b>"
