"""Stage 1, space: shape-generic micro-kernels and schemes from hardware limits."""

from dietlab.space.cpu_kernel import TILE_REGISTERS, CpuMicroKernel, CpuScheme, weight_tiles
from dietlab.space.cpu_space import FMA_LATENCY, cpu_limits, layout_limits
from dietlab.space.cuda_kernel import CudaMicroKernel, CudaScheme
from dietlab.space.cuda_space import (
    COPY_BYTES,
    LEAST_ASYNCHRONOUS_BYTES,
    compiled_registers,
    copied_elements,
    cuda_limits,
    exchanged_bytes,
    held_registers,
    shared_bytes,
    thread_registers,
)
from dietlab.space.cuda_unit import Unit
from dietlab.space.limit import Limit
from dietlab.space.micro_kernel import COMPOSED, EDGES, Edge, MicroKernel, Order, with_rows
from dietlab.space.parameters import with_parameters
from dietlab.space.scheme import Scheme, scheme_with
from dietlab.space.space import Cover, Rejection, Space, build_space, edges_of, parameter_table

__all__ = [
    "COMPOSED",
    "COPY_BYTES",
    "EDGES",
    "FMA_LATENCY",
    "LEAST_ASYNCHRONOUS_BYTES",
    "TILE_REGISTERS",
    "Cover",
    "CpuMicroKernel",
    "CpuScheme",
    "CudaMicroKernel",
    "CudaScheme",
    "Edge",
    "Limit",
    "MicroKernel",
    "Order",
    "Rejection",
    "Scheme",
    "Space",
    "Unit",
    "build_space",
    "compiled_registers",
    "copied_elements",
    "cpu_limits",
    "cuda_limits",
    "edges_of",
    "exchanged_bytes",
    "held_registers",
    "layout_limits",
    "parameter_table",
    "scheme_with",
    "shared_bytes",
    "thread_registers",
    "weight_tiles",
    "with_parameters",
    "with_rows",
]
