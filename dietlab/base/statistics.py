"""Medians, means and regret of measured samples, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Plan = TypeVar("Plan", bound=Hashable)

RESAMPLES = 2000
"""The number of resamples of a bootstrap interval."""

CONFIDENCE = 0.95
"""Confidence level of all intervals."""


def in_single_precision(values: Values) -> Values:
    """Returns predictions rounded to 24 bits. Further digits depend on the order in which a processor's
    vector instructions add; they would break ties between equally fast programs."""
    return np.asarray(values.astype(np.float32).astype(np.float64))


@dataclass(frozen=True)
class Interval:
    """A median with its bootstrap interval (percentile method, 95 %), in the samples' unit."""

    median: float
    low: float
    high: float


def median_interval(samples: Sequence[float]) -> Interval:
    """Returns the median of ``samples`` (at least one) with its bootstrap interval."""
    values = np.asarray(samples, np.float64)
    low, high = bootstrap(values, lambda drawn: np.asarray(np.median(drawn, axis=1)))
    return Interval(float(np.median(values)), low, high)


def bootstrap(values: Values, statistic: Callable[[Values], Values], seed: int = 0) -> tuple[float, float]:
    """Returns the 95 % interval (percentile method) of a statistic of ``values [n]``, n >= 1; ``statistic``
    maps resamples ``[draws, n]`` to ``[draws]``."""
    picks = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(statistic(values[picks]), [tail, 1 - tail])
    return float(low), float(high)


def mean_interval(values: Values, seed: int = 0) -> tuple[float, float]:
    """Returns the bootstrap interval of the mean of ``values [n]``, n >= 1."""
    return bootstrap(values, lambda drawn: np.asarray(drawn.mean(axis=1)), seed)


def paired_ratio(samples: Sequence[float], ours: Sequence[float]) -> float:
    """Returns the median over blocks of ``samples / ours``. Both times of a block were measured next to each
    other, so a slow moment of the machine cancels out."""
    return float(np.median(np.asarray(samples) / np.asarray(ours)))


def regret(finalists: Mapping[Plan, Sequence[float]], chosen: Plan) -> float:
    """Returns the regret: the time of the chosen plan divided by the time of the fastest plan, minus 1.

    The minimum of several noisy medians is biased low, most of all if the plans are equal. So one half of
    the blocks picks the fastest plan and the other half times it, then the halves swap roles. If both pick
    ``chosen`` the regret is 0; noise can make it negative.

    Args:
        finalists: for each plan, the seconds of a call in every block. In a block, all plans ran next to each
            other in one process: slow moments and the placement of arrays cancel out.
        chosen: the plan whose regret is computed, one of the finalists.
    """
    blocks = range(len(finalists[chosen]))
    halves = (blocks[::2], blocks[1::2]) if len(blocks) > 1 else (blocks, blocks)
    return fmean(_lost(finalists, chosen, *pair) for pair in (halves, halves[::-1]))


def _lost(finalists: Mapping[Plan, Sequence[float]], chosen: Plan, picking: range, judging: range) -> float:
    best = min(finalists, key=lambda plan: (median(finalists[plan][i] for i in picking), plan != chosen))
    return paired_ratio(*([finalists[plan][i] for i in judging] for plan in (chosen, best))) - 1
