"""Checks a library of several dynamic dimensions, or of images, on random shapes inside and beyond its
ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from random import Random

import numpy as np

from dietlab.base.errors import DispatchError
from dietlab.base.events import Audience
from dietlab.compare.suites.validity import POISON, Checked, close
from dietlab.problem import Dim, FloatArray, Shape, Workload, extents, smallest_shape, tolerance
from dietlab.problem.dimensions import operand_sizes
from dietlab.tuning import Operator

SHAPES = 4000
"""The default number of shapes: about a minute on one core."""

IMAGES = 200
"""The number of shapes for each layer of a network: those of ResNet-50's layers are some 4,000 together."""

INSIDE = 0.5
"""The share of the shapes that are drawn from the ranges."""

BEYOND = 2
"""Largest extent of the other shapes, as a multiple of the end of its range."""

EDGES = (0, 1)
"""Extents that the other shapes have more often than by chance."""

EDGE_SHARE = 0.03
"""Probability of each of the :data:`EDGES`."""

MOST_STEPS = 1 << 27
"""The largest number of multiply-adds in a call: larger calls would make 4,000 references take many
minutes."""

SMALLEST = 3
"""The largest number of multiply-adds, as a multiple of those of the smallest shape in the ranges, if this is
more than :data:`MOST_STEPS`: otherwise no shape of an operator with large ranges would lie inside."""

MOST_ELEMENTS = 1 << 23
"""The largest number of elements in an operand or in the output, for the same reason."""


def check_shapes(op: Operator, listeners: Audience, shapes: Iterable[Shape] | None = None) -> Checked:
    """Calls a library on shapes (default: :data:`SHAPES` of :func:`random_shapes`) and compares each result
    with a float64 reference."""
    chosen = list(random_shapes(op.workload, SHAPES) if shapes is None else shapes)
    pool = np.random.default_rng(0).standard_normal(_largest(op.workload, chosen) + 1, np.float32)
    wrong = []
    with listeners.stage("check shapes", len(chosen), "shape") as progress:
        for number, shape in enumerate(chosen):
            if not _is_right(op, shape, pool, Random(f"0/{number}")):
                wrong.append(shape)
            progress.advance(f"{len(wrong)} wrong")
    return Checked("shapes", len(chosen), tuple(wrong))


def random_shapes(workload: Workload, count: int, seed: int = 0) -> Iterator[Shape]:
    """Draws shapes with log-uniform extents. Of the shapes, the share :data:`INSIDE` lies in the operator's
    ranges. In the others, each extent lies between 1 and :data:`BEYOND` times the end of its range, or is one
    of :data:`EDGES`. A shape with too much work or memory, or with an image that the kernel does not fit, is
    drawn again."""
    source = Random(seed)
    most = max(MOST_STEPS, SMALLEST * _steps(workload, smallest_shape(workload)))
    while count:
        draw = Dim.log_uniform if source.random() < INSIDE else _beyond
        shape = Shape.of(**{name: draw(dim, source) for name, dim in workload.dims.items()})
        small = _steps(workload, shape) <= most and _largest(workload, [shape]) <= MOST_ELEMENTS
        if small and _fits(workload, shape):
            yield shape
            count -= 1


def _beyond(dim: Dim, source: Random) -> int:
    chance = source.random()
    for number, edge in enumerate(EDGES, 1):
        if chance < number * EDGE_SHARE:
            return edge
    return Dim(1, BEYOND * dim.high).log_uniform(source)


def _steps(workload: Workload, shape: Shape) -> int:
    """Returns the number of multiply-adds."""
    return math.prod(extents(workload, shape).values())


def _fits(workload: Workload, shape: Shape) -> bool:
    """Returns whether no output is smaller than empty: windows fit into the padded image, or just do not."""
    return all(extent >= 0 for extent in operand_sizes(workload, shape)["out"])


def _largest(workload: Workload, shapes: Iterable[Shape]) -> int:
    """Returns the number of elements of the largest operand or output."""
    sizes = (size for shape in shapes for size in operand_sizes(workload, shape).values())
    return max(map(math.prod, sizes), default=0)


def _is_right(op: Operator, shape: Shape, pool: FloatArray, source: Random) -> bool:
    """Returns whether one call gives the right result. Operands are pieces of ``pool``, because drawing new
    ones would take longer than the call."""
    sizes = operand_sizes(op.workload, shape)
    out = np.full(sizes.pop("out"), POISON, np.float32)
    inputs = {name: _piece(pool, size, source) for name, size in sizes.items()}
    try:
        op(*inputs.values(), out=out)
    except DispatchError:
        return False
    return close(out, op.workload.reference(inputs), tolerance(op.workload, inputs))


def _piece(pool: FloatArray, size: tuple[int, ...], source: Random) -> FloatArray:
    count = math.prod(size)
    start = source.randrange(len(pool) - count)
    return pool[start : start + count].reshape(size)
