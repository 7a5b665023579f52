"""The part of a target that says what a scheme costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dietlab.cost.bundle import Formulas


class CostTarget(Protocol):
    """The part of a target in the cost model."""

    @property
    def adaptation(self) -> Callable[..., Formulas]:
        """Makes the formulas: see :func:`~dietlab.cost.adaptation.adaptation_cost`."""
