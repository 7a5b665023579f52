"""Stage 1: shape-generic micro-kernels, schemes, the limits that bound both, plans and decision trees."""

from dietlab.scheme.micro_kernel import COMPOSED, EDGES, Edge, MicroKernel, Order, with_rows
from dietlab.scheme.parameters import with_parameters
from dietlab.scheme.plan import Plan, Region, heights, needed, plan_for, spans, tiles_of, tiling
from dietlab.scheme.scheme import Scheme, scheme_with
from dietlab.scheme.space import Cover, Rejection, Space, build_space, edges_of, parameter_table
from dietlab.scheme.target import Limit
from dietlab.scheme.tree import (
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
    "COMPOSED",
    "EDGES",
    "Box",
    "Cover",
    "Edge",
    "Leaf",
    "Limit",
    "MicroKernel",
    "Order",
    "Plan",
    "Region",
    "Rejection",
    "Scheme",
    "Space",
    "Split",
    "Tree",
    "boxes",
    "build_space",
    "depth",
    "edges_of",
    "heights",
    "intervals",
    "leaves",
    "needed",
    "parameter_table",
    "plan_for",
    "relabelled",
    "restricted",
    "route",
    "scheme_with",
    "spans",
    "split_dims",
    "tiles_of",
    "tiling",
    "tree_from_json",
    "tree_to_json",
    "with_parameters",
    "with_rows",
]
