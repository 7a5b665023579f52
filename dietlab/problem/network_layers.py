"""The convolutions of a network as operators, each with the shapes that it meets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dietlab.problem.convolution import Conv1d, Conv2d
from dietlab.problem.dims import Dim
from dietlab.problem.networks import network_named
from dietlab.problem.networks.met import Sizes, calls_of, shapes_met, sizes_of
from dietlab.problem.precision import USUAL
from dietlab.problem.shapes import ShapeSet


@dataclass(frozen=True)
class NetworkLayer:
    """One of the distinct convolutions of a network, for inputs of several sizes.

    Args:
        workload: the operator; the number of images and their sizes are ranges where they vary.
        shapes: what the operator is called for, with weights; ``source`` names the network.
        calls: how often one pass of the network calls it, on average over the sizes.
    """

    workload: Conv1d | Conv2d
    shapes: ShapeSet
    calls: float

    @property
    def flops(self) -> float:
        """The flops of its calls in one pass of the network, on average over sizes and numbers of images."""
        weighed = zip(self.shapes, self.shapes.weights, strict=True)
        return self.calls * sum(weight * self.workload.flops(shape) for shape, weight in weighed)

    @property
    def name(self) -> str:
        """A short name from its kernel, stride and channels: ``conv3x3s2-128-256``, ``depthwise5x5-96``."""
        work = self.workload
        kernel = "x".join(map(str, work.kernel))
        stride = f"s{work.stride[0]}" if work.stride[0] > 1 else ""
        if work.depthwise:
            return f"depthwise{kernel}{stride}-{work.IC}"
        grouped = f"-g{work.groups}" if work.groups > 1 else ""
        return f"conv{kernel}{stride}-{work.IC}-{work.OC}{grouped}"

    def __str__(self) -> str:
        return f"{self.workload}, {self.calls:g} calls"


def convolutions(
    network: str,
    sizes: Sizes | None = None,
    batches: Iterable[int] | None = None,
    n: int | None = None,
    dtype: str = USUAL,
) -> tuple[NetworkLayer, ...]:
    """Returns the distinct convolutions of a published network, in the order of their first call.

    Each is a separate operator with numbers of channels: tune it for its ``shapes``. One operator with ranges
    of channels serves several; :meth:`ShapeSet.layers` has its shapes.

    Args:
        network: a key of :data:`dietlab.problem.networks.NETWORKS`: ``resnet50`` (its stride at the 3x3
            layers, as in torchvision), ``once-for-all``, ``mask-rcnn``, ``whisper-tiny`` to
            ``whisper-large``, or ``wav2vec2``.
        sizes: sizes of the network's inputs: numbers, pairs (H, W), or a mapping from these to weights. A
            number is both height and width in pixels. For ``whisper-*`` it counts frames of 10 ms, for
            ``wav2vec2`` samples of 1/16000 s, and a traffic table's name, such as ``speech``, is a size, too.
            None for the sizes that the network is used with.
        batches: numbers of images in a call, each as frequent as the others (None: 1; of ``resnet50`` 1 and
            8).
        n: the largest number of lengths of sequences; neighbours are merged, with their weights.
        dtype: the type of operands and output, as for :class:`Conv2d`.

    Raises:
        WorkloadError: for an unknown network, no size, or an input that is too small for the network.
    """
    found = network_named(network)
    weights = sizes_of(found, sizes, n)
    layers = []
    for kernel, (calls, met) in calls_of(found, weights, batches or found.batches).items():
        images, *size = (_range(extents) for extents in zip(*met, strict=True))
        work = kernel.workload(images, tuple(size), dtype)
        shapes = ShapeSet.of(shapes_met(work, met))
        layers.append(NetworkLayer(work, replace(shapes, source=network), calls))
    return tuple(layers)


def _range(extents: Iterable[int]) -> Dim | int:
    every = set(extents)
    return Dim(min(every), max(every)) if len(every) > 1 else every.pop()
