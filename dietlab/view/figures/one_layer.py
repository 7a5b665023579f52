"""A dispatcher at one layer, and the lengths at which it is shown there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dietlab.problem import Shape, ShapeSet, at_layer, length_dim, shapes_of_layer
from dietlab.scheme import restricted
from dietlab.tuning import Dispatcher

Layer = Mapping[str, int]
"""The extent of every dynamic dimension but the length; empty if there is no other."""


def dispatcher_at(dispatcher: Dispatcher, layer: Layer | None) -> Dispatcher:
    """Returns a dispatcher whose only dynamic dimension is the length: its tree at one layer."""
    workload = at_layer(dispatcher.workload, layer)
    if not layer:
        return dispatcher
    return replace(dispatcher, workload=workload, tree=restricted(dispatcher.tree, layer))


def lengths_at(dispatcher: Dispatcher, shapes: ShapeSet, layer: Layer | None) -> ShapeSet:
    """Returns the lengths of a set of shapes, with the weights that they have at one layer; with equal ones
    at a layer that is not in the set."""
    if not layer:
        return shapes
    length = length_dim(dispatcher.workload)
    if any(shape.without(length) == Shape.of(**layer) for shape in shapes):
        return shapes_of_layer(shapes, layer, length)
    return ShapeSet.of({Shape.of(**{length: shape[length]}): 1.0 for shape in shapes})


def with_layer(shapes: ShapeSet, layer: Layer | None) -> tuple[Shape, ...]:
    """Returns the whole shapes of lengths at one layer."""
    return tuple(Shape.of(**shape.to_json(), **(layer or {})) for shape in shapes)
