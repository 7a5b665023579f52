"""Stage 1, space: shape-generic micro-kernels from hardware limits."""

from dietlab.space.decision import Leaf, Split, Tree, depth, leaves, route
from dietlab.space.micro_kernel import Edge, MicroKernel, Order
from dietlab.space.space import Limit, Rejection, Space, build_space, cpu_limits

__all__ = [
    "Edge", "Leaf", "Limit", "MicroKernel", "Order", "Rejection", "Space", "Split", "Tree",
    "build_space", "cpu_limits", "depth", "leaves", "route",
]  # fmt: skip
