"""The figure of a dispatcher: a tree that folds, a strip with each extent's plan, and the choices' losses."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.statistics import Values
from dietlab.problem import Dim, Shape, ShapeSet, at_layer, length_dim, shapes_of_layer, split_extents
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Split, Tree, intervals, restricted, with_parameters
from dietlab.tuning import Dispatcher, TuningRun, candidate_plans, length_grid
from dietlab.view.figures.base import add_ring, hovering, new_figure
from dietlab.view.figures.folding import LEVELS, Node, Shown, Span, root_of, shown_nodes
from dietlab.view.figures.tree_traces import add_intervals, add_tree, row_words
from dietlab.view.theme import GRID, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Layer = Mapping[str, int]
"""The extent of every dynamic dimension but the length; empty if there is no other."""
Beside = tuple[str, "pd.DataFrame"]
"""A name and the table of another dispatcher to compare with."""

COLUMNS = ("weight", "plan", "scheme", "low", "high", "expected_seconds", "best_seconds", "slowdown")
STANDOFF = 4
"""The distance between the ticks and the title of the axis of extents, in pixels."""
LEGEND_Y = -0.12
"""The vertical position of the legend, as a share of the height of the plots above it. A legend of many lines
lowers the plots; below a height of 270 pixels, it would cover the title of the axis."""
BEYOND_SHOWN = 0.25
"""How far the figure goes beyond the range, as a share of the range's end; the safe plan serves there."""


# --- tables -----------------------------------------------------------------------------------


def frame_dispatch(run: TuningRun, dispatcher: Dispatcher, layer: Layer | None = None) -> pd.DataFrame:
    """Returns one row for each shape that the dispatcher was trained on: rule, plan, and what the plan loses.

    Columns: the dynamic dimension, ``shape``, ``weight``, the number of the ``plan`` and its ``scheme`` with
    the parameters, ``low`` and ``high`` (the least and the greatest extent that the rule serves),
    ``expected_seconds``, ``best_seconds`` of the best plan known, and ``slowdown`` (their ratio; 1 is no
    loss). Times are measured where there are records and predicted elsewhere. A run without a successful
    record gives no rows.

    Args:
        run: the tuning run, whose records give measured times.
        dispatcher: the dispatcher whose tree and plans are shown.
        layer: the extents of all dynamic dimensions but the length, as in ``{"N": 2304, "K": 768}``; needed
            if there are such dimensions. The table is of the tree at this layer.

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    here = dispatcher_at(dispatcher, layer)
    lengths = lengths_at(dispatcher, length_grid(run.space.workload, run.shapes), layer)
    if not run.schemes:
        return dispatch_table(here, lengths, None, None)
    shapes = tuple(Shape.of(**shape.to_json(), **(layer or {})) for shape in lengths)
    seconds = run.expected_seconds(dispatcher.schemes, shapes)
    known = run.expected_seconds(candidate_plans(run, shapes), shapes)
    return dispatch_table(here, lengths, seconds, np.vstack([known, seconds]).min(axis=0))


def dispatch_table(
    dispatcher: Dispatcher, shapes: ShapeSet, seconds: Values | None, best: Values | None
) -> pd.DataFrame:
    """Returns the rows of :func:`frame_dispatch` from known times in seconds. ``seconds`` has the axes
    ``[plans of the dispatcher, shapes]``, ``best`` has the axis ``[shapes]``; None gives no rows."""
    import pandas as pd

    name, _ = only_dim(dispatcher.workload)
    rules = intervals(dispatcher.tree)
    rows: list[tuple[Any, ...]] = []
    if seconds is not None and best is not None:
        for column, (shape, weight) in enumerate(zip(shapes.shapes, shapes.weights, strict=True)):
            number, low, high = _rule(rules, shape[name])
            time, least = float(seconds[number, column]), float(best[column])
            key = dispatcher.schemes[number].key
            rows.append((shape[name], str(shape), weight, number, key, low, high, time, least, time / least))
    frame = pd.DataFrame(rows, columns=[name, "shape", *COLUMNS])
    return with_parameters(frame, [dispatcher.hardware.kind], "scheme")


def mean_slowdown(frame: pd.DataFrame) -> float:
    """Returns the geometric mean of the slowdowns (a ratio), weighted by the shapes' weights."""
    logs = np.log(frame["slowdown"].to_numpy(float))
    return float(np.exp(logs @ frame["weight"].to_numpy(float) / frame["weight"].sum()))


def _rule(rules: Sequence[tuple[int, int, int | None]], extent: int) -> tuple[int, int, int | None]:
    return next(rule for rule in rules if rule[1] <= extent and (rule[2] is None or extent <= rule[2]))


def dispatcher_at(dispatcher: Dispatcher, layer: Layer | None) -> Dispatcher:
    """Returns the dispatcher at one layer: its only dynamic dimension is the length."""
    workload = at_layer(dispatcher.workload, layer)
    if not layer:
        return dispatcher
    return replace(dispatcher, workload=workload, tree=restricted(dispatcher.tree, layer))


def lengths_at(dispatcher: Dispatcher, shapes: ShapeSet, layer: Layer | None) -> ShapeSet:
    """Returns the lengths of the shapes of one layer with their weights; for a layer without shapes, all
    lengths with equal weights."""
    if not layer:
        return shapes
    length = length_dim(dispatcher.workload)
    if any(shape.without(length) == Shape.of(**layer) for shape in shapes):
        return shapes_of_layer(shapes, layer, length)
    return ShapeSet.of({Shape.of(**{length: shape[length]}): 1.0 for shape in shapes})


# --- the tree ---------------------------------------------------------------------------------


def path_words(dispatcher: Dispatcher, shape: Shape) -> str:
    """Returns the comparisons that lead a shape to its plan: ``"T=43: T <= 128? yes. T <= 40? no. So plan 2:
    5 x 8 + 1 x 3 rows of 8x32.u4.ws.p0.rest"``."""
    tree: Tree = dispatcher.tree
    asked: list[str] = []
    extents = split_extents(dispatcher.workload, shape)
    while isinstance(tree, Split):
        yes = extents[tree.dim] <= tree.at_most
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
    levels: int = LEVELS,
) -> go.Figure:
    """Draws three things: the decision tree, a strip with the plan of each extent, and the loss of the tree's
    choices.

    A folded node gives the number of rules and plans of its subtree. The first ``levels`` levels and the path
    of ``extent`` are unfolded.

    Args:
        run, dispatcher: as in :func:`frame_dispatch`.
        extent: the length of the shape whose path is drawn thick.
        layer: as in :func:`frame_dispatch`; :func:`dietlab.plot_map` draws two dimensions.
        levels: the number of unfolded levels, counted from the root.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    frame = frame_dispatch(run, dispatcher, layer)
    here = dispatcher_at(dispatcher, layer)
    return draw_dispatch(frame, here, extent, template=template, levels=levels)


def drawn_nodes(
    frame: pd.DataFrame,
    dispatcher: Dispatcher,
    extent: int | None = None,
    levels: int = LEVELS,
    toggled: Collection[Span] = (),
) -> list[Shown]:
    """Returns the nodes that :func:`draw_dispatch` draws, by the index of their trace and in its order: the
    unfolded splits by :data:`~dietlab.view.figures.tree_traces.SPLITS`, the leaves and folds by
    :data:`~dietlab.view.figures.tree_traces.ENDS`."""
    weights = dict(zip(frame.iloc[:, 0], frame["weight"], strict=True))
    return shown_nodes(_root(dispatcher), extent, levels, toggled, weights)


def _root(dispatcher: Dispatcher) -> Node:
    _, span = only_dim(dispatcher.workload)
    return root_of(dispatcher.tree, 1, last_drawn(span))


def draw_dispatch(
    frame: pd.DataFrame,
    dispatcher: Dispatcher,
    extent: int | None = None,
    name: str = "dispatcher",
    beside: Beside | None = None,
    template: str | None = None,
    levels: int = LEVELS,
    toggled: Collection[Span] = (),
) -> go.Figure:
    """Draws the figure of :func:`plot_dispatch` from its table. ``name`` is the legend entry of the slowdown.
    ``beside`` adds the slowdown of another dispatcher; ``toggled`` is as in
    :func:`~dietlab.view.figures.folding.shown_nodes`."""
    figure = new_figure(frame, f"Dispatch of {dispatcher.workload}", template)
    dim, _ = only_dim(dispatcher.workload)
    if frame.empty:
        return figure
    shown = drawn_nodes(frame, dispatcher, extent, levels, toggled)
    add_tree(figure, shown, dispatcher, dim, extent)
    add_intervals(figure, frame, dispatcher, _root(dispatcher))
    if beside is not None:
        _add_slowdown(
            figure, beside[1], dim, beside[0], {"color": PALETTE["muted"], "dash": "dash", "width": 2}
        )
    _add_slowdown(figure, frame, dim, name, {"color": PALETTE["ours"], "width": 2})
    chosen = frame[frame[dim] == extent]
    if len(chosen):
        add_ring(figure, chosen[dim], chosen["slowdown"], "", yaxis="y2", showlegend=False)
    _lay_out(figure, dim, shown)
    return figure


def _lay_out(figure: go.Figure, dim: str, shown: Sequence[Shown]) -> None:
    """Lays out the tree: it grows downwards, in columns of equal width. Below the tree, the strip of plans
    and the slowdown share one axis of extents."""
    deepest = max(one.node.level for one in shown)
    columns = 1 + max(one.x for one in shown)
    bare = {"showgrid": False, "zeroline": False}
    figure.update_layout(
        height=700,
        legend={"orientation": "h", "y": LEGEND_Y},
        xaxis={
            "type": "log",
            "dtick": math.log10(2),
            "anchor": "y2",
            "title": {"text": f"{dim} (extent)", "standoff": STANDOFF},
        },
        xaxis2={"range": [-0.6, columns - 0.4], "anchor": "y", "visible": False},
        yaxis={
            "domain": [0.45, 1],
            "anchor": "x2",
            "range": [deepest + 1.8, -0.9],
            "tickvals": list(range(deepest + 1)),
            "title": {"text": "comparisons (count)"},
            **bare,
        },
        yaxis2={"domain": [0, 0.29], "anchor": "x", "gridcolor": GRID, "title": {"text": "slowdown (times)"}},
        yaxis3={
            "domain": [0.34, 0.41],
            "anchor": "x",
            "range": [-0.5, 0.5],
            "tickvals": [0],
            "ticktext": ["plan"],
            **bare,
        },
    )


def _add_slowdown(figure: go.Figure, frame: pd.DataFrame, dim: str, name: str, line: dict[str, Any]) -> None:
    figure.add_scatter(
        x=frame[dim],
        y=frame["slowdown"],
        mode="lines",
        name=escape(name),
        yaxis="y2",
        line=line,
        **hovering(frame, lambda row: f"{row_words(row)}<br>{escape(name)}"),
    )


def row_at(frame: pd.DataFrame, dim: str, extent: int) -> Any:
    """Returns the row of the nearest extent: in a long range only some extents have rows."""
    return frame.loc[(frame[dim] - extent).abs().idxmin()]
