"""The part of a target that measures: its device, what timing on it needs, and a simple machine in its
place."""

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
        """The states of the caches that calls can be timed in."""

    @property
    def START_SECONDS(self) -> float:
        """The time that the first answer of a timing process may take beyond that of another, in seconds."""

    def rotated(self, workload: Workload) -> tuple[str, ...]:
        """Returns the operands that alone rotate; none if all do, and the output."""

    def options(self, hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
        """Returns what every contender on a processor is opened with, and why slow moments will not be told
        (empty: a probe tells them, or none was asked for).

        Args:
            folder: keeps a probe's library as long as contenders are open (None: no probe).
        """

    def device(self, cores: int, options: Mapping[str, Any]) -> Device:
        """Returns the device that candidates are timed on, in a timing process."""

    def require_here(self, hardware: Hardware) -> object:
        """Checks that this machine has such a processor.

        Raises:
            MeasureError: if it has none.
        """

    def seconds(self, hardware: Hardware, workload: Workload, scheme: Any, shape: Shape) -> float:
        """Returns the seconds of a call on a simple machine, so that a search needs no hardware."""


def timing_target(name: str) -> TimingTarget:
    """Returns the part of a target that measures."""
    found: TimingTarget = part(name, "device")
    return found
