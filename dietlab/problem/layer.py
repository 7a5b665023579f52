"""An operator at one layer: of its dynamic dimensions only the length is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from dietlab.base.errors import WorkloadError, mismatch
from dietlab.problem.contraction import Workload
from dietlab.problem.dims import Shape, as_extent
from dietlab.problem.shapes import ShapeSet

NAMED = 4
"""The most layers that a message lists."""


def length_dim(workload: Workload) -> str:
    """Returns the dynamic dimension that is the length: that of the rows, or the first one if the rows are
    fixed.

    Args:
        workload: with at least one dynamic dimension.

    Raises:
        WorkloadError: if no dimension is dynamic.
    """
    if not workload.dims:
        raise WorkloadError("a dimension is dynamic", str(workload), "Give a range, as in T=Dim(1, 128).")
    rows = next(axis.name for axis in workload.axes if axis.role == "rows")
    return rows if rows in workload.dims else next(iter(workload.dims))


def at_layer(workload: Workload, layer: Mapping[str, int] | None = None) -> Workload:
    """Returns the operator with a layer's extents in place of their ranges, so that the length is its only
    dynamic dimension.

    Args:
        workload: with several dynamic dimensions, or the length alone.
        layer: the extent of every dynamic dimension but the length, which may lie beyond the range; none if
            there is only the length.

    Raises:
        WorkloadError: if a dimension is missing or unknown, an extent is below 1, or no dimension is dynamic.
    """
    length, given = length_dim(workload), dict(layer or {})
    others = {name: dim for name, dim in workload.dims.items() if name != length}
    if wrong := mismatch(given, others):
        example = {name: round((dim.low * dim.high) ** 0.5) for name, dim in others.items()}
        raise WorkloadError(
            f"a layer has an extent for each dynamic dimension but {length}: {', '.join(others) or 'none'}",
            wrong,
            f"Give layer={example}, for example." if others else "Give no layer.",
        )
    bound = {name: as_extent(extent) for name, extent in given.items()}
    # Operators are frozen dataclasses with a field a dimension; the protocol cannot say so.
    return cast(Workload, replace(cast(Any, workload), **bound)) if bound else workload


def shapes_of_layer(shapes: ShapeSet, layer: Mapping[str, int], length: str) -> ShapeSet:
    """Returns the shapes of one layer with the ``length`` as their only dimension; weights sum to 1 again.

    Args:
        shapes: over several dimensions.
        layer: extents of all dimensions but the length.
        length: the name of that dimension.

    Raises:
        WorkloadError: if no shape is of this layer.
    """
    wanted = Shape.of(**layer)
    here = {shape: Shape.of(**{length: shape[length]}) for shape in shapes if shape.without(length) == wanted}
    if not here:
        known = sorted({shape.without(length) for shape in shapes})
        some = "; ".join(map(str, known[:NAMED]))
        raise WorkloadError("a shape is of this layer", wanted, f"Of the {len(known)} that are: {some}.")
    weights = dict(zip(shapes.shapes, shapes.weights, strict=True))
    held_out = (short for shape, short in here.items() if shape in shapes.held_out)
    chosen = ShapeSet.of({short: weights[shape] for shape, short in here.items()}, held_out)
    return replace(chosen, source=shapes.source)
