"""The parts of a dispatcher's figure: nodes of the tree and the path of a shape, and the strip of plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.tuning import Dispatcher
from dietlab.view.figures.base import MICRO
from dietlab.view.figures.folding import Node, Shown
from dietlab.view.figures.plan_styles import plan_style, text_on
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

NUMBER_ROOM = 0.02
"""The least share of the strip that an interval must take for its plan's number to be shown: 17 of 860 pixels
hold two digits."""
WORDS_BELOW = 0.4
"""The distance from a leaf's middle down to its words, as a share of a level."""

TREE = {"xaxis": "x2", "yaxis": "y", "showlegend": False}
STRIP = {"xaxis": "x", "yaxis": "y3"}
SPLITS, ENDS, WORDS = 2, 3, 4
"""The indices of three traces: unfolded splits, leaves and folds, and the words below leaves and folds."""


def add_tree(
    figure: go.Figure, shown: Sequence[Shown], dispatcher: Dispatcher, dim: str, extent: int | None
) -> None:
    """Adds a line from every node to each node below it, thick along the path of a shape. Then adds the
    unfolded splits, and the leaves and folds with their words."""
    _add_branches(figure, shown)
    met = [one for one in shown if one.node.holds(extent)]
    path = {"color": PALETTE["ours"], "width": 4}
    name = f"path of {dim}={extent}"
    _add_nodes(figure, met, mode="lines", line=path, name=name, hoverinfo="skip", showlegend=bool(met))
    splits = [one for one in shown if not one.end]
    _add_nodes(
        figure,
        splits,
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
    )
    _add_ends(figure, [one for one in shown if one.end], dispatcher, dim)


def _add_nodes(figure: go.Figure, shown: Sequence[Shown], lower: float = 0, **look: Any) -> None:
    y = [one.node.level + lower for one in shown]
    figure.add_scatter(x=[one.x for one in shown], y=y, **{**TREE, **look})


def _add_branches(figure: go.Figure, shown: Sequence[Shown]) -> None:
    places = {one.node: one for one in shown}
    x: list[float | None] = []
    y: list[float | None] = []
    for above in (one for one in shown if not one.end):
        for node in above.node.below:
            x += [above.x, places[node].x, None]
            y += [above.node.level, node.level, None]
    look = {"color": PALETTE["muted"], "width": 1}
    figure.add_scatter(x=x, y=y, mode="lines", line=look, hoverinfo="skip", **TREE)


def _add_ends(figure: go.Figure, ends: Sequence[Shown], dispatcher: Dispatcher, dim: str) -> None:
    """Adds leaves with the number of their plan, folds with a plus sign, and the words below both."""
    looks = [plan_style(one.plans[0]) for one in ends]
    colours = [PALETTE["muted"] if one.folded else look.colour for one, look in zip(ends, looks, strict=True)]
    _add_nodes(
        figure,
        ends,
        mode="markers+text",
        text=["+" if one.folded else str(one.plans[0]) for one in ends],
        textfont={"color": [text_on(colour) for colour in colours]},
        hoverinfo="text",
        marker={
            "symbol": ["square" if one.folded else k.symbol for one, k in zip(ends, looks, strict=True)],
            "size": [22 if one.folded else 20 for one in ends],
            "color": colours,
            "opacity": 1,
            "line": {"width": 0},
        },
        hovertext=[_hover(one, dispatcher, dim) for one in ends],
    )
    words = {"text": [_words(one) for one in ends], "textfont": {"size": 11}}
    below = {"mode": "text", "textposition": "bottom center", "hoverinfo": "skip"}
    _add_nodes(figure, ends, WORDS_BELOW, **words, **below)


def _words(one: Shown) -> str:
    """Returns the words below a leaf or a fold, in lines of at most nine characters."""
    low, high = one.node.span
    span = f"{low}" if low == high else f"{low}-{high}"
    return "<br>".join([span, *_counts(one)]) if one.folded else span


def _counts(one: Shown) -> list[str]:
    counts = {"rule": len(one.node.rules), "plan": len(one.plans)}
    return [f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items()]


def _hover(one: Shown, dispatcher: Dispatcher, dim: str) -> str:
    keys = [_plan(number, dispatcher) for number in one.plans]
    come = f"{_span(dim, one.node)} come here"
    if not one.folded:
        return f"<b>plan {keys[0]}</b><br>{come}"
    return f"<b>{', '.join(_counts(one))}</b><br>{come}<br>{'<br>'.join(keys)}<br>click to unfold"


def add_intervals(figure: go.Figure, frame: pd.DataFrame, dispatcher: Dispatcher, root: Node) -> None:
    """Adds the range as a strip, coloured by plan. Each plan is one trace, broken between the plan's
    intervals. Intervals with enough room show the plan's number."""
    dim = frame.columns[0]
    said = {extent: row_words(row) for extent, row in zip(frame[dim], frame.itertuples(), strict=True)}
    leaves = [node for node in root.every() if node.at_most is None]
    for number in sorted(set(root.rules)):
        x: list[float | None] = []
        hover: list[str] = []
        for node in (node for node in leaves if node.rules == (number,)):
            inside = [int(extent) for extent in frame[dim] if node.holds(int(extent))]
            whole = f"{_span(dim, node)}: plan {number}, {escape(dispatcher.schemes[number].key)}"
            x += [node.span[0] - 0.5, *inside, node.span[1] + 0.5, None]
            hover += [whole, *(said[extent] for extent in inside), whole, ""]
        figure.add_scatter(
            x=x,
            y=[None if place is None else 0 for place in x],
            mode="lines",
            line=plan_style(number).line,
            hovertext=hover,
            hoverinfo="text",
            name=_plan(number, dispatcher),
            **STRIP,
        )
    wide = [node for node in leaves if _length(node) >= NUMBER_ROOM * _length(root)]
    figure.add_scatter(
        x=[math.sqrt((node.span[0] - 0.5) * (node.span[1] + 0.5)) for node in wide],
        y=[0] * len(wide),
        mode="text",
        text=[str(node.rules[0]) for node in wide],
        textfont={"color": [text_on(plan_style(node.rules[0]).colour) for node in wide]},
        hoverinfo="skip",
        showlegend=False,
        **STRIP,
    )


def _length(node: Node) -> float:
    """Returns how long the range of a node's extents is on a logarithmic axis."""
    return math.log((node.span[1] + 0.5) / (node.span[0] - 0.5))


def row_words(row: Any) -> str:
    """Returns in words what the dispatcher's choice loses on the shape of a row of its table (HTML)."""
    percent = 100 * (row.slowdown - 1)
    loss = f"{percent:.1f} % slower than the best plan" if percent >= 0.05 else "as fast as the best plan"
    expected = f"{escape(row.scheme)}<br>expected {MICRO * row.expected_seconds:.1f} us"
    return f"<b>{escape(row.shape)}: {loss}</b><br>{expected}"


def _plan(number: int, dispatcher: Dispatcher) -> str:
    return f"{number}: {escape(dispatcher.schemes[number].key)}"


def _span(dim: str, node: Node) -> str:
    low, high = node.span
    return f"{dim}={low}" if low == high else f"{dim}={low} to {high}"
