"""The grid of lengths that a dispatcher is trained on and plans are verified on."""

from __future__ import annotations

import numpy as np

from dietlab.shapes import Shape, ShapeSet
from dietlab.workloads import Workload

DENSE_SHAPES = 256
"""The most shapes that a dispatcher is trained on; a range of at most this length is covered whole."""


ELSEWHERE = 0.25
"""The share of the calls, 0 to 1, that is expected on other shapes of the range than the given ones."""


def length_grid(workload: Workload, shapes: ShapeSet, limit: int = DENSE_SHAPES) -> ShapeSet:
    """Returns every shape of a one-dimensional range, or ``limit`` of them.

    With a limit, the first half of the grid takes every length, since one more row changes a short call the
    most; the second half is evenly spread over the logarithm of the length. The weight of each given shape
    is divided equally among the grid's shapes nearest to it.

    Over several dimensions the grid is the given shapes and as many drawn from the whole range, for layers
    that nobody named (:data:`ELSEWHERE`).
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
    """Returns the given shapes and others, drawn evenly over the logarithm of each extent."""
    given = {shape: (1 - ELSEWHERE) * shapes.weight(shape) for shape in shapes}
    drawn = ShapeSet.log_uniform(workload, max(1, limit - len(shapes)))
    others = [shape for shape in drawn if shape not in given]
    return ShapeSet.of({**given, **dict.fromkeys(others, ELSEWHERE / max(1, len(others)))})
