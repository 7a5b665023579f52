"""The images that a network's convolutions meet, for inputs of several sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from dietlab.base.errors import WorkloadError
from dietlab.problem.convolution import Conv1d, Conv2d
from dietlab.problem.dims import Dim, Shape, as_extent, holds
from dietlab.problem.networks import network_named
from dietlab.problem.networks.walk import Kernel, Network, Size, moved
from dietlab.problem.traffic import aggregated, weights_of

Sizes = int | str | Mapping[Any, float] | Iterable[Any]
"""Ways to give the sizes of a network's inputs: a traffic table's name, numbers or pairs (H, W), or a mapping
from these to weights. A number of an image is both its height and its width."""

SHOWN = 4
"""The largest number of images that a message lists."""

Met = dict[tuple[int, ...], float]
"""Weights by the number of images and their size: ``{(1, 56, 56): 3.0}``."""


def sizes_of(network: Network, sizes: Sizes | None = None, n: int | None = None) -> dict[Size, float]:
    """Returns the weight of each size of a network's inputs.

    Args:
        sizes: None for the network's usual ones.
        n: the largest number of lengths of a sequence; neighbours are merged, with their weights.

    Raises:
        WorkloadError: if there is none, or one is no size of the network's inputs.
    """
    given: Any = network.sizes if sizes is None else [sizes] if isinstance(sizes, int) else sizes
    if network.sides == 1:
        lengths = weights_of([_only(size) for size in given] if _are_sizes(given) else given)
        if isinstance(given, str):
            lengths = {network.step * length: weight for length, weight in lengths.items()}
        merged = lengths if n is None else aggregated(lengths, n)
        return {(length,): weight for length, weight in merged.items()}
    if isinstance(given, str):
        rule = "sizes of images must be numbers or pairs (H, W)"
        raise WorkloadError(rule, repr(given), "For example [224, (800, 1333)].")
    found = dict[Size, float]()
    for size in given:
        image = _image(size)
        found[image] = found.get(image, 0.0) + (given[size] if isinstance(given, Mapping) else 1.0)
    if not found or not all(weight > 0 for weight in found.values()):
        raise WorkloadError("a network needs a size, and positive weights of all sizes", found or "none")
    return found


def calls_of(
    network: Network, sizes: Mapping[Size, float], batches: Iterable[int]
) -> dict[Kernel, tuple[float, Met]]:
    """Returns, for each distinct convolution, two values: the number of its calls in one pass, and the
    weights of what it meets, which are calls times the weight of a size.

    Raises:
        WorkloadError: if an input is too small for the network.
    """
    found: dict[Kernel, tuple[float, Met]] = {}
    counts, total = sorted({as_extent(count) for count in batches}), sum(sizes.values())
    for size, weight in sizes.items():
        for (kernel, image), calls in network.calls(size).items():
            if min(moved(image, kernel.kernel, kernel.stride, kernel.padding)) < 1:
                rule = "an input must be large enough for every layer of the network"
                raise WorkloadError(rule, "x".join(map(str, size)))
            before, met = found.get(kernel, (0.0, {}))
            for count in counts:
                images = (count, *image)
                met[images] = met.get(images, 0.0) + calls * weight
            found[kernel] = before + calls * weight, met
    return {kernel: (calls / total, met) for kernel, (calls, met) in found.items()}


def _are_sizes(given: Any) -> bool:
    return not isinstance(given, (str, Mapping))


def _only(size: Any) -> int:
    """Returns a sequence's length, given as a number or as one number in a tuple."""
    return as_extent(size[0] if isinstance(size, tuple) and len(size) == 1 else size)


def _image(size: Any) -> Size:
    sides = cast(Any, size if isinstance(size, tuple) else (size, size))
    if len(sides) != 2:
        raise WorkloadError("the size of an image must be a number or a pair (H, W)", repr(size))
    return as_extent(sides[0]), as_extent(sides[1])


def shapes_met(
    work: Conv1d | Conv2d, met: Mapping[tuple[int, ...], float], channels: Mapping[str, int] | None = None
) -> dict[Shape, float]:
    """Returns the weights by the operator's shape, out of those by the number of images and their size.

    Args:
        channels: the numbers of input and output channels, IC and OC, if the operator has ranges of them.
    """
    found = dict[Shape, float]()
    for extents, weight in met.items():
        bound = {**dict(zip(("N", *work.image), extents, strict=True)), **(channels or {})}
        shape = Shape.of(**{name: bound[name] for name in work.dims})
        found[shape] = found.get(shape, 0.0) + weight
    return found


def weighted_images(
    name: Any, sizes: Sizes, workload: Conv1d | Conv2d, n: int | None = None
) -> tuple[dict[Shape, float], float]:
    """Returns two values for a layer of a network, or for all its layers whose channels lie in the operator's
    ranges: the weight of each shape that they meet, and the share of the weights (0 to below 1) outside the
    ranges.

    Args:
        name: the network's name.
        sizes: the sizes of its inputs.
        workload: the operator; any bias, activation, residual and type.
        n: the largest number of lengths of sequences.

    Raises:
        WorkloadError: if the network has no such layer, or all that it meets is outside the ranges.
    """
    network, kernel = network_named(name), Kernel.of(workload)
    every = calls_of(network, sizes_of(network, sizes, n), _batches(network, workload.N))
    same_kernel = {
        found: met
        for found, (_, met) in every.items()
        if kernel is not None and replace(found, IC=kernel.IC, OC=kernel.OC) == kernel
    }
    served = {
        found: met
        for found, met in same_kernel.items()
        if holds(workload.IC, found.IC) and holds(workload.OC, found.OC)
    }
    if not served or network.sides != len(workload.image):
        rule = f"the operator must be a layer of {name}: channels, kernel, stride, padding and groups"
        raise WorkloadError(rule, str(workload), f"`dietlab layers {name}` lists them.")
    extents = (workload.N, *(window.size for window in workload.windows))
    weights = dict[Shape, float]()
    for found, met in served.items():
        inside = {m: w for m, w in met.items() if all(map(holds, extents, m))}
        weights |= shapes_met(workload, inside, {"IC": found.IC, "OC": found.OC})
    every_image = {images: None for met in served.values() for images in met}
    if not weights:
        some = ", ".join("x".join(map(str, images)) for images in list(every_image)[:SHOWN])
        rule = "a shape that the layer meets must be in the operator's ranges"
        raise WorkloadError(rule, str(workload), f"The layer meets {some} and others.")
    ranges = any(isinstance(channels, Dim) for channels in (workload.IC, workload.OC))
    # Of ranges of channels, layers whose channels lie outside count as left out.
    counted = same_kernel if ranges else served
    total = sum(sum(met.values()) for met in counted.values())
    return weights, max(0.0, 1 - sum(weights.values()) / total)


def _batches(network: Network, images: Dim | int) -> tuple[int, ...]:
    """Returns the network's usual numbers of images in a range; the range's ends if none is."""
    if isinstance(images, int):
        return (images,)
    return tuple(count for count in network.batches if count in images) or (images.low, images.high)
