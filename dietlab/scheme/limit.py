"""Limits of the hardware or the operator on a scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limit:
    """A limit of the hardware or the operator: ``measure(scheme) <= most``.

    Args:
        reason: the exceeded resource in words, as cards show it.
        most: the largest value that fits.
        unit: the unit of both values.
        measure: a function that returns a scheme's value.
    """

    reason: str
    most: float
    unit: str
    measure: Callable[[Any], float]

    def excess(self, scheme: Any) -> float:
        """Returns the excess over the limit, relative to it; 0 or less if the scheme fits."""
        return (self.measure(scheme) - self.most) / max(self.most, 1.0)
