"""Limits that hardware or operator set to a scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limit:
    """A bound that the hardware or the operator sets: ``measure(scheme) <= most``.

    Args:
        reason: what is exceeded, as a card says it.
        most: the largest value that fits.
        unit: of both values.
        measure: gives a scheme's value.
    """

    reason: str
    most: float
    unit: str
    measure: Callable[[Any], float]

    def excess(self, scheme: Any) -> float:
        """Returns the excess over the bound, relative to it; 0 or less if the scheme fits."""
        return (self.measure(scheme) - self.most) / max(self.most, 1.0)
