"""Plans: how a scheme covers one shape, and the decision tree that names a scheme for every shape."""

from dietlab.plans.plan import Plan, Region, heights, needed, plan_for, spans, tiles_of, tiling
from dietlab.plans.tree import (
    Box,
    Leaf,
    Split,
    Tree,
    boxes,
    depth,
    intervals,
    leaves,
    relabelled,
    restricted,
    route,
    split_dims,
    tree_from_json,
    tree_to_json,
)

__all__ = [
    "Box",
    "Leaf",
    "Plan",
    "Region",
    "Split",
    "Tree",
    "boxes",
    "depth",
    "heights",
    "intervals",
    "leaves",
    "needed",
    "plan_for",
    "relabelled",
    "restricted",
    "route",
    "spans",
    "split_dims",
    "tiles_of",
    "tiling",
    "tree_from_json",
    "tree_to_json",
]
