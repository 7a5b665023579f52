"""The cost model of a GPU: the bound of its multiprocessors' throughputs, and the paper's waves."""

from __future__ import annotations

from typing import Any

from dietlab.cost.bundle import Adaptation
from dietlab.machine import Hardware
from dietlab.measure import CacheState
from dietlab.problem import Workload
from dietlab.targets.cuda.adaptation import BlockAdaptation, CudaAdaptation
from dietlab.targets.cuda.bounded import BoundedAdaptation


def adaptation(
    workload: Workload, hardware: Hardware, kind: Adaptation, cache: CacheState, **constants: Any
) -> BlockAdaptation:
    """Returns the adaptation under the bound, or the paper's."""
    make = CudaAdaptation if kind == "paper" else BoundedAdaptation
    return make(workload, hardware, kind, cache, **constants)
