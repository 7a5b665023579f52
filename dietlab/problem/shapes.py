"""Weighted shape sets: shapes with weights that sum to 1, some of them held out from tuning.

Dimensions and shapes are defined in :mod:`dietlab.problem.dims` and can be imported from here, too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity, counted, share_text
from dietlab.base.errors import WorkloadError, mismatch
from dietlab.problem.dims import Dim, HasDims, Shape, as_extent, only_dim, range_text, require_sizes
from dietlab.problem.layer_shapes import ANY_LAYER, weighted_layers
from dietlab.problem.layers import Layers
from dietlab.problem.networks.met import Sizes
from dietlab.problem.traffic import aggregated, read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dim", "HasDims", "Shape", "ShapeSet", "drawn_layers", "drawn_shapes", "only_dim"]

MOST_SHAPES = 1_000_000
"""The largest number of shapes of a grid: three ranges of a few thousand extents make billions of shapes,
which fit no memory."""

ENUMERATED = 4
"""The largest ratio of the number of possible shapes to the number to draw at which all possible shapes are
listed. At such small ratios, drawing until enough shapes are distinct would take long."""


@dataclass(frozen=True, repr=False)
class ShapeSet(Carded):
    """A set of ``shapes`` in ascending order, with ``weights`` that sum to 1; some may be ``held_out``.

    Constructors with a workload also raise WorkloadError if an operand of a shape has more than 2**31 - 1
    elements.

    ``source`` names the origin of the weights, and ``dropped`` is the share of the source's weight (0 to
    below 1) outside the workload's range; neither counts when sets are compared.

    Raises:
        WorkloadError: if it is empty, repeats a shape, or a weight is not positive and finite.
    """

    shapes: tuple[Shape, ...]
    weights: tuple[float, ...]
    held_out: frozenset[Shape] = frozenset()
    source: str = field(default="", compare=False)
    dropped: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        if not self.shapes or len(set(self.shapes)) != len(self.shapes):
            raise WorkloadError("a shape set must hold distinct shapes, at least one", self.shapes)
        if len(self.weights) != len(self.shapes) or not all(w > 0 and math.isfinite(w) for w in self.weights):
            raise WorkloadError("every shape must have a positive, finite weight", self.weights)
        if abs(math.fsum(self.weights) - 1.0) > 1e-9:
            raise WorkloadError(
                "weights must sum to 1", math.fsum(self.weights), "Use ShapeSet.of(), which normalises."
            )
        if not self.held_out <= set(self.shapes):
            raise WorkloadError("held-out shapes must be members", self.held_out - set(self.shapes))
        if not 0 <= self.dropped < 1:
            raise WorkloadError("the dropped share must lie in [0, 1)", self.dropped)

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[Shape]:
        return iter(self.shapes)

    def weight(self, shape: Shape) -> float:
        """Returns a shape's weight: its share of the calls, 0 to 1."""
        return self.weights[self.shapes.index(shape)]

    @classmethod
    def of(cls, weighted: Mapping[Shape, float], held_out: Iterable[Shape] = ()) -> ShapeSet:
        """Makes a set of shapes with weights of any positive scale."""
        total = math.fsum(weighted.values())
        if not total > 0:
            raise WorkloadError("the weights must have a positive sum", total)
        ordered = sorted(weighted.items())
        return cls(
            tuple(shape for shape, _ in ordered),
            tuple(weight / total for _, weight in ordered),
            frozenset(held_out),
        )

    @classmethod
    def extents(cls, workload: HasDims, extents: Iterable[int]) -> ShapeSet:
        """Makes a set of the given extents of the one dynamic dimension, with equal weights."""
        return cls.weighted(workload, dict.fromkeys(extents, 1.0))

    @classmethod
    def uniform(cls, workload: HasDims, n: int = 8) -> ShapeSet:
        """Makes a set of ``n`` evenly spaced extents that end at the largest (the paper's section 5).

        The step is the range divided by ``n - 1``, rounded up; the last but one lies half a step below the
        largest: ``T = 5, 24, 43, 62, 81, 100, 119, 128`` for ``Dim(1, 128)`` and ``n = 8``.
        """
        _require_some("uniform", n)
        _, dim = only_dim(workload)
        step = max(1, math.ceil((dim.high - dim.low) / max(1, n - 1)))
        first = dim.high - step // 2 - (n - 2) * step
        interior = (first + i * step for i in range(n - 1))
        return cls.extents(workload, {max(dim.low, t) for t in interior} | {dim.high})

    @classmethod
    def every(cls, workload: HasDims) -> ShapeSet:
        """Makes a set of every extent of the range."""
        _, dim = only_dim(workload)
        return cls.extents(workload, dim)

    @classmethod
    def weighted(cls, workload: HasDims, weights: Mapping[int, float]) -> ShapeSet:
        """Makes a set of extents with weights of any positive scale, for example a histogram of lengths."""
        name, _ = only_dim(workload)
        return cls._of(workload, {Shape.of(**{name: t}): weight for t, weight in weights.items()})

    @classmethod
    def traffic(cls, workload: HasDims, name: str, n: int | None = None) -> ShapeSet:
        """Makes a set of the extents in the range that occur in a table of :mod:`dietlab.problem.traffic`,
        weighted by their counts.

        Args:
            name: ``uniform``, ``paper``, ``bert``, ``serving`` or ``speech``.
            n: the largest number of shapes; neighbours are merged, with their weights.

        Raises:
            WorkloadError: for an unknown table, or one without an extent in the range.
        """
        _, dim = only_dim(workload)
        table = read_table(name)
        counts, dropped = table.within(dim.low, dim.high)
        if not counts:
            raise WorkloadError(
                f"the traffic {name} must have an extent in the range {dim}",
                f"{min(table.counts)}..{max(table.counts)}",
                "Give the dimension a wider range, or take other shapes.",
            )
        chosen = cls.weighted(workload, counts if n is None else aggregated(counts, n))
        return replace(chosen, source=name if n is None else f"{name}:{n}", dropped=dropped)

    @classmethod
    def random(cls, workload: HasDims, n: int, seed: int = 0) -> ShapeSet:
        """Draws ``n`` distinct extents (all of them if there are fewer)."""
        _require_some("random", n)
        _, dim = only_dim(workload)
        drawn = random.Random(seed).sample(range(dim.low, dim.high + 1), min(n, len(dim)))
        return cls.extents(workload, drawn)

    @classmethod
    def grid(cls, workload: HasDims, **extents: int | Iterable[int]) -> ShapeSet:
        """Makes a set of all combinations of the extents of each dynamic dimension, with equal weights.

        For example ``ShapeSet.grid(dense, T=[1, 16, 64], N=[768, 3072], K=[768])``: six shapes.

        Raises:
            WorkloadError: if a dimension is unknown, missing or empty, an extent lies outside the range, or
                there are more than a million combinations.
        """
        names, dims = ", ".join(workload.dims) or "none", dict(workload.dims)
        if wrong := mismatch(extents, dims):
            example = ";".join(f"{name}={dim.low},{dim.high}" for name, dim in dims.items())
            remedy = f"For example {example}." if dims else ""
            raise WorkloadError(f"a grid needs extents of the dynamic dimensions ({names})", wrong, remedy)
        chosen = {name: _within(dim, name, extents[name]) for name, dim in dims.items()}
        size = math.prod(map(len, chosen.values()))
        if size > MOST_SHAPES:
            remedy = "Give fewer extents, or draw some with ShapeSet.log_uniform() (--shapes log-uniform:16)."
            raise WorkloadError(f"a grid must have at most {MOST_SHAPES:,} shapes", f"{size:,}", remedy)
        shapes = (Shape.of(**dict(zip(chosen, bound, strict=True))) for bound in product(*chosen.values()))
        return cls._of(workload, dict.fromkeys(shapes, 1.0))

    @classmethod
    def log_uniform(cls, workload: HasDims, n: int, seed: int = 0, held_out: float = 0.0) -> ShapeSet:
        """Draws ``n`` distinct shapes (all if there are fewer), every extent uniformly on the logarithm of
        its range, rounded.

        Args:
            n: the number of shapes, 1 or more.
            seed: equal seeds draw equal sets.
            held_out: the share of the shapes to hold out, 0 to below 1, as by :meth:`split`.

        Raises:
            WorkloadError: if ``n`` or ``held_out`` is out of range.
        """
        _require_some("log-uniform", n)
        drawn = drawn_shapes(workload.dims, n, random.Random(seed))
        return cls._of(workload, dict.fromkeys(drawn, 1.0)).split(held_out, seed)

    @classmethod
    def layers(
        cls, layers: Layers, lengths: Sizes, workload: HasDims | None = None, n: int | None = None
    ) -> ShapeSet:
        """Makes a set of every layer with every length: ``N`` and ``K`` are a layer's features, ``T`` is the
        length. A shape's weight is the layer's times the length's. For a convolution, makes a set of what it
        meets in a network, with ranges of channels in many layers; ``lengths`` are then sizes of inputs, as
        :func:`dietlab.problem.convolutions` takes them: ``ShapeSet.layers("resnet50", [224, 320], conv)``.

        Args:
            layers: a name of :data:`dietlab.problem.layers.MODELS`, pairs ``(N, K)``,
                :class:`~dietlab.problem.layers.Layer` values as of :func:`~dietlab.problem.layers.family`, a
                :class:`torch.nn.Module`, or, for a convolution, a network's name.
            lengths: ints of 1 or more, a mapping from them to weights, or the name of a traffic table.
            workload: dense, or a convolution; shapes outside its ranges are left out, ``dropped`` is their
                share of the weight. Default: an operator whose ``T``, ``N`` and ``K`` have any extent.
            n: the largest number of lengths; neighbours are merged, with their weights.

        Raises:
            WorkloadError: for an unknown model or table, no layer, no length, no shape in the ranges, or an
                operator with other dimensions.
        """
        weights, source, dropped = weighted_layers(layers, lengths, workload or ANY_LAYER, n)
        return replace(cls._of(workload or ANY_LAYER, weights), source=source, dropped=dropped)

    @classmethod
    def _of(cls, workload: HasDims, weighted: Mapping[Shape, float]) -> ShapeSet:
        require_sizes(workload, weighted)
        return cls.of(weighted)

    def split(self, fraction: float = 0.25, seed: int = 0, by: Sequence[str] = ()) -> ShapeSet:
        """Marks a random ``fraction`` of the shapes as held out (never all), in place of those marked before.

        Args:
            fraction: the share of the shapes, or of the groups, 0 to below 1.
            seed: equal seeds hold out the same shapes.
            by: names of dimensions; shapes with equal extents there form a group, which is held out whole or
                not at all. ``("N", "K")`` holds out layers with all their lengths.

        Raises:
            WorkloadError: if the fraction is out of range, or ``by`` names an unknown dimension.
        """
        if not 0 <= fraction < 1:
            raise WorkloadError("the held-out fraction must lie in [0, 1)", fraction)
        groups = dict[Any, list[Shape]]()
        for shape in self.shapes:
            groups.setdefault(tuple(shape[name] for name in by) if by else shape, []).append(shape)
        count = min(round(fraction * len(groups)), len(groups) - 1)
        chosen = random.Random(seed).sample(tuple(groups), count)
        return replace(self, held_out=frozenset(shape for key in chosen for shape in groups[key]))

    def hold_out(self, *where: Mapping[str, int | Iterable[int]]) -> ShapeSet:
        """Holds out, in addition, the shapes that have the extents of any element of ``where``.

        ``hold_out({"N": 3072, "K": 768}, {"T": [1, 2]})`` holds out one layer and two lengths of all layers.

        Raises:
            WorkloadError: if a dimension is unknown, no shape has these extents, or no shape is left to tune
                for.
        """
        held_out = self.held_out
        for extents in where:
            found = frozenset(_having(extents, self.shapes))
            if not found:
                rule = "a shape of the set must have the extents to hold out"
                raise WorkloadError(rule, dict(extents), f"It has {self.ranges}.")
            held_out |= found
        if len(held_out) == len(self):
            raise WorkloadError("a shape must be left to tune for", f"all {len(self):,} shapes held out")
        return replace(self, held_out=held_out)

    def hold_out_all_but(self, train: Iterable[Shape]) -> ShapeSet:
        """Returns the set with all shapes but those of ``train`` held out."""
        return replace(self, held_out=frozenset(self.shapes) - frozenset(train))

    @property
    def train(self) -> ShapeSet:
        """The shapes that are not held out, with weights that sum to 1."""
        return ShapeSet.of(
            {s: w for s, w in zip(self.shapes, self.weights, strict=True) if s not in self.held_out}
        )

    @property
    def ranges(self) -> str:
        """The smallest and the largest extent of each dimension: ``T=5..128``."""
        names = [name for name, _ in self.shapes[0].bindings]
        ends = ((min(s[name] for s in self.shapes), max(s[name] for s in self.shapes)) for name in names)
        parts = [
            f"{name}={low}" if low == high else f"{name}={low}..{high}"
            for name, (low, high) in zip(names, ends, strict=True)
        ]
        return ", ".join(parts) or "a static operator"

    @property
    def card(self) -> Card:
        """Its card in a notebook: counts and ranges, and a section with every shape."""
        facts = [counted(len(self), "shape")]
        if self.held_out:
            facts.append(Quantity(f"{len(self.held_out):,}", "held out"))
        if self.source:
            facts.append(Quantity(self.source, "traffic"))
        if self.dropped:
            facts.append(Quantity(share_text(self.dropped), "of the traffic outside the range"))
        return Card("ShapeSet", self.ranges, tuple(facts), (Fold("Shapes", self.table, unfolded=True),))

    def table(self) -> Listing:
        """Returns the rows of its card: each shape with its share of the calls."""
        pairs = list(zip(self.shapes, self.weights, strict=True))
        header = ("shape", "share of the calls", "held out")
        return Listing(header, pairs, lambda p: (str(p[0]), share_text(p[1]), p[0] in self.held_out))

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with a row for each shape: a column for each dynamic dimension, ``weight`` (share
        of the calls, 0 to 1) and ``held_out``."""
        import pandas as pd

        pairs = zip(self.shapes, self.weights, strict=True)
        return pd.DataFrame(
            {**s.to_json(), "weight": weight, "held_out": s in self.held_out} for s, weight in pairs
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Returns each shape with its weight and whether it is held out."""
        return [
            {"shape": s.to_json(), "weight": w, "held_out": s in self.held_out}
            for s, w in zip(self.shapes, self.weights, strict=True)
        ]

    @classmethod
    def from_json(cls, rows: Sequence[Mapping[str, Any]]) -> ShapeSet:
        """Returns the set of a JSON value made by ``to_json``; weights are not normalised again, so that
        equal sets stay equal."""
        shapes = {Shape.from_json(row["shape"]): float(row["weight"]) for row in rows}
        held_out = frozenset(Shape.from_json(row["shape"]) for row in rows if row["held_out"])
        return cls(tuple(sorted(shapes)), tuple(shapes[shape] for shape in sorted(shapes)), held_out)


def _require_some(kind: str, n: int) -> None:
    if n < 1:
        raise WorkloadError(f"a {kind} shape set needs at least one shape", n, f"For example 8 ({kind}:8).")


def _within(dim: Dim, name: str, extents: int | Iterable[int]) -> tuple[int, ...]:
    """Returns distinct extents of a dimension in ascending order."""
    listed = extents if isinstance(extents, Iterable) else [extents]
    chosen = tuple(sorted({as_extent(extent) for extent in listed}))
    outside = [extent for extent in chosen if extent not in dim]
    if outside or not chosen:
        wider = range_text(name, min(dim.low, *chosen), max(dim.high, *chosen)) if outside else ""
        raise WorkloadError(
            f"the extents of {name} must lie in its range {dim}, at least one",
            f"{name}={outside[0]}" if outside else f"{name}=[]",
            f"The operator takes a wider range, as in {wider}." if outside else "",
        )
    return chosen


def _having(extents: Mapping[str, int | Iterable[int]], shapes: Iterable[Shape]) -> Iterator[Shape]:
    """Yields the shapes with one of the given extents in each given dimension."""
    wanted = {name: set(e) if isinstance(e, Iterable) else {e} for name, e in extents.items()}
    for shape in shapes:
        if all(shape[name] in allowed for name, allowed in wanted.items()):
            yield shape


def drawn_shapes(dims: Mapping[str, Dim], n: int, source: random.Random) -> Iterator[Shape]:
    """Draws ``n`` distinct shapes (all if there are fewer), uniformly on the logarithm of each extent.

    Args:
        dims: the ranges of the dimensions, by name.
        n: the largest number of shapes to draw.
        source: a generator of random numbers, which advances as shapes are drawn.
    """
    if math.prod(len(dim) for dim in dims.values()) <= ENUMERATED * n:
        # Sorting exponential variables of these rates draws without replacement (Efraimidis, Spirakis 2006).
        every = (dict(zip(dims, bound, strict=True)) for bound in product(*dims.values()))
        timed = [(source.expovariate(math.prod(dims[d].chance(e) for d, e in b.items())), b) for b in every]
        timed.sort(key=lambda pair: pair[0])
        yield from (Shape.of(**bound) for _, bound in timed[:n])
        return
    drawn: dict[Shape, None] = {}  # in the order of drawing: that of a set differs between processes
    while len(drawn) < n:
        drawn[Shape.of(**{name: dim.log_uniform(source) for name, dim in dims.items()})] = None
    yield from drawn


def drawn_layers(workload: HasDims, count: int = 12, seed: int = 1) -> list[tuple[int, int]]:
    """Returns ``count`` random layers as (N, K), drawn uniformly on the logarithm of their ranges.

    Args:
        workload: an operator with ranges of N and K.
        count: the number of layers.
        seed: equal seeds draw the same layers.

    Raises:
        WorkloadError: if N or K has no range, or ``count`` is below 1.
    """
    if count < 1:
        raise WorkloadError("at least one layer must be drawn", count, "For example 12 (held-out/12).")
    dims = {name: workload.dims[name] for name in ("N", "K") if name in workload.dims}
    if len(dims) < 2:
        remedy = "Tune it with --dim N=64:4096 --dim K=64:4096."
        raise WorkloadError("drawing layers needs ranges of N and K", f"{workload}", remedy)
    return [(layer["N"], layer["K"]) for layer in drawn_shapes(dims, count, random.Random(seed))]
