"""The grid of lengths that a dispatcher is trained on and plans compete on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, isqrt, log
from random import Random

import numpy as np

from dietlab.problem import Shape, ShapeSet, Workload, name_of_role
from dietlab.problem.dims import Window
from dietlab.problem.shapes import drawn_shapes

DENSE_SHAPES = 256
"""The most shapes that a dispatcher is trained on. A range of at most this length is covered whole."""

FULL_TILES = 64
"""The number of rows of which long lengths of a grid are multiples: the tile height of GPUs, or a divisor of
that height. The tile heights of CPUs divide this number, or nearly so."""

ELSEWHERE = 0.25
"""The share of the calls, 0 to 1, that is expected on layers and lengths far from the given ones."""

LEAST_LAYERS = 8
"""The fewest layers that are drawn from the range in addition to the given ones."""

MOST_GRIDS = 2
"""The most shapes of a grid over several dimensions, roughly, as a multiple of the larger of
:data:`DENSE_SHAPES` and the number of given shapes."""

BETWEEN = 8
"""The most sizes of images between two given sizes of a layer. Each width has its own best tile on lines, so
that the given widths say little of those between them: with none between, libraries for ranges of channels
lost 6 % in the mean at sizes of ResNet-50 that were not tuned for, and 40 % at worst."""

STEP = 2.0
"""The largest ratio of two neighbouring lengths of a grid over several dimensions: lengths of 2 and 3,
between 1 and 5, have other best tiles."""


def length_grid(workload: Workload, shapes: ShapeSet, limit: int = DENSE_SHAPES) -> ShapeSet:
    """Returns every shape of a one-dimensional range, or about ``limit`` of them.

    In a longer range, the first half of the grid takes every length, since one more row changes a short call
    the most. The second half is spread over the logarithm of the length, in pairs of a multiple of
    :data:`FULL_TILES` and the length after it: there one more tile begins, and calls are most often that
    long. Each given length, and the length after it, is in the grid. The weight of each given shape is
    divided equally among the grid's shapes nearest to it.

    Over several dimensions the grid has the given layers and others, all at the given lengths and at some
    between them (:data:`STEP`). The weight of each given shape is divided among the nearest lengths of its
    layer; all other shapes share :data:`ELSEWHERE`. A convolution's layer is its channels and number of
    images; the size of an image is a length, with up to :data:`BETWEEN` sizes between two given ones.

    Args:
        workload: the operator whose ranges are covered.
        shapes: the weighted shapes that were tuned for.
        limit: the largest number of lengths, roughly.
    """
    if len(workload.dims) > 1:
        windows = [axis.extent.dim for axis in workload.axes if isinstance(axis.extent, Window)]
        image = [name for name in windows if name in workload.dims]
        return (
            _with_images(workload, shapes, image, limit) if image else _with_others(workload, shapes, limit)
        )
    if not workload.dims:
        return shapes
    name, dim = next(iter(workload.dims.items()))
    extents, given = np.arange(dim.low, dim.high + 1), np.array([shape[name] for shape in shapes])
    if len(dim) > limit:
        dense = dim.low + limit // 2
        spread = np.geomspace(dense, dim.high, (limit - limit // 2) // 2)
        full = FULL_TILES * np.ceil(spread / FULL_TILES).astype(int)
        beyond = np.union1d(np.r_[full, full + 1, given, given + 1], dim.high)
        extents = np.union1d(np.arange(dim.low, dense), beyond[(beyond >= dense) & (beyond <= dim.high)])
    nearest = np.abs(extents[:, None] - given[None, :]).argmin(axis=1)
    population = np.bincount(nearest, minlength=len(given))
    return ShapeSet.of(
        {
            Shape.of(**{name: int(extent)}): shapes.weights[near] / population[near]
            for extent, near in zip(extents, nearest, strict=True)
        }
    )


def _with_others(workload: Workload, shapes: ShapeSet, limit: int) -> ShapeSet:
    """Returns every length of every layer. The layers are the given ones, and others that are drawn evenly
    over the logarithm of the extents.

    Every layer has the same lengths, since a leaf of the tree needs micro-kernels for all numbers of rows
    between the lengths of its shapes. If many lengths and layers are given, some of them represent their
    neighbours: the grid grows no faster than the given shapes.
    """
    name = name_of_role(workload, "rows")
    most = MOST_GRIDS * max(limit, len(shapes))
    lengths: list[dict[str, int]] = [{}]
    if name in workload.dims:
        dim = workload.dims[name]
        known = _spread({dim.low, dim.high, *(shape[name] for shape in shapes)}, isqrt(most))
        lengths = [{name: rows} for rows in _filled(known)]
    weighted: dict[Shape, dict[Shape, float]] = {}
    for shape, weight in zip(shapes.shapes, shapes.weights, strict=True):
        weighted.setdefault(shape.without(name), {})[shape] = weight
    given = _merged(weighted, max(LEAST_LAYERS, most // len(lengths) - LEAST_LAYERS))
    others = {other: dim for other, dim in workload.dims.items() if other != name}
    count = max(LEAST_LAYERS, limit // len(lengths) - len(given))
    weights = dict[Shape, float]()
    for layer in {**given, **dict.fromkeys(drawn_shapes(others, count, Random(0)))}:
        every = [Shape.of(**layer.to_json(), **length) for length in lengths]
        weights |= dict.fromkeys(every, 0.0)
        if layer in given:
            weights |= _divided(given[layer], every, name) if name in workload.dims else given[layer]
    unnamed = [shape for shape, weight in weights.items() if not weight]
    share = ELSEWHERE / len(unnamed) if unnamed else 0.0
    return ShapeSet.of({shape: (1 - ELSEWHERE) * weight or share for shape, weight in weights.items()})


def _with_images(workload: Workload, shapes: ShapeSet, image: Sequence[str], limit: int) -> ShapeSet:
    """Returns the given images, sizes between them, and others that are drawn evenly over the logarithm of
    the extents.

    Args:
        image: the dynamic dimensions of the image, the width last.
    """
    layers: dict[Shape, dict[tuple[int, ...], float]] = {}
    for shape, weight in zip(shapes.shapes, shapes.weights, strict=True):
        size = tuple(shape[name] for name in reversed(image))
        layers.setdefault(shape.without(*image), {})[size] = weight
    weights = dict[Shape, float]()
    for layer, given in layers.items():
        for size, weight in _with_sizes_between(given).items():
            extents = dict(zip(reversed(image), size, strict=True))
            weights[Shape.of(**layer.to_json(), **extents)] = (1 - ELSEWHERE) * weight
    count = max(LEAST_LAYERS, limit - len(weights))
    others = [shape for shape in drawn_shapes(workload.dims, count, Random(0)) if shape not in weights]
    return ShapeSet.of({**weights, **dict.fromkeys(others, ELSEWHERE / max(1, len(others)))})


def _with_sizes_between(given: Mapping[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """Returns given sizes and sizes between neighbours, with weights: that of each given size is divided
    among the sizes nearest to it."""
    known = np.array(sorted(given))
    every = {tuple(size) for size in known.tolist()}
    for low, high in pairwise(known):
        steps = min(BETWEEN + 1, abs(high - low).max())
        between = (np.rint(low + (high - low) * at / steps).astype(int) for at in range(1, steps))
        every.update(tuple(size.tolist()) for size in between)
    sizes = sorted(every)
    apart = np.abs(np.log(np.array(sizes)[:, None] / known[None, :])).sum(axis=2)
    nearest = apart.argmin(axis=1)
    population = np.bincount(nearest, minlength=len(known))
    shares = np.array([given[tuple(size)] for size in known.tolist()]) / population
    return {size: float(shares[near]) for size, near in zip(sizes, nearest, strict=True)}


def _spread(lengths: Iterable[int], count: int) -> list[int]:
    """Returns at most about ``count`` of the lengths, in order, spread over their logarithm; the first and
    the last are among them."""
    known = np.array(sorted(set(lengths)))
    if len(known) <= count:
        return [int(length) for length in known]
    wanted = np.geomspace(known[0], known[-1], count)
    return [
        int(length) for length in np.unique(known[np.abs(np.log(known / wanted[:, None])).argmin(axis=1)])
    ]


def _merged(given: Mapping[Shape, Mapping[Shape, float]], count: int) -> dict[Shape, dict[Shape, float]]:
    """Returns at most ``count`` of the given layers: first the layer with the largest weight, then always the
    layer farthest from all chosen ones. Each chosen layer gets its own weighted shapes, and the lengths and
    weights of the other layers that are nearest to it."""
    layers = list(given)
    places = np.log([[max(1, extent) for extent in layer.to_json().values()] for layer in layers])
    heaviest = max(range(len(layers)), key=lambda number: sum(given[layers[number]].values()))
    chosen, apart = [heaviest], np.abs(places - places[heaviest]).sum(axis=1)
    while len(chosen) < min(count, len(layers)):
        chosen.append(int(apart.argmax()))
        apart = np.minimum(apart, np.abs(places - places[chosen[-1]]).sum(axis=1))
    nearest = np.abs(places[:, None] - places[chosen][None]).sum(axis=2).argmin(axis=1)
    found: dict[Shape, dict[Shape, float]] = {layers[number]: {} for number in sorted(chosen)}
    for layer, near in zip(layers, nearest, strict=True):
        own = layers[chosen[near]]
        for shape, weight in given[layer].items():
            moved = Shape.of(**{**shape.to_json(), **own.to_json()})
            found[own][moved] = found[own].get(moved, 0.0) + weight
    return found


def _filled(lengths: Iterable[int]) -> list[int]:
    """Returns the lengths in order, with enough other lengths between them that each length is at most
    :data:`STEP` times the length before (but for rounding)."""
    known = sorted(set(lengths))
    found = set(known)
    for low, high in pairwise(known):
        intervals = ceil(log(high / low, STEP) - 1e-9)
        found.update(round(low * (high / low) ** (at / intervals)) for at in range(1, intervals))
    return sorted(found)


def _divided(given: Mapping[Shape, float], shapes: Iterable[Shape], name: str) -> dict[Shape, float]:
    """Returns weights of ``shapes``. The weight of each given shape is divided among the shapes whose nearest
    given shape it is. Shapes beyond all given lengths get no weight. If no shape remains, the nearest one
    gets the whole weight."""
    low, high = (end(shape[name] for shape in given) for end in (min, max))
    shapes = list(shapes)
    near: dict[Shape, list[Shape]] = {}
    for shape in shapes:
        if low <= shape[name] <= high:
            nearest = min(given, key=lambda known: abs(known[name] - shape[name]))
            near.setdefault(nearest, []).append(shape)
    found = dict[Shape, float]()
    for known, weight in given.items():
        own = near.get(known) or [min(shapes, key=lambda shape: abs(shape[name] - known[name]))]
        for shape in own:
            found[shape] = found.get(shape, 0.0) + weight / len(own)
    return found
