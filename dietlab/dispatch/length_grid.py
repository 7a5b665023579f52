"""The grid of lengths that a dispatcher is trained on and plans compete on."""

from __future__ import annotations

from random import Random

import numpy as np

from dietlab.shapes import Shape, ShapeSet, drawn_shapes
from dietlab.workloads import Workload, axis_of

DENSE_SHAPES = 256
"""The most shapes that a dispatcher is trained on; a range of at most this length is covered whole."""


ELSEWHERE = 0.25
"""The share of the calls, 0 to 1, that is expected on other shapes of the range than the given ones."""


LEAST_LAYERS = 8
"""The fewest layers that are drawn from the range beside the given ones."""


def length_grid(workload: Workload, shapes: ShapeSet, limit: int = DENSE_SHAPES) -> ShapeSet:
    """Returns every shape of a one-dimensional range, or ``limit`` of them.

    With a limit, the first half of the grid takes every length, since one more row changes a short call the
    most; the second half is evenly spread over the logarithm of the length. The weight of each given shape
    is divided equally among the grid's shapes nearest to it.

    Over several dimensions the grid is the given shapes, and layers that nobody named at the same numbers of
    rows (:data:`ELSEWHERE`).
    """
    if len(workload.dims) > 1:
        return _with_others(workload, shapes, limit)
    if not workload.dims:
        return shapes
    name, dim = next(iter(workload.dims.items()))
    extents = np.arange(dim.low, dim.high + 1)
    if len(dim) > limit:
        dense = dim.low + limit // 2
        spread = np.geomspace(dense, dim.high, limit - limit // 2).round().astype(int)
        extents = np.union1d(np.arange(dim.low, dense), spread)
    given = np.array([shape[name] for shape in shapes])
    nearest = np.abs(extents[:, None] - given[None, :]).argmin(axis=1)
    population = np.bincount(nearest, minlength=len(given))
    return ShapeSet.of(
        {
            Shape.of(**{name: int(extent)}): shapes.weights[near] / population[near]
            for extent, near in zip(extents, nearest, strict=True)
        }
    )


def _with_others(workload: Workload, shapes: ShapeSet, limit: int) -> ShapeSet:
    """Returns every number of rows that was given, and the range's ends, for each given layer and for others,
    which are drawn evenly over the logarithm of their extents.

    Without gaps in its rows: a leaf of the tree needs micro-kernels for all rows between those of its shapes.
    """
    name = axis_of(workload, "rows").name
    dims = {other: dim for other, dim in workload.dims.items() if other != name}
    lengths: list[dict[str, int]] = [{}]
    if name in workload.dims:
        dim = workload.dims[name]
        lengths = [{name: rows} for rows in sorted({dim.low, dim.high, *(shape[name] for shape in shapes)})]
    given = {shape.without(name) for shape in shapes}
    count = max(LEAST_LAYERS, limit // len(lengths) - len(given))
    layers = {*given, *drawn_shapes(dims, count, Random(0))}
    every = [Shape.of(**layer.to_json(), **length) for layer in layers for length in lengths]
    known = dict(zip(shapes.shapes, shapes.weights, strict=True))
    others = [shape for shape in every if shape not in known]
    weights = {shape: (1 - ELSEWHERE) * weight for shape, weight in known.items()}
    return ShapeSet.of({**weights, **dict.fromkeys(others, ELSEWHERE / max(1, len(others)))})
