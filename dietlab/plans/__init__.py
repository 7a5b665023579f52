"""Plans: how a scheme covers one shape, and the decision tree that names a scheme for every shape."""

from dietlab.plans.plan import Plan, Region, heights, needed, plan_for, spans, tiles_of, tiling
from dietlab.plans.tree import (
    Leaf,
    Split,
    Tree,
    depth,
    intervals,
    leaves,
    relabelled,
    route,
    tree_from_json,
    tree_to_json,
)

__all__ = [
    "Leaf",
    "Plan",
    "Region",
    "Split",
    "Tree",
    "depth",
    "heights",
    "intervals",
    "leaves",
    "needed",
    "plan_for",
    "relabelled",
    "route",
    "spans",
    "tiles_of",
    "tiling",
    "tree_from_json",
    "tree_to_json",
]
