"""Tasks of suites: an operator, with the shapes that it is tuned for and evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dietlab.base.errors import DietlabError
from dietlab.compare.lineup import own_vendors
from dietlab.compare.suites.every_layer import EveryLayer
from dietlab.compare.suites.images import Images, Layers
from dietlab.compare.suites.lengths import (
    LENGTHS,
    LONG_LENGTHS,
    LONG_WEIGHT,
    PAPER_LENGTHS,
    lengths_named,
)
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.tuning import usual_kernels

GPU_KERNELS = 16
"""The largest number of micro-kernels in a GPU's library. An even split of the rows needs a micro-kernel for
each height of a tile, and shapes of few blocks need many heights. By the records of an H200 (``data/h200``),
8 micro-kernels lose 4.5 % in float32, 16 lose 1.1 % and 32 lose 0.3 %."""

DENSE_AGAINST = (*own_vendors("cpu", "dense"), "oracle")
BATCH_AGAINST = (*own_vendors("cpu", "batch-matmul"), "oracle")
"""Contenders of batched products, all plain: their operands are activations, which nobody prepacks."""

TINY = Dense(T=Dim(1, 16), N=64, K=32)
TINY_TUNED = ((1, 1.0), (8, 1.0), (16, 1.0))
"""The lengths that :data:`TINY` is tuned for, with weights; its calls take next to no time."""


@dataclass(frozen=True)
class Task:
    """One operator of a suite.

    Args:
        name: a name that is unique in the suite; the name of its study's folder begins with it.
        workload: an operator with one dynamic dimension, the length; with ``layers``, Dense with T, N and K;
            with ``images``, a convolution.
        tuned: lengths that tuning sees, with their weights; with ``layers``, those of each layer; with
            ``images``, none.
        against: contenders, unless the caller names others.
        lengths: the evaluated lengths by effort, of which those in the range count; ``layers`` and ``images``
            have their own.
        layers: the layers of an operator that serves many.
        images: what a convolution is tuned for and evaluated on.
        max_kernels: the largest number of micro-kernels in the library.

    Raises:
        DietlabError: if the operator has other dynamic dimensions.
    """

    name: str
    workload: Workload
    tuned: tuple[tuple[int, float], ...]
    against: tuple[str, ...]
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: LENGTHS, hash=False, repr=False)
    layers: EveryLayer | None = field(default=None, hash=False, repr=False)
    max_kernels: int = 8
    images: Images | None = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        dims = list(self.workload.dims)
        if self.images is not None:
            if self.layers is not None or self.tuned:
                raise DietlabError("a task must have either images, or lengths", self.name)
            return
        if self.layers is None and len(dims) != 1:
            raise DietlabError("a task without layers needs one dynamic dimension", dims, "Name its layers.")
        if self.layers is not None and dims != ["T", "N", "K"]:
            raise DietlabError("a task with layers must have the dynamic dimensions T, N and K", dims)

    @property
    def shapes(self) -> ShapeSet:
        """The shapes to tune for."""
        if self.images is not None:
            return self.images.tuned
        if self.layers is not None:
            return ShapeSet.layers(self.layers.tuned, dict(self.tuned), self.workload)
        return ShapeSet.weighted(self.workload, dict(self.tuned))

    def evaluated(self, effort: str) -> tuple[Shape, ...]:
        """Returns the shapes that an effort evaluates, in ascending order."""
        if self.images is not None:
            return self.images.named(effort)
        if self.layers is not None:
            bound = self.layers.evaluated(effort)
            return tuple(sorted(Shape.of(T=length, N=layer.N, K=layer.K) for layer, length in bound))
        ((name, dim),) = self.workload.dims.items()
        chosen = lengths_named(effort, self.lengths)
        return tuple(Shape.of(**{name: length}) for length in chosen if length in dim)


def dense_task(cols: int, depth: int, high: int) -> Task:
    """Returns a dense layer of ``T = 1..high`` rows, with constant weights ``w[cols, depth]``."""
    return Task(
        f"dense-k{depth}-n{cols}", Dense(T=Dim(1, high), N=cols, K=depth), tuned_for(high), DENSE_AGAINST
    )


def batch_tasks() -> tuple[Task, ...]:
    """Returns both batched products of BERT-base's attention, for a batch of 16 sentences."""
    scores = BatchMatmul(T=Dim(1, 128), B=192, D=64)
    both = (scores, replace(scores, form="nn"))
    return tuple(Task(workload.operator, workload, tuned_for(128), BATCH_AGAINST) for workload in both)


def image_tasks(layers: Layers, target: str = "cpu", max_kernels: int | None = None) -> tuple[Task, ...]:
    """Returns a task for each convolution; ``max_kernels`` None: as many micro-kernels as usual."""
    return tuple(
        Task(
            name,
            work,
            (),
            (*own_vendors(target, work.operator, work.dtype), "oracle"),
            images=images,
            max_kernels=max_kernels or usual_kernels(work),
        )
        for name, (work, images) in layers.items()
    )


def tuned_for(high: int) -> tuple[tuple[int, float], ...]:
    """Returns the usual lengths to tune for, up to ``high``, with their weights."""
    weights = dict.fromkeys(PAPER_LENGTHS, 1.0) | dict.fromkeys(LONG_LENGTHS, LONG_WEIGHT)
    return tuple((length, weight) for length, weight in weights.items() if length <= high)
