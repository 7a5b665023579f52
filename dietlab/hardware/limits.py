"""The interface of the limits that bound a micro-kernel on one kind of processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dietlab.errors import HardwareError


@dataclass(frozen=True)
class Limits(ABC):
    """The limits of a processor; each target has a class of them, whose ``kind`` is the target's name.

    ``unit`` names what a processor has several of. ``on_host`` is true if these are cores that run the host's
    threads, so that their number can be chosen and libraries take arrays in the host's memory.
    """

    kind: ClassVar[str]
    unit: ClassVar[str] = "core"
    on_host: ClassVar[bool] = True

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
