"""Texts and figures of a report's trace: the shapes' weights, the padding of each policy, and times."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from dietlab.base.cards import Listing
from dietlab.base.errors import WorkloadError
from dietlab.compare.results.policies import PLANS, POLICIES, Padding, policy_waste
from dietlab.compare.results.report import Report
from dietlab.compare.results.trace import TraceTime
from dietlab.problem import workload_from_json
from dietlab.view.figures.base import MICRO, hovering, new_figure, shape_axis
from dietlab.view.theme import GRID, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SYMBOLS = dict(zip((PLANS, *POLICIES), ("circle", "triangle-up", "x-thin-open", "square-open"), strict=True))
ROLES = ("ours", "accent3", "accent1", "accent6")
COLOURS = dict(zip((PLANS, *POLICIES), map(PALETTE.__getitem__, ROLES), strict=True))


def traffic_words(report: Report) -> str:
    """Describes in a phrase the weights of the shapes.

    Args:
        report: a report whose shapes have weights.
    """
    shapes = report.shape_set
    weights = report.weights.values()
    equal = not weights or max(weights) - min(weights) < 1e-9
    words = f"{len(weights)} shapes, " + ("each as often as the others" if equal else "by their weights")
    if shapes is not None and shapes.source:
        words += f" ({shapes.source})"
    if shapes is not None and shapes.dropped:
        words += f"; {100 * shapes.dropped:.1f} % of the traffic lies outside the range and is left out"
    return words


def trace_listing(lines: Sequence[TraceTime]) -> Listing:
    """Returns the times over a trace as a table, in microseconds a call."""
    header = ("cache", "contender", "us a call", "speedup", "share of calls")
    return Listing(header, lines, _trace_cells)


def _trace_cells(line: TraceTime) -> tuple[str, ...]:
    speedup = "-" if line.speedup is None else f"{line.speedup:.2f}x"
    return line.cache, line.contender, f"{MICRO * line.seconds:.1f}", speedup, f"{100 * line.share:.0f} %"


def padding_listing(lines: Sequence[Padding]) -> Listing:
    """Returns the padding of each policy as a table."""
    header = ("padding", "waste", "executed for one needed")
    return Listing(header, lines, lambda x: (x.policy, f"{100 * x.waste:.1f} %", f"{x.ratio:.2f}x"))


def frame_traffic(report: Report) -> pd.DataFrame:
    """Returns one row for each shape: its ``weight`` (a share of the calls, 0 to 1) and, for each policy, the
    share of the multiply-adds that is padding.

    Args:
        report: a report whose shapes have weights.
    """
    import pandas as pd

    try:
        workload = workload_from_json(report.workload)
    except WorkloadError:
        workload = None
    ours = {r.shape: r.padding_waste for r in report.rows if r.padding_waste is not None}
    records = [
        {
            **shape.to_json(),
            "shape": str(shape),
            "weight": weight,
            PLANS: ours.get(shape),
            **{name: policy_waste(workload, shape, p) for name, p in POLICIES.items() if workload},
        }
        for shape, weight in sorted(report.weights.items())
    ]
    return pd.DataFrame(records, columns=None if records else ["shape", "weight", PLANS, *POLICIES])


def plot_traffic(report: Report, template: str | None = None) -> go.Figure:
    """Draws two plots: above, how often each shape occurs; below, the padding waste of each policy on each
    shape.

    Args:
        report: a report whose shapes have weights.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_traffic(report)
    figure = new_figure(frame, "Traffic and padding", template)
    x, settings = shape_axis(report, report.weights)
    figure.update_xaxes(**settings)
    if frame.empty:
        return figure
    wide = figure.layout.xaxis.type == "log"
    figure.add_bar(
        x=frame[x],
        y=100 * frame["weight"],
        name="calls",
        marker={"color": PALETTE["muted"], "line": {"width": 0}},
        width=0.04 * frame[x] if wide else None,
        **hovering(frame, lambda r: f"<b>{100 * r.weight:.2f} % of the calls</b><br>{escape(r.shape)}"),
    )
    for line in report.padding:
        look = {"color": COLOURS[line.policy], "symbol": SYMBOLS[line.policy], "size": 5}
        # Dots: between two lengths of the trace waste rises and falls, which a line would hide.
        figure.add_scatter(
            x=frame[x],
            y=100 * frame[line.policy],
            yaxis="y2",
            mode="markers",
            marker=look,
            name=f"{line.policy}: {100 * line.waste:.1f} % over the trace",
            hovertext=_hover(frame, line.policy),
            hoverinfo="text",
        )
    axis = {"gridcolor": GRID, "rangemode": "tozero"}
    figure.update_layout(
        bargap=0.1,
        xaxis_anchor="y2",
        yaxis={**axis, "domain": [0.58, 1], "title": {"text": "calls (%)"}},
        yaxis2={**axis, "domain": [0, 0.48], "anchor": "x", "title": {"text": "waste (%)"}},
    )
    return figure


def _hover(frame: pd.DataFrame, policy: str) -> list[str]:
    return [
        f"<b>{100 * waste:.1f} % of the multiply-adds are padding</b><br>{policy}<br>{escape(shape)}"
        for waste, shape in zip(frame[policy], frame["shape"], strict=True)
    ]
