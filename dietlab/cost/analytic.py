"""The times that are expected of a processor without a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.bundle import Adaptation
from dietlab.cost.formulas import FloatArray
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme, Space

DOUBT = 0.4
"""The standard deviation of the logarithm of a time that is predicted from no measurement."""


@dataclass(frozen=True)
class AnalyticPredictor:
    """Predicts from the bound and the adaptation, and learns nothing.

    Args:
        cache: where operands are while candidates are timed.
    """

    cache: CacheState = "hot"

    def fit(self, space: Space, records: Sequence[Record]) -> Analytic:
        return Analytic.of(space, self.cache)


@dataclass(frozen=True)
class Analytic:
    """The adaptation cost of a space at the most throughput that its target expects of a tile. Where the
    processor's peak was never measured, only ratios of its times count.

    Args:
        cost: the adaptation cost.
    """

    cost: AdaptationCost

    @classmethod
    def of(cls, space: Space, cache: CacheState = "hot", kind: Adaptation = "streamed") -> Analytic:
        """Returns what is known of a space before anything was measured."""
        return cls(adaptation_cost(space.workload, space.hardware, kind, cache))

    def on(self, space: Space) -> Analytic:
        """Returns the same for the schemes of another space."""
        return Analytic.of(space, self.cost.cache, self.cost.kind)

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        """Returns the seconds that arithmetic and traffic take at the processor's peaks, ``[schemes,
        shapes]``."""
        return self.cost.expected(schemes, shapes)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :data:`DOUBT` for every scheme and shape, ``[schemes, shapes]``."""
        return np.full((len(schemes), len(shapes)), DOUBT)
