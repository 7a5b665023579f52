"""Judges choices and cost models on published records that they never saw: regret, ranks, speedup over
cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.cost.metrics import mean_metrics, ranking_metrics, spearman
from dietlab.lab.published.bound import Pairs
from dietlab.lab.published.choosing import Times, choose_tiles, grid
from dietlab.lab.published.models import Formula, models_of
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.problem import Shape

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]

FOLDS = 5
"""Parts of the shapes, each of which is held out once for each seed."""

TILES = 8
"""Tiles of a portfolio, as many as micro-kernels of our libraries."""

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Sizes of the portfolios whose regret is reported."""

FITTED_ON = (64, 500)
"""Measurements that a cost model learns from."""

HELD_OUT = 0.25
"""The share of the shapes that cost models are judged on, as for our own surveys."""

NOISE = 0.05
"""The ratio minus 1 by which two times must differ before their order counts: a program that the source timed
in two of its collections differs by up to 5.4 % in nine cases of ten."""

FEWEST_TILES = 8
"""The fewest programs of a shape that a cost model is judged on; narrow shapes have fewer."""


def folds(times: Times, seed: int) -> Iterator[tuple[Chosen, Chosen]]:
    """Yields the shapes to train on and those held out: of each layer with several lengths some, such that
    each of these shapes is held out once. Layers with one length are always trained on."""
    random = np.random.default_rng(seed)
    layers: dict[Shape, list[int]] = {}
    for place in np.flatnonzero(times.several_lengths):
        layers.setdefault(times.shapes[place].without("T"), []).append(int(place))
    part = np.full(len(times), -1)
    for places in layers.values():
        part[places] = (random.permutation(len(places)) + random.integers(FOLDS)) % FOLDS
    for number in range(FOLDS):
        if (part == number).any():
            yield part != number, part == number


def judge_choice(times: Times, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Chooses tiles on each fold's training shapes and judges them on those held out.

    Returns:
        A row for each held-out shape: T, N, K, the ``tile`` of the tree, whether it was ``cut``, and over
        cuBLAS (time of that over its time) the speedups of the ``best`` tile, the best of the ``portfolio``,
        the ``tree``'s, and the ``one`` tile that would lose least if it served all. And for each of
        :data:`SIZES` the mean regret (%) if the best of that many ``tiles`` always ran.
    """
    import pandas as pd

    numbers = {tile: number for number, tile in enumerate(times.tiles)}
    rows, lost = [], dict[int, list[Values]]()
    for train, test in folds(times, seed):
        choice = grid(times.at(train), seed)
        tree = choose_tiles(choice, times.hardware, TILES)
        kept = {n: [numbers[choice.kernels[k]] for k in choice.best(n)[0]] for n in SIZES}  # type: ignore[index]
        for size, places in kept.items():
            least = times.seconds[places][:, test].min(axis=0)
            lost.setdefault(size, []).append(least / times.best[test] - 1)
        for column in np.flatnonzero(test):
            shape, speedups = times.shapes[column], times.vendor[column] / times.seconds[:, column]
            tile = tree.scheme(shape).kernel
            assert isinstance(tile, TritonTile)
            rows.append(
                {
                    **{name: shape[name] for name in ("T", "N", "K")},
                    "tile": tile.key,
                    "cut": tile.cut(shape) != tile,
                    "best": speedups.max(),
                    "portfolio": speedups[kept[TILES]].max(),
                    "tree": speedups[numbers[tile]],
                    "one": speedups[kept[1][0]],
                }
            )
    sizes = [{"tiles": size, "regret": 100 * np.concatenate(found).mean()} for size, found in lost.items()]
    return pd.DataFrame(rows).sort_values(["N", "K", "T"], ignore_index=True), pd.DataFrame(sizes)


def judge_models(times: Times, seed: int = 0, counts: Sequence[int] = FITTED_ON) -> pd.DataFrame:
    """Returns a row for each cost model and number of measurements that it was fitted on: ``pairwise``,
    ``peak@1``, ``peak@5`` and ``spearman``, means over held-out shapes."""
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
    return pd.DataFrame(rows).sort_values(
        "model", key=lambda model: model.map(names.index), kind="stable", ignore_index=True
    )


def rank(pairs: Pairs, predicted: Values, measured: Values) -> dict[str, float]:
    """Returns the metrics of predicted times, means over shapes with enough programs."""
    by_shape: dict[Shape, list[int]] = {}
    for place, shape in enumerate(pairs.shapes):
        by_shape.setdefault(shape, []).append(place)
    found = []
    for places in by_shape.values():
        if len(places) >= FEWEST_TILES:
            guess, real = predicted[places], measured[places]
            metrics = ranking_metrics(guess, real, np.full(len(real), NOISE))
            found.append({**metrics, "spearman": spearman(guess, real)})
    means = mean_metrics(found)
    return {name: means[name] for name in ("pairwise", "peak@1", "peak@5", "spearman")}
