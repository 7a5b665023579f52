"""An explorer of dispatch: the path of a shape, the portfolio without one micro-kernel, a tree by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import DispatchError
from dietlab.cost import Known
from dietlab.problem import Dim, Shape, length_dim
from dietlab.scheme import Scheme, depth, leaves
from dietlab.tuning import Dispatcher, Portfolio, train_dispatcher
from dietlab.view.figures.base import MICRO, add_ring
from dietlab.view.figures.dispatch_tree import (
    dispatcher_at,
    draw_dispatch,
    drawn_nodes,
    frame_dispatch,
    last_drawn,
    mean_slowdown,
    path_words,
    plot_dispatch,
    row_at,
)
from dietlab.view.figures.folding import LEVELS, spans_of, spans_text
from dietlab.view.figures.shape_map import frame_map, plot_map
from dietlab.view.figures.tree_traces import ENDS, SPLITS, WORDS
from dietlab.view.widgets.arguments import RunSource, choice_of, known_of, portfolio_of
from dietlab.view.widgets.controls import Control, Number, OneOf, Text
from dietlab.view.widgets.cost_lab import nothing_measured
from dietlab.view.widgets.dispatch_board import Board, board_of, by_hand

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

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
"""The most levels that the slider unfolds: more than fit into the figure's columns."""
TIE = 0.0005
"""The least ratio, minus 1, at which two mean slowdowns count as different: closer ones are called equal."""


def dispatch_explorer(
    run: RunSource | Known, portfolio: Portfolio | None = None, choice: Choice | None = None
) -> Explorer:
    """Shows the plan of a shape and the path to it, what each micro-kernel of the portfolio is worth, and a
    game: set two cuts and three plans by hand and lose less time than the trained tree.

    Controls: ``shape`` (its path through the tree), ``without`` (a micro-kernel to leave out: the tree is
    trained again on the others), and ``tree`` (the trained tree or yours). In your tree, ``plan_1`` serves up
    to ``cut_1``, ``plan_2`` up to ``cut_2``, and ``plan_3`` the rest. ``explorer.frame`` is
    :func:`frame_dispatch` of the tree that is shown; times are measured where there are records and predicted
    elsewhere.

    The first ``levels`` levels of the tree and the path of the shape are unfolded. A click on a fold unfolds
    it, a click on a split folds it, and a click on a leaf or on the strip of plans chooses a shape.

    If several dimensions are dynamic, both trees are of one layer. ``layer`` chooses it by the extents of all
    dimensions but the length. ``show`` chooses the picture along the length or a map of the trained tree over
    two dimensions (:func:`~dietlab.view.figures.shape_map.plot_map`; ``explorer.frame`` is its table).

    Args:
        run: a tuning run, on whose shapes a tree is trained, or a study or its folder, whose tree is shown.
        portfolio: the portfolio to dispatch between. The default is the portfolio of a study's library, or
            else the best 8 micro-kernels for the run's shapes; choosing these takes seconds if plans are
            composed and the range is long.
        choice: a choice shared with other widgets; it becomes the scheme of the shape's plan. If a plan is
            chosen elsewhere, the explorer moves to a shape that this plan serves.

    Raises:
        WorkloadError: if no dimension is dynamic.
        RecordError: if ``run`` is none of these.
        StudyError: if there is no study in the folder, or nothing was measured.
    """
    from dietlab.view.widgets.explorer import Explorer

    known, linked = known_of(run, Known), choice_of(choice)
    if not known.schemes:
        return nothing_measured(known)
    chosen = portfolio_of(portfolio, known, run)
    trees = Trees(board_of(known, chosen), _layers(chosen, known), _maps(chosen))
    opener = f"dl.dispatch_explorer({'run' if portfolio is None else 'run, portfolio'})"
    explorer = Explorer(trees.draw, _controls(trees), trees.clicked, groups=GROUPS, opener=opener)
    if linked is not None:
        linked.tie(explorer, trees.read, trees.write)
    return explorer


Values = Mapping[str, Any]
"""The values of the controls by name."""


@dataclass(frozen=True)
class Trees:
    """The trees of a board, and what the controls' values show of them.

    Args:
        layers: the extents of all dimensions but the length, by the option of the control ``layer``; empty if
            there are no others.
        maps: the dimensions of each map, by the option of the control ``show``.
        trained: the trees by the omitted micro-kernel, each trained when it is first needed.
    """

    board: Board
    layers: Mapping[str, Shape]
    maps: Mapping[str, tuple[str, str]]
    trained: dict[str, Dispatcher] = field(default_factory=dict)

    @property
    def length(self) -> str:
        """The dimension along which trees are shown."""
        return length_dim(self.board.portfolio.workload)

    @property
    def dim(self) -> Dim:
        """The range of the length."""
        return self.board.portfolio.workload.dims[self.length]

    def layer(self, values: Values) -> dict[str, int]:
        """Returns the extents of the other dimensions."""
        return self.layers[values["layer"]].to_json() if self.layers else {}

    def without(self, dropped: str) -> Dispatcher:
        """Returns the tree over all dimensions that is trained without one micro-kernel."""
        if dropped not in self.trained:
            whole = self.board.portfolio
            kernels = {kernel.key: kernel for kernel in whole.micro_kernels}
            left = self.board.without(kernels[dropped]) if dropped in kernels else whole
            self.trained[dropped] = train_dispatcher(left)
        return self.trained[dropped]

    def at(self, values: Values) -> tuple[dict[str, Dispatcher], str, str]:
        """Returns three values: the trees at the layer by name, the micro-kernel that the trained tree omits,
        and a note if the chosen micro-kernel cannot be omitted."""
        layer, dropped, note = self.layer(values), values["without"], ""
        try:
            self.without(dropped)
        except DispatchError as error:
            dropped, note = NOTHING, f"{error} The whole portfolio is shown. "
        plans = [Scheme.from_key(values[name]) for name in PLANS]
        found = {
            WHOLE: dispatcher_at(self.without(NOTHING), layer),
            TRAINED: dispatcher_at(self.without(dropped), layer),
            BY_HAND: by_hand(self.board.portfolio, [values[name] for name in CUTS], plans, layer),
        }
        return found, dropped, note

    def draw(self, **values: Any) -> Drawn:
        """Returns what is shown: the tree along the length, or a map."""
        from dietlab.view.widgets.explorer import Drawn

        (trees, without, note), layer = self.at(values), self.layer(values)
        extent, tree = values["shape"], values["tree"]
        frames = {name: self.board.table(dispatcher, layer) for name, dispatcher in trees.items()}
        means = {name: mean_slowdown(frame) for name, frame in frames.items()}
        shown, frame = trees[tree], frames[tree]
        numbers = _numbers(means, shown, row_at(frame, self.length, extent), without)
        if layer:
            everywhere = self.without(without)
            numbers["over all layers"] = regret_words(everywhere.expected_slowdown)
            numbers["micro-kernels compiled"] = str(len(everywhere.micro_kernels))
        if values.get("show") in self.maps:
            axes, place = self.maps[values["show"]], {**layer, self.length: extent}
            figure, frame = _map_of(self.without(without), axes, place)
        else:
            figure = self._tree_figure(values, shown, frames, without)
        path = path_words(shown, Shape.of(**{self.length: extent}))
        verdict = f"{note}{path} {_verdict(means, without, tree)}"
        return Drawn(figure, frame, numbers, verdict, self._options(without))

    def _tree_figure(
        self, values: Values, shown: Dispatcher, frames: Mapping[str, pd.DataFrame], without: str
    ) -> go.Figure:
        """Draws a tree and the slowdown of its rival: the trained tree, or the tree with all
        micro-kernels."""
        tree, name, beside = values["tree"], "trained tree", (WHOLE, frames[WHOLE])
        if tree == BY_HAND:
            name, beside = f"tree {BY_HAND}", (name, frames[TRAINED])
        folding = {"levels": values["levels"], "toggled": spans_of(values["unfolded"])}
        alone = tree == TRAINED and without == NOTHING
        return draw_dispatch(frames[tree], shown, values["shape"], name, None if alone else beside, **folding)

    def _options(self, without: str) -> dict[str, list[str]]:
        """Returns the schemes for the tree by hand: all but the schemes of the missing micro-kernel."""
        plans = self.board.portfolio.schemes
        kept = [plan.key for plan in plans if plan.kernel.key != without]
        return dict.fromkeys(PLANS, kept or [plan.key for plan in plans])

    def clicked(self, values: Values, point: Values) -> Values:
        """Returns what a click changes: a fold unfolds, a split folds, and a leaf chooses an extent that it
        serves. The words below these nodes do the same. On the strip and the slowdown a click chooses the
        extent there."""
        trace, x = point.get("trace", 0), point.get("x")
        if values.get("show") in self.maps:
            on_length = self.maps[values["show"]][0] == self.length
        elif trace in (SPLITS, ENDS, WORDS):
            return self._clicked_node(values, point)
        else:
            on_length = trace > WORDS
        if not on_length or not isinstance(x, (int, float)):
            return {}
        return {"shape": min(max(round(x), self.dim.low), last_drawn(self.dim))}

    def _clicked_node(self, values: Values, point: Values) -> Values:
        shown, toggled = self.at(values)[0][values["tree"]], spans_of(values["unfolded"])
        frame, extent = self.board.table(shown, self.layer(values)), values["shape"]
        drawn = drawn_nodes(frame, shown, extent, values["levels"], toggled)
        nodes = [one.node for one in drawn if one.end == (point["trace"] != SPLITS)]
        number = point.get("point")
        if not isinstance(number, int) or not 0 <= number < len(nodes):
            return {}
        node = nodes[number]
        if node.at_most is not None:
            return {"unfolded": spans_text(toggled ^ {node.span})}
        low, high = node.span
        return {} if node.holds(extent) else {"shape": round((low * high) ** 0.5)}

    def read(self, drawn: Drawn, values: Values) -> str:
        """Returns the key of the scheme that serves the chosen extent."""
        return "" if drawn.frame.empty else str(row_at(drawn.frame, self.length, values["shape"])["scheme"])

    def write(self, drawn: Drawn, scheme: str) -> Values:
        """Returns the middle extent of the rule with the most weight among those of a scheme."""
        if self.length not in drawn.frame or "scheme" not in drawn.frame:
            return {}
        served = drawn.frame[drawn.frame["scheme"] == scheme]
        if served.empty:
            return {}
        widest = served.groupby(["low", "high"], dropna=False)["weight"].transform("sum")
        best = served[widest == widest.max()][self.length]
        return {"shape": int(best.iloc[len(best) // 2])}


def _layers(portfolio: Portfolio, run: Known) -> dict[str, Shape]:
    """Returns the layers of a portfolio by name, tuned ones first; empty if the length is the only
    dimension."""
    if len(portfolio.workload.dims) == 1:
        return {}
    length = length_dim(portfolio.workload)
    tuned, known = ({s.without(length) for s in shapes} for shapes in (run.shapes, portfolio.shapes))
    return {str(layer): layer for layer in (*sorted(tuned & known), *sorted(known - tuned))}


def _maps(portfolio: Portfolio) -> dict[str, tuple[str, str]]:
    """Returns the pairs of dimensions that a map can have, by the control's label."""
    length = length_dim(portfolio.workload)
    others = [name for name in portfolio.workload.dims if name != length]
    return {f"map over {x} and {y}": (x, y) for x, y in combinations((length, *others), 2)}


def _map_of(
    dispatcher: Dispatcher, axes: tuple[str, str], chosen: Mapping[str, int]
) -> tuple[go.Figure, pd.DataFrame]:
    """Returns the figure and the table of a map, with a ring around the shape that is chosen."""
    x, y = axes
    fixed = {name: extent for name, extent in chosen.items() if name not in axes}
    figure = plot_map(dispatcher, x=x, y=y, fixed=fixed)
    add_ring(figure, [chosen[x]], [chosen[y]], str(Shape.of(**chosen)))
    return figure, frame_map(dispatcher, x=x, y=y, fixed=fixed)


def _controls(trees: Trees) -> dict[str, Control]:
    portfolio, name, dim = trees.board.portfolio, trees.length, trees.dim
    plans, first = [plan.key for plan in portfolio.schemes], one_for_all(trees.board).key
    third = (dim.high / dim.low) ** (1 / 3)

    def slider(field: str, value: float, low: int, high: int, label: str) -> Number:
        return Number(round(value), low, high, label=label, tooltip=TOOLTIPS[field])

    def choice(field: str, value: str, options: Iterable[str], label: str = "") -> OneOf:
        return OneOf(value, tuple(options), label=label or field, tooltip=TOOLTIPS[field])

    controls: dict[str, Control] = {}
    if trees.layers:
        controls["layer"] = choice("layer", next(iter(trees.layers)), trees.layers)
        controls["show"] = choice("show", f"along {name}", (f"along {name}", *trees.maps))
    codes = [kernel.key for kernel in portfolio.micro_kernels]
    middle = (dim.low * dim.high) ** 0.5
    return controls | {
        "shape": slider("shape", middle, dim.low, last_drawn(dim), f"path of {name}"),
        "without": choice("without", NOTHING, (NOTHING, *codes)),
        "tree": choice("tree", TRAINED, (TRAINED, BY_HAND)),
        "levels": slider("levels", LEVELS, 1, MOST_LEVELS, "levels unfolded"),
        "unfolded": Text("", hidden=True),
        "plan_1": choice("plan_1", first, plans, "first"),
        "cut_1": slider("cut_1", dim.low * third, dim.low, dim.high, f"up to {name}"),
        "plan_2": choice("plan_2", first, plans, "then"),
        "cut_2": slider("cut_2", dim.low * third**2, dim.low, dim.high, f"up to {name}"),
        "plan_3": choice("plan_3", first, plans, "at last"),
    }


def one_for_all(board: Board) -> Scheme:
    """Returns the plan that loses least if one plan serves every shape: the game begins with it."""
    plans = board.portfolio.schemes
    rows = [board.choice.schemes.index(plan) for plan in plans]
    losses = np.log(board.choice.table[rows] / board.best) @ np.array(board.portfolio.shapes.weights)
    return plans[int(losses.argmin())]


def _numbers(means: Mapping[str, float], shown: Dispatcher, row: Any, without: str) -> dict[str, str]:
    label = "trained" if without == NOTHING else f"trained without {without}"
    numbers = {f"expected mean regret, {label}": means[TRAINED]}
    if without != NOTHING:
        numbers[f"of the {WHOLE}"] = means[WHOLE]
    numbers["by hand"] = means[BY_HAND]
    expected = MICRO * row["expected_seconds"]
    return {
        **{name: regret_words(mean) for name, mean in numbers.items()},
        f"{row['shape']}": f"{expected:.1f} us expected, regret {regret_words(row['slowdown'])}",
        "tree shown": f"{len(leaves(shown.tree))} rules, {depth(shown.tree)} comparisons at most",
        "micro-kernels compiled": str(len(shown.micro_kernels)),
    }


def regret_words(slowdown: float) -> str:
    """Returns a regret as text, ``"1.42 %"``: the time over the best plan's time, minus 1."""
    return f"{100 * (slowdown - 1):.2f} %"


def _verdict(means: Mapping[str, float], without: str, tree: str) -> str:
    """Returns a sentence on whether the trained tree or the player's loses less time."""
    if tree == BY_HAND:
        ratio = means[BY_HAND] / means[TRAINED]
        if abs(ratio - 1) < TIE:
            return "Your tree is as fast as the trained one."
        if ratio < 1:
            return f"Your tree is {100 * (1 / ratio - 1):.1f} % faster than the trained one: you win."
        return f"Your tree is {100 * (ratio - 1):.1f} % slower than the trained one. Can you do better?"
    if without != NOTHING:
        more = 100 * (means[TRAINED] / means[WHOLE] - 1)
        return f"Without {without} a call takes {more:.2f} % longer on average."
    return ""
