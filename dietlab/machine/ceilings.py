"""Ceilings of a roofline: the bandwidths of a processor's levels of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dietlab.base.errors import HardwareError
from dietlab.machine.description import Hardware
from dietlab.machine.target import hardware_target

Level = Literal["memory", "L3", "L2", "L1", "shared memory"]


@dataclass(frozen=True)
class Ceiling:
    """The bandwidth of one level of memory.

    Args:
        level: the level that is read.
        gbps: the bandwidth of all cores or multiprocessors together, in GB/s.
        told_by: the source of the number, in words.
    """

    level: Level
    gbps: float
    told_by: str


def ceilings(hardware: Hardware) -> tuple[Ceiling, ...]:
    """Returns the known ceilings of a processor, the slowest level first: memory, then the caches that its
    target knows.

    Raises:
        HardwareError: if neither the peak nor the memory's bandwidth is known.
    """
    if hardware.peak_gflops is None or hardware.dram_gbps is None:
        raise HardwareError(
            "a roofline needs a peak and a bandwidth of memory",
            f"{hardware.name} without them",
            "Measure them (Hardware.detect()) or take a preset.",
        )
    memory = Ceiling("memory", hardware.dram_gbps, hardware.source)
    return memory, *hardware_target(hardware.kind).ceilings(hardware)
