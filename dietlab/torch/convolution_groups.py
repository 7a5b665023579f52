"""The operators among a model's convolutions, with the sizes and shapes to tune them for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dietlab.compare.study import Study
from dietlab.problem import Dim, Shape, ShapeSet
from dietlab.problem.dims import holds
from dietlab.problem.shapes import drawn_shapes
from dietlab.torch.convolution import options_of
from dietlab.torch.convolution_operator import Operator, extents_of, is_of, operator_of
from dietlab.torch.found import ModelLayer
from dietlab.torch.image_sizes import Sizes

DRAWN = 6
"""The number of shapes that a convolution is tuned for, besides the smallest and the largest: about as many
as a dense layer has lengths."""


@dataclass(frozen=True)
class Group:
    """The convolutions of a model that are one operator.

    Args:
        layers: the convolutions.
        met: the sizes that they met in the examples; empty if unknown.
    """

    layers: tuple[ModelLayer, ...]
    met: tuple[Sizes, ...]

    @property
    def module(self) -> Any:
        """One of the convolutions."""
        return self.layers[0].module

    @property
    def operator(self) -> Operator:
        """The operator for all sizes from the smallest to the largest that were met."""
        ranges = (Dim(min(side), max(side)) for side in zip(*self.met, strict=True))
        return operator_of(self.module, tuple(ranges))

    @property
    def flops(self) -> int:
        """The flops of all calls in the examples."""
        return sum(operator_of(self.module, sizes).flops(Shape(())) for sizes in self.met)

    def served_by(self, study: Study) -> bool:
        """Returns whether a study is of this operator and its ranges have all sizes that were met."""
        work: Any = study.workload
        if not is_of(work, self.module):
            return False
        ranges = (work.N, *extents_of(work))
        return all(
            holds(extent, size) for sizes in self.met for extent, size in zip(ranges, sizes, strict=True)
        )


def groups_of(layers: Iterable[ModelLayer], met: Mapping[int, Sequence[Sizes]]) -> list[Group]:
    """Returns the operators among convolutions, those with the most work first.

    Args:
        met: the sizes that each convolution met, by ``id`` of the module.
    """
    found = dict[Any, list[ModelLayer]]()
    for layer in layers:
        found.setdefault((layer.kind, options_of(layer.module)), []).append(layer)
    groups = [
        Group(tuple(same), tuple(sizes for layer in same for sizes in met.get(id(layer.module), ())))
        for same in found.values()
    ]
    return sorted(groups, key=lambda group: -group.flops)


def shapes_for(work: Operator) -> ShapeSet:
    """Returns the shapes that an operator is tuned for: its smallest, its largest and some between them."""
    dims = dict(work.dims)
    ends = [Shape.of(**{name: getattr(dim, end) for name, dim in dims.items()}) for end in ("low", "high")]
    return ShapeSet.of(dict.fromkeys((*ends, *drawn_shapes(dims, DRAWN, Random(0))), 1.0))
