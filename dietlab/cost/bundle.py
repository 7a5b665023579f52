"""Many schemes at once: the adaptation cost of whole tables, in arrays.

Schemes that are alike but for their sizes share the formulas' case distinctions, so that one pass over
arrays costs them all; a single plan is a bundle of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dietlab.cost.formulas import FloatArray, Parts, f_pad
from dietlab.plans import tiles_of
from dietlab.shapes import Shape
from dietlab.space import Scheme
from dietlab.workloads import IntArray, Role, Workload, extents_of

Speed = Callable[[Any], float]
"""The flop/s of one core or multiprocessor that a scheme reaches by itself."""

FiveParts = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
"""The fields of :class:`~dietlab.cost.formulas.Parts`, for many plans."""


@dataclass(frozen=True)
class Calls:
    """Calls are the shapes of many calls and their extents by role, ``[shapes]`` each."""

    shapes: tuple[Shape, ...]
    extents: Mapping[Role, IntArray]

    @classmethod
    def of(cls, workload: Workload, shapes: Sequence[Shape]) -> Calls:
        return cls(tuple(shapes), extents_of(workload, shapes))

    def __getitem__(self, role: Role) -> IntArray:
        return self.extents[role]

    def at(self, numbers: Sequence[int]) -> Calls:
        """Returns some of the calls."""
        shapes = tuple(self.shapes[number] for number in numbers)
        return Calls(shapes, {role: extent[list(numbers)] for role, extent in self.extents.items()})


@dataclass(frozen=True)
class Bundle:
    """A bundle holds the sizes of schemes that are alike but for these, as arrays.

    Args:
        like: one of the schemes, for what they have in common.
        sizes: each size by name.
        paid: extents of which a plan pays for multiples, by role.
        speeds: flop/s of all tiles of the first scheme, lowest first, then of the second's.
        first: where the speeds of each scheme begin.
    """

    like: Scheme
    sizes: Mapping[str, IntArray]
    paid: Mapping[Role, IntArray]
    speeds: FloatArray
    first: IntArray

    def __getitem__(self, size: str) -> IntArray:
        return self.sizes[size]

    @cached_property
    def column(self) -> Bundle:
        """The bundle as a column ``[schemes, 1]``: beside calls it makes a table ``[schemes, shapes]``."""
        sizes, paid = ({key: one[:, None] for key, one in of.items()} for of in (self.sizes, self.paid))
        return replace(self, sizes=sizes, paid=paid, first=self.first[:, None])  # type: ignore[arg-type]

    def tiles(self, rows: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Returns the height and number of tiles of each region; where it has none, the tallest's height."""
        found = tiles_of(self.like.edge, self["granule"], self["rows"], rows)
        return [(np.where(tiles > 0, height, self["rows"]), tiles) for height, tiles in found]

    def speed(self, heights: IntArray) -> FloatArray:
        """Returns the flop/s of one core or multiprocessor in tiles of these heights."""
        lower = heights // self["granule"] - 1 if self.like.composed else 0
        return self.speeds[self.first + lower]

    def column_tiles(self, calls: Calls) -> IntArray:
        return -(-calls["cols"] // self["cols"])

    def useful(self, calls: Calls) -> FloatArray:
        """Returns the share of the executed multiply-adds that the outputs need, ``f_pad``."""
        return f_pad(calls.extents, self.paid)


class Bundled(ABC):
    """An adaptation cost that is computed a bundle at a time."""

    workload: Workload

    @abstractmethod
    def _alike(self, scheme: Any) -> Hashable:
        """Returns what schemes of one bundle have in common."""

    @abstractmethod
    def _sizes(self, scheme: Any) -> dict[str, int]:
        """Returns the sizes of a scheme that the formulas ask for, by name."""

    @abstractmethod
    def _paid(self, scheme: Any) -> dict[Role, int]:
        """Returns the extents of which a plan pays for multiples."""

    @abstractmethod
    def _parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        """Returns the seconds of the calls by part."""

    def table(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        """Returns :meth:`seconds` of every scheme on every shape, ``[schemes, shapes]``."""
        found, calls = np.empty((len(schemes), len(shapes))), Calls.of(self.workload, shapes)
        for numbers in self._groups(schemes):
            bundle = self._bundle([schemes[number] for number in numbers], throughput)
            found[numbers] = sum(self._parts(bundle.column, calls))
        return found

    def seconds_of(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        """Returns :meth:`seconds` of the first scheme on the first shape, the second on the second ..."""
        found, calls = np.empty(len(schemes)), Calls.of(self.workload, shapes)
        for numbers in self._groups(schemes):
            bundle = self._bundle([schemes[number] for number in numbers], throughput)
            found[numbers] = sum(self._parts(bundle, calls.at(numbers)))
        return found

    def seconds(self, scheme: Any, shape: Shape, throughput: Speed) -> float:
        return self.parts(scheme, shape, throughput).total

    def parts(self, scheme: Any, shape: Shape, throughput: Speed) -> Parts:
        found = self._parts(self._bundle([scheme], throughput), self._call(shape))
        return Parts(*(float(part[0]) for part in found))

    def _call(self, shape: Shape) -> Calls:
        return Calls.of(self.workload, [shape])

    def _groups(self, schemes: Sequence[Any]) -> Iterator[list[int]]:
        """Yields the numbers of schemes that are alike."""
        found: dict[Hashable, list[int]] = {}
        for number, scheme in enumerate(schemes):
            found.setdefault(self._alike(scheme), []).append(number)
        yield from found.values()

    def _bundle(self, schemes: Sequence[Any], throughput: Speed = lambda _: 1.0) -> Bundle:
        sizes, paid = [self._sizes(scheme) for scheme in schemes], [self._paid(scheme) for scheme in schemes]
        speeds = [[throughput(lower) for lower in scheme.heights] for scheme in schemes]
        return Bundle(
            schemes[0],
            _arrays(sizes),
            _arrays(paid),
            np.array([speed for own in speeds for speed in own]),
            np.cumsum([0, *map(len, speeds[:-1])]),
        )


def _arrays(found: Sequence[Mapping[Any, int]]) -> dict[Any, IntArray]:
    """Returns an array for each key."""
    return {key: np.array([one[key] for one in found], np.int64) for key in found[0]}
