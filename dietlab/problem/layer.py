"""An operator at one layer: only its length is still dynamic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from dietlab.base.errors import WorkloadError, mismatch
from dietlab.problem.contraction import Workload
from dietlab.problem.dims import Shape, as_extent, range_text
from dietlab.problem.layer_shapes import NAMED
from dietlab.problem.shapes import ShapeSet


def length_dim(workload: Workload) -> str:
    """Returns the name of the length: the dimension of the rows, or the first dynamic one if the rows are
    static.

    Args:
        workload: an operator with at least one dynamic dimension.

    Raises:
        WorkloadError: if no dimension is dynamic.
    """
    if not workload.dims:
        remedy = f"Give a range, as in {range_text('T', 1, 128)}."
        raise WorkloadError("at least one dimension must be dynamic", str(workload), remedy)
    rows = next(axis.name for axis in workload.axes if axis.role == "rows")
    return rows if rows in workload.dims else next(iter(workload.dims))


def at_layer(workload: Workload, layer: Mapping[str, int] | None = None) -> Workload:
    """Returns the operator at a layer: with the layer's extents in place of ranges, so that only the length
    is dynamic.

    Args:
        workload: an operator with one or more dynamic dimensions.
        layer: the extent of every dynamic dimension but the length; it may lie outside the range. None if
            only the length is dynamic.

    Raises:
        WorkloadError: if a dimension is missing or unknown, an extent is below 1, or no dimension is dynamic.
    """
    length, given = length_dim(workload), dict(layer or {})
    others = {name: dim for name, dim in workload.dims.items() if name != length}
    if wrong := mismatch(given, others):
        example = {name: round((dim.low * dim.high) ** 0.5) for name, dim in others.items()}
        raise WorkloadError(
            f"a layer needs an extent for each dynamic dimension but {length}: {', '.join(others) or 'none'}",
            wrong,
            f"Give layer={example}, for example." if others else "Give no layer.",
        )
    bound = {name: as_extent(extent) for name, extent in given.items()}
    # Operators are frozen dataclasses with a field for each dimension; the protocol cannot express that.
    return cast(Workload, replace(cast(Any, workload), **bound)) if bound else workload


def shapes_of_layer(shapes: ShapeSet, layer: Mapping[str, int], length: str) -> ShapeSet:
    """Returns the shapes of one layer, with the length as their only dimension and weights that sum to 1.

    Args:
        shapes: shapes of several layers.
        layer: the extents of all dimensions but the length.
        length: the name of the length's dimension.

    Raises:
        WorkloadError: if the layer has no shape.
    """
    wanted = Shape.of(**layer)
    here = {shape: Shape.of(**{length: shape[length]}) for shape in shapes if shape.without(length) == wanted}
    if not here:
        known = sorted({shape.without(length) for shape in shapes})
        some = "; ".join(map(str, known[:NAMED]))
        rule = "at least one shape must be of the layer"
        raise WorkloadError(rule, wanted, f"The set has {len(known)} layers, such as {some}.")
    weights = dict(zip(shapes.shapes, shapes.weights, strict=True))
    held_out = (short for shape, short in here.items() if shape in shapes.held_out)
    chosen = ShapeSet.of({short: weights[shape] for shape, short in here.items()}, held_out)
    return replace(chosen, source=shapes.source)
