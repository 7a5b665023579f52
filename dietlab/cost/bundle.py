"""Many schemes at once: the formulas of a kind of processor are of arrays.

Schemes that differ in sizes only take the same branches of the formulas, so that one pass over arrays costs
them all; a single plan is a bundle of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from dietlab.cost.formulas import FloatArray, f_pad
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record
from dietlab.problem import IntArray, Role, Shape, Workload, extents_of
from dietlab.scheme import Scheme, tiles_of

Adaptation = Literal["paper", "streamed"]
"""``paper``: padding and idle processors only; ``streamed``: the operands' traffic too."""

Own = TypeVar("Own", bound="Formulas")

Rows = Sequence[Sequence[float]]
"""Numbers of schemes, a row each."""

Speed = Callable[[Any], float]
"""The flop/s of one core or multiprocessor that a scheme reaches by itself."""


@dataclass(frozen=True)
class Same:
    """One speed for all schemes, in flop/s, so that none is computed for each tile."""

    speed: float

    def __call__(self, scheme: Any) -> float:
        return self.speed


UNKNOWN_PEAK = 100.0
"""GFLOP/s of one core whose peak was not measured: without it the ranking is the same."""


def peak_speed(workload: Workload, hardware: Hardware) -> float:
    """Returns the peak of one core or multiprocessor, in flop/s, for an operator's type."""
    return 1e9 * (hardware.peak_for(workload.dtype) or UNKNOWN_PEAK)


NOTHING: FloatArray = np.zeros(1)
"""Seconds of a part that a processor does not have, whatever the calls."""


class FiveParts(NamedTuple):
    """The fields of :class:`~dietlab.cost.formulas.Parts`, for many calls."""

    compute: FloatArray
    edges: FloatArray = NOTHING
    padding: FloatArray = NOTHING
    weights: FloatArray = NOTHING
    idle: FloatArray = NOTHING

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


class Sizes(NamedTuple):
    """The numbers of a scheme that formulas ask for.

    Args:
        group: equal for schemes that one bundle serves, whose formulas differ in numbers only.
        sizes: each by name; ``rows``, ``cols`` and ``granule`` are among them.
        paid: extents of which a plan pays for multiples, by role.
    """

    group: Hashable
    sizes: Mapping[str, int]
    paid: Mapping[Role, int]


@dataclass(frozen=True)
class Bundle:
    """A bundle holds the sizes of the schemes of one group, as arrays.

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

    @classmethod
    def of(cls, schemes: Sequence[Any], sizes: Sequence[Sizes], throughput: Speed | None) -> Bundle:
        """Returns the bundle of the schemes of one group.

        Args:
            sizes: of each scheme.
            throughput: of each tile by itself (None: a bound says how fast they are).
        """
        speeds: list[list[float]] = []
        if isinstance(throughput, Same):
            # Of composed plans each height has one, of others the tile.
            counts = [s.rows // s.kernel.granule if s.composed else 1 for s in schemes]
            speeds = [[throughput.speed] * count for count in counts]
        elif throughput is not None:
            speeds = [[throughput(lower) for lower in scheme.heights] for scheme in schemes]
        return cls(
            schemes[0],
            _arrays([one.sizes for one in sizes]),
            _arrays([one.paid for one in sizes]),
            np.array([speed for own in speeds for speed in own]),
            np.cumsum([0, *map(len, speeds[:-1])]),
        )

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


@dataclass(frozen=True)
class Formulas(ABC):
    """The formulas of one kind of processor, a bundle of schemes at a time, and the numbers that learned
    models see of its schemes; :class:`~dietlab.cost.adaptation.AdaptationCost` asks for tables and pairs.

    Args:
        workload: the operator.
        hardware: the processor.
        kind: what they count.
        cache: where a call finds its operands.
    """

    FEATURES: ClassVar[tuple[str, ...]] = ("rows", "cols")
    """The names of :meth:`features`."""
    DEALT: ClassVar[float] = 1.0
    """The share of a space, the fastest as expected, from which a search takes its schemes: those of the
    first round that are dealt, and later ones."""

    workload: Workload
    hardware: Hardware
    kind: Adaptation = "streamed"
    cache: CacheState = "hot"

    def sizes(self, scheme: Any) -> Sizes:
        """Returns the numbers of a scheme that the others ask for: of its tile."""
        sizes = {"rows": scheme.rows, "cols": scheme.cols, "granule": scheme.kernel.granule}
        return Sizes(scheme.edge, sizes, scheme.cover_tile)

    @abstractmethod
    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        """Returns the seconds of the calls by part."""

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns ``f_pad * f_occ`` of the calls: of one processor, which is never idle, ``f_pad``."""
        return bundle.useful(calls)

    @abstractmethod
    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        """Returns the throughput with which the calls take these seconds."""

    def seconds(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds of the calls: the sum of their parts."""
        return self.parts(bundle, calls).total

    @property
    def peak(self) -> Speed | None:
        """The throughputs of the bound (None: the parts of a bundle without speeds are the bound's)."""
        return Same(peak_speed(self.workload, self.hardware))

    @property
    def expected(self) -> Speed | None:
        """The throughputs that are expected before any measurement, as :attr:`peak`."""
        return self.peak

    @property
    def unhindered(self) -> Speed | None:
        """The throughputs at which operands keep no tile waiting, as :attr:`peak`."""
        return self.peak

    def features(self, schemes: Sequence[Any]) -> Rows:
        """Returns the features of schemes that a throughput is learned from, rows and columns of the tile;
        none depends on a dynamic dimension."""
        return [[scheme.rows, scheme.cols] for scheme in schemes]

    def knobs(self, schemes: Sequence[Any]) -> Rows:
        """Returns what a search chooses of schemes, in numbers."""
        return self.features(schemes)

    def loops(self, kernel: Any) -> tuple[int, int]:
        """Returns the steps of a pass (0: all), and the vectors or threads across a tile."""
        return 0, 1

    @property
    def levels(self) -> Mapping[str, int]:
        """The bytes of each level of memory by its name, the nearest first."""
        return {}

    def fitted(self: Own, records: Sequence[Record], throughput: Speed | None = None) -> Own:
        """Returns the formulas with the constants that records tell.

        Args:
            records: successful ones.
            throughput: of schemes, once it is learned.
        """
        return self

    @property
    def constants(self) -> Mapping[str, Any]:
        """The constants as a model's file holds them."""
        return {}

    def with_constants(self: Own, value: Mapping[str, Any]) -> Own:
        """Returns the formulas with the constants of a model's file."""
        return self


def _arrays(found: Sequence[Mapping[Any, int]]) -> dict[Any, IntArray]:
    """Returns an array for each key."""
    return {key: np.array([one[key] for one in found], np.int64) for key in found[0]}
