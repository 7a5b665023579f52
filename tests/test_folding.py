"""The tree that folds: what is drawn of it, and its words and colours."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.problem import Shape
from dietlab.scheme import Leaf, Split, Tree, leaves
from dietlab.tuning import Portfolio, TuningRun, train_dispatcher
from dietlab.view.figures.folding import (
    LEVELS,
    MOST_COLUMNS,
    Shown,
    root_of,
    shown_nodes,
    spans_of,
    spans_text,
)
from dietlab.view.figures.plan_styles import (
    PLAN_COLOURS,
    luminance,
    plan_style,
    text_on,
)
from dietlab.view.figures.tree_traces import ENDS, SPLITS, WORDS
from dietlab.view.widgets.choice import Choice
from dietlab.view.widgets.dispatch_explorer import dispatch_explorer, plot_dispatch

HIGH = 80


def trees() -> st.SearchStrategy[Tree]:
    def split(tree: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.builds(Split, st.just("T"), st.integers(1, HIGH - 1), tree, tree)

    return st.recursive(st.builds(Leaf, st.integers(0, 5)), split, max_leaves=60)


spans = st.frozensets(st.tuples(st.integers(1, HIGH), st.integers(1, HIGH)), max_size=4)


def columns(shown: list[Shown]) -> list[Shown]:
    return [one for one in shown if one.end]


@given(tree=trees(), extent=st.integers(1, HIGH), levels=st.integers(0, 6), toggled=spans)
def test_columns_share_the_range_out_and_never_crowd(
    tree: Tree, extent: int, levels: int, toggled: frozenset[tuple[int, int]]
) -> None:
    root = root_of(tree, 1, HIGH)
    shown = shown_nodes(root, extent, levels, toggled)
    ends = columns(shown)
    assert [one.x for one in ends] == list(range(len(ends))) and len(ends) <= MOST_COLUMNS
    reached = [at for one in ends for at in range(one.node.span[0], one.node.span[1] + 1)]
    assert reached == list(range(1, HIGH + 1))
    assert [plan for one in ends for plan in one.node.rules] == list(root.rules)
    # On a level, words that are a column wide have room.
    for level in {one.node.level for one in shown}:
        places = sorted(one.x for one in shown if one.node.level == level)
        assert all(b - a >= 1 for a, b in pairwise(places))


@given(tree=trees(), extent=st.integers(1, HIGH), levels=st.integers(0, 6))
def test_the_path_is_unfolded_to_its_plan(tree: Tree, extent: int, levels: int) -> None:
    root = root_of(tree, 1, HIGH)
    met = [node for node in root.every() if node.holds(extent)]
    seen = {one.node for one in shown_nodes(root, extent, levels)}
    if len(met) <= MOST_COLUMNS:
        assert {*met} <= seen


@given(tree=trees(), levels=st.integers(0, 3))
def test_without_a_path_only_the_first_levels_are_unfolded(tree: Tree, levels: int) -> None:
    shown = shown_nodes(root_of(tree, 1, HIGH), levels=levels)
    assert all(one.node.level < levels for one in shown if not one.end)
    assert all(one.node.level == levels for one in shown if one.folded)


def test_what_is_toggled_unfolds_or_folds() -> None:
    deep: Tree = Leaf(0)
    for cut in range(8, 0, -1):
        deep = Split("T", cut, Leaf(cut % 3), deep)
    root = root_of(deep, 1, HIGH)
    first = shown_nodes(root, levels=1)
    (fold,) = [one for one in first if one.folded]
    assert len(fold.node.rules) > 2 and fold.plans == tuple(sorted(set(fold.plans)))
    more = shown_nodes(root, levels=1, toggled=[fold.node.span])
    assert len(columns(more)) > len(columns(first))
    # The root is folded by a click, too; the path unfolds it again.
    assert len(columns(shown_nodes(root, toggled=[root.span]))) == 1
    assert len(columns(shown_nodes(root, HIGH, toggled=[root.span]))) == 9


def test_where_columns_are_short_the_heaviest_are_unfolded() -> None:
    def halves(low: int, high: int) -> Tree:
        middle = (low + high) // 2
        if low == high:
            return Leaf(low % 3)
        return Split("T", middle, halves(low, middle), halves(middle + 1, high))

    shown = shown_nodes(root_of(halves(1, 64), 1, 64), levels=6, weights={5: 1.0})
    assert len(columns(shown)) == MOST_COLUMNS
    assert (5, 5) in [one.node.span for one in shown]


@given(toggled=st.frozensets(st.tuples(st.integers(1, 999), st.integers(1, 999))))
def test_spans_are_text_and_back(toggled: frozenset[tuple[int, int]]) -> None:
    assert spans_of(spans_text(toggled)) == toggled
    assert spans_of(spans_text(toggled) + " 7 a-b -3 5- x") == toggled


def test_sixteen_plans_have_sixteen_colours_and_the_next_ones_other_marks() -> None:
    assert len(set(PLAN_COLOURS)) == len(PLAN_COLOURS) == 16
    for colour in PLAN_COLOURS:
        light = luminance(colour)
        assert 1.05 / (light + 0.05) >= 2.95 and (light + 0.05) / (luminance("#111111") + 0.05) >= 2.5
        ink = luminance({"white": "#ffffff", "black": "#000000"}[text_on(colour)])
        assert (max(ink, light) + 0.05) / (min(ink, light) + 0.05) >= 4.5
    assert len({plan_style(n) for n in range(64)}) == 64
    assert [plan_style(n).colour for n in range(16)] == [*PLAN_COLOURS]


# --- in the figure and the explorer -------------------------------------------------------------


@pytest.fixture(scope="module")
def composed(portfolio_of: Callable[[int], Portfolio]) -> Portfolio:
    return portfolio_of(8)


def words(figure: Any, number: int) -> list[str]:
    return list(figure.data[number].text)


def test_the_figure_has_room_for_its_words(synthetic_run: TuningRun, composed: Portfolio) -> None:
    dispatcher = train_dispatcher(composed)
    figure = plot_dispatch(synthetic_run, dispatcher, extent=43)
    below = words(figure, ENDS + 1)
    rules = [int(text.split("<br>")[1].split()[0]) for text in below if "<br>" in text]
    whole = sum(rules) + sum("<br>" not in text for text in below)
    assert whole == len(root_of(dispatcher.tree, 1, 160).rules)
    assert len(leaves(dispatcher.tree)) == whole
    longest = max(len(line) for text in below for line in text.split("<br>"))
    assert longest <= 9
    more = plot_dispatch(synthetic_run, dispatcher, levels=LEVELS + 1)
    assert len(more.data[SPLITS].x) > len(plot_dispatch(synthetic_run, dispatcher, levels=1).data[SPLITS].x)


def test_clicks_fold_unfold_and_choose(synthetic_run: TuningRun, composed: Portfolio) -> None:
    explorer = dispatch_explorer(synthetic_run, composed)
    explorer.set(shape=1, levels=1)
    before = words(explorer.figure, ENDS)
    fold = before.index("+")
    explorer.live.clicked = {"trace": ENDS, "point": fold, "x": fold, "count": 1}
    assert explorer.values["unfolded"] and len(words(explorer.figure, ENDS)) > len(before)
    unfolded = explorer.values["unfolded"].replace("-", " to ")
    hovers = explorer.figure.data[SPLITS].hovertext
    split = next(number for number, hover in enumerate(hovers) if unfolded in hover)
    explorer.live.clicked = {"trace": SPLITS, "point": split, "x": 0, "count": 2}
    assert explorer.values["unfolded"] == "" and words(explorer.figure, ENDS) == before
    leaf = next(i for i, text in enumerate(before) if text != "+" and i > 0)
    explorer.live.clicked = {"trace": ENDS, "point": leaf, "x": leaf, "count": 3}
    assert explorer.values["shape"] > 1
    kept = explorer.values
    for number in (fold, leaf):  # the words below a node are clicked like the node
        changed = {}
        for trace in (ENDS, WORDS):
            explorer.restore({**kept, "shape": 1, "unfolded": ""})
            # Beyond the columns, x would be an extent of the strip.
            count = explorer.live.clicked["count"] + 1
            explorer.live.clicked = {"trace": trace, "point": number, "x": 99, "count": count}
            changed[trace] = explorer.state()
        assert changed[ENDS] == changed[WORDS] != {**kept, "shape": 1, "unfolded": ""}
    explorer.restore(kept)
    for count, point in enumerate([None, 999, -1, 0.5], 20):
        explorer.live.clicked = {"trace": ENDS, "point": point, "x": 1, "count": count}
    explorer.live.clicked = {"trace": 0, "point": 0, "x": 1, "count": 30}
    assert explorer.values == kept


def test_the_plan_of_the_path_is_the_choice(synthetic_run: TuningRun, composed: Portfolio) -> None:
    choice, dispatcher = Choice(), train_dispatcher(composed)
    explorer = dispatch_explorer(synthetic_run, composed, choice)
    assert choice.key == ""
    explorer.controls["shape"].value = 43
    assert choice.scheme == dispatcher.scheme(Shape.of(T=43))
    for scheme in {dispatcher.scheme(Shape.of(T=t)) for t in range(1, 129)}:
        choice.choose(scheme)
        assert dispatcher.scheme(Shape.of(T=explorer.values["shape"])) == scheme and choice.scheme == scheme
    kept = explorer.values["shape"]
    choice.choose("1x8.u1.is.p0")
    assert explorer.values["shape"] == kept and choice.key == "1x8.u1.is.p0"
