"""A decision tree that folds: which of its nodes are drawn, and in which column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from dietlab.scheme import Leaf, Tree

LEVELS = 3
"""Comparisons unfolded by default: 8 columns without the path."""

MOST_COLUMNS = 13
"""The most leaves and folds beside each other: at 1010 pixels each has 65, more than the longest words."""

Span = tuple[int, int]
"""The least and the greatest extent that reach a node, both included."""

Weight = Callable[[int, int], float]
"""The share of calls with an extent of ``low..high``."""


@dataclass(frozen=True)
class Node:
    """A split or a leaf, and the extents ``low..high`` that reach it.

    ``at_most`` is a split's bound, ``plan`` a leaf's number; the other is None.
    """

    level: int
    above: Node | None
    low: int
    high: int
    at_most: int | None = None
    plan: int | None = None

    @property
    def span(self) -> Span:
        return self.low, self.high

    def holds(self, extent: int | None) -> bool:
        """Returns whether an extent reaches it."""
        return extent is not None and self.low <= extent <= self.high


@dataclass(frozen=True)
class Shown:
    """A node that is drawn.

    Args:
        x: its column: leaves and folds stand at 0, 1, 2, ..., a split in the middle of what is below it.
        rules: leaves of the tree that a fold stands for; 1 for a leaf, 0 for a split.
        plans: numbers of the plans of these leaves, in ascending order.
    """

    node: Node
    x: float
    rules: int
    plans: tuple[int, ...]

    @property
    def folded(self) -> bool:
        """True if it stands for a subtree."""
        return self.rules > 0 and self.node.at_most is not None


def tree_nodes(tree: Tree, low: int, high: int, above: Node | None = None) -> list[Node]:
    """Returns every node that some extent of ``low..high`` reaches, the root first."""
    if low > high:
        return []
    level = 0 if above is None else above.level + 1
    if isinstance(tree, Leaf):
        return [Node(level, above, low, high, plan=tree.scheme)]
    node = Node(level, above, low, high, at_most=tree.at_most)
    below = tree_nodes(tree.low, low, min(high, tree.at_most), node)
    return [node, *below, *tree_nodes(tree.high, max(low, tree.at_most + 1), high, node)]


def shown_nodes(
    nodes: Sequence[Node],
    extent: int | None = None,
    levels: int = LEVELS,
    toggled: Collection[Span] = (),
    weight: Weight | None = None,
) -> list[Shown]:
    """Returns what is drawn of a tree, each split before what is below it.

    Splits of the first ``levels`` levels are unfolded, and those on the path of ``extent``; of the others
    those that are ``toggled``, which also folds one of the first levels. There are at most
    :data:`MOST_COLUMNS` columns: where more would be unfolded, the path comes first, then what was toggled,
    then the heaviest.

    Args:
        nodes: of :func:`tree_nodes`.
        extent: of the chosen shape.
        levels: number of comparisons from the root on.
        toggled: spans of the splits that were clicked.
        weight: of a range of extents (default: its length).
    """
    below: dict[int, list[Node]] = {}
    for node in nodes:
        below.setdefault(id(node.above), []).append(node)
    weigh = weight or (lambda low, high: high - low + 1.0)

    def wanted(node: Node) -> bool:
        early = node.level < levels
        return node.at_most is not None and (node.holds(extent) or early != (node.span in toggled))

    def urgency(node: Node) -> tuple[bool, bool, float, int]:
        leads = any(node.low <= low and high <= node.high for low, high in toggled)
        return not node.holds(extent), not leads, -weigh(*node.span), node.level

    opened: set[int] = set()
    frontier, columns = [node for node in nodes[:1] if wanted(node)], 1
    while frontier:
        node = min(frontier, key=urgency)
        frontier.remove(node)
        under = below[id(node)]
        if columns + len(under) - 1 <= MOST_COLUMNS:
            opened.add(id(node))
            columns += len(under) - 1
            frontier += filter(wanted, under)
    return _columns(nodes[0], below, opened, iter(range(columns))) if nodes else []


def _columns(
    node: Node, below: dict[int, list[Node]], opened: Collection[int], free: Iterator[int]
) -> list[Shown]:
    """Returns what is drawn of a node and below it, in the next free columns."""
    if id(node) not in opened:
        found = list(_plans(node, below))
        return [Shown(node, float(next(free)), len(found), tuple(sorted(set(found))))]
    drawn = [_columns(child, below, opened, free) for child in below[id(node)]]
    middle = sum(part[0].x for part in drawn) / len(drawn)
    plans = sorted({plan for part in drawn for plan in part[0].plans})
    return [Shown(node, middle, 0, tuple(plans)), *(one for part in drawn for one in part)]


def _plans(node: Node, below: dict[int, list[Node]]) -> Iterator[int]:
    """Yields the plan of each leaf at or below a node."""
    if node.plan is not None:
        yield node.plan
    for child in below.get(id(node), ()):
        yield from _plans(child, below)


def toggled_with(toggled: Collection[Span], span: Span) -> frozenset[Span]:
    """Returns the toggled spans after one more click: a second one takes the first back."""
    return frozenset(toggled) ^ {span}


def spans_text(toggled: Collection[Span]) -> str:
    """Returns spans as text, as in ``"13-18 49-128"``."""
    return " ".join(f"{low}-{high}" for low, high in sorted(toggled))


def spans_of(text: str) -> frozenset[Span]:
    """Returns the spans of a text like ``"13-18 49-128"``; words that are none are left out."""
    found: set[Span] = set()
    for word in text.split():
        low, _, high = word.partition("-")
        if low.isdecimal() and high.isdecimal():
            found.add((int(low), int(high)))
    return frozenset(found)
