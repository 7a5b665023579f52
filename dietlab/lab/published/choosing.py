"""Chooses few of the tiles that others measured, and trains the decision tree over T, N and K: the same
stages as for our own records, with a table of times in place of a tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dietlab.lab.published.models import LearnedTiles
from dietlab.lab.published.times import Times, dense_of
from dietlab.machine import Hardware
from dietlab.problem import ShapeSet
from dietlab.problem.dims import Shape
from dietlab.scheme import Scheme
from dietlab.tuning import Dispatcher, Portfolio, train_dispatcher
from dietlab.tuning.choice import Choice

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
