"""A Gaussian process over features: it errs otherwise than trees, whose steps know no distance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

LENGTHS = (0.7, 1.0, 1.5, 2.5)
"""Distances over which values become unlike, tried, in the root mean square of all features' deviations: at
one the covariance has fallen to 0.6."""

WIDE, NOISES = (0.3, 0.6), (0.03, 0.06, 0.1)
"""Standard deviations of a logarithm of time that are tried: of what features tell, and of the rest."""


@dataclass(frozen=True)
class Smooth:
    """A fitted process with squared-exponential covariance (Rasmussen and Williams, Gaussian Processes for
    Machine Learning, 2006, chapter 2).

    Args:
        centre, scale: of each feature.
        seen: features that were measured, scaled, ``[n, features]``; ``weights``: of each.
        level: the mean of the values.
        length: of :data:`LENGTHS`.
    """

    centre: Values
    scale: Values
    seen: Values
    weights: Values
    level: float
    length: float

    @classmethod
    def fit(cls, features: Values, values: Values) -> Smooth:
        """Returns the process under which the values ``[n]`` are most likely, out of those that are tried."""
        centre, scale, level = features.mean(axis=0), features.std(axis=0) + 1e-9, float(values.mean())
        seen, rest = (features - centre) / scale, values - level
        tried = []
        for length, wide, noise in product(LENGTHS, WIDE, NOISES):
            covariance = wide**2 * _near(seen, seen, length) + noise**2 * np.eye(len(rest))
            weights = np.linalg.solve(covariance, rest)
            unlikely = rest @ weights + np.linalg.slogdet(covariance)[1]
            tried.append((float(unlikely), length, np.asarray(wide**2 * weights, np.float64)))
        _, length, weights = min(tried, key=lambda one: one[0])
        return cls(centre, scale, seen, weights, level, length)

    def ask(self, features: Values) -> Values:
        """Returns the expected values, ``[n]``."""
        near = _near((features - self.centre) / self.scale, self.seen, self.length)
        return np.asarray(self.level + near @ self.weights)


def _near(one: Values, other: Values, length: float) -> Values:
    apart = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.exp(-0.5 * np.maximum(apart, 0.0) / (length**2 * one.shape[1])))
