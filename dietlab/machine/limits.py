"""The interface of the limits that bound a micro-kernel on one kind of processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dietlab.base.errors import HardwareError


@dataclass(frozen=True)
class Limits(ABC):
    """The limits of a processor; each target has a class of them, whose ``kind`` is the target's name.

    ``unit`` names what a processor has several of, and ``device`` the whole. ``on_host`` is true if the units
    are cores that run the host's threads, so that their number can be chosen and libraries take arrays in the
    host's memory.
    """

    kind: ClassVar[str]
    unit: ClassVar[str] = "core"
    device: ClassVar[str] = "processor"
    on_host: ClassVar[bool] = True

    @classmethod
    def used(cls, cores: int) -> str:
        """Returns what a call uses, in words: ``"one core"``, ``"2 cores"``, or ``"one GPU"``, since what is
        not the host is used as a whole.

        Args:
            cores: of the host, as many as threads.
        """
        if not cls.on_host:
            return f"one {cls.device}"
        return f"one {cls.unit}" if cores == 1 else f"{cores} {cls.unit}s"

    @property
    @abstractmethod
    def last_level_bytes(self) -> int:
        """The bytes of the last cache before memory, which all cores or multiprocessors share."""

    @abstractmethod
    def peak_for(self, dtype: str, float32: float | None) -> float | None:
        """Returns the peak GFLOP/s of *one* core or multiprocessor on operands of a type; None if it is not
        known or there is none.

        Args:
            float32: the peak on operands of float32.
        """


def require_positive(owner: object, *names: str) -> None:
    """Raises an error unless these figures are positive.

    Raises:
        HardwareError: if one is not.
    """
    for name in names:
        if not getattr(owner, name) > 0:
            raise HardwareError(f"{name} is positive", getattr(owner, name))
