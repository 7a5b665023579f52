"""The parts of a dispatcher's figure: nodes of the tree and the path of a shape, and the strip of plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.tuning import Dispatcher
from dietlab.view.figures.base import MICRO
from dietlab.view.figures.folding import Node, Shown
from dietlab.view.figures.plan_styles import plan_colour, plan_dash, plan_symbol, text_on
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BAR_WIDTH = 16
"""Of the strip of plans, in pixels: a number in it is legible."""
NUMBER_ROOM = 0.02
"""The share of the axis that the number of a plan takes in the strip: 17 of 860 pixels hold two digits."""
WORDS_BELOW = 0.4
"""The part of a level by which the words of a leaf stand below its middle: below its mark."""

TREE = {"xaxis": "x2", "yaxis": "y", "showlegend": False}
STRIP = {"xaxis": "x", "yaxis": "y3"}
SPLITS, COLUMNS_SHOWN = 2, 3
"""Places among the traces of splits that are unfolded, and of leaves and folds."""


def add_branches(figure: go.Figure, shown: Sequence[Shown]) -> None:
    """Adds lines from every node to the one above it."""
    places = {id(one.node): one for one in shown}
    x: list[float | None] = []
    y: list[float | None] = []
    for one in shown:
        if one.node.above is not None:
            above = places[id(one.node.above)]
            x += [above.x, one.x, None]
            y += [above.node.level, one.node.level, None]
    look = {"color": PALETTE["muted"], "width": 1}
    figure.add_scatter(x=x, y=y, mode="lines", line=look, hoverinfo="skip", **TREE)


def add_path(figure: go.Figure, shown: Sequence[Shown], dim: str, extent: int | None) -> None:
    """Adds a thick line along the nodes that a shape meets."""
    met = [one for one in shown if one.node.holds(extent)]
    figure.add_scatter(
        x=[one.x for one in met],
        y=[one.node.level for one in met],
        mode="lines",
        line={"color": PALETTE["ours"], "width": 4},
        name=f"path of {dim}={extent}",
        hoverinfo="skip",
        **(TREE | {"showlegend": bool(met)}),
    )


def add_splits(figure: go.Figure, shown: Sequence[Shown], dim: str) -> None:
    """Adds the comparisons that are unfolded."""
    splits = [one for one in shown if not one.rules]
    figure.add_scatter(
        x=[one.x for one in splits],
        y=[one.node.level for one in splits],
        mode="markers+text",
        text=[f"{dim} ≤ {one.node.at_most}" for one in splits],
        textposition="top center",
        hoverinfo="text",
        marker={"symbol": "square", "size": 9, "color": PALETTE["muted"]},
        hovertext=[
            f"<b>{dim} ≤ {one.node.at_most}?</b><br>{_span(dim, one.node)} come here; "
            f"up to {one.node.at_most} go left<br>click to fold"
            for one in splits
        ],
        **TREE,
    )


def add_columns(figure: go.Figure, shown: Sequence[Shown], dispatcher: Dispatcher, dim: str) -> None:
    """Adds leaves with the number of their plan, and folds with what they hold; extents stand below both."""
    ends = [one for one in shown if one.rules]
    colours = [PALETTE["muted"] if one.folded else plan_colour(one.plans[0]) for one in ends]
    figure.add_scatter(
        x=[one.x for one in ends],
        y=[one.node.level for one in ends],
        mode="markers+text",
        text=[str(one.plans[0]) if not one.folded else "+" for one in ends],
        textfont={"color": [text_on(colour) for colour in colours]},
        hoverinfo="text",
        marker={
            "symbol": ["square" if one.folded else plan_symbol(one.plans[0]) for one in ends],
            "size": [22 if one.folded else 20 for one in ends],
            "color": colours,
            "opacity": 1,
            "line": {"width": 0},
        },
        hovertext=[_endrow_words(one, dispatcher, dim) for one in ends],
        **TREE,
    )
    figure.add_scatter(
        x=[one.x for one in ends],
        y=[one.node.level + WORDS_BELOW for one in ends],
        mode="text",
        text=[_end_words(one) for one in ends],
        textfont={"size": 11},
        textposition="bottom center",
        hoverinfo="skip",
        **TREE,
    )


def _end_words(one: Shown) -> str:
    """Returns what stands below a leaf or a fold, in lines of at most nine characters."""
    low, high = one.node.span
    span = f"{low}" if low == high else f"{low}-{high}"
    if not one.folded:
        return span
    plans = f"{len(one.plans)} plan{'s' * (len(one.plans) > 1)}"
    return f"{span}<br>{one.rules} rule{'s' * (one.rules > 1)}<br>{plans}"


def _endrow_words(one: Shown, dispatcher: Dispatcher, dim: str) -> str:
    keys = [f"{number}: {escape(dispatcher.schemes[number].key)}" for number in one.plans]
    come = f"{_span(dim, one.node)} come here"
    if not one.folded:
        return f"<b>plan {keys[0]}</b><br>{come}"
    head = f"{one.rules} rule{'s' * (one.rules > 1)}, {len(keys)} plan{'s' * (len(keys) > 1)}"
    return f"<b>{head}</b><br>{come}<br>{'<br>'.join(keys)}<br>click to unfold"


def add_intervals(
    figure: go.Figure, frame: pd.DataFrame, dispatcher: Dispatcher, nodes: Sequence[Node]
) -> None:
    """Adds the range as a strip, coloured by plan: one trace a plan, broken between its intervals. Numbers
    stand where they have room."""
    dim = frame.columns[0]
    said = {extent: row_words(row) for extent, row in zip(frame[dim], frame.itertuples(), strict=True)}
    leaves = [node for node in nodes if node.plan is not None]
    for number in sorted({node.plan for node in leaves if node.plan is not None}):
        x: list[float | None] = []
        hover: list[str] = []
        for node in (node for node in leaves if node.plan == number):
            inside = [int(extent) for extent in frame[dim] if node.holds(int(extent))]
            whole = f"{_span(dim, node)}: plan {number}, {escape(dispatcher.schemes[number].key)}"
            x += [node.low - 0.5, *inside, node.high + 0.5, None]
            hover += [whole, *(said[extent] for extent in inside), whole, ""]
        figure.add_scatter(
            x=x,
            y=[None if place is None else 0 for place in x],
            mode="lines",
            line={"color": plan_colour(number), "width": BAR_WIDTH, "dash": plan_dash(number)},
            hovertext=hover,
            hoverinfo="text",
            name=f"{number}: {escape(dispatcher.schemes[number].key)}",
            **STRIP,
        )
    wide = [node for node in leaves if _share(node, leaves) >= NUMBER_ROOM]
    figure.add_scatter(
        x=[math.sqrt((node.low - 0.5) * (node.high + 0.5)) for node in wide],
        y=[0] * len(wide),
        mode="text",
        text=[str(node.plan) for node in wide],
        textfont={"color": [text_on(plan_colour(node.plan or 0)) for node in wide]},
        hoverinfo="skip",
        showlegend=False,
        **STRIP,
    )


def _share(node: Node, leaves: Sequence[Node]) -> float:
    """Returns the share of the logarithmic axis that a leaf's extents take."""
    whole = math.log((max(leaf.high for leaf in leaves) + 0.5) / 0.5)
    return math.log((node.high + 0.5) / (node.low - 0.5)) / whole


def row_words(row: Any) -> str:
    """Tells of a row of the table of a dispatcher what its choice loses."""
    percent = 100 * (row.slowdown - 1)
    loss = f"{percent:.1f} % slower than the best plan" if percent >= 0.05 else "as fast as the best plan"
    told = f"{escape(row.scheme)}<br>expected {MICRO * row.expected_seconds:.1f} us"
    return f"<b>{escape(row.shape)}: {loss}</b><br>{told}"


def _span(dim: str, node: Node) -> str:
    return f"{dim}={node.low}" if node.low == node.high else f"{dim}={node.low} to {node.high}"
