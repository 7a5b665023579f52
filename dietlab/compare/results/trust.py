"""Noise of a report's figures, estimated from the same library timed in two processes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from dietlab.base.cards import Quantity, counted
from dietlab.base.statistics import CONFIDENCE
from dietlab.compare.results.row import Row


@dataclass(frozen=True)
class Trust:
    """Ratios of the times of one library in two processes, in the same blocks of calls. A difference between
    contenders up to this size is noise.

    Args:
        pairs: the number of pairs of shape and cache state on which the library was timed twice.
        low, high: the least and the greatest ratio.
        mean: the geometric mean of the ratios; a mean over shapes may be off by as much.
        noise: the deviation of a ratio from 1 on one shape (0.05 for 5 %). With 19 pairs or more, a new ratio
            deviates further with a probability of at most 5 % (conformal prediction). With fewer pairs
            ``noise`` is the largest deviation.
    """

    pairs: int
    low: float
    high: float
    mean: float
    noise: float

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Trust | None:
        """Returns the noise that our rows show; None if no row was timed twice."""
        ratios = [row.again for row in rows if row.again is not None and row.correct]
        if not ratios:
            return None
        apart = sorted(abs(math.log(ratio)) for ratio in ratios)
        noise = apart[min(len(apart), math.ceil(CONFIDENCE * (len(apart) + 1))) - 1]
        return cls(len(ratios), min(ratios), max(ratios), geometric_mean(ratios), math.expm1(noise))

    def __str__(self) -> str:
        if self.pairs == 1:
            return f"the same library, timed twice on one shape, took {self.low:.2f}x the second time"
        return (
            f"the same library, timed twice on {counted(self.pairs, 'shape')}, took {self.low:.2f} to "
            f"{self.high:.2f}x the second time, {self.mean:.3f}x in the geometric mean: on one shape a "
            f"difference under {100 * self.noise:.0f} % is noise"
        )


def noise_of(trust: Trust | None) -> list[Quantity]:
    """Returns the noise on one shape in percent, if it is known."""
    if trust is None or trust.pairs == 1:
        return []
    return [Quantity(f"{100 * trust.noise:.0f} %", "on one shape is noise")]
