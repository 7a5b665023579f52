"""The times of tiles that others measured, the choice of few of them, and the decision tree over T, N and K:
the same stages as for our own records, with a table of times in place of a tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import RecordError
from dietlab.lab.published.bound import Pairs
from dietlab.lab.published.models import LearnedTiles
from dietlab.lab.published.records import Operator, Published
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.machine import Hardware
from dietlab.problem import Dense, ShapeSet
from dietlab.problem.dims import Dim, Shape
from dietlab.scheme import Scheme
from dietlab.tuning import Dispatcher, Portfolio, train_dispatcher
from dietlab.tuning.choice import Choice

Values = npt.NDArray[np.float64]

FITS = 4
"""Fits of trees that fill the grid in; with one, their own noise misleads the tree."""

BETWEEN = 2.0
"""The largest ratio of two neighbouring lengths of a layer's grid, and how far it goes beyond its ends: the
factor that separates tiles of one height from the next."""

OTHER_LAYERS = 3
"""Shapes of other layers in the grid for each training shape: extents that occur, put together anew."""

ELSEWHERE = 0.5
"""The share of the weight, 0 to 1, of shapes that nobody measured: as much as of those that were, since it is
they that are held out."""


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
        return Pairs.of([(t.cut(shape), shape) for t in self.tiles for shape in shapes], self.hardware)

    def measured(self) -> tuple[Pairs, Values]:
        """Returns the programs that were measured, each once a shape, with their seconds, shape by shape."""
        found = {
            (tile.cut(shape), shape): self.seconds[row, column]
            for column, shape in enumerate(self.shapes)
            for row, tile in enumerate(self.tiles)
        }
        return Pairs.of(found, self.hardware), np.array(list(found.values()))


def dense_of(shapes: Iterable[Shape], dtype: str) -> Dense:
    """Returns the operator whose ranges reach from the least to the greatest extents of some shapes."""
    every = tuple(shapes)
    T, N, K = (Dim(min(s[name] for s in every), max(s[name] for s in every)) for name in ("T", "N", "K"))
    return Dense(T=T, N=N, K=K, dtype=dtype)


def grid(times: Times, seed: int = 0) -> Choice:
    """Returns the choice among all tiles on the training shapes and others around them.

    Between and beside the training shapes, times are those of trees that learned from them
    (:class:`~dietlab.lab.published.models.LearnedTiles`); at them, the geometric mean of measured and
    learned, since a single measured time is noisy and the best of thirty even more.
    """
    shapes = ShapeSet.of(weighted_shapes(times.shapes, seed))
    model = LearnedTiles(seed=seed, count=FITS).fit(*times.measured())
    table = model.seconds(times.pairs(shapes.shapes)).reshape(len(times.tiles), len(shapes))
    places = {shape: place for place, shape in enumerate(shapes.shapes)}
    known = [places[shape] for shape in times.shapes]
    table[:, known] = np.sqrt(times.seconds * table[:, known])
    return Choice(dense_of(shapes, times.operator.dtype), tuple(map(Scheme, times.tiles)), shapes, table)


def choose_tiles(
    choice: Choice, hardware: Hardware, max_tiles: int = 8, tolerance: float = 0.0003
) -> Dispatcher:
    """Chooses tiles, and trains their tree on the shapes of a :func:`grid`.

    Args:
        max_tiles: the most tiles.
        tolerance: a further rule must lower the weighted mean loss by more than this.
    """
    numbers, curve = choice.best(max_tiles)
    places = [choice.schemes.index(Scheme(choice.kernels[number])) for number in sorted(numbers)]
    portfolio = Portfolio(
        choice.workload,
        hardware,
        tuple(choice.schemes[place].kernel for place in places),
        tuple(choice.schemes[place] for place in places),
        choice.shapes,
        tuple(tuple(choice.table[place].tolist()) for place in places),
        tuple(choice.table.min(axis=0).tolist()),
        curve,
        Scheme(choice.kernels[choice.best(1)[0][0]]),
    )
    return train_dispatcher(portfolio, tolerance=tolerance)


def weighted_shapes(shapes: Sequence[Shape], seed: int) -> Mapping[Shape, float]:
    """Returns the weights of the shapes that the tree is trained on: the given ones, lengths between and
    around each layer's, and other layers, whose N and K occur apart."""
    random = np.random.default_rng(seed)
    layers: dict[Shape, list[int]] = {}
    for shape in shapes:
        layers.setdefault(shape.without("T"), []).append(shape["T"])
    others: set[Shape] = set()
    for layer, lengths in layers.items():
        low, high = max(1, min(lengths) / BETWEEN), max(lengths) * BETWEEN
        count = int(np.ceil(np.log(high / low) / np.log(BETWEEN))) + 1
        others |= {Shape.of(T=int(T), **layer.to_json()) for T in np.geomspace(low, high, count).round()}
    for drawn in random.integers(0, len(shapes), (OTHER_LAYERS * len(shapes), 3)):
        others.add(
            Shape.of(**{name: shapes[n][name] for name, n in zip(("T", "N", "K"), drawn, strict=True)})
        )
    others -= set(shapes)
    given = dict.fromkeys(shapes, (1 - ELSEWHERE) / len(shapes))
    return given | dict.fromkeys(sorted(others), ELSEWHERE / max(1, len(others)))
