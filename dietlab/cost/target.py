"""The part of a target that tells what a scheme costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dietlab.cost.bundle import Formulas
from dietlab.machine.target import part


class CostTarget(Protocol):
    """The part of a target in the cost model."""

    @property
    def adaptation(self) -> Callable[..., Formulas]:
        """Makes the formulas: see :func:`~dietlab.cost.adaptation.adaptation_cost`."""

    @property
    def FEATURES(self) -> tuple[str, ...]:
        """The names of the learned model's features."""

    @property
    def DEALT(self) -> float:
        """The share of a space, the fastest as expected, from which a search takes its schemes: those of the
        first round that are dealt, and later ones."""


def cost_target(name: str) -> CostTarget:
    """Returns the part of a target that tells what a scheme costs."""
    found: CostTarget = part(name, "cost")
    return found
