"""The shapes that the bench tunes the convolutions of networks for, and evaluates them on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dietlab.base.errors import DietlabError
from dietlab.problem import Conv1d, Conv2d, Dim, Shape, ShapeSet, convolutions
from dietlab.problem.networks import network_named
from dietlab.problem.networks.met import Sizes, calls_of, shapes_met, sizes_of
from dietlab.problem.networks.walk import Kernel
from dietlab.problem.traffic import aggregated, read_table

SIDES_TUNED = (128, 175, 192, 245, 256, 320)
"""Sides of the square inputs that ResNet-50's layers are tuned for, in pixels: both ends, and sides between
them of which two are no multiple of 32."""
SIDES: Mapping[str, tuple[int, ...]] = {
    "smoke": (149,),
    "quick": (149, 224, 277),
    "full": (149, 160, 213, 224, 277, 288, 300, 309),
}
"""Sides of the inputs that ResNet-50's layers are evaluated on, by effort. Half of the tuned
sides and of ``full`` together are multiples of 32. Several inputs can make the same image in a layer."""
BATCHES = (1, 8)

RESOLUTIONS_TUNED = (128, 160, 192, 224)
RESOLUTIONS: Mapping[str, tuple[int, ...]] = {
    "smoke": (148,),
    "quick": (140, 172, 204),
    "full": tuple(side for side in range(128, 225, 4) if side not in RESOLUTIONS_TUNED),
}
"""Sides of the inputs of the depthwise layers: all of once-for-all's resolutions, tuned and evaluated."""

DEPTHWISE = (144, 240, 672)
"""Channels of the evaluated depthwise layers: the widest of three stages, whose images are large, medium and
small."""

LONGEST = 1000
"""The longest utterance of the bench, in frames of 10 ms. The output of wav2vec 2.0's first layer takes 65 MB
then; of the longest recorded one, 230 MB, which would be measured several times in each turn."""
UTTERANCES_TUNED = 8
UTTERANCES: Mapping[str, int] = {"smoke": 2, "quick": 5, "full": 16}
"""The number of lengths that stand for all utterances in tuning, and in evaluation by effort."""


@dataclass(frozen=True)
class Images:
    """The shapes of a convolution's task.

    Args:
        tuned: the shapes to tune for.
        evaluated: the shapes to evaluate on, by effort.

    Raises:
        DietlabError: if an effort has no shape.
    """

    tuned: ShapeSet
    evaluated: Mapping[str, tuple[Shape, ...]]

    def __post_init__(self) -> None:
        if empty := [effort for effort, shapes in self.evaluated.items() if not shapes]:
            raise DietlabError("every effort needs a shape", ", ".join(empty))

    def named(self, effort: str) -> tuple[Shape, ...]:
        """Returns the shapes of an effort in ascending order, or raises :class:`DietlabError`."""
        if effort not in self.evaluated:
            raise DietlabError(f"an effort of the bench is one of {', '.join(self.evaluated)}", repr(effort))
        return tuple(sorted(self.evaluated[effort]))


Layers = dict[str, tuple[Conv1d | Conv2d, Images]]
"""Operators and what they meet, by the layer's name."""


def layers_met(
    network: str, tuned: Sizes, evaluated: Mapping[str, Sizes], batches: Iterable[int] = (1,)
) -> Layers:
    """Returns the layers of a network, with the images that they meet at these sizes of its inputs. Ranges
    include all of them. What tuning sees is not evaluated, unless an effort has nothing else: the deepest
    layers meet few images."""
    found, counts = network_named(network), tuple(batches)
    weights = {name: sizes_of(found, sizes) for name, sizes in {"": tuned, **evaluated}.items()}
    met = {name: calls_of(found, sizes, counts) for name, sizes in weights.items()}
    every = {size: 1.0 for sizes in weights.values() for size in sizes}
    layers: Layers = {}
    for layer in convolutions(network, every if found.sides > 1 else [t for (t,) in every], counts):
        kernel, work = Kernel.of(layer.workload), layer.workload
        assert kernel is not None
        shapes = {name: shapes_met(work, calls[kernel][1]) for name, calls in met.items()}
        seen = shapes.pop("")
        unseen = {
            effort: tuple(shape for shape in chosen if shape not in seen) or tuple(chosen)
            for effort, chosen in shapes.items()
        }
        layers[layer.name] = work, Images(ShapeSet.of(seen), unseen)
    return layers


def resnet50() -> Layers:
    """Returns the 1x1 and 3x3 layers of ResNet-50."""
    found = layers_met("resnet50", SIDES_TUNED, SIDES, BATCHES)
    return {name: layer for name, layer in found.items() if layer[0].kernel in ((1, 1), (3, 3))}


def resnet50_every_layer() -> Layers:
    """Returns one operator for all 3x3 layers of ResNet-50 without stride and one for all its 1x1 layers
    without stride: their channels are ranges."""
    return {f"conv{k}x{k}-every-layer": _every_layer(k) for k in (3, 1)}


def _every_layer(kernel: int) -> tuple[Conv2d, Images]:
    """Returns the operator for all layers of ResNet-50 with a kernel, without stride, and what it meets."""
    met = resnet50().values()
    layers = [work for work, _ in met if work.kernel == (kernel, kernel) and work.stride == (1, 1)]
    ranges: dict[str, Any] = {}
    for name in ("N", "H", "W", "IC", "OC"):
        every = [getattr(work, name) for work in layers]
        ends = [end for e in every for end in ((e.low, e.high) if isinstance(e, Dim) else (e, e))]
        ranges[name] = Dim(min(ends), max(ends))
    work = Conv2d(**ranges, kernel=kernel, padding=kernel // 2)
    tuned = ShapeSet.layers("resnet50", SIDES_TUNED, work)
    evaluated = {
        effort: tuple(shape for shape in ShapeSet.layers("resnet50", sides, work) if shape not in tuned)
        for effort, sides in SIDES.items()
    }
    return work, Images(tuned, evaluated)


def depthwise() -> Layers:
    """Returns depthwise 3x3 and 7x7 layers of once-for-all, without stride."""
    found = layers_met("once-for-all", RESOLUTIONS_TUNED, RESOLUTIONS)
    return {
        name: layer
        for name, layer in found.items()
        for work in [layer[0]]
        if work.depthwise and work.IC in DEPTHWISE
        if work.kernel in ((3, 3), (7, 7)) and work.stride == (1, 1)
    }


def tiny(work: Conv1d | Conv2d) -> Images:
    """Returns three tuned and two other shapes of an operator with small ranges, for every effort."""
    ends = ((dim.low, (dim.low + dim.high) // 2, dim.high) for dim in work.dims.values())
    tuned = [Shape.of(**dict(zip(work.dims, extents, strict=True))) for extents in zip(*ends, strict=True)]
    others = (Shape.of(**{name: dim.low + step for name, dim in work.dims.items()}) for step in (1, 2))
    return Images(ShapeSet.of(dict.fromkeys(tuned, 1.0)), dict.fromkeys(SIDES, tuple(others)))


def speech() -> Layers:
    """Returns the layers of Whisper's and wav2vec 2.0's fronts, for utterances of up to :data:`LONGEST`
    frames."""
    counts, _ = read_table("speech").within(1, LONGEST)
    layers: Layers = {}
    for name in ("whisper-base", "wav2vec2"):
        step = network_named(name).step
        tuned = {step * t: float(n) for t, n in aggregated(counts, UTTERANCES_TUNED).items()}
        chosen = {
            effort: [step * t for t in aggregated(counts, number) if step * t not in tuned]
            for effort, number in UTTERANCES.items()
        }
        found = layers_met(name, tuned, chosen)
        layers |= {f"{name}-{layer}": met for layer, met in found.items()}
    return layers
