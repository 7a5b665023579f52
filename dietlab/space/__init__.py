"""Stage 1, space: shape-generic micro-kernels from hardware limits."""

from dietlab.space.cpu_kernel import CpuMicroKernel, Order
from dietlab.space.cpu_space import FMA_LATENCY, cpu_limits
from dietlab.space.cuda_kernel import CudaMicroKernel, Unit
from dietlab.space.cuda_space import cuda_limits, shared_bytes, thread_registers
from dietlab.space.decision import Leaf, Split, Tree, depth, intervals, leaves, route
from dietlab.space.limit import Limit
from dietlab.space.micro_kernel import COMPOSED, EDGES, Edge, MicroKernel, changed_in, with_edge, with_rows
from dietlab.space.plan import Plan, Region, heights, plan_for
from dietlab.space.space import Cover, Rejection, Space, build_space, edges_of

__all__ = [
    "COMPOSED", "EDGES", "FMA_LATENCY", "Cover", "CpuMicroKernel", "CudaMicroKernel", "Edge", "Leaf", "Limit",
    "MicroKernel", "Order", "Plan", "Region", "Rejection", "Space", "Split", "Tree", "Unit", "build_space",
    "changed_in", "cpu_limits", "cuda_limits", "depth", "edges_of", "heights", "intervals", "leaves",
    "plan_for", "route", "shared_bytes", "thread_registers", "with_edge", "with_rows",
]  # fmt: skip
