"""Medians and bootstrap intervals of interleaved blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median with its bootstrap interval (percentile method, 95 %), in the samples' unit."""

    median: float
    low: float
    high: float


def median_interval(samples: Sequence[float], seed: int = 0) -> Interval:
    """The median of ``samples`` (at least one) and where resampling says it could lie."""
    values = np.asarray(samples, np.float64)
    picks = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(np.median(values)), float(low), float(high))


def paired_ratio(samples: Sequence[float], ours: Sequence[float]) -> float:
    """Median over blocks of theirs / ours: both of a pair ran next to each other, so that a slow
    moment of the machine slows both and drops out."""
    return float(np.median(np.asarray(samples) / np.asarray(ours)))
