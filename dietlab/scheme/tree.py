"""The decision tree over shapes as a value; it is compiled to nested ``if``s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dietlab.base.errors import DispatchError


@dataclass(frozen=True)
class Leaf:
    """A leaf: its shapes run scheme number ``scheme``."""

    scheme: int


@dataclass(frozen=True)
class Split:
    """A split: ``if shape[dim] <= at_most: low else: high``.

    Args:
        dim: the name of the dimension.
        at_most: the largest extent that goes to ``low``.
        low: the subtree for extents up to ``at_most``.
        high: the subtree for larger extents.
    """

    dim: str
    at_most: int
    low: Tree
    high: Tree


Tree = Leaf | Split


def route(tree: Tree, extents: Mapping[str, int]) -> int:
    """Returns the number of the scheme that serves a shape.

    Args:
        tree: a dispatcher's tree.
        extents: the shape's extents by name (:func:`~dietlab.problem.split_extents`).
    """
    while isinstance(tree, Split):
        tree = tree.low if extents[tree.dim] <= tree.at_most else tree.high
    return tree.scheme


def leaves(tree: Tree) -> tuple[Leaf, ...]:
    """Returns all leaves, the lowest extents first.

    Args:
        tree: a dispatcher's tree.
    """
    return (tree,) if isinstance(tree, Leaf) else leaves(tree.low) + leaves(tree.high)


Range = tuple[int, int | None]
"""The smallest and the largest extent of a dimension, both included (None: unbounded)."""

Box = Mapping[str, Range]
"""Ranges of some dimensions; the others are unbounded."""


def boxes(tree: Tree, within: Box = MappingProxyType({})) -> list[tuple[int, Box]]:
    """Returns the scheme number and the box of each leaf. The box holds the extents inside ``within`` that
    reach the leaf; leaves without such extents are left out.

    Args:
        tree: a dispatcher's tree.
        within: the ranges of some dimensions, by name; those of all others begin at 1.
    """
    if isinstance(tree, Leaf):
        return [(tree.scheme, within)]
    low, high = within.get(tree.dim, (1, None))
    below = tree.at_most if high is None else min(high, tree.at_most)
    found: list[tuple[int, Box]] = []
    if low <= below:
        found += boxes(tree.low, {**within, tree.dim: (low, below)})
    if high is None or high > tree.at_most:
        found += boxes(tree.high, {**within, tree.dim: (max(low, tree.at_most + 1), high)})
    return found


def intervals(tree: Tree, low: int = 1, high: int | None = None) -> list[tuple[int, int, int | None]]:
    """Returns ``(number, low, high)`` of each leaf of a tree over one dimension: its scheme number and the
    extents that reach it, both ends included. Leaves that no extent reaches are left out.

    Args:
        tree: a dispatcher's tree that splits one dimension.
        low, high: the smallest and the largest extent (None: unbounded).
    """
    if high is not None and low > high:
        return []
    dims = split_dims(tree)
    found = boxes(tree, dict.fromkeys(dims, (low, high)))
    return [(number, *next(iter(box.values()), (low, high))) for number, box in found]


def split_dims(tree: Tree) -> tuple[str, ...]:
    """Returns the dimensions that a tree splits, in the order of first occurrence.

    Args:
        tree: a dispatcher's tree.
    """
    if isinstance(tree, Leaf):
        return ()
    return tuple(dict.fromkeys((tree.dim, *split_dims(tree.low), *split_dims(tree.high))))


def restricted(tree: Tree, known: Mapping[str, int]) -> Tree:
    """Returns the part of a tree that remains if some extents are known.

    Args:
        tree: a dispatcher's tree.
        known: the known extents, by dimension.
    """
    while isinstance(tree, Split) and tree.dim in known:
        tree = tree.low if known[tree.dim] <= tree.at_most else tree.high
    if isinstance(tree, Leaf):
        return tree
    low, high = restricted(tree.low, known), restricted(tree.high, known)
    return low if low == high else Split(tree.dim, tree.at_most, low, high)


def depth(tree: Tree) -> int:
    """Returns the number of comparisons on the longest path.

    Args:
        tree: a dispatcher's tree.
    """
    return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.low), depth(tree.high))


def relabelled(tree: Tree, numbers: Mapping[int, int]) -> Tree:
    """Returns the tree with its schemes renumbered.

    Args:
        tree: a dispatcher's tree.
        numbers: the new number of each scheme, by the old number.
    """
    if isinstance(tree, Leaf):
        return Leaf(numbers[tree.scheme])
    return Split(tree.dim, tree.at_most, relabelled(tree.low, numbers), relabelled(tree.high, numbers))


LARGEST_EXTENT = (1 << 63) - 1
"""The largest extent that a compiled tree compares: the largest integer of 64 bits."""


def tree_to_json(tree: Tree) -> Any:
    """Returns the tree as JSON: a scheme number, or ``dim``, ``at_most``, ``low`` and ``high``.

    Args:
        tree: a dispatcher's tree.
    """
    if isinstance(tree, Leaf):
        return tree.scheme
    return {
        "dim": tree.dim,
        "at_most": tree.at_most,
        "low": tree_to_json(tree.low),
        "high": tree_to_json(tree.high),
    }


def tree_from_json(value: Any) -> Tree:
    """Returns the tree of a JSON value made by :func:`tree_to_json`.

    Args:
        value: a number or a dictionary.

    Raises:
        DispatchError: if it is no tree.
    """
    if type(value) is int:
        return Leaf(value)
    if not isinstance(value, Mapping) or not {"dim", "at_most", "low", "high"} <= {*value}:
        invariant = "a decision tree must be a scheme's number, or have dim, at_most, low and high"
        raise DispatchError(invariant, f"{value!r:.80}")
    dim, at_most = value["dim"], value["at_most"]
    if not isinstance(dim, str):
        raise DispatchError("the dim of a decision tree must be a dimension's name", f"{dim!r:.80}")
    if type(at_most) is not int or not 0 < at_most <= LARGEST_EXTENT:
        raise DispatchError("the at_most of a decision tree must be an extent, 1 or more", f"{at_most!r:.80}")
    return Split(dim, at_most, tree_from_json(value["low"]), tree_from_json(value["high"]))
