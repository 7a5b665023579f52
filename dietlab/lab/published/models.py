"""Cost models of published records: formulas, and trees that learn from some of the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import ModelError
from dietlab.cost.trees import SHARED, Booster, ask_trees, fit_trees
from dietlab.lab.published.bound import Pairs
from dietlab.lab.published.smooth import Smooth
from dietlab.problem import IntArray
from dietlab.targets.cuda.bound import step_cycles

Values = npt.NDArray[np.float64]

FEW = 1000
"""The most records of which a process learns too: its cost grows with their cube."""

TREES, ROUNDS = {**SHARED, "eta": 0.05, "max_depth": 5, "subsample": 0.7, "colsample_bynode": 0.4}, 400
"""XGBoost's parameters and boosting rounds: more and smaller steps than for our own records, since a program
was timed once and its noise is some 5 %."""

FITS = 8
"""Fits of trees whose mean counts, each with other draws of rows and features, as the ensemble of
:mod:`dietlab.cost.registry` has them."""

ALIGNED = 64
"""The largest power of two, in elements, up to which it matters that it divides an extent: a line of memory
has 64 elements of 16 bits."""


class TileModel(Protocol):
    """A cost model of tiles: seconds of pairs of a tile and a shape."""

    def fit(self, pairs: Pairs, seconds: Values) -> TileModel: ...

    def seconds(self, pairs: Pairs) -> Values: ...


class PaperTiles:
    """The paper's padding and waves at the processor's peak; learns nothing."""

    def fit(self, pairs: Pairs, seconds: Values) -> PaperTiles:
        return self

    def seconds(self, pairs: Pairs) -> Values:
        return pairs.paper


class BoundTiles:
    """The bound from throughputs; learns nothing."""

    def fit(self, pairs: Pairs, seconds: Values) -> BoundTiles:
        return self

    def seconds(self, pairs: Pairs) -> Values:
        return pairs.bound.total


@dataclass(frozen=True)
class LearnedTiles:
    """Boosted trees over logarithms of times; over the bound, of few records, they meet a Gaussian process
    halfway, which errs differently.

    Args:
        over_bound: whether they learn what the bound misses, and see its parts; otherwise they learn the
            throughput from sizes alone.
        seed: of the draws.
        count: of fits of trees; their mean counts.
        trees, smooth: the fits.
    """

    over_bound: bool = True
    seed: int = 0
    count: int = FITS
    trees: tuple[Booster, ...] = ()
    smooth: Smooth | None = None

    def fit(self, pairs: Pairs, seconds: Values) -> LearnedTiles:
        if not len(seconds):
            raise ModelError("a model learns from records of tiles", "none", "Give records of tiles.")
        features, labels = self._features(pairs), np.log(seconds) - self._base(pairs)
        smooth = len(labels) <= FEW and self.over_bound
        seeds = (self.seed * FITS + number for number in range(self.count))
        fits = tuple(fit_trees(features, labels, ROUNDS, TREES, seed) for seed in seeds)
        return replace(self, trees=fits, smooth=Smooth.fit(features, labels) if smooth else None)

    def seconds(self, pairs: Pairs) -> Values:
        if not self.trees:
            raise ModelError("a model is fitted before it is asked", "no fit", "Call fit(pairs, seconds).")
        features = self._features(pairs)
        found = np.mean([ask_trees(member, features) for member in self.trees], axis=0)
        if self.smooth is not None:
            found = (found + self.smooth.ask(features)) / 2
        return np.asarray(np.exp(found + self._base(pairs)))

    def _base(self, pairs: Pairs) -> Values:
        return np.asarray(np.log(pairs.bound.total if self.over_bound else pairs.flops / 1e12))

    def _features(self, pairs: Pairs) -> Values:
        told = size_features(pairs) | (bound_features(pairs) if self.over_bound else {})
        return np.stack(list(told.values()), axis=1)


@dataclass(frozen=True)
class BothTiles:
    """The geometric mean of what is learned over the bound, which counts twice, and from sizes alone."""

    over: LearnedTiles
    alone: LearnedTiles

    def fit(self, pairs: Pairs, seconds: Values) -> BothTiles:
        return BothTiles(self.over.fit(pairs, seconds), self.alone.fit(pairs, seconds))

    def seconds(self, pairs: Pairs) -> Values:
        return np.asarray(np.cbrt(self.over.seconds(pairs) ** 2 * self.alone.seconds(pairs)))


def size_features(pairs: Pairs) -> dict[str, Values]:
    """Returns the sizes of tiles and shapes, and how the one covers the other, as logarithms or shares."""
    tile, extents, warps = pairs.tile, pairs.extents, pairs.of_tiles("warps")
    return {
        **{f"tile {role}": np.log2(extent) for role, extent in tile.items()},
        "warps": np.log2(warps),
        "stages": pairs.of_tiles("stages"),
        **{f"shape {role}": np.log2(extent) for role, extent in extents.items()},
        **{f"aligned {role}": np.log2(aligned(extent)) for role, extent in extents.items()},
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


def aligned(extents: IntArray) -> Values:
    """Returns the largest power of two up to :data:`ALIGNED` that divides each extent."""
    return np.asarray(np.minimum(extents & -extents, ALIGNED), np.float64)


def models_of(seed: int = 0) -> Mapping[str, TileModel]:
    """Returns the cost models that are compared, by name."""
    over, alone = LearnedTiles(seed=seed), LearnedTiles(over_bound=False, seed=seed)
    return {
        "paper": PaperTiles(),
        "bound": BoundTiles(),
        "learned": alone,
        "learned over bound": over,
        "both": BothTiles(over, alone),
    }
