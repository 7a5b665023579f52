"""Ranking metrics of predicted times, as defined in TenSet (NeurIPS 2021 D&B, section 5). They are computed
over the pairs whose measured times differ by more than the noise of measuring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import ModelError
from dietlab.base.statistics import Values

Numbers = npt.NDArray[np.signedinteger]

FEWEST_PAIRS = 10
"""The fewest pairs with differences beyond the noise by which a model is judged: one wrong pair then changes
the accuracy by at most 10 %."""

OF_PAIRS = ("pairwise", "r2")
"""The metrics over pairs. Other metrics are over single times, so near-ties do not matter for them."""

TOO_FEW = "too few pairs differ by more than the noise"
"""The text in place of a metric of too few pairs."""


def distinct_pairs(measured: Values, noise: Values) -> tuple[Numbers, Numbers]:
    """Returns two arrays: the first and the second index of each pair of times whose ratio exceeds the larger
    of their two noises."""
    first, second = np.triu_indices(len(measured), 1)
    apart = np.abs(np.log(measured[first] / measured[second]))
    known = apart > np.log1p(np.maximum(noise[first], noise[second]))
    return first[known], second[known]


def peak_at(k: int, predicted: Values, measured: Values) -> float:
    """Returns the least of all measured times over the least measured time among the ``k`` programs that are
    predicted fastest; in (0, 1]."""
    chosen = np.argsort(predicted, kind="stable")[:k]
    return float(measured.min() / measured[chosen].min())


def spearman(one: Values, other: Values) -> float:
    """Returns the correlation of the ranks of two arrays; 0 if one of the arrays is constant. Equal values
    have their mean rank."""
    import pandas as pd

    if min(np.ptp(one), np.ptp(other)) == 0:
        return 0.0
    return float(pd.Series(one).corr(pd.Series(other), method="spearman"))


def ranking_metrics(
    predicted: Iterable[float], measured: Iterable[float], noise: Iterable[float] = ()
) -> dict[str, float]:
    """Returns ``pairs``, ``pairwise``, ``r2``, ``peak@1``, ``peak@5``, ``rmse`` (of log time) and ``mape``.

    ``pairs`` is the number of pairs that differ by more than the noise; ``pairwise`` is the share of these
    pairs whose order is predicted right; ``r2`` is the predicted share of their squared differences of
    throughput. ``pairwise`` and ``r2`` are missing if there is no such pair.

    Args:
        predicted, measured: the times of the same programs *on the same shape*, in seconds; to judge several
            shapes, average over the shapes (:func:`mean_metrics`).
        noise: the noise of each measured time, as a share of the time (``Record.spread``); empty for no
            noise.

    Raises:
        ModelError: if there are fewer than two values, or a value is not positive.
    """
    guess, truth = (np.asarray(list(values), np.float64) for values in (predicted, measured))
    if len(guess) != len(truth) or len(truth) < 2 or min(guess.min(), truth.min()) <= 0:
        raise ModelError("ranking needs two or more positive times", f"{len(guess)} and {len(truth)}")
    spread = np.asarray(list(noise) or [0.0] * len(truth), np.float64)
    if len(spread) != len(truth):
        raise ModelError("each time must have its noise", f"{len(spread)} for {len(truth)} times")
    first, second = distinct_pairs(truth, spread)
    found: dict[str, float] = {"pairs": len(first)}
    if len(first):
        ours, real = (1 / times[first] - 1 / times[second] for times in (guess, truth))
        found["pairwise"] = float((np.sign(ours) == np.sign(real)).mean())
        found["r2"] = float(1 - ((ours - real) ** 2).sum() / (real**2).sum())
    return found | {
        "peak@1": peak_at(1, guess, truth),
        "peak@5": peak_at(5, guess, truth),
        "rmse": float(np.sqrt(np.mean(np.log(guess / truth) ** 2))),
        "mape": float(np.mean(np.abs(guess / truth - 1))),
    }


def mean_metrics(metrics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each metric over the shapes that have this metric, and the sum of ``pairs``; empty
    for no shapes. If the sum is below :data:`FEWEST_PAIRS`, the metrics over pairs are left out.

    Args:
        metrics: for each shape, the metrics by name.
    """
    rows = list(metrics)
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}
    if "pairs" in found:
        found["pairs"] = sum(row["pairs"] for row in rows)
        if found["pairs"] < FEWEST_PAIRS:
            found = {name: value for name, value in found.items() if name not in OF_PAIRS}
    return found


def too_few_pairs(metrics: Mapping[str, float]) -> dict[str, str]:
    """Returns the texts that replace metrics with too few pairs; empty if all metrics are known.

    Args:
        metrics: the metrics by name, as returned by :func:`mean_metrics`.
    """
    return dict.fromkeys((name for name in OF_PAIRS if "pairs" in metrics and name not in metrics), TOO_FEW)
