"""A decision tree over the extents that reach each rule, and what its choices lose below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.dispatch import Dispatcher, candidate_plans, length_grid
from dietlab.plans import Leaf, Split, Tree, intervals
from dietlab.search import TuningRun
from dietlab.shapes import Dim, Shape, ShapeSet, only_dim
from dietlab.space import with_parameters
from dietlab.view.figures.base import MICRO, new_figure
from dietlab.view.figures.one_layer import Layer, dispatcher_at, lengths_at, with_layer
from dietlab.view.theme import ACCENTS, GRID, PALETTE, SYMBOLS, ring

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Values = npt.NDArray[np.float64]
Beside = tuple[str, "pd.DataFrame"]
"""A name and the table of another dispatcher to compare with."""

BAR_WIDTH = 13
COLUMNS = ("weight", "plan", "scheme", "low", "high", "expected_seconds", "best_seconds", "slowdown")
SPLIT_ROOM, LEAF_ROOM = 0.09, 0.035
"""Shares of the axis that the words of a split and the number of a leaf take."""
BEYOND_SHOWN = 0.25
"""So much of the range is drawn beyond its end, where the safe plan serves."""


# --- tables -----------------------------------------------------------------------------------


def frame_dispatch(run: TuningRun, dispatcher: Dispatcher, layer: Layer | None = None) -> pd.DataFrame:
    """Returns one row a shape of the dispatcher's training: its rule, its plan and what that loses.

    Columns: the dynamic dimension, ``shape``, ``weight``, the number of the ``plan`` and its ``scheme``
    with the parameters, ``low`` and ``high`` (the extents that the rule serves, both included),
    ``expected_seconds``, ``best_seconds`` of the best plan known, and ``slowdown`` (their ratio; 1 is no
    loss). Times are measured where there are records and predicted elsewhere. A run without a successful
    record gives no rows.

    Args:
        layer: of several dynamic dimensions the extents of all but the length, as in
            ``{"N": 2304, "K": 768}``: the table is of what the tree asks there.

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    here = dispatcher_at(dispatcher, layer)
    lengths = lengths_at(dispatcher, length_grid(run.space.workload, run.shapes), layer)
    if not run.schemes:
        return dispatch_table(here, lengths, None, None)
    shapes = with_layer(lengths, layer)
    seconds = run.expected_seconds(dispatcher.schemes, shapes)
    known = run.expected_seconds(candidate_plans(run, shapes), shapes)
    return dispatch_table(here, lengths, seconds, np.vstack([known, seconds]).min(axis=0))


def dispatch_table(
    dispatcher: Dispatcher, shapes: ShapeSet, seconds: Values | None, best: Values | None
) -> pd.DataFrame:
    """Returns the rows of :func:`frame_dispatch` from times that are known: ``seconds`` is ``[plans of the
    dispatcher, shapes]`` and ``best`` ``[shapes]``, both in seconds; None gives no rows."""
    import pandas as pd

    name, _ = only_dim(dispatcher.workload)
    rules = intervals(dispatcher.tree)
    rows: list[tuple[Any, ...]] = []
    if seconds is not None and best is not None:
        for column, (shape, weight) in enumerate(zip(shapes.shapes, shapes.weights, strict=True)):
            number, low, high = _rule(rules, shape[name])
            time, least = float(seconds[number, column]), float(best[column])
            key = dispatcher.schemes[number].key
            told = (weight, number, key, low, high, time, least, time / least)
            rows.append((shape[name], str(shape), *told))
    frame = pd.DataFrame(rows, columns=[name, "shape", *COLUMNS])
    return with_parameters(frame, [dispatcher.hardware.kind], "scheme")


def mean_slowdown(frame: pd.DataFrame) -> float:
    """Returns the geometric mean of slowdown, each shape counted by its weight (times)."""
    logs = np.log(frame["slowdown"].to_numpy(float))
    return float(np.exp(logs @ frame["weight"].to_numpy(float) / frame["weight"].sum()))


def _rule(rules: Sequence[tuple[int, int, int | None]], extent: int) -> tuple[int, int, int | None]:
    return next(rule for rule in rules if rule[1] <= extent and (rule[2] is None or extent <= rule[2]))


# --- the tree ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A split or a leaf where it is drawn: over the extents ``low..high`` that reach it.

    ``at_most`` is a split's bound, ``plan`` a leaf's number; the other is None.
    """

    x: float
    level: int
    above: Node | None
    low: int
    high: int
    at_most: int | None = None
    plan: int | None = None


def tree_nodes(tree: Tree, low: int, high: int, above: Node | None = None) -> list[Node]:
    """Returns every node that some extent of ``low..high`` reaches, the root first. A split stands above the
    bound that it compares with, a leaf in the middle (on a log axis) of the extents that it serves."""
    if low > high:
        return []
    level = 0 if above is None else above.level + 1
    left, right = low - 0.5, high + 0.5
    if isinstance(tree, Leaf):
        return [Node(math.sqrt(left * right), level, above, low, high, plan=tree.scheme)]
    split = min(max(tree.at_most + 0.5, left), right)
    node = Node(split, level, above, low, high, at_most=tree.at_most)
    below = tree_nodes(tree.low, low, min(high, tree.at_most), node)
    return [node, *below, *tree_nodes(tree.high, max(low, tree.at_most + 1), high, node)]


def path_words(dispatcher: Dispatcher, shape: Shape) -> str:
    """Tells how the tree decides about a shape: ``"T=43: T <= 128? yes. T <= 40? no. So plan 2: 5 x 8 + 1 x 3
    rows of 8x32.u4.ws.p0.rest"``."""
    tree: Tree = dispatcher.tree
    asked: list[str] = []
    while isinstance(tree, Split):
        yes = shape[tree.dim] <= tree.at_most
        asked.append(f"{tree.dim} <= {tree.at_most}? {'yes' if yes else 'no'}.")
        tree = tree.low if yes else tree.high
    return " ".join([f"{shape}:", *asked, f"So plan {tree.scheme}: {dispatcher.plan(shape)}."])


def last_drawn(dim: Dim) -> int:
    """Returns the last extent that is drawn."""
    return dim.high + max(1, round(BEYOND_SHOWN * dim.high))


# --- figures ----------------------------------------------------------------------------------


def plot_dispatch(
    run: TuningRun,
    dispatcher: Dispatcher,
    extent: int | None = None,
    template: str | None = None,
    layer: Layer | None = None,
) -> go.Figure:
    """Draws the decision tree over the extents that reach each rule and, below, the loss of its choices.

    Args:
        extent: of a shape whose path is drawn thick.
        layer: as in :func:`frame_dispatch`; :func:`dietlab.plot_map` draws two dimensions.

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    frame = frame_dispatch(run, dispatcher, layer)
    return draw_dispatch(frame, dispatcher_at(dispatcher, layer), extent, template=template)


def draw_dispatch(
    frame: pd.DataFrame,
    dispatcher: Dispatcher,
    extent: int | None = None,
    name: str = "dispatcher",
    beside: Beside | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws the figure of :func:`plot_dispatch` from its table, called ``name``, with the slowdown of
    another dispatcher beside it."""
    figure = new_figure(frame, f"Dispatch of {dispatcher.workload}", template)
    dim, span = only_dim(dispatcher.workload)
    if frame.empty:
        return figure
    nodes = tree_nodes(dispatcher.tree, 1, last_drawn(span))
    bar = 1 + max(node.level for node in nodes)
    _add_branches(figure, nodes)
    if extent is not None:
        _add_path(figure, nodes, dim, extent, bar)
    _add_splits(figure, nodes, dim, extent)
    _add_intervals(figure, frame, dispatcher, nodes, bar)
    _add_leaves(figure, nodes, dispatcher, dim, extent)
    if beside is not None:
        _add_slowdown(figure, beside[1], dim, beside[0], PALETTE["muted"], "dash")
    _add_slowdown(figure, frame, dim, name, PALETTE["ours"], "solid")
    if extent is not None:
        _add_ring(figure, frame, dim, extent)
    _lay_out(figure, dim, bar)
    return figure


def _lay_out(figure: go.Figure, dim: str, bar: int) -> None:
    """Lays out two panels over one axis; the tree grows downwards, to a bar at level ``bar``."""
    figure.update_layout(
        height=640,
        legend={"orientation": "h", "y": -0.12},
        xaxis={"type": "log", "dtick": math.log10(2), "anchor": "y2", "title": {"text": f"{dim} (extent)"}},
        yaxis={
            "domain": [0.4, 1],
            "range": [bar + 0.5, -0.7],
            "tickvals": list(range(bar)),
            "title": {"text": "comparisons (count)"},
        },
        yaxis2={
            "domain": [0, 0.33],
            "anchor": "x",
            "gridcolor": GRID,
            "title": {"text": "slowdown (times)"},
        },
    )


def _add_branches(figure: go.Figure, nodes: Sequence[Node]) -> None:
    """Lines from every node to the one above it."""
    x: list[float | None] = []
    y: list[float | None] = []
    for node in nodes:
        if node.above is not None:
            x += [node.above.x, node.x, None]
            y += [node.above.level, node.level, None]
    look = {"color": PALETTE["muted"], "width": 1}
    figure.add_scatter(x=x, y=y, mode="lines", line=look, hoverinfo="skip", showlegend=False)


def _add_path(figure: go.Figure, nodes: Sequence[Node], dim: str, extent: int, bar: int) -> None:
    """Adds a thick line along the nodes that a shape meets, down to its place in the range."""
    met = [node for node in nodes if node.low <= extent <= node.high]
    figure.add_scatter(
        x=[*(node.x for node in met), extent],
        y=[*(node.level for node in met), bar],
        mode="lines",
        line={"color": PALETTE["ours"], "width": 4},
        name=f"path of {dim}={extent}",
        hoverinfo="skip",
    )


def with_room(nodes: Sequence[Node], extent: int | None, share: float) -> list[bool]:
    """Returns the nodes that have room for words: none within ``share`` of the axis of another of its level
    that has words. Those on the path of ``extent`` come first, then those near the root."""
    width = math.log(max(node.high for node in nodes) / 0.5) if nodes else 1.0
    chosen: set[int] = set()

    def order(number: int) -> tuple[bool, int]:
        node = nodes[number]
        return not (extent is not None and node.low <= extent <= node.high), node.level

    for number in sorted(range(len(nodes)), key=order):
        node = nodes[number]
        beside = (nodes[other] for other in chosen if nodes[other].level == node.level)
        if all(abs(math.log(node.x / other.x)) >= share * width for other in beside):
            chosen.add(number)
    return [number in chosen for number in range(len(nodes))]


def _add_splits(figure: go.Figure, nodes: Sequence[Node], dim: str, extent: int | None) -> None:
    splits = [node for node in nodes if node.at_most is not None]
    said = with_room(splits, extent, SPLIT_ROOM)
    figure.add_scatter(
        x=[node.x for node in splits],
        y=[node.level for node in splits],
        mode="markers+text",
        text=[f"{dim} ≤ {node.at_most}" if room else "" for node, room in zip(splits, said, strict=True)],
        textposition="top center",
        showlegend=False,
        hoverinfo="text",
        marker={"symbol": "square", "size": 7, "color": PALETTE["muted"]},
        hovertext=[
            f"<b>{dim} ≤ {node.at_most}?</b><br>{_span(dim, node)} come here; up to {node.at_most} go left"
            for node in splits
        ],
    )


def _add_leaves(
    figure: go.Figure, nodes: Sequence[Node], dispatcher: Dispatcher, dim: str, extent: int | None
) -> None:
    leaves = [node for node in nodes if node.plan is not None]
    numbers = [node.plan or 0 for node in leaves]
    said = with_room(leaves, extent, LEAF_ROOM)
    figure.add_scatter(
        x=[node.x for node in leaves],
        y=[node.level for node in leaves],
        mode="markers+text",
        text=[str(number) if room else "" for number, room in zip(numbers, said, strict=True)],
        textfont={"color": "black"},
        showlegend=False,
        hoverinfo="text",
        marker={
            "symbol": [SYMBOLS[n // len(ACCENTS) % len(SYMBOLS)] for n in numbers],
            "size": [18 if room else 9 for room in said],
            "color": [_colour(n) for n in numbers],
            "opacity": 1,
            "line": {"width": 0},
        },
        hovertext=[
            f"<b>plan {n}: {escape(dispatcher.schemes[n].key)}</b><br>{_span(dim, node)} come here"
            for n, node in zip(numbers, leaves, strict=True)
        ],
    )


def _add_intervals(
    figure: go.Figure, frame: pd.DataFrame, dispatcher: Dispatcher, nodes: Sequence[Node], bar: int
) -> None:
    """Adds the range as a bar, coloured by plan: one trace a plan, broken between its intervals."""
    dim = frame.columns[0]
    said = {extent: _hover(row) for extent, row in zip(frame[dim], frame.itertuples(), strict=True)}
    for number in sorted({node.plan for node in nodes if node.plan is not None}):
        x: list[float | None] = []
        hover: list[str] = []
        for node in (node for node in nodes if node.plan == number):
            inside = [int(extent) for extent in frame[dim] if node.low <= extent <= node.high]
            whole = f"{_span(dim, node)}: plan {number}, {escape(dispatcher.schemes[number].key)}"
            x += [node.low - 0.5, *inside, node.high + 0.5, None]
            hover += [whole, *(said[extent] for extent in inside), whole, ""]
        figure.add_scatter(
            x=x,
            y=[None if place is None else bar for place in x],
            mode="lines",
            line={"color": _colour(number), "width": BAR_WIDTH},
            hovertext=hover,
            hoverinfo="text",
            name=f"{number}: {escape(dispatcher.schemes[number].key)}",
        )


def _add_slowdown(
    figure: go.Figure, frame: pd.DataFrame, dim: str, name: str, colour: str, dash: str
) -> None:
    figure.add_scatter(
        x=frame[dim],
        y=frame["slowdown"],
        mode="lines",
        name=escape(name),
        yaxis="y2",
        line={"color": colour, "dash": dash, "width": 2},
        hoverinfo="text",
        hovertext=[f"{_hover(row)}<br>{escape(name)}" for row in frame.itertuples()],
    )


def _add_ring(figure: go.Figure, frame: pd.DataFrame, dim: str, extent: int) -> None:
    row = row_at(frame, dim, extent)
    if row[dim] == extent:
        figure.add_scatter(
            x=[extent],
            y=[row["slowdown"]],
            mode="markers",
            yaxis="y2",
            showlegend=False,
            hoverinfo="skip",
            marker=ring(16),
        )


def row_at(frame: pd.DataFrame, dim: str, extent: int) -> Any:
    """Returns the row of the extent nearest to this one: long ranges are trained on some of their extents."""
    return frame.loc[(frame[dim] - extent).abs().idxmin()]


def _hover(row: Any) -> str:
    percent = 100 * (row.slowdown - 1)
    loss = f"{percent:.1f} % slower than the best plan" if percent >= 0.05 else "as fast as the best plan"
    told = f"{escape(row.scheme)}<br>expected {MICRO * row.expected_seconds:.1f} us"
    return f"<b>{escape(row.shape)}: {loss}</b><br>{told}"


def _span(dim: str, node: Node) -> str:
    return f"{dim}={node.low}" if node.low == node.high else f"{dim}={node.low} to {node.high}"


def _colour(number: int) -> str:
    return ACCENTS[number % len(ACCENTS)]
