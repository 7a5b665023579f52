"""Cost models of gradient-boosted trees over pairs of a scheme and a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dietlab.base.statistics import Values
from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.loop_features import Seen, pair_features, table_features
from dietlab.cost.measured import Measured
from dietlab.cost.predictor import Fitted, LearnedPredictor
from dietlab.cost.trees import SHARED, Booster, ask_trees, fit_trees
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme, Space

Objective = Literal["reg:squarederror", "rank:pairwise"]

TREES, ROUNDS = {**SHARED, "colsample_bynode": 0.5}, 200
"""XGBoost's parameters, and the number of boosting rounds, for some hundreds of pairs."""

LEFT_OUT = 0.2
"""The share of pairs left out of each fit of an ensemble; the errors on these pairs give the doubt."""

UNKNOWN_DOUBT = 0.15
"""The assumed doubt of a single fit, as the standard deviation of a time's logarithm: about as large as
errors on held-out pairs. A single fit holds no pairs out."""


@dataclass(frozen=True)
class BoostedPredictor:
    """Fits trees to the logarithms of measured times.

    Args:
        seen: the features of a pair: the ``knobs`` of its scheme, or the ``loops`` of its program.
        over_adaptation: whether the trees are fitted to ratios of times to the adaptation cost at the
            processor's peak, or to throughputs.
        objective: ``rank:pairwise`` fits the order within each shape only (Burges, From RankNet to
            LambdaMART, 2010); then a line from scores to logarithms of times is fitted.
        fits: the number of fits, each on a random draw of the pairs. Predictions are the mean over the fits.
    """

    seen: Seen
    over_adaptation: bool = False
    objective: Objective = "reg:squarederror"
    fits: int = 1
    cache: CacheState = "hot"
    seed: int = 0

    def fit(self, space: Space, records: Sequence[Record]) -> Boosted:
        measured = Measured.of(space.workload, records)
        cost = adaptation_cost(space.workload, space.hardware, "streamed", self.cache)
        empty = Boosted(self, cost, ())
        ordered = sorted(range(len(measured.shapes)), key=lambda number: measured.shapes[number])
        measured = measured.at(ordered)
        values = np.log(measured.seconds) - empty.base_of(measured.schemes, measured.shapes)
        features = pair_features(self.seen, cost.formulas, measured.schemes, measured.shapes)
        drawn = [self._draw(len(values), number) for number in range(self.fits)]
        fitted = [self._trees(features, values, measured.shapes, at, n) for n, at in enumerate(drawn)]
        return replace(empty, members=tuple(fitted), missed=_missed(fitted, drawn, features, values))

    def _draw(self, count: int, number: int) -> Any:
        if self.fits == 1:
            return np.arange(count)
        random = np.random.default_rng((self.seed, number))
        return np.sort(random.permutation(count)[: max(1, round(count * (1 - LEFT_OUT)))])

    def _trees(self, features: Any, values: Values, shapes: Sequence[Shape], at: Any, number: int) -> Member:
        drawn, seed = values[at], self.seed + number
        if self.objective != "rank:pairwise":
            return Member(fit_trees(features[at], drawn, ROUNDS, TREES, seed))
        numbers = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
        groups = [numbers[shapes[place]] for place in at]
        booster = fit_trees(features[at], drawn, ROUNDS, TREES, seed, groups)
        return Member(booster, *_line(ask_trees(booster, features[at]), drawn))


def _line(scores: Any, values: Values) -> tuple[float, float]:
    """Returns the height and the slope of the line from scores to values, fitted by least squares."""
    if np.ptp(scores) == 0:
        return float(values.mean()), 0.0
    slope, height = np.polyfit(scores.astype(np.float64), values, 1)
    return float(height), float(slope)


def _missed(fitted: Sequence[Member], drawn: Sequence[Any], features: Any, values: Values) -> float | None:
    """Returns the root mean square error of the fits, each on the pairs left out of it; None if no pair was
    left out."""
    errors = []
    for member, at in zip(fitted, drawn, strict=True):
        unseen = np.setdiff1d(np.arange(len(values)), at)
        if len(unseen):
            errors.append(member.values(features[unseen]) - values[unseen])
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) if errors else None


@dataclass(frozen=True)
class Member:
    """One fit: trees, and the line from their values to the logarithm of a time."""

    booster: Booster
    height: float = 0.0
    slope: float = 1.0

    def values(self, features: Any) -> Values:
        return self.height + self.slope * ask_trees(self.booster, features)


@dataclass(frozen=True)
class Boosted:
    """Fitted trees, which :meth:`on` also applies to another operator or processor."""

    predictor: BoostedPredictor
    cost: AdaptationCost
    members: tuple[Member, ...]
    missed: float | None = None

    def on(self, space: Space) -> Boosted:
        """Returns the same trees for the schemes of another space."""
        cost = adaptation_cost(space.workload, space.hardware, "streamed", self.predictor.cache)
        return replace(self, cost=cost)

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        return np.asarray(np.exp(self._values(schemes, shapes).mean(axis=0)))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns ``sqrt(a^2 + b^2)``, where ``a`` is the standard deviation between fits and ``b`` their
        error on left-out pairs; for a single fit :data:`UNKNOWN_DOUBT`."""
        if self.missed is None:
            return np.full((len(schemes), len(shapes)), UNKNOWN_DOUBT)
        return np.asarray(np.hypot(self._values(schemes, shapes).std(axis=0), self.missed))

    def _values(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the logarithms of times by each fit, ``[fits, schemes, shapes]``."""
        size = len(schemes), len(shapes)
        if not all(size):
            return np.zeros((len(self.members), *size))
        features = table_features(self.predictor.seen, self.cost.formulas, schemes, shapes)
        base = self._base(self.cost.bound(schemes, shapes), shapes)
        return np.stack([member.values(features).reshape(size) + base for member in self.members])

    def base_of(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the logarithms to which the trees' values are added, for single pairs, ``[pairs]``."""
        return self._base(self.cost.bound_of(schemes, shapes), shapes)

    def _base(self, least: Values, shapes: Sequence[Shape]) -> Values:
        if self.predictor.over_adaptation:
            return np.log(least)
        return np.log([max(1, self.cost.workload.flops(shape)) / 1e9 for shape in shapes])


@dataclass(frozen=True)
class BlendedPredictor:
    """Fits two models, which make different errors: the default one, and boosted trees on features of loops.
    The trees predict the ratio of a time to the scheme's adaptation cost
    (:class:`~dietlab.cost.adaptation.AdaptationCost`). Trees that predict a throughput would fail on lengths
    without measurements."""

    cache: CacheState = "hot"
    seed: int = 0

    def fit(self, space: Space, records: Sequence[Record]) -> Blended:
        learned = LearnedPredictor(cache=self.cache, seed=self.seed).fit(space, records)
        trees = BoostedPredictor("loops", over_adaptation=True, cache=self.cache, seed=self.seed)
        return Blended(learned, trees.fit(space, records), tuple(records))


@dataclass(frozen=True)
class Blended:
    """Two fitted predictors. For a measured pair, only the first predictor counts."""

    learned: Fitted
    trees: Boosted
    records: tuple[Record, ...]

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns seconds ``[schemes, shapes]``: for a measured pair, the first predictor's value; for any
        other pair, the geometric mean of both predictors."""
        learned = self.learned.seconds(schemes, shapes)
        halfway = np.sqrt(learned * self.trees.seconds(schemes, shapes))
        known = [[(scheme, shape) in self._measured for shape in shapes] for scheme in schemes]
        return np.asarray(np.where(np.array(known, bool).reshape(learned.shape), learned, halfway))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        return self.learned.doubt(schemes, shapes)

    @cached_property
    def _measured(self) -> frozenset[tuple[Scheme, Shape]]:
        return frozenset((record.scheme, record.shape) for record in self.records if record.ok)
