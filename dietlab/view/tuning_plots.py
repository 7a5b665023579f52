"""Draws what a tuning run did, as tables and figures: trials, phases of time, portfolio sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Protocol

from dietlab.events import PhaseSeconds
from dietlab.view.plots import new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Trial(Protocol):
    """What :func:`frame_tuning` reads of a record."""

    @property
    def gflops(self) -> float: ...

    @property
    def status(self) -> str: ...


def frame_tuning(records: Sequence[Trial]) -> pd.DataFrame:
    """Returns a table with trial (from 1), GFLOP/s (0 for a failure), the best so far, and the status."""
    import pandas as pd

    frame = pd.DataFrame(
        [(i, float(r.gflops), str(r.status)) for i, r in enumerate(records, start=1)],
        columns=["trial", "gflops", "status"],
    )
    frame.insert(2, "best_gflops", frame["gflops"].cummax())
    return frame


def frame_phases(phase_seconds: PhaseSeconds) -> pd.DataFrame:
    """Returns the seconds and percent of the total for each phase of tuning."""
    import pandas as pd

    seconds = {f.name: float(getattr(phase_seconds, f.name)) for f in fields(phase_seconds)}
    total = phase_seconds.total or 1.0
    return pd.DataFrame(
        [(phase, amount, 100 * amount / total) for phase, amount in seconds.items()],
        columns=["phase", "seconds", "percent"],
    )


def frame_portfolio_curve(curve: Sequence[tuple[int, float]]) -> pd.DataFrame:
    """Returns the number of micro-kernels and mean slowdown against the best plan (times; 1 is none)."""
    import pandas as pd

    return pd.DataFrame(list(curve), columns=["kernels", "mean_slowdown"])


def plot_tuning(records: Sequence[Trial], template: str | None = None) -> go.Figure:
    """Draws every trial as a dot, failures as crosses, and the best so far as a line."""
    frame = frame_tuning(records)
    figure = new_figure(frame, "Best micro-kernel so far", template)
    kinds = (("trial", False, "circle", PALETTE["muted"]), ("failed", True, "x", PALETTE["bad"]))
    for name, failed, symbol, colour in kinds:
        part = frame[(frame["gflops"] <= 0) == failed]
        hover = [f"trial {r.trial}: {r.gflops:.1f} GFLOP/s, {escape(r.status)}" for r in part.itertuples()]
        figure.add_scatter(
            x=part["trial"],
            y=part["gflops"],
            name=name,
            mode="markers",
            hovertext=hover,
            hoverinfo="text",
            marker={"symbol": symbol, "color": colour, "size": 5, "opacity": 0.6},
        )
    hover = [f"best of {r.trial} trials: {r.best_gflops:.1f} GFLOP/s" for r in frame.itertuples()]
    figure.add_scatter(
        x=frame["trial"],
        y=frame["best_gflops"],
        name="best so far",
        mode="lines",
        hovertext=hover,
        hoverinfo="text",
        line={"shape": "hv", "color": PALETTE["ours"]},
    )
    figure.update_xaxes(title_text="trials (count)")
    figure.update_yaxes(rangemode="tozero", title_text="throughput (GFLOP/s)")
    return figure


def plot_phases(phase_seconds: PhaseSeconds, template: str | None = None) -> go.Figure:
    """Where the tuning time went: one bar for each phase."""
    frame = frame_phases(phase_seconds)
    figure = new_figure(frame, f"Where {phase_seconds.total:.0f} s of tuning went", template)
    hover = [f"{r.phase}: {r.seconds:.1f} s, {r.percent:.0f} % of the time" for r in frame.itertuples()]
    figure.add_bar(
        x=frame["seconds"],
        y=frame["phase"],
        orientation="h",
        marker={"color": PALETTE["ours"]},
        text=[f"{p:.0f} %" for p in frame["percent"]],
        hovertext=hover,
        hoverinfo="text",
    )
    figure.update_xaxes(title_text="wall-clock time (s)")
    figure.update_yaxes(title_text="phase", autorange="reversed")
    return figure


def plot_portfolio_curve(curve: Sequence[tuple[int, float]], template: str | None = None) -> go.Figure:
    """How much the mean slowdown falls with every micro-kernel added to the portfolio."""
    frame = frame_portfolio_curve(curve)
    figure = new_figure(frame, "Portfolio size and slowdown", template)
    hover = [
        f"{r.kernels} micro-kernels: {100 * (r.mean_slowdown - 1):.1f} % slower than the best plans"
        for r in frame.itertuples()
    ]
    figure.add_scatter(
        x=frame["kernels"],
        y=frame["mean_slowdown"],
        mode="lines+markers",
        hovertext=hover,
        hoverinfo="text",
        line={"color": PALETTE["ours"]},
    )
    figure.update_xaxes(title_text="micro-kernels in the portfolio (count)")
    figure.update_yaxes(title_text="mean slowdown (times the best plan's time)")
    return figure
