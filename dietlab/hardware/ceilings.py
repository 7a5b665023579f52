"""Ceilings: the bandwidths of a processor's levels of memory, as lines of a roofline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dietlab.errors import HardwareError
from dietlab.hardware.cpu_limits import CpuLimits
from dietlab.hardware.description import Hardware
from dietlab.hardware.gpu_rates import SHARED_BYTES, gpu_rates

Level = Literal["memory", "L3", "L2", "L1", "shared memory"]

GIGA = 1e9

LOADED_FOR_ONE = 1.0
"""Vectors that a core loads from L1 for each vector that it multiplies and adds: x86 cores since Haswell
start two loads and two multiply-adds in a cycle (Intel 64 and IA-32 Architectures Optimization Reference
Manual)."""


@dataclass(frozen=True)
class Ceiling:
    """The bandwidth of one level of memory.

    Args:
        level: what is read.
        gbps: GB/s of all cores or multiprocessors together.
        told_by: where the figure comes from, in words.
    """

    level: Level
    gbps: float
    told_by: str


def ceilings(hardware: Hardware) -> tuple[Ceiling, ...]:
    """Returns the ceilings of a processor that are known, the slowest level first.

    A CPU has its memory, its last-level cache and L1, which follows from the peak (:data:`LOADED_FOR_ONE`);
    nothing measures L2. A GPU has its memory, L2 and the shared memory of its multiprocessors.

    Raises:
        HardwareError: if neither the peak nor the memory's bandwidth is known.
    """
    if hardware.peak_gflops is None or hardware.dram_gbps is None:
        raise HardwareError(
            "a roofline has a peak and a bandwidth of memory",
            f"{hardware.name} without them",
            "Measure them (Hardware.detect()) or take a preset.",
        )
    memory = Ceiling("memory", hardware.dram_gbps, hardware.source)
    if isinstance(hardware.limits, CpuLimits):
        return memory, *_of_cpu(hardware, hardware.limits, hardware.peak_gflops)
    rates = gpu_rates(hardware)
    cycles = hardware.cores * rates.hertz / GIGA
    return (
        memory,
        Ceiling("L2", rates.l2_bytes * cycles, "an estimate: bytes of a cycle"),
        Ceiling("shared memory", SHARED_BYTES * cycles, "32 banks of 4 bytes in a cycle"),
    )


def _of_cpu(hardware: Hardware, limits: CpuLimits, peak_gflops: float) -> list[Ceiling]:
    """Returns the ceilings of a CPU's caches."""
    found = []
    if hardware.l3_gbps is not None:
        found.append(Ceiling("L3", hardware.l3_gbps * hardware.cores, "measured: one core, times the cores"))
    # A multiply-add of one float32 lane is two operations, and its load four bytes.
    loaded = LOADED_FOR_ONE * 4 / 2 * peak_gflops * hardware.cores
    return [*found, Ceiling("L1", loaded, f"a load of {limits.vector_bytes} bytes for each multiply-add")]
