"""The choice of few tiles and the decision tree over T, N and K from times that others measured, and how good
both are on shapes that they never saw: regret, ranks, speedup over cuBLAS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import RecordError
from dietlab.base.statistics import Values, in_single_precision
from dietlab.cost.metrics import mean_metrics, ranking_metrics, spearman
from dietlab.lab.published.models import Formula, LearnedTiles, models_of
from dietlab.lab.published.records import Operator, Published
from dietlab.lab.published.triton_tile import Pairs, TritonTile
from dietlab.machine import Hardware
from dietlab.problem import Dense, ShapeSet
from dietlab.problem.dims import Dim, Shape
from dietlab.scheme import Scheme
from dietlab.tuning import Dispatcher, Portfolio, train_dispatcher
from dietlab.tuning.choice import Choice

if TYPE_CHECKING:
    import pandas as pd

Chosen = npt.NDArray[np.bool_]

FITS = 4
"""The number of fits of boosted trees whose mean fills the grid; the noise of a single fit misleads the
decision tree."""

BETWEEN = 2.0
"""The largest ratio of two neighbouring lengths in a layer's grid, and the factor by which the grid exceeds
the layer's shortest and longest length. Heights of tiles differ by this factor."""

OTHER_LAYERS = 3
"""The number of other shapes in the grid for each training shape. Each combines T, N and K of training shapes
that are drawn at random."""

ELSEWHERE = 0.5
"""The share of the total weight, 0 to 1, that shapes without measurements get: as much as measured shapes,
since held-out shapes are of this kind."""

FOLDS = 5
"""The number of parts of the shapes; with each seed, each part is held out once."""

TILES = 8
"""The number of tiles of a portfolio, as many as micro-kernels of our libraries."""

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""The sizes of the portfolios whose regret is reported."""

FITTED_ON = (64, 500)
"""The numbers of measurements that a cost model learns from."""

HELD_OUT = 0.25
"""The share of the shapes that cost models are judged on, as for our own surveys."""

NOISE = 0.05
"""The ratio minus 1 by which two times must differ before their order counts: a program that the source timed
in two of its collections differs by up to 5.4 % in nine cases of ten."""

FEWEST_TILES = 8
"""The fewest programs of a shape that a cost model is judged on; narrow shapes have fewer."""


# --- choosing ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """The times of every tile on every shape. A tile larger than a shape has the time of the tile that it is
    cut to (:meth:`~dietlab.lab.published.triton_tile.TritonTile.cut`).

    Args:
        seconds: the times, ``[tiles, shapes]``.
        vendor: the times of the vendor's library, ``[shapes]``; NaN where it was not timed.
    """

    operator: Operator
    hardware: Hardware
    tiles: tuple[TritonTile, ...]
    shapes: tuple[Shape, ...]
    seconds: Values
    vendor: Values

    @classmethod
    def of(cls, published: Published, operator: Operator, collections: Sequence[str]) -> Times:
        """Returns the times of the tiles that were measured on all shapes of some collections: the least time
        of each tile on each shape."""
        known: dict[Shape, dict[TritonTile | None, float]] = {}
        for record in published.records:
            if record.operator == operator and record.collection in collections:
                times = known.setdefault(record.shape, {})
                times[record.tile] = min(record.seconds, times.get(record.tile, record.seconds))
        shapes = tuple(sorted(shape for shape, times in known.items() if set(times) != {None}))
        every = {tile for shape in shapes for tile in known[shape] if tile is not None}
        tiles = tuple(sorted(t for t in every if all(t.cut(shape) in known[shape] for shape in shapes)))
        if not tiles:
            rule = f"one tile must be measured on all shapes of {operator} in {', '.join(collections)}"
            found = f"{len(shapes)} shapes, {len(every)} tiles"
            raise RecordError(rule, found, "Take an operator that the file has.")
        seconds = np.array([[known[shape][tile.cut(shape)] for shape in shapes] for tile in tiles])
        vendor = np.array([known[shape].get(None, np.nan) for shape in shapes])
        return cls(operator, Hardware.preset(published.gpu), tiles, shapes, seconds, vendor)

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def best(self) -> Values:
        """The least time of any tile on each shape."""
        return np.asarray(self.seconds.min(axis=0))

    def at(self, chosen: Chosen) -> Times:
        """Returns the times on some of the shapes."""
        shapes = tuple(shape for shape, take in zip(self.shapes, chosen, strict=True) if take)
        return replace(self, shapes=shapes, seconds=self.seconds[:, chosen], vendor=self.vendor[chosen])

    def pairs(self, shapes: Sequence[Shape]) -> Pairs:
        """Returns every tile, cut, with every shape, tile by tile."""
        return Pairs.of([(t.cut(shape), shape) for t in self.tiles for shape in shapes], self.hardware)

    def measured(self) -> tuple[Pairs, Values]:
        """Returns two values: the measured pairs of a program and a shape, each once, shape by shape; and the
        pairs' seconds.
        """
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
    """Returns the table of times from which tiles are chosen, on the training shapes and on others around
    them.

    Boosted trees, fitted on the training shapes, predict the times. On the training shapes themselves, the
    geometric mean of measured and predicted time counts: a single measured time is noisy, and the least of
    thirty times even more.
    """
    shapes = ShapeSet.of(weighted_shapes(times.shapes, seed))
    model = LearnedTiles(seed=seed, count=FITS).fit(*times.measured())
    table = model.seconds(times.pairs(shapes.shapes)).reshape(len(times.tiles), len(shapes))
    places = {shape: place for place, shape in enumerate(shapes.shapes)}
    known = [places[shape] for shape in times.shapes]
    table[:, known] = np.sqrt(times.seconds * table[:, known])
    table = in_single_precision(table)
    return Choice(dense_of(shapes, times.operator.dtype), tuple(map(Scheme, times.tiles)), shapes, table)


def choose_tiles(
    choice: Choice, hardware: Hardware, max_tiles: int = TILES, tolerance: float = 0.0003
) -> Dispatcher:
    """Chooses tiles, and trains their tree on the shapes of a :func:`grid`; a further rule must lower the
    weighted mean loss by more than ``tolerance``."""
    numbers, curve = choice.best(max_tiles)
    kernels = tuple(choice.kernels[number] for number in sorted(numbers))
    schemes, alone = tuple(map(Scheme, kernels)), Scheme(choice.kernels[choice.best(1)[0][0]])
    seconds = tuple(tuple(choice.table[choice.schemes.index(one)].tolist()) for one in schemes)
    best = tuple(choice.table.min(axis=0).tolist())
    what = choice.workload, hardware, kernels, schemes, choice.shapes
    return train_dispatcher(Portfolio(*what, seconds, best, curve, alone), tolerance=tolerance)


def weighted_shapes(shapes: Sequence[Shape], seed: int) -> Mapping[Shape, float]:
    """Returns the shapes that the tree is trained on, and their weights. The shapes are the given shapes,
    lengths between and around those of each layer, and new layers that combine an N and a K of different
    shapes."""
    random = np.random.default_rng(seed)
    others: set[Shape] = set()
    for layer, places in _places(shape.without("T") for shape in shapes).items():
        lengths = [shapes[place]["T"] for place in places]
        low, high = max(1, min(lengths) / BETWEEN), max(lengths) * BETWEEN
        count = int(np.ceil(np.log(high / low) / np.log(BETWEEN))) + 1
        others |= {Shape.of(T=int(T), **layer.to_json()) for T in np.geomspace(low, high, count).round()}
    for T, N, K in random.integers(0, len(shapes), (OTHER_LAYERS * len(shapes), 3)):
        others.add(Shape.of(T=shapes[T]["T"], N=shapes[N]["N"], K=shapes[K]["K"]))
    others -= set(shapes)
    given = dict.fromkeys(shapes, (1 - ELSEWHERE) / len(shapes))
    return given | dict.fromkeys(sorted(others), ELSEWHERE / max(1, len(others)))


def _places(shapes: Iterable[Shape]) -> dict[Shape, list[int]]:
    """Returns the indices of equal shapes, or of equal layers if the shapes are without T."""
    found: dict[Shape, list[int]] = {}
    for place, shape in enumerate(shapes):
        found.setdefault(shape, []).append(place)
    return found


# --- judging ----------------------------------------------------------------------------------


def folds(times: Times, seed: int) -> Iterator[tuple[Chosen, Chosen]]:
    """Yields masks of the training shapes and of the held-out shapes. Each shape of a layer with several
    lengths is held out once; layers with one length are always trained on."""
    random = np.random.default_rng(seed)
    part = np.full(len(times), -1)
    for places in _places(shape.without("T") for shape in times.shapes).values():
        if len(places) > 1:
            part[places] = (random.permutation(len(places)) + random.integers(FOLDS)) % FOLDS
    for number in range(FOLDS):
        if (part == number).any():
            yield part != number, part == number


def judge_choice(times: Times, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Chooses tiles on each fold's training shapes and judges them on the fold's held-out shapes.

    Returns:
        Two tables. The first has a row for each held-out shape: T, N, K, the ``tile`` that the tree chooses,
        whether it was ``cut``, and speedups over cuBLAS: of the ``best`` tile, of the best in the
        ``portfolio``, of the ``tree``'s choice, and of the ``one`` tile that loses least if it serves all
        shapes. The second has a row for each of :data:`SIZES`: the mean regret (%) if the best of that many
        ``tiles`` always ran.
    """
    import pandas as pd

    numbers = {tile: number for number, tile in enumerate(times.tiles)}
    rows, lost = [], dict[int, list[Values]]()
    for train, test in folds(times, seed):
        choice = grid(times.at(train), seed)
        tree = choose_tiles(choice, times.hardware)
        kept = {n: [numbers[choice.kernels[k]] for k in choice.best(n)[0]] for n in SIZES}  # type: ignore[index]
        for size, places in kept.items():
            least = times.seconds[places][:, test].min(axis=0)
            lost.setdefault(size, []).append(least / times.best[test] - 1)
        for column in np.flatnonzero(test):
            shape, speedups = times.shapes[column], times.vendor[column] / times.seconds[:, column]
            tile = tree.scheme(shape).kernel
            assert isinstance(tile, TritonTile)
            found = {"best": speedups.max(), "portfolio": speedups[kept[TILES]].max()}
            found |= {"tree": speedups[numbers[tile]], "one": speedups[kept[1][0]]}
            extents = {name: shape[name] for name in ("T", "N", "K")}
            rows.append({**extents, "tile": tile.key, "cut": tile.cut(shape) != tile, **found})
    sizes = [{"tiles": size, "regret": 100 * np.concatenate(found).mean()} for size, found in lost.items()]
    return pd.DataFrame(rows).sort_values(["N", "K", "T"], ignore_index=True), pd.DataFrame(sizes)


def judge_models(times: Times, seed: int = 0, counts: Sequence[int] = FITTED_ON) -> pd.DataFrame:
    """Returns a row for each pair of a cost model and a number of measurements that it was fitted on
    (``told``). A row has ``pairwise``, ``peak@1``, ``peak@5`` and ``spearman``, means over held-out shapes.
    """
    import pandas as pd

    random = np.random.default_rng(seed)
    held_out = random.permutation(len(times)) < round(HELD_OUT * len(times))
    pairs, seconds = times.at(~held_out).measured()
    test, truth = times.at(held_out).measured()
    order, rows = random.permutation(len(seconds)), []
    for count in (0, *counts):
        drawn = order[:count]
        part = Pairs([pairs.tiles[n] for n in drawn], [pairs.shapes[n] for n in drawn], pairs.hardware)
        predicted = {
            name: model.fit(part, seconds[drawn]).seconds(test)
            for name, model in models_of(seed).items()
            if isinstance(model, Formula) == (count == 0)
        }
        if count:  # the geometric mean, in which the first counts twice
            predicted["both"] = np.cbrt(predicted["learned over bound"] ** 2 * predicted["learned"])
        rows += [{"model": name, "told": count, **rank(test, p, truth)} for name, p in predicted.items()]
    names = [*models_of(seed), "both"]
    return pd.DataFrame(sorted(rows, key=lambda row: names.index(str(row["model"]))))


def rank(pairs: Pairs, predicted: Values, measured: Values) -> dict[str, float]:
    """Returns the metrics of predicted times, means over shapes with enough programs."""
    found = []
    for places in _places(pairs.shapes).values():
        if len(places) >= FEWEST_TILES:
            guess, real = predicted[places], measured[places]
            metrics = ranking_metrics(guess, real, np.full(len(real), NOISE))
            found.append({**metrics, "spearman": spearman(guess, real)})
    means = mean_metrics(found)
    return {name: means[name] for name in ("pairwise", "peak@1", "peak@5", "spearman")}
