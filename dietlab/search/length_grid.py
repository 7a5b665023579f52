"""The shapes that a dispatcher is trained on, and where plans are verified."""

from __future__ import annotations

import numpy as np

from dietlab.shapes import Shape, ShapeSet
from dietlab.workloads import Workload

DENSE_SHAPES = 256
"""Shapes that a dispatcher is trained on at most: all of them in ranges up to this length."""


def length_grid(workload: Workload, shapes: ShapeSet, limit: int = DENSE_SHAPES) -> ShapeSet:
    """Every shape of a one-dimensional range, or ``limit`` of them: the lower half one by one, where
    one more row changes the most, then evenly over the logarithm. Weighted like ``shapes``.

    Each dense shape gets an equal part of the weight of the nearest given shape.
    """
    if len(workload.dims) != 1:
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
