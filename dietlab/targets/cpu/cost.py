"""The cost model of a CPU: register tiles, and how much computing hides the fetch of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietlab.cost.bundle import peak_speed
from dietlab.cost.formulas import FloatArray
from dietlab.cost.target import Rows
from dietlab.machine import Hardware
from dietlab.measure import Record
from dietlab.problem import Shape, Workload, precision_of
from dietlab.scheme import EDGES
from dietlab.targets.cpu.adaptation import ALL_HIDDEN, CpuAdaptation, Hiding
from dietlab.targets.cpu.features import CPU_FEATURES, cpu_features
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.overlap import with_fitted_hiding
from dietlab.targets.cpu.units import UNITS

LINE_BYTES = 64
"""Bytes of a line of cache, which one prefetch asks for."""

DEALT = 1.0
"""All of the space: what the access patterns differ in, how a core fetches and loops, is hardly expected."""

FEATURES = CPU_FEATURES
adaptation, refined = CpuAdaptation, with_fitted_hiding


def features(schemes: Sequence[CpuScheme], workload: Workload, hardware: Hardware) -> Rows:
    """Returns the features of schemes (:func:`~dietlab.targets.cpu.features.cpu_features`)."""
    return [cpu_features(scheme, workload, hardware) for scheme in schemes]


def knobs(schemes: Sequence[CpuScheme], workload: Workload, hardware: Hardware) -> Rows:
    """Returns the parameters of schemes in numbers."""
    return [_knobs(scheme, workload) for scheme in schemes]


def _knobs(scheme: CpuScheme, workload: Workload) -> list[float]:
    kernel = scheme.kernel
    numbers = [kernel.rows, kernel.cols, kernel.unroll, kernel.prefetch, kernel.ahead, kernel.block]
    units = [kernel.facts.rate] if precision_of(workload).narrow else []  # other types have one unit
    return [*numbers, kernel.along == "depth", scheme.order == "ws", EDGES.index(scheme.edge), *units]


def loops(kernel: CpuMicroKernel, hardware: Hardware) -> tuple[int, int]:
    """Returns the K-block, and the vectors across a tile."""
    return kernel.block, kernel.vectors(cpu_of(hardware).lanes)


def levels(hardware: Hardware) -> dict[str, int]:
    """Returns the sizes of the caches."""
    cpu = cpu_of(hardware)
    return {"L1": cpu.l1d_bytes, "L2": cpu.l2_bytes, "the last level": cpu.last_level_bytes}


def expected(cost: CpuAdaptation, schemes: Sequence[CpuScheme], shapes: Sequence[Shape]) -> FloatArray:
    """Returns the seconds of calls at the share of the peak that tiles allow (:func:`reach`)."""
    peak, hardware = peak_speed(cost.workload, cost.hardware), cost.hardware
    return cost.table(schemes, shapes, lambda scheme: peak * reach(scheme.kernel, hardware))


def reach(kernel: CpuMicroKernel, hardware: Hardware) -> float:
    """Returns the share of the peak that a tile allows, in (0, 1]: that of multiply-adds in all of a step's
    instructions, loads and prefetches of lines beside them, by the unit's rate over the fastest's.

    A step of the reduction loads an operand for each row and each column of the tile, in the unit's pieces,
    and multiplies all pairs. A core begins as many loads as multiply-adds in a cycle (two of each on x86
    since Haswell and Zen); they are counted one after the other, and so are prefetches of each line of
    weights. On the surveys in ``data/cost`` this ranks better than the larger of both counts. (That low tiles
    wait for their sums is part of the adaptation.) A matrix unit loads and multiplies whole groups of rows.
    """
    facts, units = kernel.facts, cpu_of(hardware).units(kernel.facts.dtype)
    fastest = max((UNITS[unit].rate for unit in units), default=facts.rate)
    rows, vectors = kernel.rows // facts.tile_rows, kernel.vectors(cpu_of(hardware).lanes)
    lines = vectors * cpu_of(hardware).vector_bytes / LINE_BYTES if kernel.prefetch else 0.0
    return facts.rate / fastest / (1 + (rows + vectors + lines) / (rows * vectors))


def known(records: Sequence[Record]) -> dict[str, Any]:
    """Returns nothing: every constant is fitted."""
    return {}


def to_json(cost: CpuAdaptation) -> dict[str, Any]:
    """Returns the shares of computing that hide the fetch of weights."""
    return {"hiding": list(cost.hiding)}


def from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the shares of a file; of one from before they were fitted, all is hidden."""
    return {"hiding": Hiding(*value.get("hiding", ALL_HIDDEN))}
