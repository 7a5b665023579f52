"""The table by layer and by length, for workloads whose layers share one library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dietlab.compare.results.criteria import Criterion
from dietlab.compare.results.samples import Block, Sample, blocks, samples
from dietlab.compare.results.summary import over
from dietlab.compare.results.table import LENGTH, ResultTable
from dietlab.problem import Shape

COLUMNS: Mapping[str, Criterion] = {
    "over its own library": Criterion("own", "geomean", "", operators=""),
    "over the best prepacked vendor": Criterion("prepacked", "geomean", "", operators=""),
    "worst of these": Criterion("prepacked", "worst", "", operators=""),
    "mean regret": Criterion("regret", "mean", "", "%", operators=""),
    "most regret": Criterion("regret", "most", "", "%", operators=""),
}
"""Names of the values of a part, and how each is computed from the part's shapes."""

Key = Callable[[Shape], Shape]
"""Which part a shape belongs to: its layer, or its length."""


@dataclass(frozen=True)
class Part:
    """The shapes of one workload, on some threads in one cache state, that share a layer or a length.

    Args:
        used: what a call uses, in words.
        part: the layer or the length that they share.
        shapes: how many they are.
        held_out: tuning saw none of them.
        values: by the names of :data:`COLUMNS`; what was not measured has none.
    """

    workload: str
    used: str
    cache: str
    part: Shape
    shapes: int
    held_out: bool
    values: Mapping[str, float]


def length_of(shape: Shape) -> Shape:
    """Returns the length of a shape without its layer."""
    return Shape.of(**{LENGTH: shape[LENGTH]})


def by_layer(table: ResultTable) -> tuple[Part, ...]:
    """Returns every layer over its lengths; nothing for workloads of one dimension."""
    return tuple(_parts(table, lambda shape: shape.without(LENGTH)))


def by_length(table: ResultTable) -> tuple[Part, ...]:
    """Returns every length over all layers; nothing for workloads of one dimension."""
    return tuple(_parts(table, length_of))


def _parts(table: ResultTable, key: Key) -> Iterator[Part]:
    for block in blocks(table):
        if len(block.report.operator.dims) > 1:
            yield from _parts_of(block, key)


def _parts_of(block: Block, key: Key) -> Iterator[Part]:
    values = {name: _grouped(samples(criterion, block), key) for name, criterion in COLUMNS.items()}
    for part in sorted({key(shape) for shape in block.ours}):
        rows = [row for shape, row in block.ours.items() if key(shape) == part]
        yield Part(
            block.report.name,
            block.report.used,
            block.cache,
            part,
            len(rows),
            all(row.held_out for row in rows),
            {
                name: over(COLUMNS[name].statistic, found[part])
                for name, found in values.items()
                if part in found
            },
        )


def _grouped(found: list[Sample], key: Key) -> dict[Shape, list[Sample]]:
    groups: dict[Shape, list[Sample]] = {}
    for sample in found:
        groups.setdefault(key(sample.shape), []).append(sample)
    return groups
