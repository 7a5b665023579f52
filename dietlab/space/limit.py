"""Limits that hardware or operator set to a scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limit:
    """A bound that the hardware or the operator sets: ``measure(scheme) <= most``."""

    reason: str
    most: float
    unit: str
    measure: Callable[[Any], float]

    def excess(self, scheme: Any) -> float:
        """Returns the excess over the bound, relative to it; 0 or less if the scheme fits."""
        return (self.measure(scheme) - self.most) / max(self.most, 1.0)
