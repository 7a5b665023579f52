"""Limits that hardware or operator set to a micro-kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limit:
    """A bound that the hardware or the operator sets: ``measure(kernel) <= most``."""

    reason: str
    most: float
    unit: str
    measure: Callable[[Any], float]

    def excess(self, kernel: Any) -> float:
        """Returns the excess over the bound, relative to it; 0 or less if the micro-kernel fits."""
        return (self.measure(kernel) - self.most) / max(self.most, 1.0)
