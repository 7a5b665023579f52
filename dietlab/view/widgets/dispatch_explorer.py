"""The decision tree and the path of a shape, a portfolio without one micro-kernel, and a tree by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import DispatchError
from dietlab.cost import Known
from dietlab.problem import Dim, Shape, length_dim
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Scheme, depth, leaves
from dietlab.tuning import Dispatcher, Portfolio, train_dispatcher
from dietlab.view.figures.base import MICRO
from dietlab.view.figures.dispatch_tree import (
    draw_dispatch,
    drawn_nodes,
    frame_dispatch,
    last_drawn,
    mean_slowdown,
    path_words,
    plot_dispatch,
    row_at,
)
from dietlab.view.figures.folding import LEVELS, Shown, Span, spans_of, spans_text, toggled_with
from dietlab.view.figures.one_layer import dispatcher_at
from dietlab.view.figures.shape_map import frame_map, plot_map
from dietlab.view.figures.tree_traces import COLUMNS_SHOWN, SPLITS
from dietlab.view.theme import ring
from dietlab.view.widgets.arguments import RunSource, choice_of, known_of, portfolio_of
from dietlab.view.widgets.cost_lab import nothing_measured
from dietlab.view.widgets.dispatch_board import Board, board_of, by_hand

if TYPE_CHECKING:
    import pandas as pd

    from dietlab.view.widgets.choice import Choice
    from dietlab.view.widgets.explorer import Drawn, Explorer

__all__ = ["dispatch_explorer", "frame_dispatch", "plot_dispatch"]

NOTHING = "nothing"
TRAINED, BY_HAND, WHOLE = "trained", "by hand", "whole portfolio"
PLANS, CUTS = ("plan_1", "plan_2", "plan_3"), ("cut_1", "cut_2")
HAND = [name for pair in zip(PLANS, CUTS, strict=False) for name in pair] + [PLANS[-1]]
GROUPS = {
    "Shape": ["layer", "shape"],
    "Tree": ["tree", "without"],
    "View": ["show", "levels", "unfolded"],
    "Tree by hand": HAND,
}
TOOLTIPS = {
    "layer": "Extents of all dynamic dimensions but the length, at which the tree is shown",
    "show": "The tree along the length, or a map of its plans over two dimensions",
    "shape": "The extent whose path through the tree is drawn (a count); a click on the strip chooses one",
    "without": "A micro-kernel that is left out: the tree is trained again on the others",
    "tree": "The trained tree, or the one of the plans and cuts by hand",
    "levels": "Comparisons from the root that are unfolded (a count); a click unfolds one fold",
    "plan_1": "The plan of the shortest extents, up to the first cut",
    "cut_1": "The last extent that the first plan serves (a count)",
    "plan_2": "The plan between the two cuts",
    "cut_2": "The last extent that the second plan serves (a count)",
    "plan_3": "The plan of all extents above both cuts",
}
MOST_LEVELS = 6
"""The most levels that a slider unfolds: more than fit into the figure's columns."""
TIE = 0.0005
"""Two mean slowdowns that differ by less are called equal."""


def dispatch_explorer(
    run: RunSource | Known, portfolio: Portfolio | None = None, choice: Choice | None = None
) -> Explorer:
    """Shows the plan of a shape and why it gets it, what each micro-kernel of the portfolio is worth, and a
    game: set two cuts and three plans by hand and lose less time than the trained tree.

    Controls: ``shape`` (its path through the tree), ``without`` (a micro-kernel that is left out: the tree
    is trained again on what the others do), ``tree`` (the trained one or yours), and yours: ``plan_1`` up to
    ``cut_1``, ``plan_2`` up to ``cut_2``, then ``plan_3``. ``explorer.frame`` is :func:`frame_dispatch` of
    the tree that is shown; times are measured where there are records and predicted elsewhere.

    ``levels`` of the tree are unfolded, and the path of the shape. A click on a fold unfolds it, one on a
    split folds it, one on a leaf or on the strip of plans chooses a shape.

    Of several dynamic dimensions ``layer`` chooses the extents of all but the length, at which the tree is
    shown and yours is made, and ``show`` the picture along the length or a map of the trained tree over two
    dimensions (:func:`~dietlab.view.figures.shape_map.plot_map`; ``explorer.frame`` is its table).

    Args:
        run: a tuning run, whose shapes the tree is trained on; or a study or its folder, whose tree is shown.
        portfolio: what to dispatch between (default: of a study what its library has, else the best 8
            micro-kernels for the run's shapes; to choose them takes seconds where plans are composed and the
            range is long).
        choice: shared with other widgets: it gets the plan of the shape, and what is chosen elsewhere moves
            to a shape that it serves.

    Raises:
        WorkloadError: if no dimension is dynamic.
        RecordError: if ``run`` is something else.
        StudyError: if there is no study in the folder, or nothing was measured.
    """
    known, linked = known_of(run), choice_of(choice)
    if not known.schemes:
        return nothing_measured(known)
    opener = f"dl.dispatch_explorer({'run' if portfolio is None else 'run, portfolio'})"
    return _explorer(known, board_of(known, portfolio_of(portfolio, known, run)), linked, opener)


def _explorer(run: Known, board: Board, choice: Choice | None, opener: str) -> Explorer:
    from dietlab.view.widgets.explorer import Explorer

    length, compiled = length_dim(board.portfolio.workload), {k.key: k for k in board.portfolio.micro_kernels}
    layers, maps = _layers(board, run, length), _maps(board, length)

    @cache
    def trained(without: str) -> Dispatcher:
        left = board.portfolio if without == NOTHING else board.without(compiled[without])
        return train_dispatcher(left)

    @cache
    def at(layer: str) -> Board:
        return board.along(layers[layer].to_json()) if layer else board

    def trees(without: str, layer: str, hand: Mapping[str, Any]) -> tuple[dict[str, Dispatcher], str]:
        """Returns the trees by name, and why none could be trained without that micro-kernel."""
        note = ""
        try:
            automatic = trained(without)
        except DispatchError as error:
            automatic, note = trained(NOTHING), f"{error} The whole portfolio is shown. "
        bound = layers[layer].to_json() if layer else {}
        found = {
            WHOLE: dispatcher_at(trained(NOTHING), bound),
            TRAINED: dispatcher_at(automatic, bound),
            BY_HAND: _mine(at(layer), hand),
        }
        return found, note

    def draw(without: str, tree: str, layer: str = "", show: str = "", **others: Any) -> Drawn:
        here, note = trees(without, layer, others)
        view = View(others["shape"], NOTHING if note else without, tree, others["levels"], others["unfolded"])
        drawn = _drawn(at(layer), here, view, note)
        bound = layers[layer].to_json() if layer else {}
        automatic = trained(view.without)
        if layer:
            everywhere = {
                "over all layers": regret_words(automatic.expected_slowdown),
                "micro-kernels compiled": str(len(automatic.micro_kernels)),
            }
            drawn = replace(drawn, numbers={**drawn.numbers, **everywhere})
        if show not in maps:
            return drawn
        return replace(drawn, **_map_of(automatic, maps[show], {**bound, length: view.extent}))

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
        show, dim = values.get("show", ""), board.portfolio.workload.dims[length]
        if show in maps:
            return _clicked(dim, point) if maps[show][0] == length else {}
        if point.get("trace") not in (SPLITS, COLUMNS_SHOWN):
            return {} if point.get("trace", 0) < SPLITS else _clicked(dim, point)
        here, _ = trees(values["without"], values.get("layer", ""), values)
        shown = here[values["tree"]]
        frame = at(values.get("layer", "")).table(shown)
        return _clicked_node(drawn_nodes(frame, shown, *_folding(values)), values, point)

    controls = _controls(board, length, layers, maps)
    explorer = Explorer(draw, controls, clicked, groups=GROUPS, opener=opener)
    if choice is not None:
        _link(explorer, choice, length)
    return explorer


@dataclass(frozen=True)
class View:
    """The part that is looked at: the extent whose path is drawn, the micro-kernel left out, the name of the
    tree, how many of its levels are unfolded and, as text, the spans that were clicked."""

    extent: int
    without: str
    tree: str
    levels: int
    unfolded: str


def _folding(values: Mapping[str, Any]) -> tuple[int, int, frozenset[Span]]:
    return values["shape"], values["levels"], spans_of(values["unfolded"])


def _clicked_node(
    shown: Sequence[Shown], values: Mapping[str, Any], point: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Returns what a click on a node changes: a fold unfolds, a split folds, and a leaf chooses an extent
    that it serves."""
    columns = point["trace"] == COLUMNS_SHOWN
    nodes = [one for one in shown if bool(one.rules) == columns]
    number = point.get("point")
    if not isinstance(number, int) or not 0 <= number < len(nodes):
        return {}
    one = nodes[number]
    if one.node.plan is not None:
        inside = one.node.holds(values["shape"])
        return {} if inside else {"shape": round((one.node.low * one.node.high) ** 0.5)}
    return {"unfolded": spans_text(toggled_with(spans_of(values["unfolded"]), one.node.span))}


def _link(explorer: Explorer, choice: Choice, length: str) -> None:
    """Links the plan of the chosen extent with the choice; a scheme that is chosen elsewhere moves to the
    extents of which it serves most."""

    def read(drawn: Drawn, values: Mapping[str, Any]) -> str:
        return "" if drawn.frame.empty else str(row_at(drawn.frame, length, values["shape"])["scheme"])

    def write(drawn: Drawn, scheme: str) -> Mapping[str, Any]:
        if length not in drawn.frame or "scheme" not in drawn.frame:
            return {}
        served = drawn.frame[drawn.frame["scheme"] == scheme]
        if served.empty:
            return {}
        widest = served.groupby(["low", "high"], dropna=False)["weight"].transform("sum")
        best = served[widest == widest.max()][length]
        return {"shape": int(best.iloc[len(best) // 2])}

    choice.tie(explorer, read, write)


def _layers(board: Board, run: Known, length: str) -> dict[str, Shape]:
    """Returns the layers of a portfolio by name, those that were tuned for first; none of one dimension."""
    if len(board.portfolio.workload.dims) == 1:
        return {}
    tuned, known = ({s.without(length) for s in shapes} for shapes in (run.shapes, board.portfolio.shapes))
    return {str(layer): layer for layer in (*sorted(tuned & known), *sorted(known - tuned))}


def _maps(board: Board, length: str) -> dict[str, tuple[str, str]]:
    """Returns the pairs of dimensions that a map can have, by what the control says."""
    others = [name for name in board.portfolio.workload.dims if name != length]
    return {f"map over {x} and {y}": (x, y) for x, y in combinations((length, *others), 2)}


def _map_of(dispatcher: Dispatcher, axes: tuple[str, str], chosen: Mapping[str, int]) -> dict[str, Any]:
    """Returns the figure and the table of a map, with a ring around the shape that is chosen."""
    x, y = axes
    fixed = {name: extent for name, extent in chosen.items() if name not in axes}
    figure = plot_map(dispatcher, x=x, y=y, fixed=fixed)
    figure.add_scatter(
        x=[chosen[x]],
        y=[chosen[y]],
        mode="markers",
        marker=ring(16),
        hoverinfo="skip",
        name=str(Shape.of(**chosen)),
    )
    return {"figure": figure, "frame": frame_map(dispatcher, x=x, y=y, fixed=fixed)}


def _mine(board: Board, hand: Mapping[str, Any]) -> Dispatcher:
    plans = [Scheme.from_key(hand[name]) for name in PLANS]
    return by_hand(board.portfolio, [hand[name] for name in CUTS], plans)


def _clicked(dim: Dim, point: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the extent that was clicked: all parts of the figure have it on their x axis."""
    x = point.get("x")
    if not isinstance(x, (int, float)):
        return {}
    return {"shape": min(max(round(x), dim.low), last_drawn(dim))}


def _controls(
    board: Board, name: str, layers: Mapping[str, Shape], maps: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    import ipywidgets

    style = {"description_width": "initial"}
    plans = [plan.key for plan in board.portfolio.schemes]
    first = one_for_all(board).key
    dim = board.portfolio.workload.dims[name]
    third = (dim.high / dim.low) ** (1 / 3)

    def slider(value: float, high: int, words: str) -> Any:
        return ipywidgets.IntSlider(round(value), dim.low, high, description=words, style=style)

    def dropdown(options: Sequence[str], value: str, words: str) -> Any:
        return ipywidgets.Dropdown(options=tuple(options), value=value, description=words, style=style)

    codes = [kernel.key for kernel in board.portfolio.micro_kernels]
    several: dict[str, Any] = {}
    if layers:
        several["layer"] = dropdown(tuple(layers), next(iter(layers)), "layer")
        several["show"] = dropdown((f"along {name}", *maps), f"along {name}", "show")
    controls = {
        **several,
        "shape": slider((dim.low * dim.high) ** 0.5, last_drawn(dim), f"path of {name}"),
        "without": dropdown([NOTHING, *codes], NOTHING, "without"),
        "tree": dropdown([TRAINED, BY_HAND], TRAINED, "tree"),
        "levels": ipywidgets.IntSlider(LEVELS, 1, MOST_LEVELS, description="levels unfolded", style=style),
        "unfolded": ipywidgets.Text("", layout={"display": "none"}),
        "plan_1": dropdown(plans, first, "first"),
        "cut_1": slider(dim.low * third, dim.high, f"up to {name}"),
        "plan_2": dropdown(plans, first, "then"),
        "cut_2": slider(dim.low * third**2, dim.high, f"up to {name}"),
        "plan_3": dropdown(plans, first, "at last"),
    }
    for control, words in TOOLTIPS.items():
        if control in controls:
            controls[control].tooltip = words
    return controls


def one_for_all(board: Board) -> Scheme:
    """Returns the plan that loses least if it serves every shape: where the game begins."""
    plans = board.portfolio.schemes
    rows = [board.plans.index(plan) for plan in plans]
    losses = np.log(board.seconds[rows] / board.best) @ np.array(board.portfolio.shapes.weights)
    return plans[int(losses.argmin())]


def _drawn(board: Board, trees: Mapping[str, Dispatcher], view: View, note: str) -> Drawn:
    from dietlab.view.widgets.explorer import Drawn

    extent, without, tree = view.extent, view.without, view.tree
    name, _ = only_dim(board.portfolio.workload)
    frames = {label: board.table(dispatcher) for label, dispatcher in trees.items()}
    shown, frame = trees[tree], frames[tree]
    beside = None
    if tree == BY_HAND:
        beside = ("trained tree", frames[TRAINED])
    elif without != NOTHING:
        beside = (WHOLE, frames[WHOLE])
    figure = draw_dispatch(
        frame,
        shown,
        extent,
        f"tree {BY_HAND}" if tree == BY_HAND else "trained tree",
        beside,
        levels=view.levels,
        toggled=spans_of(view.unfolded),
    )
    said = path_words(shown, Shape.of(**{name: extent}))
    return Drawn(
        figure,
        frame,
        _numbers(frames, shown, row_at(frame, name, extent), without),
        f"{note}{said} {_verdict(frames, without, tree)}",
        _options(board, without),
    )


def _options(board: Board, without: str) -> dict[str, list[str]]:
    """Schemes for the tree by hand: all but those of the missing micro-kernel."""
    plans = board.portfolio.schemes
    kept = [plan.key for plan in plans if plan.kernel.key != without]
    return dict.fromkeys(PLANS, kept or [plan.key for plan in plans])


def _numbers(frames: Mapping[str, pd.DataFrame], shown: Dispatcher, row: Any, without: str) -> dict[str, str]:
    rules, asked = len(leaves(shown.tree)), depth(shown.tree)
    label = "trained" if without == NOTHING else f"trained without {without}"
    numbers = {f"expected mean regret, {label}": regret_words(mean_slowdown(frames[TRAINED]))}
    if without != NOTHING:
        numbers[f"of the {WHOLE}"] = regret_words(mean_slowdown(frames[WHOLE]))
    expected = MICRO * row["expected_seconds"]
    return {
        **numbers,
        "by hand": regret_words(mean_slowdown(frames[BY_HAND])),
        f"{row['shape']}": f"{expected:.1f} us expected, regret {regret_words(row['slowdown'])}",
        "tree shown": f"{rules} rules, {asked} comparisons at most",
        "micro-kernels compiled": str(len(shown.micro_kernels)),
    }


def regret_words(slowdown: float) -> str:
    """Returns ``"1.42 %"``: time over the best plan's, minus 1."""
    return f"{100 * (slowdown - 1):.2f} %"


def _verdict(frames: Mapping[str, pd.DataFrame], without: str, tree: str) -> str:
    """Tells in a sentence whether the tree or the player loses less time."""
    trained, whole = mean_slowdown(frames[TRAINED]), mean_slowdown(frames[WHOLE])
    if tree == BY_HAND:
        ratio = mean_slowdown(frames[BY_HAND]) / trained
        if abs(ratio - 1) < TIE:
            return "Your tree is as fast as the trained one."
        if ratio < 1:
            return f"Your tree is {100 * (1 / ratio - 1):.1f} % faster than the trained one: you win."
        return f"Your tree is {100 * (ratio - 1):.1f} % slower than the trained one. Can you do better?"
    if without != NOTHING:
        return f"Without {without} a call takes {100 * (trained / whole - 1):.2f} % longer on average."
    return ""
