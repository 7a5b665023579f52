"""Extents and operands that all micro-kernels of a library share, on any processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietlab.problem import Epilogue, Role, Shape, Weights, Workload, axis_of, batched

Extent = int | str
"""A static extent, or the name of a dynamic dimension."""

Sizes = Mapping[str, Any]
"""Extents of a call's dynamic dimensions by name, as numbers or expressions."""


@dataclass(frozen=True)
class Contraction:
    """``y[batch, rows, cols]``, summed over ``depth``, with its epilogue.

    ``dims`` are the dynamic dimensions in the workload's order; ``rows`` counts as dynamic even if it is
    static. ``batch`` is None for an operator without that axis. The layout of ``x`` is ``[rows, depth]``,
    that of ``w`` is ``[cols, depth]`` or, if ``weights`` is ``direct``, ``[depth, cols]``.
    """

    dims: tuple[str, ...]
    rows: str
    cols: Extent
    depth: Extent
    batch: Extent | None
    weights: Weights
    epilogue: Epilogue

    def value(self, extent: Extent, sizes: Sizes) -> Any:
        """Returns a static extent as it is, and the call's extent of a dynamic dimension."""
        return sizes[extent] if isinstance(extent, str) else extent

    def operands(self, sizes: Sizes) -> dict[str, tuple[Any, ...]]:
        """Returns the extents of a call's arrays by name, in order."""
        rows, cols, depth = (self.value(e, sizes) for e in (self.rows, self.cols, self.depth))
        batch = () if self.batch is None else (self.value(self.batch, sizes),)
        shapes: dict[str, tuple[Any, ...]] = {
            "x": (*batch, rows, depth),
            "w": (*batch, depth, cols) if self.weights == "direct" else (*batch, cols, depth),
        }
        if self.epilogue.bias:
            shapes["bias"] = (cols,)
        if self.epilogue.residual:
            shapes["residual"] = (*batch, rows, cols)
        return {**shapes, "y": (*batch, rows, cols)}


def contraction_of(workload: Workload) -> dict[str, Any]:
    """Returns the fields of :class:`Contraction` for a workload."""
    return {
        "dims": called_dims(workload),
        **{role: _extent(workload, role) for role in ("rows", "cols", "depth")},
        "batch": _extent(workload, "batch") if batched(workload) else None,
        "weights": workload.weights,
        "epilogue": workload.epilogue,
    }


def called_dims(workload: Workload) -> tuple[str, ...]:
    """Returns the dimensions that a library's functions take: the rows first if they are static, then the
    dynamic dimensions in the workload's order."""
    rows = axis_of(workload, "rows").name
    return tuple(workload.dims) if rows in workload.dims else (rows, *workload.dims)


def sizes_of(workload: Workload, shape: Shape) -> dict[str, int]:
    """Returns every extent of a shape by the name of its axis."""
    return {axis.name: axis.at(shape) for axis in workload.axes}


def _extent(workload: Workload, role: Role) -> Any:
    axis = axis_of(workload, role)
    dynamic = not isinstance(axis.extent, int) or role == "rows"  # a library serves any number of rows
    return axis.name if dynamic else axis.extent
