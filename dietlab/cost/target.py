"""The part of a target that tells what a scheme costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dietlab.cost.adaptation import AdaptationCost
from dietlab.hardware import Hardware
from dietlab.hardware.target import part
from dietlab.measure import Record
from dietlab.space import Scheme
from dietlab.workloads import Workload


class CostTarget(Protocol):
    """The part of a target in the cost model: features, the bound of a tile, and fitted constants."""

    @property
    def FEATURES(self) -> tuple[str, ...]:
        """The names of the learned model's features."""

    @property
    def adaptation(self) -> Callable[..., AdaptationCost]:
        """Makes the adaptation: see :func:`~dietlab.cost.adaptation.adaptation_cost`."""

    def features(self, scheme: Any, workload: Workload, hardware: Hardware) -> list[float]:
        """Returns the features of a scheme, none of which depends on a dynamic dimension."""

    def knobs(self, scheme: Any, workload: Workload, hardware: Hardware) -> list[float]:
        """Returns what a search chooses of a scheme, in numbers."""

    def loops(self, kernel: Any, hardware: Hardware) -> tuple[int, int]:
        """Returns the steps of a pass (0: all), and the vectors or threads across a tile."""

    def levels(self, hardware: Hardware) -> dict[str, int]:
        """Returns the bytes of each level of memory by its name, the nearest first."""

    def reach(self, kernel: Any, hardware: Hardware) -> float:
        """Returns the share of the peak that a tile allows; see :func:`~dietlab.cost.analytic.reach`."""

    def known(self, records: Sequence[Record]) -> dict[str, Any]:
        """Returns the arguments of the adaptation that records tell as they are."""

    def fitted(self, cost: Any, records: Sequence[Record]) -> AdaptationCost:
        """Returns the adaptation with the constants that records tell before throughputs are learned."""

    def refined(
        self, cost: Any, records: Sequence[Record], throughput: Callable[[Scheme], float]
    ) -> AdaptationCost:
        """Returns the adaptation with the constants that records tell once throughputs are learned."""

    def to_json(self, cost: Any) -> dict[str, Any]:
        """Returns the constants of an adaptation as a model's file holds them."""

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of the adaptation that a model's file holds."""


def cost_target(name: str) -> CostTarget:
    """Returns the part of a target that tells what a scheme costs."""
    found: CostTarget = part(name, "cost")
    return found
