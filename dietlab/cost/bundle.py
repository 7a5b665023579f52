"""The formulas of a kind of processor, over arrays of schemes and calls.

Schemes that differ in sizes only take the same branches of the formulas: they form a bundle, and one pass
over arrays computes them all. A single plan is a bundle of one.
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
"""A row of numbers for each scheme."""

Speed = Callable[[Any], float]
"""The flop/s of one core or multiprocessor that a scheme reaches by itself."""


@dataclass(frozen=True)
class Same:
    """A :data:`Speed` that is the same for all schemes, in flop/s."""

    speed: float

    def __call__(self, scheme: Any) -> float:
        return self.speed


UNKNOWN_PEAK = 100.0
"""The assumed peak of a core, in GFLOP/s, where none was measured: the ranking does not depend on it."""


def peak_speed(workload: Workload, hardware: Hardware) -> float:
    """Returns the peak of one core or multiprocessor, in flop/s, for an operator's type."""
    return 1e9 * (hardware.peak_for(workload.dtype) or UNKNOWN_PEAK)


NOTHING: FloatArray = np.zeros(1)
"""The seconds of a part that a processor does not have."""


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
    """The shapes of many calls, and their extents by role, ``[shapes]`` each."""

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
    """The numbers of a scheme that formulas use.

    Args:
        group: equal for schemes of one bundle, whose formulas differ in numbers only.
        sizes: by name; ``rows``, ``cols`` and ``granule`` are among them.
        paid: extents by role; a plan executes multiples of these.
    """

    group: Hashable
    sizes: Mapping[str, int]
    paid: Mapping[Role, int]


@dataclass(frozen=True)
class Bundle:
    """The sizes of the schemes of one group, as arrays.

    Args:
        like: one of the schemes, for what they have in common.
        sizes: by name, ``[schemes]`` each.
        paid: extents by role, ``[schemes]`` each; a plan executes multiples of these.
        speeds: flop/s of the first scheme's tiles, lowest first, then of the second's, and so on; empty if
            the formulas compute a bound instead.
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
            throughput: of each tile by itself (None: the formulas compute a bound instead).
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
        """The bundle as a column ``[schemes, 1]``: with calls it broadcasts to a table
        ``[schemes, shapes]``."""
        sizes, paid = ({key: one[:, None] for key, one in of.items()} for of in (self.sizes, self.paid))
        return replace(self, sizes=sizes, paid=paid, first=self.first[:, None])  # type: ignore[arg-type]

    def tiles(self, rows: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Returns the height and number of the tiles of each region; a region without tiles gets the tallest
        height."""
        found = tiles_of(self.like.edge, self["granule"], self["rows"], rows)
        return [(np.where(tiles > 0, height, self["rows"]), tiles) for height, tiles in found]

    def speed(self, heights: IntArray) -> FloatArray:
        """Returns the flop/s of one core or multiprocessor for tiles of these heights."""
        lower = heights // self["granule"] - 1 if self.like.composed else 0
        return self.speeds[self.first + lower]

    def column_tiles(self, calls: Calls) -> IntArray:
        return -(-calls["cols"] // self["cols"])

    def useful(self, calls: Calls) -> FloatArray:
        """Returns the share of the executed multiply-adds that the outputs need, ``f_pad``."""
        return f_pad(calls.extents, self.paid)


@dataclass(frozen=True)
class Formulas(ABC):
    """The formulas of one kind of processor, for a bundle of schemes at a time, and the features of its
    schemes that learned models use. :class:`~dietlab.cost.adaptation.AdaptationCost` makes tables and pairs
    of them.

    Args:
        kind: which parts they count.
        cache: where a call finds its operands.
    """

    FEATURES: ClassVar[tuple[str, ...]] = ("rows", "cols")
    """The names of :meth:`features`."""
    DEALT: ClassVar[float] = 1.0
    """The share of the untried schemes, those expected to be fastest, that a search chooses from in each
    round."""

    workload: Workload
    hardware: Hardware
    kind: Adaptation = "streamed"
    cache: CacheState = "hot"

    def sizes(self, scheme: Any) -> Sizes:
        """Returns the numbers of a scheme that the other methods use: the sizes of its tile."""
        sizes = {"rows": scheme.rows, "cols": scheme.cols, "granule": scheme.kernel.granule}
        return Sizes(scheme.edge, sizes, scheme.cover_tile)

    @abstractmethod
    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        """Returns the seconds of the calls by part."""

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns ``f_pad * f_occ`` of the calls; for a single processor, which is never idle, ``f_pad``."""
        return bundle.useful(calls)

    @abstractmethod
    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        """Returns the throughput at which the calls take these seconds."""

    def seconds(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds of the calls: the sum of their parts."""
        return self.parts(bundle, calls).total

    @property
    def peak(self) -> Speed | None:
        """The throughputs that give the bound (None: a bundle without speeds gives it)."""
        return Same(peak_speed(self.workload, self.hardware))

    @property
    def expected(self) -> Speed | None:
        """The throughputs that are expected before any measurement; None as for :attr:`peak`."""
        return self.peak

    @property
    def unhindered(self) -> Speed | None:
        """The throughputs at which operands keep no tile waiting; None as for :attr:`peak`."""
        return self.peak

    def features(self, schemes: Sequence[Any]) -> Rows:
        """Returns the features that a throughput is learned from; none depends on a dynamic dimension."""
        return [[scheme.rows, scheme.cols] for scheme in schemes]

    def knobs(self, schemes: Sequence[Any]) -> Rows:
        """Returns the parameters that a search chooses, as numbers."""
        return self.features(schemes)

    def loops(self, kernel: Any) -> tuple[int, int]:
        """Returns the reduction steps of a pass (0: all), and the vectors or threads across a tile."""
        return 0, 1

    @property
    def levels(self) -> Mapping[str, int]:
        """The bytes of each level of memory by name, the nearest first."""
        return {}

    def fitted(self: Own, records: Sequence[Record], throughput: Speed | None = None) -> Own:
        """Returns the formulas with constants fitted on successful records.

        Args:
            throughput: of schemes (None: not learned yet).
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
    return {key: np.array([one[key] for one in found], np.int64) for key in found[0]}
