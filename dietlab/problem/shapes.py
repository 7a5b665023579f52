"""Weighted shape sets.

A *shape set* gives shapes weights that sum to 1 and marks those held out from tuning. Dimensions and
shapes are in :mod:`dietlab.problem.dims`; they have their names here, too.
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
from dietlab.problem.dims import Dim, HasDims, Shape, as_extent, only_dim, require_sizes
from dietlab.problem.layer_shapes import ANY_LAYER, weighted_layers
from dietlab.problem.layers import Layers
from dietlab.problem.traffic import Lengths, aggregated, read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dim", "HasDims", "Shape", "ShapeSet", "drawn_layers", "drawn_shapes", "only_dim"]

MOST_SHAPES = 1_000_000
"""The most shapes of a grid: three ranges of a few thousand extents have billions, which fit no memory."""

ENUMERATED = 4
"""The number of shapes in the ranges for each that is drawn, up to which all are listed: drawing until enough
differ would take long."""


@dataclass(frozen=True, repr=False)
class ShapeSet(Carded):
    """A set of ``shapes`` in ascending order, with ``weights`` that sum to 1; some may be ``held_out``.

    Constructors that take a workload raise WorkloadError, too, if an operand of a shape has more than
    2**31 - 1 elements.

    ``source`` says where the weights come from, and ``dropped`` which share of that (0 to below 1) lies
    outside the workload's range; sets that differ in these two only are equal.

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
            raise WorkloadError("a shape set holds distinct shapes, at least one", self.shapes)
        if len(self.weights) != len(self.shapes) or not all(w > 0 and math.isfinite(w) for w in self.weights):
            raise WorkloadError("every shape has a positive, finite weight", self.weights)
        if abs(math.fsum(self.weights) - 1.0) > 1e-9:
            raise WorkloadError(
                "weights sum to 1", math.fsum(self.weights), "Use ShapeSet.of(), which normalises."
            )
        if not self.held_out <= set(self.shapes):
            raise WorkloadError("held-out shapes are members", self.held_out - set(self.shapes))
        if not 0 <= self.dropped < 1:
            raise WorkloadError("the dropped share lies in [0, 1)", self.dropped)

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[Shape]:
        return iter(self.shapes)

    def weight(self, shape: Shape) -> float:
        """Returns a shape's share of the calls, 0 to 1."""
        return self.weights[self.shapes.index(shape)]

    @classmethod
    def of(cls, weighted: Mapping[Shape, float], held_out: Iterable[Shape] = ()) -> ShapeSet:
        """Normalises weights and sorts shapes."""
        total = math.fsum(weighted.values())
        if not total > 0:
            raise WorkloadError("the weights have a positive sum", total)
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

        The step is the range divided by ``n - 1``, rounded up; the last extent but one
        lies half a step below the largest: ``T = 5, 24, 43, 62, 81, 100, 119, 128``
        for ``Dim(1, 128)`` and ``n = 8``.
        """
        if n < 1:
            raise WorkloadError("a uniform shape set has at least one shape", n)
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
        """Makes a set of extents weighted by a table of :mod:`dietlab.problem.traffic`, as far as the range
        goes.

        Args:
            name: ``uniform``, ``paper``, ``bert`` or ``serving``.
            n: merges neighbours to at most ``n`` shapes, which keep the weight of all.

        Raises:
            WorkloadError: for an unknown table, or one with nothing in the range.
        """
        _, dim = only_dim(workload)
        table = read_table(name)
        counts, dropped = table.within(dim.low, dim.high)
        if not counts:
            raise WorkloadError(
                f"the traffic {name} reaches into the range {dim}",
                f"{min(table.counts)}..{max(table.counts)}",
            )
        chosen = cls.weighted(workload, counts if n is None else aggregated(counts, n))
        return replace(chosen, source=name if n is None else f"{name}:{n}", dropped=dropped)

    @classmethod
    def random(cls, workload: HasDims, n: int, seed: int = 0) -> ShapeSet:
        """Draws ``n`` distinct extents without replacement (all of them if there are fewer)."""
        _, dim = only_dim(workload)
        drawn = random.Random(seed).sample(range(dim.low, dim.high + 1), min(n, len(dim)))
        return cls.extents(workload, drawn)

    @classmethod
    def grid(cls, workload: HasDims, **extents: int | Iterable[int]) -> ShapeSet:
        """Makes a set of all combinations of the extents of each dynamic dimension, with equal weights.

        For example ``ShapeSet.grid(dense, T=[1, 16, 64], N=[768, 3072], K=[768])``: six shapes.

        Raises:
            WorkloadError: if a dimension is unknown, missing or without an extent, an extent lies outside the
                range, or there are more than a million combinations.
        """
        names, dims = ", ".join(workload.dims) or "none", dict(workload.dims)
        if wrong := mismatch(extents, dims):
            raise WorkloadError(f"a grid has extents of the dynamic dimensions ({names})", wrong)
        chosen = {name: _within(dim, name, extents[name]) for name, dim in dims.items()}
        size = math.prod(map(len, chosen.values()))
        if size > MOST_SHAPES:
            remedy = "Give fewer extents, or draw some with ShapeSet.log_uniform()."
            raise WorkloadError(f"a grid has at most {MOST_SHAPES:,} shapes", f"{size:,}", remedy)
        shapes = (Shape.of(**dict(zip(chosen, bound, strict=True))) for bound in product(*chosen.values()))
        return cls._of(workload, dict.fromkeys(shapes, 1.0))

    @classmethod
    def log_uniform(cls, workload: HasDims, n: int, seed: int = 0, held_out: float = 0.0) -> ShapeSet:
        """Draws ``n`` distinct shapes, every extent evenly over the logarithm of its range and rounded; all
        shapes of the ranges if there are no more.

        Args:
            n: number of shapes, 1 or more.
            seed: of the generator; equal seeds draw equal sets.
            held_out: share of the shapes that are held out, 0 to below 1, as by :meth:`split`.

        Raises:
            WorkloadError: if ``n`` or ``held_out`` is out of range.
        """
        if n < 1:
            raise WorkloadError("a log-uniform shape set has at least one shape", n)
        drawn = drawn_shapes(workload.dims, n, random.Random(seed))
        return cls._of(workload, dict.fromkeys(drawn, 1.0)).split(held_out, seed)

    @classmethod
    def layers(
        cls, layers: Layers, lengths: Lengths, workload: HasDims | None = None, n: int | None = None
    ) -> ShapeSet:
        """Makes a set of every layer with every length: ``N`` and ``K`` are a layer's features, ``T`` is the
        length. A shape's weight is the product of the layer's and the length's.

        Args:
            layers: a name of :data:`dietlab.problem.layers.MODELS`, pairs ``(N, K)``,
                :class:`~dietlab.problem.layers.Layer` values such as those of
                :func:`~dietlab.problem.layers.family`, or a :class:`torch.nn.Module`.
            lengths: ints of 1 or more, a mapping from them to weights, or the name of a traffic table.
            workload: a dense operator; what lies outside its ranges is left out, and ``dropped`` gives the
                share of that. Default: one whose ``T``, ``N`` and ``K`` have any extent.
            n: merges neighbouring lengths to at most ``n``, which keep the weight of all.

        Raises:
            WorkloadError: for an unknown model or table, no layer, no length, ranges that hold none, or an
                operator with other dimensions.
        """
        weights, source, dropped = weighted_layers(layers, lengths, workload or ANY_LAYER, n)
        return replace(cls._of(workload or ANY_LAYER, weights), source=source, dropped=dropped)

    @classmethod
    def _of(cls, workload: HasDims, weighted: Mapping[Shape, float]) -> ShapeSet:
        require_sizes(workload, weighted)
        return cls.of(weighted)

    def split(self, fraction: float = 0.25, seed: int = 0, by: Sequence[str] = ()) -> ShapeSet:
        """Marks a random ``fraction`` of the shapes as held out (never all of them), and only those.

        Args:
            fraction: 0 to below 1; of the groups if there are any.
            seed: of the generator; equal seeds hold out the same.
            by: dimensions; shapes that agree in them form a group, which is held out whole or not at all.
                ``("N", "K")`` holds out layers with all of their lengths.

        Raises:
            WorkloadError: if the fraction is out of range, or ``by`` names an unknown dimension.
        """
        if not 0 <= fraction < 1:
            raise WorkloadError("the held-out fraction lies in [0, 1)", fraction)
        groups = dict[Any, list[Shape]]()
        for shape in self.shapes:
            groups.setdefault(tuple(shape[name] for name in by) if by else shape, []).append(shape)
        count = min(round(fraction * len(groups)), len(groups) - 1)
        chosen = random.Random(seed).sample(tuple(groups), count)
        return replace(self, held_out=frozenset(shape for key in chosen for shape in groups[key]))

    def hold_out(self, *where: Mapping[str, int | Iterable[int]]) -> ShapeSet:
        """Marks every shape that has the extents of one of ``where`` as held out, besides those that are.

        ``hold_out({"N": 3072, "K": 768}, {"T": [1, 2]})`` holds out one layer and two lengths of all layers.

        Raises:
            WorkloadError: if a dimension is unknown, no shape has these extents, or none would be left to
                tune for.
        """
        held_out = self.held_out
        for asked in where:
            found = frozenset(_having(asked, self.shapes))
            if not found:
                raise WorkloadError(
                    "a shape of the set has the extents to hold out", dict(asked), f"It has {self.ranges}."
                )
            held_out |= found
        if len(held_out) == len(self):
            raise WorkloadError("a shape is left to tune for", f"all {len(self):,} shapes held out")
        return replace(self, held_out=held_out)

    def hold_out_all_but(self, train: Iterable[Shape]) -> ShapeSet:
        """Returns the set with all shapes that tuning did not measure marked as held out."""
        return replace(self, held_out=frozenset(self.shapes) - frozenset(train))

    @property
    def train(self) -> ShapeSet:
        """The shapes that tuning may see, with their weights renormalised."""
        return ShapeSet.of(
            {s: w for s, w in zip(self.shapes, self.weights, strict=True) if s not in self.held_out}
        )

    @property
    def ranges(self) -> str:
        """The least and the greatest extent of each dimension: ``T=5..128``."""
        names = [name for name, _ in self.shapes[0].bindings]
        ends = ((min(s[name] for s in self.shapes), max(s[name] for s in self.shapes)) for name in names)
        parts = [
            f"{name}={low}" if low == high else f"{name}={low}..{high}"
            for name, (low, high) in zip(names, ends, strict=True)
        ]
        return ", ".join(parts) or "a static operator"

    @property
    def card(self) -> Card:
        """Its card in a notebook: counts and ranges, and as a fold every shape."""
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
        """Returns a table with one row a shape: a column for each dynamic dimension, ``weight`` (a share
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
        """Returns the set of a JSON value made by ``to_json``; weights are taken as they are, so that
        equal sets stay equal."""
        shapes = {Shape.from_json(row["shape"]): float(row["weight"]) for row in rows}
        held_out = frozenset(Shape.from_json(row["shape"]) for row in rows if row["held_out"])
        return cls(tuple(sorted(shapes)), tuple(shapes[shape] for shape in sorted(shapes)), held_out)


def _within(dim: Dim, name: str, extents: int | Iterable[int]) -> tuple[int, ...]:
    """Returns distinct extents of a dimension in ascending order."""
    listed = extents if isinstance(extents, Iterable) else [extents]
    chosen = tuple(sorted({as_extent(extent) for extent in listed}))
    outside = [extent for extent in chosen if extent not in dim]
    if outside or not chosen:
        raise WorkloadError(
            f"the extents of {name} lie in its range {dim}, at least one",
            f"{name}={outside[0]}" if outside else f"{name}=[]",
            f"The operator takes a wider range, as in {name}=Dim({min(dim.low, *chosen)}, "
            f"{max(dim.high, *chosen)})."
            if outside
            else "",
        )
    return chosen


def _having(asked: Mapping[str, int | Iterable[int]], shapes: Iterable[Shape]) -> Iterator[Shape]:
    """Yields the shapes with one of the extents asked for in each of these dimensions."""
    wanted = {name: set(e) if isinstance(e, Iterable) else {e} for name, e in asked.items()}
    for shape in shapes:
        if all(shape[name] in extents for name, extents in wanted.items()):
            yield shape


def drawn_shapes(dims: Mapping[str, Dim], n: int, source: random.Random) -> Iterator[Shape]:
    """Draws ``n`` distinct shapes evenly over the logarithm of each extent, one after the other, those drawn
    before being excluded; all of them if there are no more.

    Args:
        dims: ranges by name.
        n: how many at most.
        source: of chance; it is used up as shapes are drawn.
    """
    if math.prod(len(dim) for dim in dims.values()) <= ENUMERATED * n:
        # The smallest of exponential variables of these rates are such draws (Efraimidis, Spirakis 2006).
        every = (dict(zip(dims, bound, strict=True)) for bound in product(*dims.values()))
        timed = [(source.expovariate(math.prod(dims[d].chance(e) for d, e in b.items())), b) for b in every]
        timed.sort(key=lambda pair: pair[0])
        yield from (Shape.of(**bound) for _, bound in timed[:n])
        return
    drawn = set[Shape]()
    while len(drawn) < n:
        drawn.add(Shape.of(**{name: dim.log_uniform(source) for name, dim in dims.items()}))
    yield from drawn


def drawn_layers(workload: HasDims, count: int = 12, seed: int = 1) -> list[tuple[int, int]]:
    """Returns ``count`` layers that nobody named, as (N, K), drawn evenly over the logarithm of their ranges;
    equal seeds draw the same.

    Args:
        workload: has ranges of N and K.
        count: how many layers.
        seed: of the draw.

    Raises:
        WorkloadError: if N or K has no range.
    """
    dims = {name: workload.dims[name] for name in ("N", "K") if name in workload.dims}
    if len(dims) < 2:
        raise WorkloadError(
            "layers are drawn from ranges of N and K",
            f"{workload}",
            "Tune it with --dim N=64:4096 --dim K=64:4096.",
        )
    return [(layer["N"], layer["K"]) for layer in drawn_shapes(dims, count, random.Random(seed))]
