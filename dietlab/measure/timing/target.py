"""The part of a target that measures: its device, the options of timing on it, and a simple model of it; and
the roofline of a call, which depends on the operands that a device rotates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from dietlab.machine import Hardware, Roofline
from dietlab.machine.target import part
from dietlab.measure.timing.device import Device
from dietlab.measure.timing.protocol import CacheState
from dietlab.measure.timing.rotation import copies_beyond
from dietlab.problem import Shape, Workload, bound, inside_share, precision_of


class TimingTarget(Protocol):
    """The device of a target."""

    @property
    def CACHE_STATES(self) -> tuple[CacheState, ...]:
        """The cache states in which calls can be timed."""

    @property
    def START_SECONDS(self) -> float:
        """The seconds that the first answer of a timing process may take longer than others."""

    def rotated(self, workload: Workload) -> tuple[str, ...]:
        """Returns the names of the operands that rotate; empty if all operands and the output rotate."""

    def options(self, hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
        """Returns two values: the options for every contender on a processor, and the reason why slow moments
        cannot be detected (empty if a probe detects them, or without a ``folder``). The ``folder`` holds the
        probe's library while contenders are open (None: no probe)."""

    def device(self, cores: int, options: Mapping[str, Any]) -> Device:
        """Returns the device that candidates are timed on, in a timing process."""

    def require_here(self, hardware: Hardware) -> object:
        """Checks that this machine has such a processor.

        Raises:
            MeasureError: if this machine has none.
        """

    def seconds(self, hardware: Hardware, workload: Workload, scheme: Any, shape: Shape) -> float:
        """Returns the modelled seconds of a call, so that a search needs no hardware."""


def timing_target(name: str) -> TimingTarget:
    """Returns the part of a target that measures."""
    found: TimingTarget = part(name, "device")
    return found


def memory_bytes(workload: Workload, shape: Shape, hardware: Hardware) -> int:
    """Returns the number of bytes that a rotating call fetches from memory: the size of the operands that
    rotate (the constant operands; without any, all operands and the output). Returns 0 for a small layer,
    whose limited number of copies fits the last-level cache."""
    constants = timing_target(hardware.kind).rotated(workload)
    values = sum(math.prod(bound(workload.signature[name], shape)) for name in constants)
    rotated = precision_of(workload).itemsize * values or workload.bytes(shape)
    level = hardware.last_level_bytes
    return rotated if rotated * copies_beyond(rotated, level, packed=bool(constants)) > level else 0


def roofline_of(workload: Workload, shape: Shape, hardware: Hardware) -> Roofline | None:
    """Returns the roofline of a call; None if the peak or the memory bandwidth is unknown. Products with the
    zeros around an image need no time."""
    flops = workload.flops(shape) * inside_share(workload, shape)
    of_call = flops, workload.bytes(shape), workload.dtype
    if hardware.roofline(*of_call) is None:
        return None
    return hardware.roofline(*of_call, memory_bytes(workload, shape, hardware))
