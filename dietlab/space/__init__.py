"""Stage 1, space: shape-generic micro-kernels from hardware limits."""

from dietlab.space.cpu_kernel import CpuMicroKernel, Order
from dietlab.space.cpu_space import FMA_LATENCY, cpu_limits, layout_limits
from dietlab.space.cuda_kernel import CudaMicroKernel
from dietlab.space.cuda_space import (
    COPY_BYTES,
    LEAST_ASYNCHRONOUS_BYTES,
    compiled_registers,
    copied_elements,
    cuda_limits,
    held_registers,
    shared_bytes,
    shared_sums_bytes,
    thread_registers,
)
from dietlab.space.cuda_unit import Unit
from dietlab.space.decision import Leaf, Split, Tree, depth, intervals, leaves, route
from dietlab.space.limit import Limit
from dietlab.space.micro_kernel import COMPOSED, EDGES, Edge, MicroKernel, changed_in, with_edge, with_rows
from dietlab.space.parameters import with_parameters
from dietlab.space.plan import (
    Plan,
    Region,
    heights,
    needed,
    plan_for,
    program_on,
    spans,
    tiling,
    tiling_on,
)
from dietlab.space.space import Cover, Rejection, Space, build_space, edges_of, kernel_table

__all__ = [
    "COMPOSED",
    "COPY_BYTES",
    "EDGES",
    "FMA_LATENCY",
    "LEAST_ASYNCHRONOUS_BYTES",
    "Cover",
    "CpuMicroKernel",
    "CudaMicroKernel",
    "Edge",
    "Leaf",
    "Limit",
    "MicroKernel",
    "Order",
    "Plan",
    "Region",
    "Rejection",
    "Space",
    "Split",
    "Tree",
    "Unit",
    "build_space",
    "changed_in",
    "compiled_registers",
    "copied_elements",
    "cpu_limits",
    "cuda_limits",
    "depth",
    "edges_of",
    "heights",
    "held_registers",
    "intervals",
    "kernel_table",
    "layout_limits",
    "leaves",
    "needed",
    "plan_for",
    "program_on",
    "route",
    "shared_bytes",
    "shared_sums_bytes",
    "spans",
    "thread_registers",
    "tiling",
    "tiling_on",
    "with_edge",
    "with_parameters",
    "with_rows",
]
