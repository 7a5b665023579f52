"""The cost model of a CPU: register tiles, and how much computing hides the fetch of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.cpu_adaptation import ALL_HIDDEN, CpuAdaptation, Hiding
from dietlab.cost.cpu_features import CPU_FEATURES, cpu_features
from dietlab.cost.overlap import with_fitted_hiding
from dietlab.hardware import UNITS, Hardware
from dietlab.measure import Record
from dietlab.space import EDGES, CpuMicroKernel, CpuScheme
from dietlab.workloads import Workload

LINE_BYTES = 64
"""Bytes of a line of cache, which one prefetch asks for."""

FEATURES, features = CPU_FEATURES, cpu_features
adaptation, refined = CpuAdaptation, with_fitted_hiding


def knobs(scheme: CpuScheme, workload: Workload, hardware: Hardware) -> list[float]:
    """Returns the parameters of a scheme in numbers."""
    kernel = scheme.kernel
    numbers = [kernel.rows, kernel.cols, kernel.unroll, kernel.prefetch, kernel.ahead, kernel.block]
    units = [kernel.facts.rate] if workload.dtype != "float32" else []  # that has one
    return [*numbers, kernel.along == "depth", scheme.order == "ws", EDGES.index(scheme.edge), *units]


def loops(kernel: CpuMicroKernel, hardware: Hardware) -> tuple[int, int]:
    """Returns the K-block, and the vectors across a tile."""
    return kernel.block, kernel.vectors(hardware.cpu.lanes)


def levels(hardware: Hardware) -> dict[str, int]:
    """Returns the sizes of the caches."""
    cpu = hardware.cpu
    return {"L1": cpu.l1d_bytes, "L2": cpu.l2_bytes, "the last level": cpu.last_level_bytes}


def reach(kernel: CpuMicroKernel, hardware: Hardware) -> float:
    """Returns the share of multiply-adds in all of a step's instructions, loads and prefetches of lines
    beside them, by the unit's rate over the fastest's."""
    facts, units = kernel.facts, hardware.cpu.units(kernel.facts.dtype)
    fastest = max((UNITS[unit].rate for unit in units), default=facts.rate)
    rows, vectors = kernel.rows // facts.tile_rows, kernel.vectors(hardware.cpu.lanes)
    lines = vectors * hardware.cpu.vector_bytes / LINE_BYTES if kernel.prefetch else 0.0
    return facts.rate / fastest / (1 + (rows + vectors + lines) / (rows * vectors))


def known(records: Sequence[Record]) -> dict[str, Any]:
    """Returns nothing: every constant is fitted."""
    return {}


def fitted(cost: CpuAdaptation, records: Sequence[Record]) -> AdaptationCost:
    """Returns the adaptation as it is: what it hides follows from throughputs."""
    return cost


def to_json(cost: CpuAdaptation) -> dict[str, Any]:
    """Returns the shares of computing that hide the fetch of weights."""
    return {"hiding": list(cost.hiding)}


def from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the shares of a file; of one from before they were fitted, all is hidden."""
    return {"hiding": Hiding(*value.get("hiding", ALL_HIDDEN))}
