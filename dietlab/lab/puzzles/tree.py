"""Puzzle 13: a decision tree over two dimensions, for the traffic that there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lab.puzzles.answers import TOLERANCE, WrongAnswer, kind, said
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

Array = npt.NDArray[np.float64]
Tree = Any
"""A plan's number, or ``(axis, at_most, low, high)`` with two trees."""

SIZE, DEPTH = 8, 2


def plans_of(tree: Tree, shape: tuple[int, int, int], depth: int) -> npt.NDArray[np.int64]:
    """Returns the plan that a tree chooses on each shape, ``[T, N]``.

    Args:
        tree: an answer.
        shape: lengths T, lengths N and plans.
        depth: of the tree at most.

    Raises:
        WrongAnswer: if it is no tree, or too deep.
    """
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


def _best(losses: Array, calls: Array, depth: int) -> Tree:
    return _search(losses * calls[:, :, None], (0, 0), depth)[1]


def _search(lost: Array, first: tuple[int, int], depth: int) -> tuple[float, Tree]:
    """Returns what the best tree of a rectangle loses, and that tree; ``first`` is its first corner."""
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


def _fault(given: Given, found: Any, expected: Tree) -> str:
    yours, least = lost_by(given, found), lost_by(given, expected)
    if yours <= least * (1 + TOLERANCE) + TOLERANCE:
        return ""
    return f"expected to lose {said(least)} us over all calls, got {said(yours)}"


def _example() -> Given:
    """Returns three plans: for short T, for long T with narrow N, and for all else; most calls are short."""
    short, narrow = np.indices((SIZE, SIZE))
    regions = np.where(short < 3, 0, np.where(narrow < 4, 1, 2))
    regions[6, 1] = regions[1, 6] = 2  # seldom called: no tree of this depth can serve them
    losses = np.where(regions[:, :, None] == np.arange(3), 0.0, 10.0)
    calls = np.where(short < 3, 8.0, 1.0)
    calls[1, 6] = 0.0
    return {"losses": losses, "calls": calls, "depth": DEPTH}


def _cases(random: Random) -> Iterator[Given]:
    corner = np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    for depth in (0, 1, 2):
        yield {"losses": corner, "calls": np.ones((2, 2)), "depth": depth}
    yield {"losses": corner, "calls": np.array([[1.0, 1.0], [1.0, 0.0]]), "depth": 1}
    yield _example()
    for _ in range(12):
        shape = (random.randint(1, 5), random.randint(1, 5), random.randint(2, 3))
        drawn = np.array([random.uniform(50, 200) for _ in range(int(np.prod(shape)))]).reshape(shape)
        calls = np.array([random.randint(0, 9) for _ in range(shape[0] * shape[1])], float).reshape(shape[:2])
        losses = drawn - drawn.min(axis=2, keepdims=True)
        yield {"losses": losses, "calls": calls, "depth": random.randint(0, 2)}


def _points(given: Given, value: Any) -> list[Point]:
    chosen = plans_of(value, given["losses"].shape, given["depth"])
    return [(n, t, int(chosen[t, n])) for t, n in product(range(chosen.shape[0]), range(chosen.shape[1]))]


TREE = Puzzle(
    title="A tree for real traffic",
    name="tree",
    statement=(
        "Two dimensions are dynamic, `T` and `N`, here by their index from 0. A tree is a plan's number, or "
        "a cut `(axis, at_most, low, high)`: shapes whose index along `axis` (0 is `T`, 1 is `N`) is at most "
        "`at_most` go to the tree `low`, others to `high`. Not all shapes are called equally often. Write "
        "`tree(losses, calls, depth)`: the tree of at most `depth` cuts, one below the other, that loses "
        "least over all calls."
    ),
    gets=(
        "the arrays `losses[T][N][plan]`, microseconds lost in a call, and `calls[T][N]`, and the `depth`, "
        "which is 0, 1 or 2."
    ),
    returns="the tree: a whole number or nested tuples; of equals, any.",
    example="tree(np.array([[[0.0, 9.0]], [[9.0, 0.0]]]), np.ones((2, 1)), 1) == (0, 0, 0, 1)",
    lines=12,
    minutes=30,
    lesson="06_dispatch.ipynb",
    hints=(
        "Weigh first: `losses * calls[:, :, None]`. Depth 0 is then one `argmin` of sums.",
        "A tree of depth d is a cut with two trees of depth d - 1. Let a function return what it loses, and "
        "itself.",
        "Cut with slices of the array, and carry the index of its first row and column along for `at_most`.",
    ),
    reference=_best,
    cases=_cases,
    fault=_fault,
    samples=lambda: [_example()],
    picture=Picture("Plans by a tree of depth 2", "index of N", "index of T", _points, "grid", "plan"),
    praise="Greedy trees cut once and never look back; this one is the best there is at its depth.",
    counts=("time lost over all calls (us)", lost_by),
)
