"""Chooses few of the tiles that others measured, and trains the decision tree over T, N and K: the same
stages as for our own records, with a table of times in place of a tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dietlab.lab.published.models import LearnedTiles
from dietlab.lab.published.times import Times, dense_of
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.problem import ShapeSet
from dietlab.problem.dims import Shape
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
class Grid:
    """The training shapes and others around them, with the seconds of every tile.

    Between and beside the training shapes, times are those of trees that learned from them
    (:class:`~dietlab.lab.published.models.LearnedTiles`); at them, the geometric mean of measured and
    learned, since a single measured time is noisy and the best of thirty even more.

    Args:
        seconds: ``[tiles, shapes]``.
    """

    times: Times
    shapes: ShapeSet
    seconds: Values

    @classmethod
    def of(cls, times: Times, seed: int = 0) -> Grid:
        """Returns the grid of training shapes with their times."""
        shapes = ShapeSet.of(weighted_shapes(times.shapes, seed))
        model = LearnedTiles(seed=seed, count=FITS).fit(*times.measured())
        table = model.seconds(times.pairs(shapes.shapes)).reshape(len(times.tiles), len(shapes))
        places = {shape: place for place, shape in enumerate(shapes.shapes)}
        known = [places[shape] for shape in times.shapes]
        table[:, known] = np.sqrt(times.seconds * table[:, known])
        return cls(times, shapes, table)

    @property
    def choice(self) -> Choice:
        """The choice among the tiles."""
        workload = dense_of(self.shapes, self.times.operator.dtype)
        return Choice(workload, tuple(Scheme(tile) for tile in self.times.tiles), self.shapes, self.seconds)


@dataclass(frozen=True)
class Chosen:
    """A portfolio of tiles with its decision tree."""

    portfolio: Portfolio
    dispatcher: Dispatcher

    def tile(self, shape: Shape) -> TritonTile:
        """Returns the tile that serves a shape."""
        kernel = self.dispatcher.scheme(shape).kernel
        assert isinstance(kernel, TritonTile)
        return kernel


def choose_tiles(grid: Grid, max_tiles: int = 8, tolerance: float = 0.0003) -> Chosen:
    """Chooses tiles, and trains their tree on the grid of the training shapes.

    Args:
        max_tiles: the most tiles.
        tolerance: a further rule must lower the weighted mean loss by more than this.
    """
    choice = grid.choice
    numbers, curve = choice.best(max_tiles)
    places = [choice.schemes.index(Scheme(choice.kernels[number])) for number in sorted(numbers)]
    alone = choice.best(1)[0][0]
    portfolio = Portfolio(
        choice.workload,
        grid.times.hardware,
        tuple(choice.schemes[place].kernel for place in places),
        tuple(choice.schemes[place] for place in places),
        grid.shapes,
        tuple(tuple(grid.seconds[place].tolist()) for place in places),
        tuple(grid.seconds.min(axis=0).tolist()),
        curve,
        Scheme(choice.kernels[alone]),
    )
    return Chosen(portfolio, train_dispatcher(portfolio, tolerance=tolerance))


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
