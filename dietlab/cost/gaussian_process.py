"""A Gaussian process over schemes and shapes: it fills in between measured pairs, and says how sure it is.

What is predicted is a logarithm, such as that of a measured time over the adaptation cost's. Two pairs are
alike if their tiles and extents are (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
chapter 2)::

    covariance = wide^2 * near(parameters) * near(tile height) * near(extents)     what a processor does
               + own^2  * same family      * near(tile height) * near(extents)     what one program does
               + LEVEL^2                                                           what all share
               + pair^2 * same pair                                                what no other pair shares

    measured   = value + noise

Each factor is that of a squared exponential, so that whole tables ``[schemes, shapes]`` are products of
matrices. Measured again, the same pair takes another time, since the machine is shared: on one CPU by 8 %
(standard deviation). So half of the variance that neighbours leave unexplained counts as the pair's own, half
as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dietlab.problem import Role, Shape, Workload, extents_of
from dietlab.scheme import Edge, Scheme, tiles_of

Values = npt.NDArray[np.float64]

WIDE, LEVEL = 0.6, 0.15
"""Standard deviations, of a logarithm: of what depends on parameters and extents, and of what all share. Of
the order that the likelihood finds for records of four layers on one CPU (0.63 to 0.74, 0.13 to 0.34)."""

OWN, UNEXPLAINED = (0.03, 0.06, 0.12), (0.02, 0.04, 0.08, 0.16)
"""Standard deviations that are tried: of one family's own deviation, and of a pair's and the noise together.
Machines differ in both; the likelihood of the records decides."""

ROWS, OTHERS, HEIGHT, WIDTH = 2.5, 8.0, 1.0, 2.0
"""Differences, of natural logarithms, over which extents (of rows, of other axes) and sizes of tiles become
unlike: at one of them the covariance has fallen to 0.6. Of the order of the likelihood's, as :data:`WIDE`."""

PARAMETER = 20.0
"""The same of any other parameter that is a number, in steps of a factor of two: unrolling, prefetch and
K-blocks shift times a little and alike for all sizes."""

NEAR_HEIGHT, NEAR_EXTENT = 0.1, 5.0
"""The same of heights and extents for what one family does by itself."""

PIVOTS = 256
"""The most measured pairs that the uncertainty is computed from, the most telling ones: the others lower it
little, and its cost grows with the square of their number."""

SAMPLE = 400
"""The most pairs that the likelihood is computed from: it chooses among a few values only."""

SMALLEST = 1e-8
"""The least singular value, as a share of the largest, that counts of what shapes have in common."""

CHUNK = 32
"""Families and heights whose uncertainty is computed at once: what is between, some 4 MB, stays in the
caches."""


class GaussianProcess:
    """The process after ``values`` were measured at pairs of ``schemes`` and ``shapes``, all ``[n]``.

    Args:
        workload: whose shapes they are.
        schemes, shapes: the pairs.
        values: measured at them.
        times: how often each was measured: its noise falls with the root.
        wide: standard deviations, of what depends on parameters and extents, that are tried: smaller ones
        where
            a prior has told most of it.

    ``unlikeliness`` is the negative logarithm of the values' likelihood, less a constant.
    """

    def __init__(
        self,
        workload: Workload,
        schemes: Sequence[Scheme],
        shapes: Sequence[Shape],
        values: Values,
        times: Values,
        wide: Sequence[float] = (WIDE,),
    ) -> None:
        self._workload = workload
        self._groups: dict[object, int] = {}
        self._families: dict[Scheme, int] = {}
        self._seen = self._schemes(schemes)
        self._at = self._extents(shapes)
        self._heights = np.log([height(s, x) for s, x in zip(schemes, self._rows(shapes), strict=True)])
        self.level = float(np.median(values))
        values = values - self.level
        self.unlikeliness, self._wide, self._own, unexplained = self._most_likely(values, wide)
        self.pair = self.noise = unexplained / np.sqrt(2)
        self._noises = self.noise**2 / times
        covariance = self._covariance(slice(None)) + np.diag(self.pair**2 + self._noises)
        self._weights = np.linalg.solve(covariance, values)
        self._values = values
        self._covariances = covariance

    def mean(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the expected values, ``[schemes, shapes]``, without what is a pair's own."""
        found = self._distinct(schemes, shapes)
        wide, own = self._likeness(found.families)
        near, nearer = (part.T for part in self._nearness(shapes))
        relatives = [np.flatnonzero(row) for row in own]
        values = np.empty(found.heights.shape)
        for rows in _alike(found.heights):
            # Plans of the same heights everywhere: a product for each height, over the shapes that have it.
            members, heights = found.numbers[rows], found.heights[rows[0]]
            for tall in np.unique(heights):
                columns = np.flatnonzero(heights == tall)
                apart = np.log(tall) - self._heights
                weights = self._wide**2 * self._weights * _near(apart, HEIGHT)
                table = (wide[members] * weights) @ near[:, columns]
                weights = self._own**2 * self._weights * _near(apart, NEAR_HEIGHT)
                for number, row in zip(members, table, strict=True):
                    if len(same := relatives[number]):
                        row += weights[same] @ nearer[np.ix_(same, columns)]
                values[np.ix_(rows, columns)] = table
        return np.asarray((values + self.level + LEVEL**2 * self._weights.sum())[found.places])

    def deviation(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Values:
        """Returns the standard deviation of :meth:`mean`, ``[schemes, shapes]``.

        Args:
            at: the pairs that are asked for (None: all); the others are 0.
        """
        distinct = self._distinct(schemes, shapes)
        pivots, inverse = self._pivots
        wide, own = (part[:, pivots] for part in self._likeness(distinct.families))
        near, nearer = (part[:, pivots] for part in self._nearness(shapes))
        sizes, sized = np.unique(distinct.heights, return_inverse=True)
        apart = np.log(sizes)[:, None] - self._heights[pivots]
        tallness, closeness = self._wide**2 * _near(apart, HEIGHT), self._own**2 * _near(apart, NEAR_HEIGHT)
        at = np.ones((len(schemes), len(shapes)), bool) if at is None else at
        rows, columns = np.nonzero(at)
        plans, sized = distinct.places[rows], sized.reshape(distinct.heights.shape)
        # Pairs of one family, height and shape are as uncertain.
        codes = distinct.numbers[plans] * len(sizes) + sized[plans, columns]
        asked, cells = np.unique(codes, return_inverse=True)
        families, tall = np.divmod(asked, len(sizes))
        # The pivots explain the variance c @ precision @ c, where c are a pair's covariances with them. These
        # have three parts: a factor of family and height times one of the shape, a constant, and, with pivots
        # of the pair's own family, another product.
        precision, factors = inverse.T @ inverse, wide[families] * tallness[tall]
        explained = _quadratic_forms(factors, near, precision)
        constant = LEVEL**2 * precision.sum(axis=1)
        explained += 2 * (factors * constant) @ near.T + LEVEL**2 * constant.sum()
        numbers, relatives = np.nonzero(own[families])  # few of the pivots
        parts = nearer[:, relatives].T * closeness[tall[numbers], relatives][:, None]
        crossed = 2 * ((precision[relatives] * factors[numbers]) @ near.T + constant[relatives][:, None])
        ends = np.searchsorted(numbers, np.arange(len(asked) + 1))
        for number, run in enumerate(map(slice, ends[:-1], ends[1:])):
            squared = precision[np.ix_(relatives[run], relatives[run])] @ parts[run]
            explained[number] += (parts[run] * (crossed[run] + squared)).sum(axis=0)
        table = np.zeros(at.shape)
        variance = self._wide**2 + self._own**2 + LEVEL**2
        table[at] = np.sqrt(np.maximum(variance - explained[cells, columns], 0.0))
        return table

    @property
    def own(self) -> Values:
        """The part of each measured pair's expected value that no other pair shares, beside :meth:`mean`,
        ``[n]``."""
        return np.asarray(self.pair**2 * self._weights)

    @property
    def told(self) -> Values:
        """Each measured pair's expected value, its own part included, ``[n]``: what was measured, less
        noise."""
        return np.asarray(self.level + self._values - self._noises * self._weights)

    @property
    def trust(self) -> Values:
        """The share, 0 to 1, to which a pair's own measurement counts beside all others, ``[n]``."""
        return np.asarray(self.pair**2 / (self.pair**2 + self._noises))

    @cached_property
    def _pivots(self) -> tuple[npt.NDArray[np.intp], Values]:
        """The most telling pairs, and the inverse of the Cholesky factor of their covariance with noise."""
        chosen = most_telling(self._covariances, PIVOTS)
        factor = np.linalg.cholesky(self._covariances[np.ix_(chosen, chosen)])
        return chosen, np.linalg.inv(factor)

    def _most_likely(self, values: Values, widths: Sequence[float]) -> tuple[float, float, float, float]:
        """Returns the deviations, wide, of families and unexplained, under which the values are most likely,
        after how unlikely they then are."""
        sample = np.unique(np.linspace(0, len(values) - 1, min(SAMPLE, len(values))).astype(int))
        level, told = LEVEL**2, values[sample]
        wide, alone = (self._covariance(sample, *part) - level for part in ((1.0, 0.0), (0.0, 1.0)))
        tried = [
            (_unlikeliness(every**2 * wide + own**2 * alone + level, left, told), every, own, left)
            for every in widths
            for own in OWN
            for left in UNEXPLAINED
        ]
        return min(tried)

    def _covariance(
        self, at: npt.NDArray[np.intp] | slice, every: float | None = None, own: float | None = None
    ) -> Values:
        every, own = self._wide if every is None else every, self._own if own is None else own
        wide, same = self._seen_likeness
        near, nearer = self._seen_nearness
        here = (at, at) if isinstance(at, slice) else np.ix_(at, at)
        apart = self._heights[at][:, None] - self._heights[at]
        found = every**2 * wide[here] * near[here] * _near(apart, HEIGHT) + LEVEL**2
        return np.asarray(found + own**2 * same[here] * nearer[here] * _near(apart, NEAR_HEIGHT))

    @cached_property
    def _seen_likeness(self) -> tuple[Values, Values]:
        return _likeness(self._seen, self._seen)

    @cached_property
    def _seen_nearness(self) -> tuple[Values, Values]:
        apart = self._at[:, None] - self._at[None]
        return _nearness(apart)

    def _likeness(self, families: Sequence[Scheme]) -> tuple[Values, Values]:
        return _likeness(self._schemes(families), self._seen)

    def _nearness(self, shapes: Sequence[Shape]) -> tuple[Values, Values]:
        return _nearness(self._extents(shapes)[:, None] - self._at[None])

    def _distinct(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> _Distinct:
        families: dict[tuple[Scheme, object], int] = {}
        plans: dict[tuple[int, Edge, int], int] = {}
        members, firsts, places = [], [], []
        for scheme in schemes:
            key = scheme.family, group_of(scheme)
            if key not in families:
                families[key] = len(families)
                members.append(scheme)
            plan = families[key], scheme.edge, scheme.rows
            if plan not in plans:
                plans[plan] = len(plans)
                firsts.append(scheme)
            places.append(plans[plan])
        numbers = np.array([number for number, _, _ in plans], np.intp)
        heights = heights_of(firsts, self._rows(shapes))
        return _Distinct(members, numbers, heights, np.array(places, np.intp))

    def _schemes(self, schemes: Sequence[Scheme]) -> _Schemes:
        families = [self._families.setdefault(s.family, len(self._families)) for s in schemes]
        groups = [self._groups.setdefault(group_of(s), len(self._groups)) for s in schemes]
        places = np.array([coordinates(s) for s in schemes])
        return _Schemes(np.array(groups), np.array(families), places)

    def _rows(self, shapes: Sequence[Shape]) -> npt.NDArray[np.int64]:
        return extents_of(self._workload, shapes)["rows"]

    def _extents(self, shapes: Sequence[Shape]) -> Values:
        """Returns the logarithms of the extents, ``[shapes, axes]``, rows first."""
        found = extents_of(self._workload, shapes)
        roles: list[Role] = ["rows", *(role for role in found if role != "rows")]
        places: Values = np.log(np.maximum(1, np.stack([found[role] for role in roles], axis=1)))
        return places


@dataclass(frozen=True)
class _Distinct:
    """Plans of which the process says different things.

    Args:
        families: one scheme of each family and group.
        numbers: of each plan's family, ``[plans]``.
        heights: of each plan's tallest tile, ``[plans, shapes]``.
        places: the plan of each scheme that was asked for.
    """

    families: list[Scheme]
    numbers: npt.NDArray[np.intp]
    heights: npt.NDArray[np.int64]
    places: npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Schemes:
    """Schemes in numbers: of their group and family, ``[n]``, and their coordinates, ``[n, parameters]``."""

    groups: npt.NDArray[np.intp]
    families: npt.NDArray[np.intp]
    places: Values


@lru_cache(maxsize=1 << 16)
def group_of(scheme: Scheme) -> object:
    """Returns what schemes must share to tell of each other what a processor does: every parameter that is no
    number, such as the loop order, but for the edge of composed plans, whose tiles are the same."""
    named = {name: value for name, value in scheme.parameters.items() if isinstance(value, str)}
    edge = "" if scheme.composed else scheme.edge
    return tuple(sorted({**named, "edge": edge}.items()))


def coordinates(scheme: Scheme) -> list[float]:
    """Returns the parameters of a family that are numbers, each divided by the difference over which they
    become unlike; without its height."""
    numbers = {name: v for name, v in scheme.kernel.parameters.items() if not isinstance(v, str)}
    del numbers["rows"]
    width = float(np.log(numbers.pop("cols"))) / WIDTH
    return [width, *(float(np.log2(1 + v)) / PARAMETER for v in numbers.values())]


def height(scheme: Scheme, rows: int) -> int:
    """Returns the height of the tallest tile that a scheme has for ``rows`` rows."""
    return int(heights_of([scheme], np.array([rows]))[0, 0])


def heights_of(schemes: Sequence[Scheme], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns :func:`height` of every scheme for every number of rows, ``[schemes, rows]``."""
    known: dict[tuple[str, int, int], npt.NDArray[np.int64]] = {}
    found = []
    for scheme in schemes:
        key = scheme.edge, scheme.kernel.granule, scheme.rows
        if key not in known:
            (tall, tiles), *lower = tiles_of(scheme.edge, key[1], np.full_like(rows, key[2]), rows)
            known[key] = np.maximum(1, np.where(tiles > 0, tall, lower[0][0]) if lower else tall)
        found.append(known[key])
    return np.array(found, np.int64).reshape(len(schemes), len(rows))


def _alike(table: npt.NDArray[np.int64]) -> list[npt.NDArray[np.intp]]:
    """Returns the numbers of the rows of a table, equal rows together."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(table):
        groups.setdefault(row.tobytes(), []).append(number)
    return [np.array(numbers, np.intp) for numbers in groups.values()]


def most_telling(covariance: Values, count: int) -> npt.NDArray[np.intp]:
    """Returns the numbers of ``count`` pairs, each the one that those before it tell least about (a pivoted
    Cholesky factorisation)."""
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


def _likeness(some: _Schemes, others: _Schemes) -> tuple[Values, Values]:
    """Returns how alike families are by their parameters, and whether they are the same, ``[some,
    others]``."""
    squares = ((some.places[:, None] - others.places[None]) ** 2).sum(axis=2)
    alike = np.exp(-0.5 * squares) * (some.groups[:, None] == others.groups)
    return alike, (some.families[:, None] == others.families).astype(np.float64)


def _nearness(apart: Values) -> tuple[Values, Values]:
    """Returns the factors of extents that are ``apart``, of logarithms, ``[., ., axes]``."""
    scales = np.array([ROWS, *[OTHERS] * (apart.shape[2] - 1)])
    return _near(apart / scales, 1.0, axis=2), _near(apart, NEAR_EXTENT, axis=2)


def _quadratic_forms(factors: Values, shapes: Values, precision: Values) -> Values:
    """Returns ``x @ precision @ x`` for the elementwise product ``x`` of each row of ``factors`` with each
    row of ``shapes``, ``[factors, shapes]``; rows are ``[pivots]``, and ``precision`` is symmetric. The rows
    of shapes are combinations of few (singular value decomposition), so that the forms of these suffice."""
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


def _near(apart: Values, scale: float, axis: int | None = None) -> Values:
    squares = (apart / scale) ** 2
    return np.asarray(np.exp(-0.5 * (squares if axis is None else squares.sum(axis=axis))))


def _unlikeliness(covariance: Values, noise: float, values: Values) -> float:
    """Returns the negative logarithm of the values' likelihood, less a constant."""
    factor = np.linalg.cholesky(covariance + noise**2 * np.eye(len(values)))
    scaled = np.linalg.solve(factor, values)
    return float(0.5 * scaled @ scaled + np.log(factor.diagonal()).sum())
