"""Draws what a tuning run did, as tables and figures: trials, phases of time, portfolio sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import ModelError, require_type
from dietlab.base.events import PhaseSeconds
from dietlab.tuning import TuningRun
from dietlab.view.figures.base import hovering, new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def frame_tuning(run: TuningRun) -> pd.DataFrame:
    """Returns the table of :meth:`TuningRun.to_frame` with two more columns: the shape as a text, and
    ``best_gflops``, the highest throughput so far (0 until a measurement succeeds).

    Raises:
        ModelError: if ``run`` is no tuning run.
    """
    require_type("the argument of frame_tuning and plot_tuning", run, TuningRun, ModelError, "Pass tune()'s.")
    frame = run.to_frame()
    frame.insert(1, "shape", [str(record.shape) for record in run.records])
    return frame.assign(best_gflops=frame["gflops"].fillna(0).cummax())


def frame_phases(phase_seconds: PhaseSeconds) -> pd.DataFrame:
    """Returns the seconds of each phase of tuning, and their ``share`` of the total.

    Args:
        phase_seconds: the seconds of a tuning run, by phase.
    """
    import pandas as pd

    seconds = {f.name: float(getattr(phase_seconds, f.name)) for f in fields(phase_seconds)}
    total = phase_seconds.total or 1.0
    return pd.DataFrame(
        [(phase, amount, amount / total) for phase, amount in seconds.items()],
        columns=["phase", "seconds", "share"],
    )


def frame_portfolio_curve(curve: Sequence[tuple[int, float]]) -> pd.DataFrame:
    """Returns, for each number of ``micro_kernels``, the mean slowdown against the best plans (1 is no loss).

    Args:
        curve: pairs of a number of micro-kernels and a mean slowdown (``Portfolio.curve``).
    """
    import pandas as pd

    return pd.DataFrame(list(curve), columns=["micro_kernels", "mean_slowdown"])


def plot_tuning(run: TuningRun, template: str | None = None) -> go.Figure:
    """Draws every record of ``run`` as a dot, failures as crosses, and the highest throughput so far
    as a line.

    Args:
        run: the tuning run that :func:`~dietlab.tune` returned.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        ModelError: if ``run`` is no tuning run.
    """
    frame = frame_tuning(run)
    figure = new_figure(frame, "Best micro-kernel so far", template)
    kinds = (("measured", False, "circle", PALETTE["muted"]), ("failed", True, "x", PALETTE["bad"]))
    for name, failed, symbol, colour in kinds:
        part = frame[(frame["status"] != "ok") == failed]
        figure.add_scatter(
            x=part["record"],
            y=part["gflops"].fillna(0),
            name=name,
            mode="markers",
            **hovering(part, _record_hover),
            marker={"symbol": symbol, "color": colour, "size": 5, "opacity": 0.6},
        )
    figure.add_scatter(
        x=frame["record"],
        y=frame["best_gflops"],
        name="best so far",
        mode="lines",
        **hovering(frame, lambda r: f"best of {r.record} records: {r.best_gflops:.1f} GFLOP/s"),
        line={"shape": "hv", "color": PALETTE["ours"]},
    )
    figure.update_xaxes(title_text="records (count)")
    figure.update_yaxes(rangemode="tozero", title_text="throughput (GFLOP/s)")
    return figure


def _record_hover(row: Any) -> str:
    result = f"{row.gflops:.1f} GFLOP/s" if row.status == "ok" else escape(f"{row.status}: {row.reason:.100}")
    return f"record {row.record}: {row.scheme}, {row.shape}<br>{result}"


def plot_phases(phase_seconds: PhaseSeconds, template: str | None = None) -> go.Figure:
    """Draws where the tuning time went: one bar for each phase.

    Args:
        phase_seconds: the seconds of a tuning run, by phase.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_phases(phase_seconds)
    figure = new_figure(frame, f"Where {phase_seconds.total:.0f} s of tuning went", template)
    figure.add_bar(
        x=frame["seconds"],
        y=frame["phase"],
        orientation="h",
        marker={"color": PALETTE["ours"]},
        text=[f"{100 * share:.0f} %" for share in frame["share"]],
        **hovering(frame, lambda r: f"{r.phase}: {r.seconds:.1f} s, {100 * r.share:.0f} % of the time"),
    )
    figure.update_xaxes(title_text="wall-clock time (s)")
    figure.update_yaxes(title_text="phase", autorange="reversed", automargin=True)
    return figure


def plot_portfolio_curve(curve: Sequence[tuple[int, float]], template: str | None = None) -> go.Figure:
    """Draws how much the mean slowdown falls with every micro-kernel added to the portfolio.

    Args:
        curve: as in :func:`frame_portfolio_curve`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_portfolio_curve(curve)
    figure = new_figure(frame, "Portfolio size and slowdown", template)
    figure.add_scatter(
        x=frame["micro_kernels"],
        y=frame["mean_slowdown"],
        mode="lines+markers",
        **hovering(frame, _size_hover),
        line={"color": PALETTE["ours"]},
    )
    figure.update_xaxes(title_text="micro-kernels in the portfolio (count)")
    figure.update_yaxes(title_text="mean slowdown (times the best plan's time)")
    return figure


def _size_hover(row: Any) -> str:
    slower = f"{100 * (row.mean_slowdown - 1):.1f} % slower than the best plans"
    return f"{row.micro_kernels} micro-kernels: {slower}"
