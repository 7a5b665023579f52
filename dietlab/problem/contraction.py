"""The contraction with named axes: every operator of this package is one.

The space, the cost model and the lowering use only the *roles* of axes (the words of BLAS): the output has
``rows`` x ``cols``, perhaps in a ``batch`` of independent products, and the sum runs over ``depth``. Several
axes may share a role, as the images, lines and columns of a convolution's output are its rows. An operator's
file gives each axis its role, and says how the second operand lies in memory and whether it is constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import Dim, Shape, Size, Window
from dietlab.problem.epilogue import Epilogue
from dietlab.problem.precision import FloatArray, Precision, require_dtype

Role = Literal["batch", "rows", "cols", "depth"]
Weights = Literal["packed", "transposed", "direct"]
"""Layouts of ``w``, which a micro-kernel reads in vectors along ``cols``. ``packed``: ``w`` is constant and
packed once. ``transposed``: ``w[cols, depth]`` is transposed on the fly (unless vectors run along the depth).
``direct``: ``w[depth, cols]`` is read in place."""

Inputs = Mapping[str, FloatArray]

IntArray = npt.NDArray[np.int64]


Extent = int | Dim | Window
"""The extent of an axis: a number, the range of the dimension of its name, or the positions of a window."""


@dataclass(frozen=True)
class Axis:
    """A named loop of a contraction, its extent and its role.

    Args:
        name: the axis's name; a dynamic axis is the dimension of this name.
        extent: a number, the range of a dynamic dimension, or the positions of a window on a dimension.
        role: the axis's part in the product.
    """

    name: str
    extent: Extent
    role: Role

    def __str__(self) -> str:
        """Returns the extent as an expression in the dimension: ``(H + 2 - 3) // 1 + 1``."""
        size = self.name if isinstance(self.extent, Dim) else str(self.extent)
        if not isinstance(self.extent, Window):
            return size
        window = self.extent
        name = window.dim if isinstance(window.size, Dim) else str(window.size)
        pads, reach = window.before + window.after, window.dilation * (window.kernel - 1) + 1
        return f"(({name} + {pads} - {reach}) // {window.stride} + 1)"

    @property
    def _size(self) -> int | Dim:
        return self.extent.size if isinstance(self.extent, Window) else self.extent

    def _of(self, size: Any) -> Any:
        return self.extent.positions(size) if isinstance(self.extent, Window) else size

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The dynamic dimension that the extent depends on, with its range; none if the axis is static."""
        name = self.extent.dim if isinstance(self.extent, Window) else self.name
        return {name: self._size} if isinstance(self._size, Dim) else {}

    @property
    def low(self) -> int:
        """The smallest extent."""
        return int(self._of(self._size.low if isinstance(self._size, Dim) else self._size))

    @property
    def high(self) -> int:
        """The largest extent."""
        return int(self._of(self._size.high if isinstance(self._size, Dim) else self._size))

    def at(self, shape: Shape) -> int:
        """Returns the extent for a shape."""
        return int(self.of(shape))

    def of(self, sizes: Shape | Mapping[str, Any]) -> Any:
        """Returns the extent for dynamic dimensions that may be expressions."""
        return self._of(next((sizes[name] for name in self.dims), self._size))


@runtime_checkable
class Workload(Protocol):
    """An operator with its dimensions and dtype: a frozen value."""

    def __hash__(self) -> int: ...

    @property
    def operator(self) -> str:
        """The operator's name, as on the command line."""

    @property
    def dtype(self) -> str:
        """Type of ``x`` and ``w``; products are summed in float32, int8 products in int32."""

    @property
    def out_dtype(self) -> str | None:
        """Type of the output; None: the operands' type, or float32 if operands are int8."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Its axes, each with its extent and role."""

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The dynamic dimensions only."""

    @property
    def weights(self) -> Weights:
        """The layout of the second operand."""

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that never change and are packed once; each call brings the others."""

    @property
    def epilogue(self) -> Epilogue:
        """The bias, activation and residual that are applied to an output element before it is stored."""

    def flops(self, shape: Shape) -> int:
        """Returns the number of floating-point operations of one call (a multiply-add counts as two)."""

    def bytes(self, shape: Shape) -> int:
        """Returns the number of bytes that any implementation must move at least once."""

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of the operands, in the order of a call, and of ``out``; dynamic extents by name."""

    def output_shape(self, shape: Shape) -> tuple[int, ...]:
        """Returns the size of the output of one call."""

    def inputs(self, shape: Shape, seed: int = 0) -> dict[str, FloatArray]:
        """Returns random operands for a shape by name, in the order of a call."""

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the result in float64."""

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as a JSON value."""


def dtypes_of(workload: Workload) -> dict[str, str]:
    """Returns the type of each operand and of ``out``, by name as in the signature
    (:meth:`~dietlab.problem.Precision.type_of`).

    Args:
        workload: the operator.
    """
    precision = require_dtype(workload.dtype)
    return {name: precision.type_of(name, workload.out_dtype) for name in workload.signature}


def precision_of(workload: Workload, operand: str = "x") -> Precision:
    """Returns the number format of an operand or of ``out``.

    Args:
        workload: the operator.
        operand: a name in its signature.
    """
    return require_dtype(require_dtype(workload.dtype).type_of(operand, workload.out_dtype))


def axes_of(workload: Workload, role: Role) -> tuple[Axis, ...]:
    """Returns the axes with a role.

    Args:
        workload: the operator.
        role: ``batch``, ``rows``, ``cols`` or ``depth``.

    Raises:
        WorkloadError: if there is none.
    """
    if found := tuple(axis for axis in workload.axes if axis.role == role):
        return found
    raise WorkloadError("the contraction must have an axis of the role", role)


def name_of_role(workload: Workload, role: Role) -> str:
    """Returns the name by which trees and libraries call a role's extent: the name of its axis or, if several
    axes share the role, the role.

    Args:
        workload, role: the operator, and the role of the axis.
    """
    axis, *others = axes_of(workload, role)
    return role if others else axis.name


def gathered(workload: Workload) -> bool:
    """Returns whether the rows of a contraction are collected from the input: a window moves over it, or a
    group of channels is a part of each pixel. A depthwise convolution reads the input in place.

    Args:
        workload: the operator.
    """
    if channelwise(workload):
        return False
    windows = [axis.extent for axis in workload.axes if isinstance(axis.extent, Window)]
    return any(window.moves for window in windows) or bool(windows and batched(workload))


def channelwise(workload: Workload) -> bool:
    """Returns whether each column has its own input channel, as in a depthwise convolution: the depth has the
    kernel's elements only.

    Args:
        workload: the operator.
    """
    windows = sum(isinstance(axis.extent, Window) for axis in workload.axes)
    return windows > 0 and windows == len(axes_of(workload, "depth"))


def line_of(workload: Workload, shape: Shape) -> tuple[int, int]:
    """Returns the number of lines of a convolution's output, and the number of pixels of a line that tiles
    cover together: all, or of a depthwise convolution those at which the whole kernel lies inside the image.
    Other operators have one line with all rows.

    Args:
        workload, shape: the operator and one of its shapes.
    """
    *_, last = axes_of(workload, "rows")
    if not isinstance(last.extent, Window):
        return 1, extent_at(workload, "rows", shape)
    lines = prod(axis.at(shape) for axis in axes_of(workload, "rows")[:-1])
    if not channelwise(workload):
        return lines, last.at(shape)
    first, end = last.extent.whole(_size(last.extent, shape))
    return lines, end - first


def inside_share(workload: Workload, shape: Shape) -> float:
    """Returns the share of an operator's products, in [0, 1], whose input lies inside the image: 0.82 for a
    3 x 3 kernel with padding 1 on 7 x 7 pixels. Others are products with zeros, which no program needs.

    Args:
        workload, shape: the operator and one of its shapes.
    """
    share = 1.0
    for axis in workload.axes:
        if isinstance(window := axis.extent, Window):
            share *= window.inside(_size(window, shape)) / max(1, window.kernel * axis.at(shape))
    return share


def _size(window: Window, shape: Shape) -> int:
    return window.size if isinstance(window.size, int) else shape[window.dim]


def extent_at(workload: Workload, role: Role, shape: Shape) -> int:
    """Returns the extent of a role for a shape.

    Args:
        workload, role, shape: the operator, the role, and one of the operator's shapes.
    """
    return prod(axis.at(shape) for axis in axes_of(workload, role))


def split_extents(workload: Workload, shape: Shape) -> dict[str, int]:
    """Returns the extents that a decision tree may split: the dynamic dimensions and, if several axes give
    the number of rows, ``rows``: ``{"H": 14, "W": 20, "rows": 280}``.

    Args:
        workload, shape: the operator and one of its shapes.
    """
    rows = name_of_role(workload, "rows")
    known = {name: shape[name] for name in workload.dims}
    if len(axes_of(workload, "rows")) > 1 and static_extent(workload, "rows") is None:
        known[rows] = extent_at(workload, "rows", shape)
    return known


def extents(workload: Workload, shape: Shape) -> dict[Role, int]:
    """Returns the extents of a shape by role: ``{"batch": 1, "rows": 43, "cols": 2304, "depth": 768}``.

    Args:
        workload, shape: the operator and one of its shapes.
    """
    found: dict[Role, int] = {"batch": 1}
    for axis in workload.axes:
        found[axis.role] = found.get(axis.role, 1) * axis.at(shape)
    return found


def extents_of(workload: Workload, shapes: Sequence[Shape]) -> dict[Role, IntArray]:
    """Returns the extents of many shapes by role: an array ``[shapes]`` for each role.

    Args:
        workload, shapes: the operator and some of its shapes.
    """
    found: dict[Role, IntArray] = {"batch": np.ones(len(shapes), np.int64)}
    for axis in workload.axes:
        extent = np.array([axis.at(shape) for shape in shapes], np.int64)
        found[axis.role] = found.get(axis.role, 1) * extent
    return found


def largest(workload: Workload, role: Role) -> int:
    """Returns the static extent of a role, or its largest one.

    Args:
        workload, role: the operator, and the role of the axis.
    """
    return prod(axis.high for axis in axes_of(workload, role))


def smallest(workload: Workload, role: Role) -> int:
    """Returns the static extent of a role, or its smallest one.

    Args:
        workload, role: the operator, and the role of the axis.
    """
    return prod(axis.low for axis in axes_of(workload, role))


def static_extent(workload: Workload, role: Role) -> int | None:
    """Returns the extent of a role whose axes are static; None for a dynamic one.

    Args:
        workload, role: the operator, and the role of the axis.
    """
    axes = axes_of(workload, role)
    return None if any(axis.dims for axis in axes) else prod(axis.low for axis in axes)


def smallest_shape(workload: Workload) -> Shape:
    """Returns the shape with every dynamic dimension at the lower end of its range.

    Args:
        workload: the operator.
    """
    return Shape.of(**{name: dim.low for name, dim in workload.dims.items()})


def largest_shape(workload: Workload) -> Shape:
    """Returns the shape with every dynamic dimension at the upper end of its range.

    Args:
        workload: the operator.
    """
    return Shape.of(**{name: dim.high for name, dim in workload.dims.items()})


def batched(workload: Workload) -> bool:
    """Returns whether an operator has a batch axis, static or dynamic.

    Args:
        workload: the operator.
    """
    return any(axis.role == "batch" for axis in workload.axes)


def batch_of(workload: Workload) -> int | None:
    """Returns the static number of products in a call; None for an operator without a batch axis.

    Args:
        workload: the operator.

    Raises:
        WorkloadError: if their number is dynamic.
    """
    if not batched(workload):
        return None
    batch = static_extent(workload, "batch")
    if batch is None:
        raise WorkloadError(
            "the batch axis must be static",
            axes_of(workload, "batch")[0].extent,
            "batched() returns whether there is one; extents(), its extent.",
        )
    return batch
