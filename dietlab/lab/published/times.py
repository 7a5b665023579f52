"""The times of one operator out of published records, as a table of tiles and shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import RecordError
from dietlab.lab.published.bound import Pairs
from dietlab.lab.published.records import Operator, Published
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.machine import Hardware
from dietlab.problem import Dense
from dietlab.problem.dims import Dim, Shape

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """The times of every tile on every shape. A tile larger than a shape counts by the one that it is cut to
    (:meth:`~dietlab.lab.published.triton_tile.TritonTile.cut`).

    Args:
        seconds: ``[tiles, shapes]``.
        vendor: the library's, ``[shapes]``; NaN where it was not timed.
    """

    operator: Operator
    hardware: Hardware
    tiles: tuple[TritonTile, ...]
    shapes: tuple[Shape, ...]
    seconds: Values
    vendor: Values

    @classmethod
    def of(cls, published: Published, operator: Operator, collections: Sequence[str]) -> Times:
        """Returns the times of the tiles that were measured on all shapes of some collections; of a shape in
        two of them the lesser time counts.

        Raises:
            RecordError: if no tile was measured on all shapes, or there is no shape.
        """
        known: dict[Shape, dict[TritonTile | None, float]] = {}
        for record in published.records:
            if record.operator == operator and record.collection in collections:
                times = known.setdefault(record.shape, {})
                times[record.tile] = min(record.seconds, times.get(record.tile, record.seconds))
        shapes = tuple(sorted(shape for shape, times in known.items() if set(times) != {None}))
        every = {tile for shape in shapes for tile in known[shape] if tile is not None}
        tiles = tuple(sorted(t for t in every if all(t.cut(shape) in known[shape] for shape in shapes)))
        if not tiles:
            raise RecordError(
                f"a tile was measured on all shapes of {operator} in {', '.join(collections)}",
                f"{len(shapes)} shapes, {len(every)} tiles",
                "Take an operator that the file has.",
            )
        seconds = np.array([[known[shape][tile.cut(shape)] for shape in shapes] for tile in tiles])
        vendor = np.array([known[shape].get(None, np.nan) for shape in shapes])
        return cls(operator, Hardware.preset(published.gpu), tiles, shapes, seconds, vendor)

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def best(self) -> Values:
        """The least time of any tile on each shape."""
        return np.asarray(self.seconds.min(axis=0))

    @property
    def several_lengths(self) -> npt.NDArray[np.bool_]:
        """True for each shape whose layer, its N and K, has another T, too."""
        lengths = Counter(shape.without("T") for shape in self.shapes)
        return np.array([lengths[shape.without("T")] > 1 for shape in self.shapes])

    def at(self, chosen: npt.NDArray[np.bool_]) -> Times:
        """Returns the times on some of the shapes."""
        shapes = tuple(shape for shape, take in zip(self.shapes, chosen, strict=True) if take)
        return replace(self, shapes=shapes, seconds=self.seconds[:, chosen], vendor=self.vendor[chosen])

    def pairs(self, shapes: Sequence[Shape]) -> Pairs:
        """Returns every tile, cut, with every shape, tile by tile."""
        every = ((tile.cut(shape), shape) for tile in self.tiles for shape in shapes)
        return Pairs(*zip(*every, strict=True), self.hardware)

    def measured(self) -> tuple[Pairs, Values]:
        """Returns the programs that were measured, each once a shape, with their seconds, shape by shape."""
        found = {
            (tile.cut(shape), shape): self.seconds[row, column]
            for column, shape in enumerate(self.shapes)
            for row, tile in enumerate(self.tiles)
        }
        return Pairs(*zip(*found, strict=True), self.hardware), np.array(list(found.values()))


def dense_of(shapes: Iterable[Shape], dtype: str) -> Dense:
    """Returns the operator whose ranges reach from the least to the greatest extents of some shapes."""
    every = tuple(shapes)
    T, N, K = (Dim(min(s[name] for s in every), max(s[name] for s in every)) for name in ("T", "N", "K"))
    return Dense(T=T, N=N, K=K, dtype=dtype)
