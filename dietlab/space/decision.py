"""A decision tree over shapes, as a value: nested ``if``s waiting to be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietlab.errors import DispatchError
from dietlab.shapes import Shape


@dataclass(frozen=True)
class Leaf:
    """Use plan number ``kernel``: the micro-kernel that leads it."""

    kernel: int


@dataclass(frozen=True)
class Split:
    """``if shape[dim] <= at_most: low else: high``."""

    dim: str
    at_most: int
    low: Tree
    high: Tree


Tree = Leaf | Split


def route(tree: Tree, shape: Shape) -> int:
    """The number of the micro-kernel that serves ``shape``."""
    while isinstance(tree, Split):
        tree = tree.low if shape[tree.dim] <= tree.at_most else tree.high
    return tree.kernel


def leaves(tree: Tree) -> tuple[Leaf, ...]:
    return (tree,) if isinstance(tree, Leaf) else leaves(tree.low) + leaves(tree.high)


def intervals(tree: Tree, low: int = 1, high: int | None = None) -> list[tuple[int, int, int | None]]:
    """``(number, low, high)`` of each leaf: which extents of the one dimension reach it, both ends
    included (None: no end). Leaves that nothing reaches are left out."""
    if high is not None and low > high:
        return []
    if isinstance(tree, Leaf):
        return [(tree.kernel, low, high)]
    below = tree.at_most if high is None else min(high, tree.at_most)
    return intervals(tree.low, low, below) + intervals(tree.high, max(low, tree.at_most + 1), high)


def depth(tree: Tree) -> int:
    """How many comparisons the longest path makes."""
    return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.low), depth(tree.high))


def relabelled(tree: Tree, numbers: Mapping[int, int]) -> Tree:
    """The same tree with micro-kernels renumbered."""
    if isinstance(tree, Leaf):
        return Leaf(numbers[tree.kernel])
    return Split(tree.dim, tree.at_most, relabelled(tree.low, numbers), relabelled(tree.high, numbers))


def tree_to_json(tree: Tree) -> Any:
    if isinstance(tree, Leaf):
        return tree.kernel
    return {
        "dim": tree.dim,
        "at_most": tree.at_most,
        "low": tree_to_json(tree.low),
        "high": tree_to_json(tree.high),
    }


def tree_from_json(value: Any) -> Tree:
    """The inverse of :func:`tree_to_json`.

    Raises:
        DispatchError: if it is no tree.
    """
    if isinstance(value, int):
        return Leaf(value)
    try:
        return Split(
            str(value["dim"]),
            int(value["at_most"]),
            tree_from_json(value["low"]),
            tree_from_json(value["high"]),
        )
    except (KeyError, TypeError) as error:
        raise DispatchError("a decision tree has dim, at_most, low and high", error) from None
