"""Stage 1, space: shape-generic micro-kernels from hardware limits."""

from dietlab.space.decision import Leaf, Split, Tree, depth, intervals, leaves, route
from dietlab.space.micro_kernel import COMPOSED, EDGES, Edge, MicroKernel, Order
from dietlab.space.plan import Plan, Region, heights, plan_for
from dietlab.space.space import FMA_LATENCY, Cover, Limit, Rejection, Space, build_space, cpu_limits, edges_of

__all__ = [
    "COMPOSED", "EDGES", "FMA_LATENCY", "Cover", "Edge", "Leaf", "Limit", "MicroKernel", "Order", "Plan",
    "Region", "Rejection", "Space", "Split", "Tree", "build_space", "cpu_limits", "depth", "edges_of",
    "heights", "intervals", "leaves", "plan_for", "route",
]  # fmt: skip
