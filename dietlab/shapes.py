"""Dimensions, shapes and weighted shape sets.

A *dimension* has a range; a *shape* binds every dynamic dimension; a *shape set*
gives shapes weights that sum to 1 and marks those held out from tuning.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dietlab.cards import Card, Carded, Fold, Listing, Quantity, counted, share_text
from dietlab.errors import WorkloadError
from dietlab.traffic import aggregated, read_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, order=True)
class Dim:
    """A dynamic dimension: every integer of ``low..high``, both included.

    Raises:
        WorkloadError: if ``low`` is below 1 or above ``high``.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low < 1 or self.high < self.low:
            raise WorkloadError(
                "a dynamic dimension needs 1 <= low <= high",
                f"low={self.low}, high={self.high}",
                "Write Dim(low, high), as in Dim(1, 128); T = 0 is always served and needs no range.",
            )

    def __contains__(self, extent: object) -> bool:
        return isinstance(extent, int) and self.low <= extent <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __len__(self) -> int:
        return self.high - self.low + 1

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @classmethod
    def parse(cls, text: str) -> Dim | int:
        """Parses ``"1:128"`` to a dynamic dimension, ``"768"`` to a static extent."""
        low, colon, high = text.partition(":")
        try:
            return cls(int(low), int(high)) if colon else int(low)
        except ValueError as error:
            if isinstance(error, WorkloadError):
                raise
            raise WorkloadError(
                "a dimension is a number or low:high", repr(text), "For example T=1:128 or N=2304."
            ) from None


@dataclass(frozen=True, order=True)
class Shape:
    """One binding of all dynamic dimensions; ``shape["T"]`` is an extent."""

    bindings: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, **extents: int) -> Shape:
        return cls(tuple(sorted(extents.items())))

    @classmethod
    def from_json(cls, value: Mapping[str, int]) -> Shape:
        return cls.of(**{str(name): int(extent) for name, extent in value.items()})

    def to_json(self) -> dict[str, int]:
        return dict(self.bindings)

    def __getitem__(self, name: str) -> int:
        for key, extent in self.bindings:
            if key == name:
                return extent
        raise WorkloadError("a shape binds the dimension asked for", f"{name} in {self}")

    def __str__(self) -> str:
        return ",".join(f"{name}={extent}" for name, extent in self.bindings)


class HasDims(Protocol):
    """A workload as a shape set needs it: with dynamic dimensions."""

    @property
    def dims(self) -> Mapping[str, Dim]: ...


def only_dim(workload: HasDims) -> tuple[str, Dim]:
    """Returns the name and the range of the one dynamic dimension.

    Raises:
        WorkloadError: if there is not exactly one.
    """
    dims = dict(workload.dims)
    if len(dims) != 1:
        raise WorkloadError(
            "the workload has exactly one dynamic dimension",
            f"{len(dims)} ({', '.join(dims) or 'none'})",
            "Give one dimension a range, as in T=Dim(1, 128); shape sets can be listed with ShapeSet.of().",
        )
    return next(iter(dims.items()))


@dataclass(frozen=True, repr=False)
class ShapeSet(Carded):
    """Shapes with weights that sum to 1, in ascending order, some of them held out.

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
        name, _ = only_dim(workload)
        return cls.of({Shape.of(**{name: extent}): 1.0 for extent in extents})

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
        """Extents with weights of any positive scale, for example a histogram of lengths."""
        name, _ = only_dim(workload)
        return cls.of({Shape.of(**{name: t}): weight for t, weight in weights.items()})

    @classmethod
    def traffic(cls, workload: HasDims, name: str, n: int | None = None) -> ShapeSet:
        """Makes a set of extents weighted by a table of :mod:`dietlab.traffic`, as far as the range goes.

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

    def split(self, fraction: float = 0.25, seed: int = 0) -> ShapeSet:
        """Marks a random ``fraction`` of the shapes as held out (never all of them)."""
        if not 0 <= fraction < 1:
            raise WorkloadError("the held-out fraction lies in [0, 1)", fraction)
        count = min(round(fraction * len(self)), len(self) - 1)
        return replace(self, held_out=frozenset(random.Random(seed).sample(self.shapes, count)))

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
