"""Extents and operands that all micro-kernels of one library share, on any processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietlab.workloads import Epilogue, Role, Weights, Workload, axis_of, batch_of

Extent = int | str
"""A static extent, or the name of the dynamic dimension."""


@dataclass(frozen=True)
class Contraction:
    """``y[batch, rows, cols]``, summed over ``depth``, and then its epilogue.

    ``batch`` is None for an operator without that axis. ``x`` lies in rows along the depth; ``w`` too,
    ``w[cols, depth]``, unless its ``weights`` are ``direct``: ``w[depth, cols]``.
    """

    rows: Extent
    cols: Extent
    depth: Extent
    batch: int | None
    weights: Weights
    epilogue: Epilogue

    @property
    def size(self) -> str:
        """The name of the dynamic dimension (``rows`` is taken from the call even if it is static)."""
        return next((e for e in (self.rows, self.cols, self.depth) if isinstance(e, str)), "T")

    def value(self, extent: Extent, size: Any) -> Any:
        """Returns the extent as a number or, if it is dynamic, as ``size``."""
        return size if isinstance(extent, str) else extent

    def operands(self, size: Any) -> dict[str, tuple[Any, ...]]:
        """Returns the arrays of a call, in order, with their extents; ``size`` stands for the dynamic
        dimension."""
        rows, cols, depth = (self.value(e, size) for e in (self.rows, self.cols, self.depth))
        batch = () if self.batch is None else (self.batch,)
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
        **{role: _extent(workload, role) for role in ("rows", "cols", "depth")},
        "batch": batch_of(workload),
        "weights": workload.weights,
        "epilogue": workload.epilogue,
    }


def _extent(workload: Workload, role: Role) -> Any:
    axis = axis_of(workload, role)
    dynamic = not isinstance(axis.extent, int) or role == "rows"  # any number of rows is served
    return axis.name if dynamic else axis.extent
