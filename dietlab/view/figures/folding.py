"""A decision tree that folds: which of its nodes are drawn, and in which column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dietlab.scheme import Leaf, Tree

LEVELS = 3
"""Comparisons unfolded by default: 8 columns without the path."""

MOST_COLUMNS = 13
"""The most leaves and folds beside each other: at 1010 pixels each has 65, more than the longest words."""

Span = tuple[int, int]
"""The least and the greatest extent that reach a node, both included."""


@dataclass(frozen=True)
class Node:
    """A split or a leaf, and the extents that reach it.

    Args:
        level: the number of comparisons before it.
        span: the extents.
        at_most: a split's bound; None of a leaf.
        rules: the numbers of the plans of all leaves at and below it, in the order of their extents.
        below: the nodes of the next level that some of its extents reach.
    """

    level: int
    span: Span
    at_most: int | None
    rules: tuple[int, ...]
    below: tuple[Node, ...] = ()

    def holds(self, extent: int | None) -> bool:
        """Returns whether an extent reaches it."""
        return extent is not None and self.span[0] <= extent <= self.span[1]

    def every(self) -> Iterator[Node]:
        """Yields it and all nodes below it, each split before what is below it."""
        yield self
        for node in self.below:
            yield from node.every()


@dataclass(frozen=True)
class Shown:
    """A node that is drawn.

    Args:
        x: its column: leaves and folds stand at 0, 1, 2, ..., a split in the middle of what is below it.
        end: whether nothing is drawn below it: it is a leaf, or a fold that stands for a subtree.
    """

    node: Node
    x: float
    end: bool

    @property
    def folded(self) -> bool:
        """True if it stands for a subtree."""
        return self.end and self.node.at_most is not None

    @property
    def plans(self) -> tuple[int, ...]:
        """The numbers of the plans at and below it, ascending."""
        return tuple(sorted(set(self.node.rules)))


def root_of(tree: Tree, low: int, high: int, level: int = 0) -> Node:
    """Returns the root of what extents of ``low..high`` reach of a tree."""
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
    """Returns what is drawn of a tree, each split before what is below it.

    Splits of the first ``levels`` levels are unfolded, and those on the path of ``extent``; of the others
    those that are ``toggled``, which also folds one of the first levels. There are at most
    :data:`MOST_COLUMNS` columns: where more would be unfolded, the path comes first, then what was toggled,
    then the heaviest.

    Args:
        root: of the tree.
        extent: of the chosen shape.
        levels: number of comparisons from the root on.
        toggled: spans of the splits that were clicked.
        weights: of extents (default: equal ones).
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
    """Returns what is drawn of a node and below it, in the next free columns."""
    if node not in opened:
        return [Shown(node, float(next(free)), end=True)]
    drawn = [_columns(child, opened, free) for child in node.below]
    middle = sum(part[0].x for part in drawn) / len(drawn)
    return [Shown(node, middle, end=False), *(one for part in drawn for one in part)]


def spans_text(toggled: Collection[Span]) -> str:
    """Returns spans as text, as in ``"13-18 49-128"``."""
    return " ".join(f"{low}-{high}" for low, high in sorted(toggled))


def spans_of(text: str) -> frozenset[Span]:
    """Returns the spans of a text like ``"13-18 49-128"``; words that are none are left out."""
    ends = (word.partition("-") for word in text.split())
    return frozenset((int(low), int(high)) for low, _, high in ends if low.isdecimal() and high.isdecimal())
