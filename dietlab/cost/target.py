"""The part of a target that tells what a scheme costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.formulas import FloatArray
from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.measure import Record
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme

Rows = Sequence[Sequence[float]]
"""Numbers of schemes, a row each."""


class CostTarget(Protocol):
    """The part of a target in the cost model: features, the bound of a tile, and fitted constants."""

    @property
    def FEATURES(self) -> tuple[str, ...]:
        """The names of the learned model's features."""

    @property
    def adaptation(self) -> Callable[..., AdaptationCost]:
        """Makes the adaptation: see :func:`~dietlab.cost.adaptation.adaptation_cost`."""

    def features(self, schemes: Sequence[Any], workload: Workload, hardware: Hardware) -> Rows:
        """Returns the features of schemes, a row each; none depends on a dynamic dimension."""

    def knobs(self, schemes: Sequence[Any], workload: Workload, hardware: Hardware) -> Rows:
        """Returns what a search chooses of schemes, in numbers, a row each."""

    def loops(self, kernel: Any, hardware: Hardware) -> tuple[int, int]:
        """Returns the steps of a pass (0: all), and the vectors or threads across a tile."""

    def levels(self, hardware: Hardware) -> dict[str, int]:
        """Returns the bytes of each level of memory by its name, the nearest first."""

    def expected(self, cost: Any, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns the seconds that are expected of calls before any is measured, ``[schemes, shapes]``: what
        the search's first round comes from."""

    @property
    def DEALT(self) -> float:
        """The share of a space, the fastest as expected, from which a search takes its schemes: those of the
        first round that are dealt, and later ones."""

    def known(self, records: Sequence[Record]) -> dict[str, Any]:
        """Returns the arguments of the adaptation that records tell as they are."""

    def refined(
        self, cost: Any, records: Sequence[Record], throughput: Callable[[Scheme], float]
    ) -> AdaptationCost:
        """Returns the adaptation with the constants that records tell beside the throughputs learned."""

    def to_json(self, cost: Any) -> dict[str, Any]:
        """Returns the constants of an adaptation as a model's file holds them."""

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of the adaptation that a model's file holds."""


def cost_target(name: str) -> CostTarget:
    """Returns the part of a target that tells what a scheme costs."""
    found: CostTarget = part(name, "cost")
    return found
