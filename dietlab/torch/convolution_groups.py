"""The operators among a model's convolutions, with the shapes to tune them for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dietlab.compare.study import Study
from dietlab.problem import Dim, Shape, ShapeSet
from dietlab.problem.dims import holds
from dietlab.problem.shapes import drawn_shapes
from dietlab.torch.convolution import OPTIONS, options_of
from dietlab.torch.convolution_operator import Extent, Operator, extents_of, is_of, operator_of
from dietlab.torch.found import ModelLayer
from dietlab.torch.image_sizes import Sizes

DRAWN, FEWEST_DRAWN = 6, 2
"""The number of shapes that an operator is tuned for, besides the smallest and the largest of each layer:
about as many as a dense layer has lengths; the second is the least for each layer."""

FEWEST_CHANNELS = 16
"""The fewest input channels of a convolution that shares a study with others: one vector of float32 in the
widest units. With fewer, as in an image of three colours, the loop over a line of the kernel is unrolled for
their very number."""


@dataclass(frozen=True)
class Group:
    """The convolutions of a model that one study is for: they differ in nothing but their channels.

    Args:
        layers: the convolutions.
        met: the sizes that each of them met in the examples, one or more.
    """

    layers: tuple[ModelLayer, ...]
    met: tuple[tuple[Sizes, ...], ...]

    @property
    def operator(self) -> Operator:
        """The operator for all sizes from the smallest to the largest that were met, and for all numbers of
        channels between those of the layers."""
        modules = [layer.module for layer in self.layers]
        channels = {
            name: _range([getattr(module, attribute) for module in modules])
            for name, attribute in (("IC", "in_channels"), ("OC", "out_channels"))
        }
        every = [sizes for met in self.met for sizes in met]
        return operator_of(modules[0], _ranges(every), **channels)

    @property
    def flops(self) -> int:
        """The flops of all calls in the examples."""
        return sum(work_of(layer.module, met) for layer, met in zip(self.layers, self.met, strict=True))

    @property
    def shapes(self) -> ShapeSet:
        """The shapes to tune for: of each number of channels the smallest images, the largest and some
        between them."""
        work = self.operator
        met = dict[tuple[int, int], list[Sizes]]()
        for layer, sizes in zip(self.layers, self.met, strict=True):
            met.setdefault((layer.module.in_channels, layer.module.out_channels), []).extend(sizes)
        count, found = max(FEWEST_DRAWN, DRAWN // len(met)), dict[Shape, float]()
        for (inner, outer), every in met.items():
            images = dict(zip(("N", *work.image), _ranges(every), strict=True))
            channels = {name: number for name, number in (("IC", inner), ("OC", outer)) if name in work.dims}
            for shape in ends_and_between(images, count):
                found[Shape.of(**dict(shape.bindings), **channels)] = 1.0
        return ShapeSet.of(found)


def groups_of(layers: Iterable[ModelLayer], met: Mapping[int, Sequence[Sizes]]) -> list[Group]:
    """Returns the convolutions that one study can be for, those with the most work first.

    Args:
        met: the sizes that each convolution met, one or more, by ``id`` of the module.
    """
    found = dict[Any, list[ModelLayer]]()
    for layer in layers:
        found.setdefault((layer.kind, *_alike(layer.module)), []).append(layer)
    groups = [
        Group(tuple(same), tuple(tuple(dict.fromkeys(met[id(layer.module)])) for layer in same))
        for same in found.values()
    ]
    return sorted(groups, key=lambda group: -group.flops)


def _alike(module: Any) -> tuple[Any, ...]:
    """Returns the options of a convolution that all of a group have in common."""
    options = dict(zip(OPTIONS, options_of(module), strict=True))
    if module.groups == 1 and module.in_channels >= FEWEST_CHANNELS:
        del options["in_channels"], options["out_channels"]
    return tuple(options.items())


def serves(study: Study, module: Any, met: Iterable[Sizes]) -> bool:
    """Returns whether a study is of a convolution and its ranges have all sizes that were met."""
    work: Any = study.workload
    if not is_of(work, module):
        return False
    ranges = (work.N, *extents_of(work))
    return all(holds(extent, size) for sizes in met for extent, size in zip(ranges, sizes, strict=True))


def work_of(module: Any, met: Iterable[Sizes]) -> int:
    """Returns the flops of a convolution's calls with images of these sizes."""
    return sum(operator_of(module, sizes).flops(Shape(())) for sizes in met)


def ends_and_between(dims: Mapping[str, Dim], count: int = DRAWN) -> Iterator[Shape]:
    """Yields the smallest shape of some ranges, the largest, and ``count`` random ones between them."""
    for end in ("low", "high"):
        yield Shape.of(**{name: getattr(dim, end) for name, dim in dims.items()})
    yield from drawn_shapes(dims, count, Random(0))


def _ranges(met: Iterable[Sizes]) -> tuple[Dim, ...]:
    """Returns the range of each extent of some sizes."""
    return tuple(Dim(min(side), max(side)) for side in zip(*met, strict=True))


def _range(numbers: Sequence[int]) -> Extent:
    """Returns the range of some numbers of channels; the number itself if all are equal."""
    return Dim(min(numbers), max(numbers)) if len(set(numbers)) > 1 else numbers[0]
