"""The part of a target that measures: its device, the options of timing on it, and a simple model of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.measure.timing.device import Device
from dietlab.measure.timing.protocol import CacheState
from dietlab.problem import Shape, Workload


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
