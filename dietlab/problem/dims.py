"""Dimensions and shapes: a *dimension* has a range, a *shape* binds every dynamic dimension."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

from dietlab.base.errors import WorkloadError

MOST_ELEMENTS = 2**31 - 1
"""The largest number of elements of an operand: programs and vendor libraries count them in signed 32-bit
integers."""


def range_text(name: str, low: int, high: int) -> str:
    """Returns how a range is written in Python and, in parentheses, on the command line."""
    return f"{name}=Dim({low}, {high}) (--dim {name}={low}:{high})"


@dataclass(frozen=True, order=True)
class Dim:
    """A dynamic dimension: every integer of ``low..high``, both included.

    Raises:
        WorkloadError: if ``low`` is below 1 or above ``high``, or one of them is no int.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not isinstance(self.low, int) or not isinstance(self.high, int):
            raise WorkloadError(
                "the ends of a range must be ints", f"Dim({self.low!r}, {self.high!r})", "As in Dim(1, 128)."
            )
        if self.low < 1 or self.high < self.low:
            raise WorkloadError(
                "a dynamic dimension needs 1 <= low <= high",
                f"low={self.low}, high={self.high}",
                f"Write {range_text('T', 1, 128)}, for example; no rows or images need no range.",
            )

    def __contains__(self, extent: object) -> bool:
        return isinstance(extent, int) and self.low <= extent <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __len__(self) -> int:
        return self.high - self.low + 1

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    def chance(self, extent: int) -> float:
        """Returns the probability (0 to 1) that :meth:`log_uniform` draws ``extent``."""
        return math.log((extent + 0.5) / (extent - 0.5)) / math.log((self.high + 0.5) / (self.low - 0.5))

    def log_uniform(self, source: random.Random) -> int:
        """Draws an extent, uniformly on the logarithm of the range and rounded to the nearest integer."""
        logarithm = source.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5))
        return min(max(round(math.exp(logarithm)), self.low), self.high)

    @classmethod
    def parse(cls, text: str) -> Dim | int:
        """Parses ``"1:128"`` to a dynamic dimension, ``"768"`` to a static extent."""
        low, colon, high = text.partition(":")
        try:
            return cls(int(low), int(high)) if colon else int(low)
        except ValueError as error:
            if isinstance(error, WorkloadError):
                raise
            raise WorkloadError(
                "a dimension is a number or low:high", repr(text), "For example T=1:128 or N=2304."
            ) from None


@dataclass(frozen=True)
class Window:
    """The extent of an axis that counts the positions of a window on a dimension of the input.

    Args:
        size: its extent, or its range.
        kernel: the number of elements in the window.
        stride: the distance from one position to the next.
        before, after: the numbers of zeros that are added to both ends of the dimension.
        dilation: the distance from one element of the window to the next.
    """

    dim: str
    size: int | Dim
    kernel: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    def positions(self, size: Any) -> Any:
        """Returns the number of positions for a size, as PyTorch's ``Conv2d`` defines it."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (size + (self.before + self.after - reach)) // self.stride + 1

    def over(self, size: int, element: int) -> slice:
        """Returns the elements of the padded dimension that one of the kernel's elements meets."""
        first, count = element * self.dilation, self.positions(size)
        return slice(first, first + (count - 1) * self.stride + 1 if count > 0 else first, self.stride)

    def whole(self, size: Any, least: Any = min, most: Any = max) -> tuple[Any, Any]:
        """Returns the first position at which the whole window lies inside, and one past the last, for a
        size. For an expression, ``least`` and ``most`` give the smaller and the larger of two."""
        count, reach = self.positions(size), self.dilation * (self.kernel - 1) + 1
        first = least(count, -(-self.before // self.stride))
        end = most(0, size + (self.before - reach + self.stride)) // self.stride
        return first, most(first, least(count, end))

    def inside(self, size: int) -> int:
        """Returns how many elements of the kernel, over all positions, lie inside a dimension of a size."""
        places = (range(-self.before + at * self.dilation, size, self.stride) for at in range(self.kernel))
        count = self.positions(size)
        return sum(len([place for place in met[:count] if place >= 0]) for met in places)

    def beyond(self, element: int) -> tuple[int, int]:
        """Returns the largest numbers of positions, from the first one and from the last one on, at which one
        of the kernel's elements lies beyond the dimension."""
        last = self.kernel - 1 - element
        before, after = self.before - element * self.dilation, self.after - last * self.dilation
        return max(0, -(-before // self.stride)), max(0, -(-after // self.stride))

    @property
    def moves(self) -> bool:
        """False if the positions are the elements: the window has one element, no stride and no zeros."""
        return (self.kernel, self.stride, self.before, self.after) != (1, 1, 0, 0)

    @property
    def least(self) -> int:
        """The smallest size with a position."""
        return max(1, self.dilation * (self.kernel - 1) + 1 - self.before - self.after)

    def __str__(self) -> str:
        return f"O{self.dim}"


Size = int | str | Window
"""An extent in a signature: a number, the name of a dynamic dimension, or the positions of a window."""


@dataclass(frozen=True, order=True)
class Shape:
    """One binding of all dynamic dimensions; ``shape["T"]`` is an extent.

    Args:
        bindings: pairs of a name and an extent, in the order of the names.
    """

    bindings: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, **extents: int) -> Shape:
        """Returns the shape of extents by name: ``Shape.of(T=43)``."""
        return cls(tuple(sorted(extents.items())))

    @classmethod
    def from_json(cls, value: Mapping[str, int]) -> Shape:
        """Returns the shape of a JSON object made by :meth:`to_json`.

        Raises:
            WorkloadError: if it is no object, or an extent is no int of 0 or more.
        """
        if not isinstance(value, Mapping) or not all(_is_extent(extent) for extent in value.values()):
            raise WorkloadError("a shape must have an int of 0 or more for each dimension", repr(value))
        return cls.of(**{str(name): int(extent) for name, extent in value.items()})

    def to_json(self) -> dict[str, int]:
        """Returns the extents by name."""
        return dict(self.bindings)

    def __getitem__(self, name: str) -> int:
        for key, extent in self.bindings:
            if key == name:
                return extent
        raise WorkloadError("a shape must have the requested dimension", f"{name} in {self}")

    def without(self, *names: str) -> Shape:
        """Returns the shape without some dimensions. A shape without its length is a layer."""
        return Shape(tuple(pair for pair in self.bindings if pair[0] not in names))

    def __str__(self) -> str:
        return ",".join(f"{name}={extent}" for name, extent in self.bindings)


def _is_extent(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def is_shape_of(dims: Mapping[str, Dim], shape: Shape) -> bool:
    """Returns whether a shape binds these dimensions and no others, each within its range."""
    extents = shape.to_json()
    return {*extents} == {*dims} and all(extents[name] in dim for name, dim in dims.items())


def holds(extent: Dim | int, value: int) -> bool:
    """Returns whether a dimension, dynamic or static, can have this extent."""
    return value in extent if isinstance(extent, Dim) else value == extent


class HasDims(Protocol):
    """The part of a workload that a shape set needs: its dynamic dimensions and operands' sizes."""

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The ranges of the dynamic dimensions, by name."""

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of the operands; dynamic extents by name."""


def window_size(extent: Size | Dim) -> Size:
    """Returns the size of the dimension that a window moves over, as in a signature."""
    assert isinstance(extent, Window)
    return extent.dim if isinstance(extent.size, Dim) else extent.size


def bound(size: Sequence[Size], shape: Shape) -> tuple[int, ...]:
    """Returns the size of an operand for a shape.

    Args:
        size: the size in the signature: numbers, names of dynamic dimensions, and positions of windows.
        shape: a shape, which binds these dimensions.
    """
    return tuple(size_at(extent, shape) for extent in size)


def size_at(extent: Size, shape: Shape | Mapping[Any, int]) -> int:
    """Returns an extent of a signature for a shape."""
    if isinstance(extent, Window):
        size = shape[extent.dim] if isinstance(extent.size, Dim) else extent.size
        return int(extent.positions(size))
    return shape[extent] if isinstance(extent, str) else extent


def only_dim(workload: HasDims) -> tuple[str, Dim]:
    """Returns the name and the range of the one dynamic dimension.

    Args:
        workload: an operator or a model.

    Raises:
        WorkloadError: if there is not exactly one.
    """
    dims = dict(workload.dims)
    if len(dims) == 1:
        return next(iter(dims.items()))
    remedy = (
        "ShapeSet.grid(), ShapeSet.log_uniform() and ShapeSet.layers() choose shapes of several."
        if dims
        else f"Give one dimension a range, as in {range_text('T', 1, 128)}; shape sets can be listed with "
        "ShapeSet.of()."
    )
    rule = "the workload must have exactly one dynamic dimension"
    raise WorkloadError(rule, f"{len(dims)} ({', '.join(dims) or 'none'})", remedy)


def as_extent(value: Any) -> int:
    """Returns an extent of any integer class as an int.

    Raises:
        WorkloadError: if it is no integer, or below 1.
    """
    try:
        extent = operator.index(value)
    except TypeError:
        raise WorkloadError("an extent must be an int", repr(value), "For example 128.") from None
    if extent < 1:
        raise WorkloadError("an extent must be at least 1", extent, "Leave it out.")
    return extent


def require_elements(workload: HasDims, shape: Shape) -> None:
    """Checks that every operand of a shape has at most :data:`MOST_ELEMENTS` elements."""
    for name, size in workload.signature.items():
        found = bound(size, shape)
        if math.prod(found) > MOST_ELEMENTS:
            raise WorkloadError(
                f"an operand must have at most {MOST_ELEMENTS:,} elements (2**31 - 1)",
                f"{name}[{', '.join(map(str, found))}] with {math.prod(found):,}",
                "Make an extent smaller, or divide the operator into several.",
            )


def require_sizes(workload: HasDims, shapes: Collection[Shape]) -> None:
    """Checks all shapes with :func:`require_elements`: first the largest extents together and, only if these
    are too large, each shape."""
    if not shapes:
        return
    largest = Shape.of(**{name: max(shape[name] for shape in shapes) for name in workload.dims})
    try:
        require_elements(workload, largest)
    except WorkloadError:
        for shape in shapes:
            require_elements(workload, shape)
