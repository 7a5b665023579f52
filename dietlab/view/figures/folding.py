"""A decision tree that folds: which of its nodes are drawn, and in which column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dietlab.scheme import Leaf, Tree

LEVELS = 3
"""The number of levels unfolded by default: the tree then has at most 8 columns, if no path is unfolded."""

MOST_COLUMNS = 13
"""The most columns of leaves and folds: in a figure of 1010 pixels each column has 65 pixels, and the longest
words fit."""

Span = tuple[int, int]
"""The least and the greatest extent that reach a node, both included."""


@dataclass(frozen=True)
class Node:
    """A split or a leaf, and the extents that reach it.

    Args:
        level: the number of comparisons before the node.
        span: the least and the greatest extent that reach the node.
        at_most: the bound of a split; None for a leaf.
        rules: the index of each leaf's plan, for all leaves at and below the node, in the order of their
            extents.
        below: the nodes of the next level that some of these extents reach.
    """

    level: int
    span: Span
    at_most: int | None
    rules: tuple[int, ...]
    below: tuple[Node, ...] = ()

    def holds(self, extent: int | None) -> bool:
        """Returns whether an extent reaches the node."""
        return extent is not None and self.span[0] <= extent <= self.span[1]

    def every(self) -> Iterator[Node]:
        """Yields the node and all nodes below it, each split before the nodes below it."""
        yield self
        for node in self.below:
            yield from node.every()


@dataclass(frozen=True)
class Shown:
    """A node that is drawn.

    Args:
        x: the column. Leaves and folds have columns 0, 1, 2, ...; a split is in the middle of the nodes below
            it.
        end: whether nothing is drawn below the node, because it is a leaf or a fold (which stands for a
            subtree).
    """

    node: Node
    x: float
    end: bool

    @property
    def folded(self) -> bool:
        """True if the node stands for its subtree."""
        return self.end and self.node.at_most is not None

    @property
    def plans(self) -> tuple[int, ...]:
        """The indices of the plans at and below the node, ascending."""
        return tuple(sorted(set(self.node.rules)))


def root_of(tree: Tree, low: int, high: int, level: int = 0) -> Node:
    """Returns the root of the part of a tree that extents of ``low..high`` reach."""
    if isinstance(tree, Leaf):
        return Node(level, (low, high), None, (tree.scheme,))
    sides = ((tree.low, low, min(high, tree.at_most)), (tree.high, max(low, tree.at_most + 1), high))
    below = tuple(root_of(side, first, last, level + 1) for side, first, last in sides if first <= last)
    rules = tuple(plan for node in below for plan in node.rules)
    return Node(level, (low, high), tree.at_most, rules, below)


def shown_nodes(
    root: Node,
    extent: int | None = None,
    levels: int = LEVELS,
    toggled: Collection[Span] = (),
    weights: Mapping[int, float] | None = None,
) -> list[Shown]:
    """Returns the drawn nodes of a tree, each split before the nodes below it.

    A split is unfolded if it is in the first ``levels`` levels, on the path of ``extent``, or in ``toggled``.
    A toggled split of the first levels is folded instead, unless it is on the path. At most
    :data:`MOST_COLUMNS` columns are drawn: the path is unfolded first, then the way to toggled splits, then
    the splits of most weight.

    Args:
        root: the root of the tree.
        extent: the length of the chosen shape; None if no shape is chosen.
        levels: the number of unfolded levels, counted from the root.
        toggled: the spans of the splits that were clicked.
        weights: the weight of each extent (default: equal weights).
    """

    def wanted(node: Node) -> bool:
        early = node.level < levels
        return node.at_most is not None and (node.holds(extent) or early != (node.span in toggled))

    def urgency(node: Node) -> tuple[bool, bool, float, int]:
        low, high = node.span
        leads = any(low <= first and last <= high for first, last in toggled)
        weight = sum(share for at, share in weights.items() if node.holds(at)) if weights else high - low
        return not node.holds(extent), not leads, -weight, node.level

    opened: set[Node] = set()
    frontier, columns = [node for node in (root,) if wanted(node)], 1
    while frontier:
        node = min(frontier, key=urgency)
        frontier.remove(node)
        if columns + len(node.below) - 1 <= MOST_COLUMNS:
            opened.add(node)
            columns += len(node.below) - 1
            frontier += filter(wanted, node.below)
    return _columns(root, opened, iter(range(columns)))


def _columns(node: Node, opened: Collection[Node], free: Iterator[int]) -> list[Shown]:
    """Returns the drawn nodes of a subtree, in the next free columns."""
    if node not in opened:
        return [Shown(node, float(next(free)), end=True)]
    drawn = [_columns(child, opened, free) for child in node.below]
    middle = sum(part[0].x for part in drawn) / len(drawn)
    return [Shown(node, middle, end=False), *(one for part in drawn for one in part)]


def spans_text(toggled: Collection[Span]) -> str:
    """Returns spans as text, as in ``"13-18 49-128"``."""
    return " ".join(f"{low}-{high}" for low, high in sorted(toggled))


def spans_of(text: str) -> frozenset[Span]:
    """Returns the spans of a text like ``"13-18 49-128"``; words that are no spans are left out."""
    ends = (word.partition("-") for word in text.split())
    return frozenset((int(low), int(high)) for low, _, high in ends if low.isdecimal() and high.isdecimal())
