"""Ceilings: the bandwidths of a processor's levels of memory, as lines of a roofline."""

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
        level: what is read.
        gbps: GB/s of all cores or multiprocessors together.
        told_by: where the figure comes from, in words.
    """

    level: Level
    gbps: float
    told_by: str


def ceilings(hardware: Hardware) -> tuple[Ceiling, ...]:
    """Returns the ceilings of a processor that are known, the slowest level first: its memory, and what its
    target says of its caches.

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
    return memory, *hardware_target(hardware.kind).ceilings(hardware)
