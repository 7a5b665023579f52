"""A Gaussian process over pairs: it predicts pairs from measured ones, with an uncertainty.

It predicts a logarithm, such as that of a measured time over the adaptation cost. Two pairs have the
covariance (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 2)::

    covariance = wide^2 * near(parameters) * near(tile height) * near(extents)     what a processor does
               + own^2  * same family      * near(tile height) * near(extents)     what one program does
               + LEVEL^2                                                           what all share
               + pair^2 * same pair                                                what no other pair shares

    measured   = value + noise

The coordinates of pairs (:mod:`dietlab.cost.places`) define ``near``. Repeated measurements of one pair
differ by 8 % (standard deviation, on one shared CPU). So half of the variance that neighbouring pairs do not
explain counts as the pair's own, half as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.cost.places import Numbers, Parts, Table

WIDE, LEVEL = 0.6, 0.15
"""The standard deviations, of a logarithm, of the part that depends on parameters and extents and of the part
that all pairs share. Maximum likelihood finds 0.63 to 0.74 and 0.13 to 0.34 on four layers of one CPU."""

OWN, UNEXPLAINED = (0.03, 0.06, 0.12), (0.02, 0.04, 0.08, 0.16)
"""The standard deviations to try for one family's own part, and for a pair's own part together with the
noise. Machines differ in both; the likelihood of the records decides."""

PIVOTS = 256
"""The most measured pairs that the uncertainty is computed from: the pairs that explain most variance. More
pairs lower the uncertainty little, and the computation grows with the square of their number."""

SAMPLE = 400
"""The most pairs that the likelihood is computed from: the likelihood chooses among a few values only."""

SMALLEST = 1e-8
"""The least singular value of the shapes' factors that is kept, as a share of the largest one."""

CHUNK = 32
"""The number of pairs of a family and a height whose uncertainty is computed at once: intermediate arrays,
some 4 MB, stay in the caches."""


class GaussianProcess:
    """A Gaussian process, given measured values.

    Args:
        seen: the places of the measured pairs.
        values: the values measured for these pairs, ``[n]``.
        times: the number of measurements of each pair, ``[n]``. The noise falls with the square root of this
            number.
        wide: the standard deviations to try for the part that depends on parameters and extents. They are
            smaller if a prior explains most of this part.

    ``unlikeliness`` is the negative logarithm of the values' likelihood, less a constant.
    """

    def __init__(self, seen: Parts, values: Values, times: Values, wide: Sequence[float] = (WIDE,)) -> None:
        self._seen = seen
        self.level = float(np.median(values))
        self._values = values - self.level
        self.unlikeliness, self._wide, self._own, unexplained = self._most_likely(wide)
        self.pair = self.noise = unexplained / np.sqrt(2)
        self._noises = self.noise**2 / times
        every = np.arange(len(values))
        self._covariance = self._covariance_of(every, self._wide, self._own)
        self._covariance += np.diag(self.pair**2 + self._noises)
        self._weights = np.linalg.solve(self._covariance, self._values)

    def mean(self, table: Table) -> Values:
        """Returns the expected values, ``[schemes, shapes]``, without the pairs' own parts."""
        wide, own = (places.near(seen) for places, seen in zip(table.places, self._seen, strict=True))
        relatives = [np.flatnonzero(row) for row in own.schemes]
        values = np.empty(table.heights.shape)
        for rows in _same_rows(table.heights):
            # Plans of the same heights everywhere: a product for each height, over the shapes that have it.
            members, heights = table.families[rows], table.heights[rows[0]]
            for tall in np.unique(heights):
                columns = np.flatnonzero(heights == tall)
                weights = self._wide**2 * self._weights * wide.heights[tall]
                found = (wide.schemes[members] * weights) @ wide.shapes[columns].T
                weights = self._own**2 * self._weights * own.heights[tall]
                for number, row in zip(members, found, strict=True):
                    if len(same := relatives[number]):
                        row += own.shapes[np.ix_(columns, same)] @ weights[same]
                values[np.ix_(rows, columns)] = found
        return np.asarray((values + self.level + LEVEL**2 * self._weights.sum())[table.plans])

    def deviation(self, table: Table, at: npt.NDArray[np.bool_] | None = None) -> Values:
        """Returns the standard deviation of :meth:`mean`, ``[schemes, shapes]``.

        Args:
            at: the pairs to compute (None: all); other pairs get 0.
        """
        pivots, inverse = self._pivots
        nears = (places.near(seen) for places, seen in zip(table.places, self._seen, strict=True))
        (wide, near, tallness), (own, nearer, closeness) = ([part[:, pivots] for part in n] for n in nears)
        at = np.ones((len(table.plans), table.heights.shape[1]), bool) if at is None else at
        rows, columns = np.nonzero(at)
        plans, sizes = table.plans[rows], len(tallness)
        # Pairs of one family, height and shape are as uncertain.
        codes = table.families[plans] * sizes + table.heights[plans, columns]
        wanted, cells = np.unique(codes, return_inverse=True)
        families, tall = np.divmod(wanted, sizes)
        # The pivots explain the variance c @ precision @ c, where c are a pair's covariances with them. These
        # have three parts: a factor of family and height times one of the shape, a constant, and, with pivots
        # of the pair's own family, another product.
        precision, factors = inverse.T @ inverse, self._wide**2 * wide[families] * tallness[tall]
        explained = _quadratic_forms(factors, near, precision)
        constant = LEVEL**2 * precision.sum(axis=1)
        explained += 2 * (factors * constant) @ near.T + LEVEL**2 * constant.sum()
        numbers, relatives = np.nonzero(own[families])  # few of the pivots
        parts = nearer[:, relatives].T * (self._own**2 * closeness[tall[numbers], relatives])[:, None]
        crossed = 2 * ((precision[relatives] * factors[numbers]) @ near.T + constant[relatives][:, None])
        ends = np.searchsorted(numbers, np.arange(len(wanted) + 1))
        for number, run in enumerate(map(slice, ends[:-1], ends[1:])):
            squared = precision[np.ix_(relatives[run], relatives[run])] @ parts[run]
            explained[number] += (parts[run] * (crossed[run] + squared)).sum(axis=0)
        found = np.zeros(at.shape)
        variance = self._wide**2 + self._own**2 + LEVEL**2
        found[at] = np.sqrt(np.maximum(variance - explained[cells, columns], 0.0))
        return found

    @property
    def own(self) -> Values:
        """The own part of each measured pair's expected value, ``[n]``. It is added to :meth:`mean`."""
        return np.asarray(self.pair**2 * self._weights)

    @property
    def without_noise(self) -> Values:
        """Each measured pair's expected value with its own part: the measured value less its expected noise,
        ``[n]``."""
        return np.asarray(self.level + self._values - self._noises * self._weights)

    @property
    def trust(self) -> Values:
        """The weight, 0 to 1, of each pair's own measurements against the prediction from all others,
        ``[n]``."""
        return np.asarray(self.pair**2 / (self.pair**2 + self._noises))

    @cached_property
    def _pivots(self) -> tuple[Numbers, Values]:
        """The pairs that explain most variance, and the inverse Cholesky factor of the covariance of these
        pairs, noise included."""
        chosen = pivots(self._covariance, PIVOTS)
        factor = np.linalg.cholesky(self._covariance[np.ix_(chosen, chosen)])
        return chosen, np.linalg.inv(factor)

    def _most_likely(self, widths: Sequence[float]) -> tuple[float, float, float, float]:
        """Returns ``(unlikeliness, wide, own, unexplained)``: the unlikeliness of the values, and the three
        standard deviations under which the values are most likely."""
        count = len(self._values)
        sample = np.unique(np.linspace(0, count - 1, min(SAMPLE, count)).astype(int))
        values, noise = self._values[sample], np.eye(len(sample))
        tried = []
        for wide, own in product(widths, OWN):
            covariance = self._covariance_of(sample, wide, own)
            for left in UNEXPLAINED:
                tried.append((unlikeliness(covariance + left**2 * noise, values), wide, own, left))
        return min(tried)

    def _covariance_of(self, pairs: Numbers, wide: float, own: float) -> Values:
        """Returns the covariance of some of the measured pairs, without the pairs' own parts."""
        of_wide, of_own = (part.covariance[np.ix_(pairs, pairs)] for part in self._seen)
        return np.asarray(wide**2 * of_wide + own**2 * of_own + LEVEL**2)


def _same_rows(table: Numbers) -> list[Numbers]:
    """Returns an array for each set of equal rows of a table, with the indices of these rows."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(table):
        groups.setdefault(row.tobytes(), []).append(number)
    return [np.array(numbers, np.intp) for numbers in groups.values()]


def pivots(covariance: Values, count: int) -> Numbers:
    """Returns the indices of ``count`` pairs. Each pair is the one that the earlier pairs explain least
    (pivoted Cholesky factorisation)."""
    left = covariance.diagonal().copy()
    columns = np.zeros((len(left), min(count, len(left))))
    chosen: list[int] = []
    for number in range(columns.shape[1]):
        pivot = int(left.argmax())
        column = covariance[:, pivot] - columns[:, :number] @ columns[pivot, :number]
        columns[:, number] = column / np.sqrt(left[pivot])
        left -= columns[:, number] ** 2
        left[pivot] = -np.inf
        chosen.append(pivot)
    return np.array(chosen, np.intp)


def unlikeliness(covariance: Values, values: Values) -> float:
    """Returns the negative logarithm of the likelihood of values ``[n]``, less a constant.

    Args:
        covariance: the covariance of the values, noise included, ``[n, n]``.
    """
    factor = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(factor, values)
    return float(0.5 * scaled @ scaled + np.log(factor.diagonal()).sum())


def _quadratic_forms(factors: Values, shapes: Values, precision: Values) -> Values:
    """Returns ``x @ precision @ x`` for each row of ``factors`` and each row of ``shapes``, ``[factors,
    shapes]``. ``x`` is the elementwise product of the two rows, which are ``[pivots]``, and ``precision`` is
    symmetric. ``shapes`` has a low rank, so it suffices to compute the forms of its few singular vectors."""
    left, sizes, right = np.linalg.svd(shapes, full_matrices=False)
    kept = sizes > SMALLEST * sizes.max(initial=0.0)
    places, basis = left[:, kept] * sizes[kept], right[kept].T
    pivots, width = basis.shape
    products = (places[:, :, None] * places[:, None]).reshape(len(places), -1).T
    found = []
    for start in range(0, len(factors), CHUNK):
        part = factors[start : start + CHUNK].T[:, :, None]
        columns = (precision @ (part * basis[:, None]).reshape(pivots, -1)).reshape(pivots, -1, width) * part
        squares = (basis.T @ columns.reshape(pivots, -1)).reshape(width, -1, width)
        found.append(squares.swapaxes(0, 1).reshape(-1, width * width) @ products)
    return np.concatenate(found) if found else np.zeros((0, len(shapes)))
