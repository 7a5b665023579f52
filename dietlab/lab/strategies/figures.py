"""Strategies, ablations and fleets as tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from dietlab.base.cards import seconds_text
from dietlab.lab.strategies.comparison import TARGET, Comparison
from dietlab.lab.strategies.method_ablation import MethodAblation
from dietlab.view.figures.base import new_figure
from dietlab.view.pages.bench_text import Table
from dietlab.view.theme import PALETTE, TIE, accented

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BAND = 0.15
"""The opacity of the area between the lowest and the highest seed."""


def comparison_table(comparison: Comparison) -> Table:
    """Returns the header and the rows of a comparison, the fewest trials first."""
    header = ("strategy", "trials", "times random's", "seconds", "found at the end", "chosen by its model")
    rows: list[tuple[str, ...]] = []
    for row in comparison.summary().itertuples():
        most = max(len(course.quality) for course in comparison.of(row.strategy))
        found = row.trials, row.trials_low, row.trials_high
        trials = (f"> {most}" if count > most else f"{count:.0f}" for count in found)
        random = f"{row.times_random:.2f}" if row.times_random > 0 else "-"
        shares = (f"{100 * share:.1f} %" for share in (row.quality, row.chosen))
        spread = "{} ({} to {})".format(*trials)
        rows.append((str(row.strategy), spread, random, seconds_text(row.seconds), *shares))
    return header, rows


def ablation_table(ablation: MethodAblation) -> Table:
    """Returns the header and the rows of an ablation of the method."""
    header = ("without", "instead", "shapes", "time (x)")
    rows: list[tuple[str, ...]] = [
        (row.without, row.instead, row.shapes, f"{row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})")
        for row in ablation.to_frame().itertuples()
    ]
    return header, rows


def fleet_table(table: pd.DataFrame) -> Table:
    """Returns the header and the rows of a table from :func:`fleet.scaling`: the number of devices, and for
    each way to propose rounds how many times faster tuning is, and its seconds.
    """
    ways = list(dict.fromkeys(table["proposed"]))
    header = ("devices", *(part for way in ways for part in (way, "seconds", "waits")))
    rows: dict[int, tuple[str, ...]] = {}
    for row in table.itertuples():
        faster = f"{row.times_faster:.1f} ({row.low:.1f} to {row.high:.1f})"
        cells = (faster, f"{row.seconds:.0f}", f"{row.serial:.0f}")
        rows[row.devices] = (*rows.get(row.devices, (str(row.devices),)), *cells)
    return header, [*rows.values()]


def plot_strategies(
    comparison: Comparison, x: str = "trials", strategies: Sequence[str] = (), template: str | None = None
) -> go.Figure:
    """Draws the quality of each strategy over ``trials`` or ``seconds``: median and range over the seeds."""
    frame = comparison.bands(x)
    figure = new_figure(frame, f"Strategies on {comparison.survey}", template)
    for number, name in enumerate(comparison.strategies):
        part = frame[frame["strategy"] == name]
        if strategies and name not in strategies:
            continue
        look = accented(number)
        group = {"legendgroup": name, "hoverinfo": "skip", "showlegend": False, "mode": "lines"}
        figure.add_scatter(x=part[x], y=part["low"], line={"width": 0}, **group)
        fill = {"fill": "tonexty", "fillcolor": _clear(look.colour)}
        figure.add_scatter(x=part[x], y=part["high"], line={"width": 0}, **fill, **group)
        figure.add_scatter(
            x=part[x],
            y=part["median"],
            name=escape(name),
            legendgroup=name,
            mode="lines",
            line=look.line,
            hoverinfo="text",
            hovertext=[
                f"<b>{escape(name)}</b><br>{x}: {place:.4g}<br>{100 * median:.1f} % of the optimum"
                f" ({100 * low:.1f} to {100 * high:.1f})"
                for _, place, median, low, high in part.itertuples(index=False)
            ],
        )
    figure.add_hline(y=TARGET, line=TIE)
    titles = {"trials": "trials (count)", "seconds": "seconds of tuning (s)"}
    figure.update_xaxes(title_text=titles[x], type="log")
    figure.update_yaxes(title_text="share of the exhaustive optimum", range=[0.8, 1.005])
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    return figure


def _clear(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"


def plot_fleet(scaling: pd.DataFrame, template: str | None = None) -> go.Figure:
    """Draws how many times faster tuning is with more devices, for each way to propose rounds."""
    figure = new_figure(scaling, "Tuning with many devices, simulated", template)
    for number, (name, table) in enumerate(scaling.groupby("proposed", sort=False)):
        look, faster = accented(number), table["times_faster"]
        figure.add_scatter(
            x=table["devices"],
            y=faster,
            name=escape(name),
            mode="lines+markers",
            line=look.line,
            marker={"symbol": look.symbol},
            error_y={"array": table["high"] - faster, "arrayminus": faster - table["low"]},
            hoverinfo="text",
            hovertext=[
                f"<b>{escape(name)}</b><br>{row.devices} devices: {row.times_faster:.1f} times faster, "
                f"{row.seconds:.0f} s, of which the fleet waits {row.serial:.0f} s for the tuner"
                for row in table.itertuples()
            ],
        )
    ideal = {"line": {"color": PALETTE["muted"], "width": 1, "dash": "dash"}, "mode": "lines"}
    ends = {"x": table["devices"], "y": table["devices"]}
    figure.add_scatter(**ends, **ideal, name="as many", hoverinfo="skip")
    figure.update_xaxes(title_text="devices (count)", type="log", dtick=0.30103)
    figure.update_yaxes(title_text="times faster than one device", type="log", dtick=0.30103)
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    return figure
