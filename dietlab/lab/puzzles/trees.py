"""Puzzles 11 to 13: the order of tiles for a small cache, one split of a decision tree, and a whole tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lab.puzzles.answers import TOLERANCE, WrongAnswer, kind, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

Tile = tuple[int, int]
BUSY = 2
"""The number of panels that a cache needs in addition to those kept: room for the last two that streamed
through. With room for only one panel, the least recently used panel would be a kept one."""


def loads(tiles: Sequence[Tile], fits: int) -> int:
    """Returns the number of panels loaded through a cache that evicts the least recently used panel."""
    cache: dict[tuple[str, int], None] = {}  # a dict keeps its order: the least recently used is first
    count = 0
    for row, col in tiles:
        for panel in (("row", row), ("col", col)):
            if panel in cache:
                del cache[panel]
            else:
                count += 1
                if len(cache) == fits:
                    del cache[next(iter(cache))]
            cache[panel] = None
    return count


def _strips(rows: int, cols: int, high: int) -> list[Tile]:
    """Returns strips of rows, one after another, and within a strip column by column."""
    firsts = range(0, rows, high)
    return [(i, j) for first in firsts for j in range(cols) for i in range(first, min(rows, first + high))]


def _order(rows: int, cols: int, fits: int) -> list[Tile]:
    """Returns tiles in strips as high as fit, in the direction that loads less by the formula. If both
    directions are equal by the formula, returns the order that loads more in fact, so that either is a right
    answer.
    """
    high = fits - BUSY
    lying, upright = _strips(rows, cols, high), [(i, j) for j, i in _strips(cols, rows, high)]
    by_formula = ((-(-rows // high) * cols + rows, lying), (-(-cols // high) * rows + cols, upright))
    least = min(count for count, _ in by_formula)
    return max((tiles for count, tiles in by_formula if count == least), key=lambda one: loads(one, fits))


def _as_tiles(given: Given, found: Any) -> list[Tile]:
    if not isinstance(found, (list, tuple)):
        raise WrongAnswer("expected a list of pairs (i, j)", kind(found))
    pairs = [whole_numbers(one, "pairs (i, j)") for one in found]
    if any(len(pair) != 2 for pair in pairs):
        raise WrongAnswer("expected pairs (i, j)", said(next(pair for pair in pairs if len(pair) != 2)))
    tiles = [(pair[0], pair[1]) for pair in pairs]
    wanted = {(i, j) for i in range(given["rows"]) for j in range(given["cols"])}
    if len(tiles) != len(wanted) or set(tiles) != wanted:
        missing, others = len(wanted - set(tiles)), len(set(tiles) - wanted)
        twice = len(tiles) - len(set(tiles))
        raise WrongAnswer(
            f"expected each of {len(wanted)} tiles once",
            f"{len(tiles)}: {missing} are missing, {twice} come again, {others} do not exist",
        )
    return tiles


def _fault(given: Given, found: Any, expected: list[Tile]) -> str:
    yours, enough = (loads(tiles, given["fits"]) for tiles in (_as_tiles(given, found), expected))
    return "" if yours <= enough else f"expected at most {enough} loads, got {yours}"


BLOCKING = Puzzle(
    name="order",
    hints=(
        "Keep some row panels in the cache, and stream the columns through it.",
        "Of `fits` panels, two are for the stream: a strip is `fits - 2` rows high. Within it go column by "
        "column.",
        "The strips may as well stand upright: count `ceil(rows / h) * cols + rows` for both, and take the "
        "lesser.",
    ),
    reference=_order,
    arguments="rows cols fits",
    tried=lambda random: (
        *((6, 6, 5), (4, 8, 12), (1, 5, 3), (3, 9, 5), (9, 3, 5), (5, 5, 3)),
        *((random.randint(1, 12), random.randint(1, 12), random.randint(3, 12)) for _ in range(40)),
    ),
    fault=_fault,
    shown=[(6, 6, 5)],
    picture=Picture(
        "Order of tiles, 5 panels fit",
        "column j",
        "row i",
        lambda given, value: [(j, i, n) for n, (i, j) in enumerate(_as_tiles(given, value), start=1)],
        "grid",
        "step",
    ),
    praise="This is cache blocking; K-blocking does it once more along the depth, so that panels are small.",
    counts=("panels loaded", lambda given, value: loads(_as_tiles(given, value), given["fits"])),
)


Array = npt.NDArray[np.float64]
Split = tuple[int, int, int]
"""``(at_most, low, high)``: plan ``low`` where ``T <= at_most``, else plan ``high``."""

TRAP: Array = np.array([[0.0, 3.0]] * 4 + [[90.0, 0.0]] * 2 + [[0.0, 2.0]] * 6 + [[60.0, 0.0]] * 2)
"""Losses by which plan 0 wins on ten of fourteen lengths, and loses much on the other four."""


def lost(losses: Array, split: Split) -> float:
    """Returns the microseconds that a split loses over all lengths ``T = 1 .. len(losses)``."""
    at_most, low, high = split
    return float(losses[:at_most, low].sum() + losses[at_most:, high].sum())


def _best_split(losses: Array) -> Split:
    lengths, plans = losses.shape
    splits = product(range(lengths + 1), range(plans), range(plans))
    return min(splits, key=lambda split: lost(losses, split))


def _worse_split(given: Given, found: Any, expected: Split) -> str:
    split = _as_split(given, found)
    spent, least = lost(given["losses"], split), lost(given["losses"], expected)
    if spent <= least * (1 + TOLERANCE) + TOLERANCE:
        return ""
    return f"expected to lose {said(least)} us, got {said(split)}, which loses {said(spent)} us"


def _as_split(given: Given, found: Any) -> Split:
    """Returns an answer that is a split of this table."""
    values, (lengths, plans) = whole_numbers(found, "(at_most, low, high)"), given["losses"].shape
    if len(values) == 3:
        at_most, low, high = values
        if 0 <= at_most <= lengths and 0 <= low < plans and 0 <= high < plans:
            return (at_most, low, high)
    raise WrongAnswer("expected (at_most, low, high) within the table", said(tuple(values)))


def _lost_on(random: Random, *shape: int) -> Array:
    """Returns the losses of plans (the last axis) against the best plan on each shape, for random times."""
    times = np.array([random.uniform(50, 200) for _ in range(int(np.prod(shape)))]).reshape(shape)
    return np.asarray(times - times.min(axis=-1, keepdims=True))


def _loses(given: Given, value: Any) -> list[Point]:
    at_most, low, high = _as_split(given, value)
    served = enumerate(given["losses"], start=1)
    return [(T, "", float(row[low if at_most >= T else high])) for T, row in served]


def _plans(given: Given) -> list[Point]:
    table = enumerate(given["losses"], start=1)
    return [(T, f"plan {plan}", float(value)) for T, row in table for plan, value in enumerate(row)]


SPLIT = Puzzle(
    name="split",
    hints=(
        "How much does one rule lose? The sum of two parts of two columns.",
        "Thresholds run from 0 to the number of lengths, both included.",
        "`min` over `itertools.product` of thresholds, plans and plans, by what each loses.",
    ),
    reference=_best_split,
    arguments="losses",
    tried=lambda random: (
        (TRAP,),
        (np.array([[0.0, 5.0], [0.0, 5.0], [5.0, 0.0]]),),
        (np.array([[0.0, 1.0]] * 3),),
        (np.array([[4.0, 0.0, 9.0], [0.0, 3.0, 9.0]]),),
        *((_lost_on(random, random.randint(1, 24), random.randint(2, 4)),) for _ in range(60)),
    ),
    fault=_worse_split,
    shown=[(TRAP,)],
    picture=Picture("What the rule loses", "T (rows)", "time lost (us)", _loses, context=_plans),
    praise="train_dispatcher finds all splits at once by dynamic programming, with the same measure.",
    counts=("time lost (us)", lambda given, value: lost(given["losses"], _as_split(given, value))),
)


Tree = Any
"""A plan's index, or ``(axis, at_most, low, high)``, where ``low`` and ``high`` are trees."""

SIZE, DEPTH = 8, 2


def plans_of(tree: Tree, shape: tuple[int, int, int], depth: int) -> npt.NDArray[np.int64]:
    """Returns the plan that a tree chooses on each shape, ``[T, N]``."""
    chosen = np.zeros(shape[:2], np.int64)
    _fill(tree, chosen, np.ones(shape[:2], bool), shape[2], depth)
    return chosen


def _fill(
    tree: Tree, chosen: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_], plans: int, depth: int
) -> None:
    if isinstance(tree, (int, np.integer)):
        if not 0 <= tree < plans:
            raise WrongAnswer(f"expected a plan from 0 to {plans - 1}", int(tree))
        chosen[inside] = tree
        return
    if not isinstance(tree, tuple) or len(tree) != 4:
        raise WrongAnswer("expected a plan's number or (axis, at_most, low, high)", kind(tree))
    if depth == 0:
        raise WrongAnswer("expected no more cuts one below the other than depth", said(tree))
    axis, at_most, low, high = tree
    if axis not in (0, 1) or not isinstance(at_most, (int, np.integer)):
        raise WrongAnswer("expected axis 0 or 1 and a whole number at_most", said((axis, at_most)))
    below = np.indices(chosen.shape)[axis] <= at_most
    _fill(low, chosen, inside & below, plans, depth - 1)
    _fill(high, chosen, inside & ~below, plans, depth - 1)


def _best_tree(losses: Array, calls: Array, depth: int) -> Tree:
    return _search(losses * calls[:, :, None], (0, 0), depth)[1]


def _search(lost: Array, first: tuple[int, int], depth: int) -> tuple[float, Tree]:
    """Returns the loss of a rectangle's best tree, and the tree; ``first`` is the rectangle's first
    corner."""
    totals = lost.sum(axis=(0, 1))
    best: tuple[float, Tree] = (float(totals.min()), int(totals.argmin()))
    for axis in (0, 1) if depth else ():
        for cut in range(1, lost.shape[axis]):
            low, high = np.split(lost, [cut], axis=axis)
            beyond = (first[0] + cut, first[1]) if axis == 0 else (first[0], first[1] + cut)
            below, above = _search(low, first, depth - 1), _search(high, beyond, depth - 1)
            if below[0] + above[0] < best[0] - TOLERANCE:
                best = (below[0] + above[0], (axis, first[axis] + cut - 1, below[1], above[1]))
    return best


def lost_by(given: Given, tree: Tree) -> float:
    """Returns the microseconds that a tree loses over all calls."""
    chosen = plans_of(tree, given["losses"].shape, given["depth"])
    each = np.take_along_axis(given["losses"], chosen[:, :, None], axis=2)[:, :, 0]
    return float((each * given["calls"]).sum())


def _worse_tree(given: Given, found: Any, expected: Tree) -> str:
    yours, least = lost_by(given, found), lost_by(given, expected)
    if yours <= least * (1 + TOLERANCE) + TOLERANCE:
        return ""
    return f"expected to lose {said(least)} us over all calls, got {said(yours)}"


def _example() -> tuple[Array, Array, int]:
    """Returns an example with three plans: for short T, for long T with narrow N, and for all other calls.
    Most calls are short.
    """
    short, narrow = np.indices((SIZE, SIZE))
    regions = np.where(short < 3, 0, np.where(narrow < 4, 1, 2))
    regions[6, 1] = regions[1, 6] = 2  # seldom called: no tree of this depth can serve them
    losses = np.where(regions[:, :, None] == np.arange(3), 0.0, 10.0)
    calls = np.where(short < 3, 8.0, 1.0)
    calls[1, 6] = 0.0
    return losses, calls, DEPTH


def _trees(random: Random) -> Iterator[tuple[Array, Array, int]]:
    corner = np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    for depth in (0, 1, 2):
        yield corner, np.ones((2, 2)), depth
    yield corner, np.array([[1.0, 1.0], [1.0, 0.0]]), 1
    yield _example()
    for _ in range(12):
        shape = (random.randint(1, 5), random.randint(1, 5), random.randint(2, 3))
        losses = _lost_on(random, *shape)
        calls = np.array([random.randint(0, 9) for _ in range(shape[0] * shape[1])], float).reshape(shape[:2])
        yield losses, calls, random.randint(0, 2)


def _chosen(given: Given, value: Any) -> list[Point]:
    chosen = plans_of(value, given["losses"].shape, given["depth"])
    return [(n, t, int(chosen[t, n])) for t, n in product(range(chosen.shape[0]), range(chosen.shape[1]))]


TREE = Puzzle(
    name="tree",
    hints=(
        "Weigh first: `losses * calls[:, :, None]`. Depth 0 is then one `argmin` of sums.",
        "A tree of depth d is a cut with two trees of depth d - 1. Let a function return what it loses, and "
        "itself.",
        "Cut with slices of the array, and carry the index of its first row and column along for `at_most`.",
    ),
    reference=_best_tree,
    arguments="losses calls depth",
    tried=_trees,
    fault=_worse_tree,
    shown=[_example()],
    picture=Picture("Plans by a tree of depth 2", "index of N", "index of T", _chosen, "grid", "plan"),
    praise="Greedy trees cut once and never look back; this one is the best there is at its depth.",
    counts=("time lost over all calls (us)", lost_by),
)
