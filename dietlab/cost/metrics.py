"""Ranking metrics of predicted times; definitions as in TenSet (NeurIPS 2021 D&B, section 5)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dietlab.errors import ModelError

Values = npt.NDArray[np.float64]


def pairwise_accuracy(predicted: Values, measured: Values) -> float:
    """Returns the share of pairs of different measured time whose order is predicted right."""
    first, second = np.triu_indices(len(measured), 1)
    truth = np.sign(measured[first] - measured[second])
    guess = np.sign(predicted[first] - predicted[second])
    comparable = truth != 0
    return float((guess == truth)[comparable].mean()) if comparable.any() else 1.0


def peak_at(k: int, predicted: Values, measured: Values) -> float:
    """Returns the least measured time over the least measured among the ``k`` predicted fastest, in (0,
    1]."""
    chosen = np.argsort(predicted, kind="stable")[:k]
    return float(measured.min() / measured[chosen].min())


def ranking_metrics(predicted: Iterable[float], measured: Iterable[float]) -> dict[str, float]:
    """Returns ``pairwise``, ``peak@1``, ``peak@5``, ``rmse`` (of log time), ``r2`` (of throughput), ``mape``.

    Args:
        predicted, measured: times in seconds of the same programs *on the same shape*; to judge
            several shapes, average over them (:func:`mean_metrics`).

    Raises:
        ModelError: if there are fewer than two values or one is not positive.
    """
    guess, truth = (np.asarray(list(values), np.float64) for values in (predicted, measured))
    if len(guess) != len(truth) or len(truth) < 2 or min(guess.min(), truth.min()) <= 0:
        raise ModelError("ranking needs two or more positive times", f"{len(guess)} and {len(truth)}")
    residual = ((1 / guess - 1 / truth) ** 2).sum()
    total = ((1 / truth - (1 / truth).mean()) ** 2).sum()
    return {
        "pairwise": pairwise_accuracy(guess, truth),
        "peak@1": peak_at(1, guess, truth),
        "peak@5": peak_at(5, guess, truth),
        "rmse": float(np.sqrt(np.mean(np.log(guess / truth) ** 2))),
        "r2": float(1 - residual / total) if total > 0 else 0.0,
        "mape": float(np.mean(np.abs(guess / truth - 1))),
    }


def mean_metrics(metrics: Iterable[dict[str, float]]) -> dict[str, float]:
    """Returns the mean of each metric over shapes (empty for none)."""
    rows = list(metrics)
    return {name: float(np.mean([row[name] for row in rows])) for name in (rows[0] if rows else {})}
