"""Many schemes at once: the adaptation cost of whole tables, in arrays.

Schemes that are alike but for their sizes share the formulas' case distinctions, so that one pass over
arrays costs them all; a single plan is a bundle of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dietlab.cost.formulas import FloatArray, Parts, f_pad
from dietlab.machine import Hardware
from dietlab.problem import IntArray, Role, Shape, Workload, extents_of
from dietlab.scheme import Scheme, tiles_of

Speed = Callable[[Any], float]
"""The flop/s of one core or multiprocessor that a scheme reaches by itself."""


@dataclass(frozen=True)
class Same:
    """One speed for all schemes, in flop/s, so that none is computed for each tile."""

    speed: float

    def __call__(self, scheme: Any) -> float:
        return self.speed


UNKNOWN_PEAK = 100.0
"""GFLOP/s of one core whose peak was not measured: without it all speeds rank alike."""


def peak_speed(workload: Workload, hardware: Hardware) -> float:
    """Returns the peak of one core or multiprocessor, in flop/s, for an operator's type."""
    return 1e9 * (hardware.peak_for(workload.dtype) or UNKNOWN_PEAK)


class FiveParts(NamedTuple):
    """The fields of :class:`~dietlab.cost.formulas.Parts`, for many calls."""

    compute: FloatArray
    edges: FloatArray
    padding: FloatArray
    weights: FloatArray
    idle: FloatArray

    @property
    def total(self) -> FloatArray:
        # In the order of Parts.total, so that both are the same number.
        return self.compute + self.edges + self.padding + self.weights + self.idle


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
        speeds: flop/s of all tiles of the first scheme, lowest first, then of the second's; empty where a
            bound says how fast they are.
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
    hardware: Hardware

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

    @abstractmethod
    def working_shares(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray: ...

    @abstractmethod
    def _static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns ``f_pad * f_occ`` of the calls."""

    @abstractmethod
    def _throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        """Returns the throughput with which the calls take these seconds."""

    def table(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        return self._table(schemes, shapes, throughput, self._seconds)

    def bound(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        return self._table(schemes, shapes, self._fastest, self._seconds)

    def bound_of(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        return self._pairs(schemes, shapes, self._fastest)

    @property
    def _fastest(self) -> Speed | None:
        """The throughputs of the bound: the peak, or None where the parts of a bundle without speeds are the
        bound's."""
        return Same(peak_speed(self.workload, self.hardware))

    def statics(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        return self._table(schemes, shapes, None, self._static)

    def seconds_of(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        return self._pairs(schemes, shapes, throughput)

    def _pairs(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed | None) -> FloatArray:
        found, calls = np.empty(len(schemes)), Calls.of(self.workload, shapes)
        for numbers, bundle in self._bundles(schemes, throughput):
            found[numbers] = self._seconds(bundle, calls.at(numbers))
        return found

    def throughputs(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], seconds: Sequence[float]
    ) -> FloatArray:
        found, calls, spent = np.empty(len(schemes)), Calls.of(self.workload, shapes), np.array(seconds)
        for numbers, bundle in self._bundles(schemes, None):
            found[numbers] = self._throughput(bundle, calls.at(numbers), spent[numbers])
        return found

    def parts(self, scheme: Any, shape: Shape, throughput: Speed) -> Parts:
        found = self._parts(self._bundle([scheme], throughput), Calls.of(self.workload, [shape]))
        return Parts(*(float(part[0]) for part in found))

    def seconds(self, scheme: Any, shape: Shape, throughput: Speed) -> float:
        return float(self.seconds_of([scheme], [shape], throughput)[0])

    def static(self, scheme: Any, shape: Shape) -> float:
        return float(self.statics([scheme], [shape])[0, 0])

    def throughput(self, scheme: Any, shape: Shape, seconds: float) -> float:
        return float(self.throughputs([scheme], [shape], [seconds])[0])

    def working_share(self, scheme: Any, shape: Shape) -> float:
        return float(self.working_shares([scheme], [shape])[0])

    def _shares(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed | None
    ) -> FloatArray:
        """Returns the share of each call that useful multiply-adds take at a throughput (None: a bound's)."""
        found, calls = np.empty(len(schemes)), Calls.of(self.workload, shapes)
        for numbers, bundle in self._bundles(schemes, throughput):
            parts = self._parts(bundle, calls.at(numbers))
            found[numbers] = parts.compute / np.where(parts.total > 0, parts.total, 1.0)
        return found

    def _table(
        self,
        schemes: Sequence[Any],
        shapes: Sequence[Shape],
        throughput: Speed | None,
        of: Callable[[Bundle, Calls], FloatArray],
    ) -> FloatArray:
        found, calls = np.empty((len(schemes), len(shapes))), Calls.of(self.workload, shapes)
        for numbers, bundle in self._bundles(schemes, throughput):
            found[numbers] = of(bundle.column, calls)
        return found

    def _seconds(self, bundle: Bundle, calls: Calls) -> FloatArray:
        return self._parts(bundle, calls).total

    def _bundles(
        self, schemes: Sequence[Any], throughput: Speed | None
    ) -> Iterator[tuple[list[int], Bundle]]:
        """Yields the numbers of schemes that are alike, and their bundle."""
        found: dict[Hashable, list[int]] = {}
        for number, scheme in enumerate(schemes):
            found.setdefault(self._alike(scheme), []).append(number)
        for numbers in found.values():
            yield numbers, self._bundle([schemes[number] for number in numbers], throughput)

    def _bundle(self, schemes: Sequence[Any], throughput: Speed | None) -> Bundle:
        sizes, paid = [self._sizes(scheme) for scheme in schemes], [self._paid(scheme) for scheme in schemes]
        speeds: list[list[float]] = []
        if isinstance(throughput, Same):
            # Of composed plans each height has one, of others the tile.
            counts = [s.rows // s.kernel.granule if s.composed else 1 for s in schemes]
            speeds = [[throughput.speed] * count for count in counts]
        elif throughput is not None:
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
