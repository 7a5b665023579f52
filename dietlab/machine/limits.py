"""The interface of the limits that bound a micro-kernel on one kind of processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from dietlab.base.errors import HardwareError


@dataclass(frozen=True)
class Limits(ABC):
    """The limits of a processor; each target has its own class, whose ``kind`` is the target's name.

    ``unit`` is the name of one core or multiprocessor in messages, and ``device`` the name of the processor.
    ``on_host`` is true if the units are cores of the host: a call then chooses their number, and its arrays
    lie in the host's memory.
    """

    kind: ClassVar[str]
    unit: ClassVar[str] = "core"
    device: ClassVar[str] = "processor"
    on_host: ClassVar[bool] = True

    @classmethod
    def used(cls, cores: int) -> str:
        """Returns in words what a call uses: ``"one core"``, ``"2 cores"``, or ``"one GPU"``, which is used
        as a whole."""
        if not cls.on_host:
            return f"one {cls.device}"
        return f"one {cls.unit}" if cores == 1 else f"{cores} {cls.unit}s"

    @property
    @abstractmethod
    def last_level_bytes(self) -> int:
        """The bytes of the last cache before memory, which all cores or multiprocessors share."""

    @abstractmethod
    def peak_for(self, dtype: str, float32: float | None) -> float | None:
        """Returns the peak GFLOP/s of *one* core or multiprocessor for a type of operands, given the peak for
        float32; None if it is unknown, or the type is not supported."""


def require_positive(owner: object, *names: str) -> None:
    """Checks that fields are positive numbers."""
    require_numbers(owner, *names)
    for name in names:
        if not getattr(owner, name) > 0:
            raise HardwareError(f"{name} must be positive", getattr(owner, name))


def require_numbers(owner: object, *names: str) -> None:
    """Checks that fields are numbers."""
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise HardwareError(f"{name} must be a number", repr(value))
