"""Coordinates of schemes and shapes, from which a Gaussian process computes covariances of pairs.

Two pairs of one label have a covariance of ``near(parameters) * near(tile height) * near(extents)``. Each
factor is a squared exponential of the distance. So three small matrices give the covariances of a table
``[schemes, shapes]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.problem import IntArray, Role, Shape, Workload, extents_of, line_of
from dietlab.scheme import Edge, Scheme, covered, covers_lines, tiles_of

Numbers = npt.NDArray[np.intp]

ROWS, OTHERS, HEIGHT, WIDTH = 2.5, 8.0, 1.0, 2.0
"""The distances of rows, other extents, tile heights and tile widths, in natural logarithms, at which the
covariance has fallen to 0.6. Maximum likelihood finds similar values on four layers of one CPU."""

PARAMETER = 20.0
"""The distance of any other numeric parameter, in factors of two, at which the covariance has fallen to 0.6:
unrolling, prefetch and K-blocks change times a little, by the same factor for all sizes."""

NEAR_HEIGHT, NEAR_EXTENT = 0.1, 5.0
"""The distances of tile heights and of extents, in natural logarithms, at which the covariance within one
family has fallen to 0.6."""


class Near(NamedTuple):
    """The three factors of a covariance with ``n`` pairs: for schemes, for shapes and for heights, each ``[.,
    n]``."""

    schemes: Values
    shapes: Values
    heights: Values


@dataclass(frozen=True)
class Places:
    """Coordinates of schemes, shapes and tile heights; at a distance of 1 the covariance has fallen to 0.6.

    Args:
        labels: the label of each scheme, ``[schemes]``; schemes with different labels have nothing in common.
        schemes, shapes, heights: the coordinates of each, ``[., axes]``.
    """

    labels: Numbers
    schemes: Values
    shapes: Values
    heights: Values

    def near(self, pairs: Places) -> Near:
        """Returns the factors of the covariance with ``pairs``. Each pair has one scheme, one shape and one
        height."""
        schemes = squared_exponential(self.schemes, pairs.schemes)
        return Near(
            schemes * (self.labels[:, None] == pairs.labels),
            squared_exponential(self.shapes, pairs.shapes),
            squared_exponential(self.heights, pairs.heights),
        )

    @cached_property
    def covariance(self) -> Values:
        """The covariance of these pairs with each other, ``[n, n]``."""
        near = self.near(self)
        return near.schemes * near.shapes * near.heights


class Parts(NamedTuple):
    """The coordinates for two parts of a covariance: the part of all schemes (``wide``), and the part within
    one family (``own``)."""

    wide: Places
    own: Places


@dataclass(frozen=True)
class Table:
    """Pairs of every scheme with every shape; plans of one family, height and shape are predicted once.

    Args:
        places: the places of one scheme of each family and group, of the shapes, and of the different
            heights.
        families: the index of each plan's family among the places, ``[plans]``.
        heights: the index of the height of each plan's tallest tile, ``[plans, shapes]``.
        plans: the index of each scheme's plan.
    """

    places: Parts
    families: Numbers
    heights: Numbers
    plans: Numbers


class Pairs:
    """The coordinates of measured pairs of ``schemes`` and ``shapes``, each ``[n]``, and of tables of other
    pairs."""

    def __init__(self, workload: Workload, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> None:
        self._workload = workload
        self._groups = _numbered(map(group_of, schemes))
        self._families = _numbered(scheme.family for scheme in schemes)
        pairs = zip(schemes, shapes, strict=True)
        heights = [height(scheme, covered(scheme, workload, shape)[1]) for scheme, shape in pairs]
        self.places = self._parts(schemes, extents_of(workload, shapes), np.array(heights))

    def table(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Table:
        """Returns the places of every scheme on every shape."""
        families: dict[tuple[Scheme, object], tuple[int, Scheme]] = {}
        plans: dict[tuple[int, Edge, int], tuple[int, Scheme]] = {}
        places = []
        for scheme in schemes:
            family, _ = families.setdefault((scheme.family, group_of(scheme)), (len(families), scheme))
            plan, _ = plans.setdefault((family, scheme.edge, scheme.rows), (len(plans), scheme))
            places.append(plan)
        members, firsts = ([scheme for _, scheme in found.values()] for found in (families, plans))
        extents = extents_of(self._workload, shapes)
        tall = heights_of(firsts, extents["rows"], self._line(firsts, shapes))
        sizes, heights = np.unique(tall, return_inverse=True)
        return Table(
            self._parts(members, extents, sizes),
            np.array([family for family, _, _ in plans], np.intp),
            heights.reshape(len(firsts), len(shapes)),
            np.array(places, np.intp),
        )

    def _line(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> dict[int, IntArray]:
        """Returns the rows of each shape's lines for the schemes, by index, whose tiles cover lines."""
        lined = [n for n, scheme in enumerate(schemes) if covers_lines(scheme, self._workload)]
        rows = np.array([line_of(self._workload, shape)[1] for shape in shapes] if lined else [], np.int64)
        return dict.fromkeys(lined, rows)

    def _parts(self, schemes: Sequence[Scheme], extents: Mapping[Role, IntArray], heights: IntArray) -> Parts:
        sizes: Values = np.log(np.maximum(1, np.stack([*extents.values()], axis=1)))
        scales = np.array([ROWS if role == "rows" else OTHERS for role in extents])
        tall = np.log(heights)[:, None]
        groups = np.array([self._groups.get(group_of(scheme), -1) for scheme in schemes], np.intp)
        families = np.array([self._families.get(scheme.family, -1) for scheme in schemes], np.intp)
        parameters = np.array([coordinates(scheme) for scheme in schemes])
        return Parts(
            Places(groups, parameters, sizes / scales, tall / HEIGHT),
            Places(families, np.zeros((len(schemes), 0)), sizes / NEAR_EXTENT, tall / NEAR_HEIGHT),
        )


def squared_exponential(some: Values, others: Values) -> Values:
    """Returns ``exp(-distance^2 / 2)`` for each two points of ``some`` and ``others``, ``[some, others]``.
    Points are ``[., axes]``."""
    squares = np.zeros((len(some), len(others)))
    for here, there in zip(some.T, others.T, strict=True):
        squares += (here[:, None] - there) ** 2
    return np.asarray(np.exp(-0.5 * squares))


def _numbered(keys: Iterable[Hashable]) -> dict[Hashable, int]:
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}


@lru_cache(maxsize=1 << 16)
def group_of(scheme: Scheme) -> Hashable:
    """Returns the key that schemes must share for their times to be correlated: all parameters that are not
    numbers, such as the loop order. The edge of composed plans is left out, since plans with different edges
    have the same tiles."""
    named = {name: value for name, value in scheme.parameters.items() if isinstance(value, str)}
    edge = "" if scheme.composed else scheme.edge
    return tuple(sorted({**named, "edge": edge}.items()))


def coordinates(scheme: Scheme) -> list[float]:
    """Returns the numeric parameters of a family, without the height. Each is divided by the distance at
    which the covariance has fallen to 0.6."""
    numbers = {name: v for name, v in scheme.kernel.parameters.items() if not isinstance(v, str)}
    del numbers["rows"]
    width = float(np.log(numbers.pop("cols"))) / WIDTH
    return [width, *(float(np.log2(1 + v)) / PARAMETER for v in numbers.values())]


def height(scheme: Scheme, rows: int) -> int:
    """Returns the height of the tallest tile that a scheme uses for ``rows`` rows."""
    return int(heights_of([scheme], np.array([rows]))[0, 0])


def heights_of(
    schemes: Sequence[Scheme], rows: IntArray, lines: Mapping[int, IntArray] = MappingProxyType({})
) -> IntArray:
    """Returns :func:`height` of every scheme for every number of rows, ``[schemes, rows]``; ``lines`` has the
    numbers for some of the schemes, by index."""
    known: dict[tuple[str, int, int, bool], IntArray] = {}
    found = []
    for number, scheme in enumerate(schemes):
        key, own = (scheme.edge, scheme.kernel.granule, scheme.rows, number in lines), lines.get(number, rows)
        if key not in known:
            (tall, tiles), *lower = tiles_of(scheme.edge, key[1], np.full_like(own, key[2]), own)
            known[key] = np.maximum(1, np.where(tiles > 0, tall, lower[0][0]) if lower else tall)
        found.append(known[key])
    return np.array(found, np.int64).reshape(len(schemes), len(rows))
