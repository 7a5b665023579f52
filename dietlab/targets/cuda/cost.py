"""The cost model of a GPU: the bound of its multiprocessors' throughputs, and the paper's waves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietlab.cost.adaptation import Adaptation, AdaptationCost
from dietlab.cost.formulas import FloatArray
from dietlab.cost.target import Rows
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme
from dietlab.targets.cuda.adaptation import BlockAdaptation, CudaAdaptation
from dietlab.targets.cuda.bounded import BoundedAdaptation
from dietlab.targets.cuda.features import CUDA_FEATURES, cuda_features
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.limits import gpu_of

FEATURES = CUDA_FEATURES

DEALT = 0.1
"""A tenth: what the bound puts behind it takes a multiple of the best time, and tells little of what is
good."""


def adaptation(
    workload: Workload, hardware: Hardware, kind: Adaptation, cache: CacheState, **constants: Any
) -> AdaptationCost:
    """Returns the adaptation under the bound, or the paper's."""
    make = CudaAdaptation if kind == "paper" else BoundedAdaptation
    return make(workload, hardware, kind, cache, **constants)


def features(schemes: Sequence[CudaScheme], workload: Workload, hardware: Hardware) -> Rows:
    """Returns the features of the schemes' micro-kernels."""
    return cuda_features([scheme.kernel for scheme in schemes], workload, hardware)


knobs = features


def loops(kernel: CudaMicroKernel, hardware: Hardware) -> tuple[int, int]:
    """Returns the steps of a stage, and the threads of a block."""
    return kernel.step, kernel.threads


def levels(hardware: Hardware) -> dict[str, int]:
    """Returns the sizes of a block's shared memory and of L2."""
    shared = gpu_of(hardware).smem_per_block_bytes
    return {"shared memory": shared, "the last level": hardware.last_level_bytes}


def expected(cost: BlockAdaptation, schemes: Sequence[CudaScheme], shapes: Sequence[Shape]) -> FloatArray:
    """Returns the seconds of calls as the bound has them or, of the paper's adaptation, at the peak."""
    return cost.bound(schemes, shapes)


def known(records: Sequence[Record]) -> dict[str, Any]:
    """Returns the blocks that fit a multiprocessor, as the compiler told."""
    return {"resident": {r.scheme.kernel: r.resources["blocks_per_sm"] for r in records if r.resources}}


def refined(
    cost: BlockAdaptation, records: Sequence[Record], throughput: Callable[[Scheme], float]
) -> AdaptationCost:
    """Returns the adaptation as it is: the bound's constants and the paper's stand."""
    return cost


def to_json(cost: BlockAdaptation) -> dict[str, Any]:
    """Returns the resident blocks."""
    return {"resident": {kernel.key: blocks for kernel, blocks in cost.resident.items()}}


def from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file tells of resident blocks."""
    return {"resident": {Scheme.from_key(k).kernel: n for k, n in value.get("resident", {}).items()}}
