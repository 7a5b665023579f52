"""Extents and operands that all micro-kernels of a library share, on any processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from dietlab.problem import (
    Epilogue,
    Role,
    Shape,
    Weights,
    Workload,
    axes_of,
    batched,
    channelwise,
    extents,
    name_of_role,
    static_extent,
)
from dietlab.problem.dims import Window
from dietlab.scheme import Box
from dietlab.scheme.tree import Range

Extent = int | str
"""A static extent, or the name of a dynamic dimension."""

Sizes = Mapping[str, Any]
"""Extents of a call's dynamic dimensions by name, as numbers or expressions."""


@dataclass(frozen=True)
class Patches:
    """The input of a convolution, ``x[images, *sizes, channels]``: each row of the contraction is what the
    kernel covers of it at one position.

    Args:
        images: the name of the number of images.
        windows: the kernel's positions along each dimension of an image.
        channels: the number of input channels that one row covers: those of a group, or of one column.
        groups: the number of groups of channels; each is a separate product, with its part of the columns.
        channelwise: whether each column has its own input channel.
    """

    images: str
    windows: tuple[Window, ...]
    channels: int
    groups: int = 1
    channelwise: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that the number of rows depends on."""
        return (self.images, *(window.dim for window in self.windows))

    def positions(self, sizes: Sizes) -> tuple[Any, ...]:
        """Returns the extents of an output image."""
        return tuple(window.positions(sizes[window.dim]) for window in self.windows)

    @property
    def elements(self) -> int:
        """The number of the kernel's elements."""
        return prod(window.kernel for window in self.windows)


@dataclass(frozen=True)
class Contraction:
    """``y[batch, rows, cols]``, summed over ``depth``, with its epilogue.

    ``dims`` are the dynamic dimensions in the workload's order; ``rows`` counts as dynamic even if it is
    static. ``batch`` is None for an operator without that axis. The layout of ``x`` is ``[rows, depth]``,
    or that of ``patches``; that of ``w`` is ``[cols, depth]`` or, if ``weights`` is ``direct``,
    ``[depth, cols]``.
    """

    dims: tuple[str, ...]
    rows: str
    cols: Extent
    depth: Extent
    batch: Extent | None
    weights: Weights
    epilogue: Epilogue
    patches: Patches | None

    @property
    def gathers(self) -> bool:
        """True if the rows of the input are copied from an image."""
        patches = self.patches
        if patches is None or patches.channelwise:
            return False
        return patches.groups > 1 or any(window.moves for window in patches.windows)

    @property
    def channelwise(self) -> bool:
        """True if each column has its own input channel."""
        return self.patches is not None and self.patches.channelwise

    def range_of_rows(self, box: Box, *, lines: bool = False) -> Range:
        """Returns the least and the largest number of rows (None: unbounded) that tiles may have to cover
        together, for the shapes in a box. Of dimensions that are not in the box, only that they are 1 or more
        is known. Tiles that cover ``lines`` of the output one by one, as those of a depthwise convolution do,
        have a line's pixels to cover; of a depthwise convolution, perhaps without those at its ends."""
        low, high = box.get(self.rows, (1, None))
        if self.patches is None:
            return low, high
        if lines or self.channelwise:
            return self._range_of_line(box, high)
        ends = [box.get(dim, (1, None)) for dim in self.patches.dims]
        low = max(low, self._least_rows([end[0] for end in ends]))
        if all(end[1] is not None for end in ends):
            most = self.derived({dim: end[1] for dim, end in zip(self.patches.dims, ends, strict=True)})
            high = most[self.rows] if high is None else min(high, most[self.rows])
        return low, high

    def _range_of_line(self, box: Box, rows: int | None) -> Range:
        """Returns the least and the largest number of pixels of an output's line that tiles cover, for images
        of at most ``rows`` output pixels."""
        assert self.patches is not None
        last = self.patches.windows[-1]
        low, high = box.get(last.dim, (1, None))
        bounds = [rows, None if high is None else last.positions(high)]
        least = 1 if self.channelwise else max(1, last.positions(_or_empty(low)))
        return least, min((bound for bound in bounds if bound is not None), default=None)

    def _least_rows(self, sizes: Sequence[int]) -> int:
        """Returns the number of rows for sizes of :attr:`Patches.dims`, at least 1: an image that the kernel
        does not fit into is not computed, and the negative numbers of its positions are no factors."""
        assert self.patches is not None
        images, *image = sizes
        pairs = zip(self.patches.windows, image, strict=True)
        counts = (window.positions(_or_empty(size)) for window, size in pairs)
        return int(images * prod(max(1, count) for count in counts))

    def across(self, sizes: Sizes) -> Any:
        """Returns the distance from one row of the output to the next, in elements."""
        cols = self.value(self.cols, sizes)
        return cols if self.patches is None else cols * self.patches.groups

    def derived(self, sizes: Sizes) -> Sizes:
        """Returns the dynamic dimensions and, for a convolution, the number of rows they give."""
        if self.patches is None:
            return sizes
        return {**sizes, self.rows: prod(self.patches.positions(sizes), start=sizes[self.patches.images])}

    def value(self, extent: Extent, sizes: Sizes) -> Any:
        """Returns a static extent as it is, and the call's extent of a dynamic dimension."""
        return sizes[extent] if isinstance(extent, str) else extent

    def operands(self, sizes: Sizes) -> dict[str, tuple[Any, ...]]:
        """Returns the extents of a call's arrays by name, in order."""
        sizes = self.derived(sizes)
        rows, cols, depth = (self.value(e, sizes) for e in (self.rows, self.cols, self.depth))
        batch = () if self.batch is None else (self.value(self.batch, sizes),)
        out: tuple[Any, ...] = (*batch, rows, cols)
        shapes: dict[str, tuple[Any, ...]] = {
            "x": (*batch, rows, depth),
            "w": (*batch, depth, cols) if self.weights == "direct" else (*batch, cols, depth),
        }
        if self.patches is not None:
            image, channels, cols = self.patches.dims, self.patches.channels, self.across(sizes)
            inner = cols if self.patches.channelwise else channels * self.patches.groups
            shapes["x"] = (*(sizes[name] for name in image), inner)
            shapes["w"] = (cols, channels, *(window.kernel for window in self.patches.windows))
            out = (sizes[self.patches.images], *self.patches.positions(sizes), cols)
        if self.epilogue.bias:
            shapes["bias"] = (cols,)
        if self.epilogue.residual:
            shapes["residual"] = out
        return {**shapes, "y": out}


def _or_empty(low: int) -> int:
    """Returns the smallest size of an image's dimension from ``low`` on. A size of 1 stands for 0, too: the
    zeros around an empty image have positions."""
    return low if low > 1 else 0


def contraction_of(workload: Workload) -> dict[str, Any]:
    """Returns the fields of :class:`Contraction` for a workload."""
    return {
        "dims": called_dims(workload),
        **{role: _extent(workload, role) for role in ("rows", "cols", "depth")},
        "batch": _extent(workload, "batch") if batched(workload) else None,
        "weights": workload.weights,
        "epilogue": workload.epilogue,
        "patches": _patches(workload),
    }


def _patches(workload: Workload) -> Patches | None:
    """Returns the input of a convolution; None if the rows of the input are those of the contraction."""
    images, *others = axes_of(workload, "rows")
    windows = tuple(axis.extent for axis in others if isinstance(axis.extent, Window))
    if not windows:
        return None
    own = channelwise(workload)
    channels = 1 if own else axes_of(workload, "depth")[-1].low
    groups = axes_of(workload, "batch")[0].low if batched(workload) else 1
    return Patches(images.name, windows, channels, groups, own)


def called_dims(workload: Workload) -> tuple[str, ...]:
    """Returns the dimensions that a library's functions take: the rows first if they are static, then the
    dynamic dimensions in the workload's order."""
    if patches := _patches(workload):
        return tuple(dict.fromkeys((*patches.dims, *workload.dims)))
    rows = name_of_role(workload, "rows")
    return tuple(workload.dims) if rows in workload.dims else (rows, *workload.dims)


def sizes_of(workload: Workload, shape: Shape) -> dict[str, int]:
    """Returns every extent of a shape by the name of its axis, of a dimension that an axis depends on, and of
    a role that several axes share."""
    known = {axis.name: axis.at(shape) for axis in workload.axes}
    for axis in workload.axes:
        if isinstance(axis.extent, Window):
            known[axis.extent.dim] = (
                axis.extent.size if isinstance(axis.extent.size, int) else shape[axis.extent.dim]
            )
    return known | {
        name_of_role(workload, role): extent
        for role, extent in extents(workload, shape).items()
        if role != "batch"
    }


def _extent(workload: Workload, role: Role) -> Any:
    extent = None if role == "rows" else static_extent(workload, role)  # a library serves any number of rows
    return name_of_role(workload, role) if extent is None else extent
