"""Sizes of a model's inputs for which the studies of its layers were tuned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dietlab.compare.study import Study
from dietlab.lab.models.zoo import Model
from dietlab.problem import Dense, Shape


def tuned_for(model: Model, studies: Sequence[Study], shape: Shape) -> bool:
    """Returns whether every layer that a study serves meets, at this input, a shape that it was tuned for."""
    dense = [study for study in studies if isinstance(study.workload, Dense)]
    rows = model.rows(shape)
    if not all(any(tuned["T"] == rows for tuned in study.shapes) for study in dense):
        return False
    others = [study for study in studies if study not in dense]
    return not others or all(met in study.shapes.shapes for study, met in _met(model, others, shape))


def _met(model: Model, studies: Sequence[Study], shape: Shape) -> Iterator[tuple[Study, Shape]]:
    """Yields the shape that each convolution of a study meets. The model is called without computing it."""
    import torch

    from dietlab.torch.convolution_operator import is_of
    from dietlab.torch.found import convolutions_in
    from dietlab.torch.image_sizes import sizes_met

    with torch.device("meta"):
        built = model.build()
        modules = [layer.module for layer in convolutions_in(built)]
        found = sizes_met(built, modules, [torch.empty(model.input(shape).shape)])
    for module in modules:
        for study in studies:
            work: Any = study.workload
            if is_of(work, module):
                extents = dict(zip(("N", *work.image), found[id(module)][0], strict=True))
                channels = {"IC": module.in_channels, "OC": module.out_channels}
                yield study, Shape.of(**{name: {**extents, **channels}[name] for name in work.dims})
