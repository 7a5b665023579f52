"""The cost model of a GPU: waves of blocks, and what one that is not full costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.cuda_adaptation import IMBALANCE, CudaAdaptation
from dietlab.cost.cuda_features import CUDA_FEATURES, cuda_features
from dietlab.cost.wave_cost import with_fitted_imbalance
from dietlab.hardware import Hardware
from dietlab.measure import Record
from dietlab.space import CudaMicroKernel, CudaScheme, Scheme
from dietlab.workloads import Workload

FEATURES = CUDA_FEATURES
adaptation, fitted = CudaAdaptation, with_fitted_imbalance


def features(scheme: CudaScheme, workload: Workload, hardware: Hardware) -> list[float]:
    """Returns the features of a scheme's micro-kernel."""
    return cuda_features(scheme.kernel, workload, hardware)


knobs = features


def loops(kernel: CudaMicroKernel, hardware: Hardware) -> tuple[int, int]:
    """Returns the steps of a stage, and the threads of a block."""
    return kernel.step, kernel.threads


def levels(hardware: Hardware) -> dict[str, int]:
    """Returns the sizes of a block's shared memory and of L2."""
    shared = hardware.gpu.smem_per_block_bytes
    return {"shared memory": shared, "the last level": hardware.last_level_bytes}


def reach(kernel: CudaMicroKernel, hardware: Hardware) -> float:
    """Returns the share of a step's time that multiplies, which waits for loads if they are more."""
    down, across = kernel.tile_rows // kernel.pieces.rows, kernel.tile_cols // kernel.pieces.cols
    work = max(1, down) * max(1, across)
    return work / max(work, down + across)


def known(records: Sequence[Record]) -> dict[str, Any]:
    """Returns the blocks that fit a multiprocessor, as the compiler told."""
    return {"resident": {r.scheme.kernel: r.resources["blocks_per_sm"] for r in records if r.resources}}


def refined(
    cost: CudaAdaptation, records: Sequence[Record], throughput: Callable[[Scheme], float]
) -> AdaptationCost:
    """Returns the adaptation as it is: no constant of it follows from throughputs."""
    return cost


def to_json(cost: CudaAdaptation) -> dict[str, Any]:
    """Returns the resident blocks and the constants of ``f_occ``."""
    resident = {kernel.key: blocks for kernel, blocks in cost.resident.items()}
    return {"resident": resident, "imbalance": list(cost.imbalance)}


def from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file tells; one from before they were fitted has the paper's constants."""
    resident = {Scheme.from_key(key).kernel: blocks for key, blocks in value.get("resident", {}).items()}
    return {"resident": resident, "imbalance": tuple(value.get("imbalance", IMBALANCE))}
