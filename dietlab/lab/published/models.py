"""Cost models of published records: formulas, and trees that learn from some of the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.base.statistics import Values
from dietlab.cost.gaussian_process import unlikeliness
from dietlab.cost.trees import SHARED, Booster, ask_trees, fit_trees
from dietlab.lab.published.triton_tile import Pairs
from dietlab.targets.cuda.bound import step_cycles

FEW = 1000
"""The most records on which a Gaussian process is fitted, too: its cost grows with their cube."""

TREES, ROUNDS = {**SHARED, "eta": 0.05, "max_depth": 5, "subsample": 0.7, "colsample_bynode": 0.4}, 400
"""XGBoost's parameters and boosting rounds: more and smaller steps than for our own records, since each
program was timed once and the noise of a time is some 5 %."""

FITS = 8
"""The number of fits of trees that are averaged, each with other draws of rows and features, as in the
ensemble of :mod:`dietlab.cost.registry`."""

ALIGNED = 64
"""The largest power of two, in elements, that counts as a divisor of an extent: a line of memory has 64
elements of 16 bits."""


LENGTHS = (0.7, 1.0, 1.5, 2.5)
"""The length scales of the covariance that are tried, in root mean squares of all features' deviations; at a
distance of one length scale the covariance has fallen to 0.6."""

WIDE, NOISES = (0.3, 0.6), (0.03, 0.06, 0.1)
"""The standard deviations that are tried for the logarithm of a time: for the part that features explain, and
for the rest."""


@dataclass(frozen=True)
class Formula:
    """A cost model that learns nothing."""

    of: Callable[[Pairs], Values]

    def fit(self, pairs: Pairs, seconds: Values) -> Formula:
        return self

    def seconds(self, pairs: Pairs) -> Values:
        return self.of(pairs)


@dataclass(frozen=True)
class LearnedTiles:
    """Boosted trees that predict logarithms of times. With ``over_bound`` and at most :data:`FEW` records,
    the prediction is the mean of trees and a Gaussian process, which errs differently.

    Args:
        over_bound: whether trees learn what the bound misses, with the bound's parts as features; otherwise
            they learn the throughput from sizes alone.
        count: the number of fits of trees that are averaged.
    """

    over_bound: bool = True
    seed: int = 0
    count: int = FITS
    trees: tuple[Booster, ...] = ()
    smooth: Smooth | None = None

    def fit(self, pairs: Pairs, seconds: Values) -> LearnedTiles:
        if not len(seconds):
            raise ModelError("fitting a model needs records of tiles", "none", "Give records of tiles.")
        features, labels = self._features(pairs), np.log(seconds) - self._base(pairs)
        smooth = len(labels) <= FEW and self.over_bound
        seeds = (self.seed * FITS + number for number in range(self.count))
        fits = tuple(fit_trees(features, labels, ROUNDS, TREES, seed) for seed in seeds)
        return replace(self, trees=fits, smooth=Smooth.fit(features, labels) if smooth else None)

    def seconds(self, pairs: Pairs) -> Values:
        if not self.trees:
            raise ModelError("a model must be fitted to predict", "no fit", "Call fit(pairs, seconds).")
        features = self._features(pairs)
        found = np.mean([ask_trees(member, features) for member in self.trees], axis=0)
        if self.smooth is not None:
            found = (found + self.smooth.expected(features)) / 2
        return np.asarray(np.exp(found + self._base(pairs)))

    def _base(self, pairs: Pairs) -> Values:
        return np.asarray(np.log(pairs.bound.total if self.over_bound else pairs.flops / 1e12))

    def _features(self, pairs: Pairs) -> Values:
        found = size_features(pairs) | (bound_features(pairs) if self.over_bound else {})
        return np.stack(list(found.values()), axis=1)


def size_features(pairs: Pairs) -> dict[str, Values]:
    """Returns the sizes of tiles and shapes, and how tiles cover shapes, as logarithms or shares."""
    tile, extents, warps = pairs.tile, pairs.extents, pairs.of_tiles("warps")
    return {
        **{f"tile {role}": np.log2(extent) for role, extent in tile.items()},
        "warps": np.log2(warps),
        "stages": pairs.of_tiles("stages"),
        **{f"shape {role}": np.log2(extent) for role, extent in extents.items()},
        **{f"aligned {role}": np.log2(np.minimum(n & -n, ALIGNED)) for role, n in extents.items()},
        **{f"useful {role}": extents[role] / (tile[role] * pairs.counts[role]) for role in tile},
        "blocks": np.log2(pairs.blocks),
        "each": np.log2(np.ceil(pairs.blocks / pairs.hardware.cores)),
        "steps": np.log2(pairs.counts["depth"]),
        "sums": tile["rows"] * tile["cols"] / warps,
        "traffic": np.log2(pairs.traffic),
    }


def bound_features(pairs: Pairs) -> dict[str, Values]:
    """Returns the parts of the bound."""
    cycles = step_cycles(pairs.block_tiles, pairs.rates)
    waves = np.ceil(pairs.blocks / pairs.places)
    return {
        "resident": pairs.resident,
        "filled": pairs.blocks / (waves * pairs.places),
        "waves": np.log2(waves),
        **{name: getattr(cycles, name) / cycles.math for name in ("shared", "l2", "issue")},
        "bound": np.log(pairs.bound.total),
        "paper": np.log(pairs.paper),
    }


@dataclass(frozen=True)
class Smooth:
    """A Gaussian process over features with squared-exponential covariance (Rasmussen and Williams, Gaussian
    Processes for Machine Learning, 2006, chapter 2): it errs differently from trees, whose steps ignore
    distances.

    Args:
        centre, scale: for each feature, its mean and its deviation.
        seen: the scaled features of the measurements, ``[n, features]``; ``weights``: the weight of each
            measurement.
        level: the mean of the values.
        length: the length scale, one of :data:`LENGTHS`.
    """

    centre: Values
    scale: Values
    seen: Values
    weights: Values
    level: float
    length: float

    @classmethod
    def fit(cls, features: Values, values: Values) -> Smooth:
        """Returns the process under which the values ``[n]`` are most likely, of all processes that are
        tried.
        """
        centre, scale, level = features.mean(axis=0), features.std(axis=0) + 1e-9, float(values.mean())
        seen, rest = (features - centre) / scale, values - level

        def covariance(length: float, wide: float, noise: float) -> Values:
            return np.asarray(wide**2 * _near(seen, seen, length) + noise**2 * np.eye(len(rest)))

        tried = product(LENGTHS, WIDE, NOISES)
        length, wide, noise = min(tried, key=lambda one: unlikeliness(covariance(*one), rest))
        weights = np.asarray(wide**2 * np.linalg.solve(covariance(length, wide, noise), rest), np.float64)
        return cls(centre, scale, seen, weights, level, length)

    def expected(self, features: Values) -> Values:
        """Returns the expected values, ``[n]``."""
        near = _near((features - self.centre) / self.scale, self.seen, self.length)
        return np.asarray(self.level + near @ self.weights)


def _near(one: Values, other: Values, length: float) -> Values:
    apart = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.exp(-0.5 * np.maximum(apart, 0.0) / (length**2 * one.shape[1])))


def models_of(seed: int = 0) -> Mapping[str, Formula | LearnedTiles]:
    """Returns the cost models that are compared, by name."""
    return {
        "paper": Formula(lambda pairs: pairs.paper),  # padding and waves at the processor's peak
        "bound": Formula(lambda pairs: pairs.bound.total),
        "learned": LearnedTiles(over_bound=False, seed=seed),
        "learned over bound": LearnedTiles(seed=seed),
    }
