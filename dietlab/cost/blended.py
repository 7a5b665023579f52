"""The default's prediction and that of boosted trees on loops, halfway between: they err differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dietlab.cost.boosted import Boosted, BoostedPredictor
from dietlab.cost.calibration import Values
from dietlab.cost.predictor import Fitted, LearnedPredictor
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme, Space


@dataclass(frozen=True)
class BlendedPredictor:
    """Fits the default, and trees on the loops, over the adaptation cost: trees on throughput fail on lengths
    that they never saw.

    Args:
        cache: where operands are while candidates are timed.
        seed: of both.
    """

    cache: CacheState = "hot"
    seed: int = 0

    def fit(self, space: Space, records: Sequence[Record]) -> Blended:
        learned = LearnedPredictor(cache=self.cache, seed=self.seed).fit(space, records)
        trees = BoostedPredictor("loops", over_adaptation=True, cache=self.cache, seed=self.seed)
        return Blended(learned, trees.fit(space, records), tuple(records))


@dataclass(frozen=True)
class Blended:
    """Two fitted predictors; of a pair that was measured the first one knows more."""

    learned: Fitted
    trees: Boosted
    records: tuple[Record, ...]

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the geometric mean of both where a pair was not measured, ``[schemes, shapes]``."""
        learned = self.learned.seconds(schemes, shapes)
        halfway = np.sqrt(learned * self.trees.seconds(schemes, shapes))
        known = [[(scheme, shape) in self._measured for shape in shapes] for scheme in schemes]
        return np.asarray(np.where(np.array(known, bool).reshape(learned.shape), learned, halfway))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        return self.learned.doubt(schemes, shapes)

    @cached_property
    def _measured(self) -> frozenset[tuple[Scheme, Shape]]:
        return frozenset((record.scheme, record.shape) for record in self.records if record.ok)
