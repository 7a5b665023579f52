"""The formulas of a kind of processor, over arrays of schemes and calls.

Schemes that differ only in sizes take the same branches of the formulas. Such schemes form a bundle, and one
pass over arrays computes all of them. A single plan is a bundle of one.
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
from dietlab.problem import (
    IntArray,
    Role,
    Shape,
    Workload,
    channelwise,
    extents_of,
    gathered,
    inside_share,
    line_of,
)
from dietlab.scheme import Scheme, covers_lines, tiles_of

Adaptation = Literal["paper", "streamed"]
"""``paper``: padding and idle processors only; ``streamed``: the operands' traffic too."""

Own = TypeVar("Own", bound="Formulas")

Rows = Sequence[Sequence[float]]
"""A row of numbers for each scheme."""

Speed = Callable[[Any], float]
"""A function that returns the flop/s that a scheme reaches by itself on one core or multiprocessor."""


@dataclass(frozen=True)
class Same:
    """A :data:`Speed` that is the same for all schemes, in flop/s."""

    speed: float

    def __call__(self, scheme: Any) -> float:
        return self.speed


UNKNOWN_PEAK = 100.0
"""The assumed peak of a core, in GFLOP/s, if no peak was measured: the ranking does not depend on the
peak."""


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
    """The shapes of many calls, and the extents of these shapes by role, each ``[shapes]``.

    Args:
        lines, line: the number of lines of a convolution's output, and the number of a line's rows, each
            ``[shapes]``; other operators have one line with all rows.
        inside: the share of the depth that lies inside the image, ``[shapes]``.
    """

    shapes: tuple[Shape, ...]
    extents: Mapping[Role, IntArray]
    lines: IntArray
    line: IntArray
    inside: FloatArray

    @classmethod
    def of(cls, workload: Workload, shapes: Sequence[Shape]) -> Calls:
        extents, count = extents_of(workload, shapes), len(shapes)
        if not (gathered(workload) or channelwise(workload)):
            return cls(tuple(shapes), extents, np.ones(count, np.int64), extents["rows"], np.ones(count))
        lines = np.array([line_of(workload, shape) for shape in shapes], np.int64).reshape(-1, 2)
        inside = np.array([inside_share(workload, shape) for shape in shapes])
        return cls(tuple(shapes), extents, lines[:, 0], lines[:, 1], inside)

    def __getitem__(self, role: Role) -> IntArray:
        return self.extents[role]

    def at(self, numbers: Sequence[int]) -> Calls:
        """Returns some of the calls."""
        chosen, shapes = list(numbers), tuple(self.shapes[number] for number in numbers)
        extents = {role: extent[chosen] for role, extent in self.extents.items()}
        return Calls(shapes, extents, self.lines[chosen], self.line[chosen], self.inside[chosen])


class Sizes(NamedTuple):
    """The numbers of a scheme that formulas use.

    Args:
        group: a key that is equal for all schemes of one bundle, whose formulas differ only in numbers.
        sizes: the sizes by name; ``rows``, ``cols`` and ``granule`` are among them, and ``lines``, which is 1
            if tiles cover each line of a convolution's output by itself.
        paid: the extents by role of which a plan executes multiples.
    """

    group: Hashable
    sizes: Mapping[str, int]
    paid: Mapping[Role, int]


@dataclass(frozen=True)
class Bundle:
    """The sizes of the schemes of one group, as arrays.

    Args:
        like: one of the schemes, for the values that all schemes have in common.
        sizes: the sizes by name, each ``[schemes]``.
        paid: the extents by role of which a plan executes multiples, each ``[schemes]``.
        speeds: the flop/s of the first scheme's tiles, the lowest tile first, then the flop/s of the second
            scheme's tiles, and so on; empty if the formulas compute a bound instead.
        first: the index at which the speeds of each scheme begin.
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
            throughput: the throughput of each tile by itself (None: the formulas compute a bound instead).
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

    def tiles(self, calls: Calls) -> list[tuple[IntArray, IntArray]]:
        """Returns the height and the number of the tiles of each region; a region without tiles gets the
        tallest height."""
        lines = self["lines"] > 0
        rows, times = np.where(lines, calls.line, calls["rows"]), np.where(lines, calls.lines, 1)
        found = tiles_of(self.like.edge, self["granule"], self["rows"], rows)
        return [(np.where(tiles > 0, height, self["rows"]), tiles * times) for height, tiles in found]

    def depth(self, calls: Calls) -> IntArray | FloatArray:
        """Returns the number of steps of the reduction. Tiles that cover lines skip what lies beyond the
        image, the others multiply zeros."""
        return np.where(self["lines"] > 0, calls["depth"] * calls.inside, calls["depth"])

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
    """The formulas of one kind of processor, for one bundle of schemes at a time, and the features of schemes
    that learned models use. :class:`~dietlab.cost.adaptation.AdaptationCost` computes tables and pairs from
    the formulas."""

    FEATURES: ClassVar[tuple[str, ...]] = ("rows", "cols")
    """The names of :meth:`features`."""
    DEALT: ClassVar[float] = 1.0
    """The share of the untried schemes from which a search chooses in each round: the schemes expected to be
    fastest."""

    workload: Workload
    hardware: Hardware
    kind: Adaptation = "streamed"
    cache: CacheState = "hot"

    def sizes(self, scheme: Any) -> Sizes:
        """Returns the sizes of a scheme's tile, which the other methods use."""
        sizes = {"rows": scheme.rows, "cols": scheme.cols, "granule": scheme.kernel.granule}
        sizes["lines"] = int(covers_lines(scheme, self.workload))
        return Sizes(scheme.edge, sizes, scheme.cover_tile)

    @abstractmethod
    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        """Returns the seconds of the calls by part."""

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns ``f_pad * f_occ`` of the calls; for a single processor, ``f_pad``, since it is never
        idle."""
        return bundle.useful(calls)

    @abstractmethod
    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        """Returns the throughput at which the calls take these seconds."""

    def seconds(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds of the calls: the sum of their parts."""
        return self.parts(bundle, calls).total

    @property
    def peak(self) -> Speed | None:
        """The throughputs that give the bound (None: a bundle without speeds gives the bound)."""
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
        """Returns the features that a throughput is learned from; no feature depends on a dynamic
        dimension."""
        return [[scheme.rows, scheme.cols] for scheme in schemes]

    def knobs(self, schemes: Sequence[Any]) -> Rows:
        """Returns the parameters that a search chooses, as numbers."""
        return self.features(schemes)

    def loops(self, kernel: Any) -> tuple[int, int]:
        """Returns two numbers: the reduction steps of a pass (0: all), and the vectors or threads across a
        tile."""
        return 0, 1

    @property
    def levels(self) -> Mapping[str, int]:
        """The number of bytes of each level of memory by name, the nearest level first."""
        return {}

    def fitted(self: Own, records: Sequence[Record], throughput: Speed | None = None) -> Own:
        """Returns the formulas with constants fitted on successful records.

        Args:
            throughput: the throughput of schemes (None: not learned yet).
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
