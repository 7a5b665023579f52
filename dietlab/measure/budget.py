"""A limit on the seconds of a tuning: it decides whether another build or block may begin."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from dietlab.base.errors import DietlabError
from dietlab.measure.timing.disturbance import Pace
from dietlab.measure.timing.turns import Questions

UNKNOWN_SECONDS = 1.0
"""The assumed cost of the first measurement, in seconds: about the time to compile a scheme on one core."""

AHEAD = 1.5
"""The ratio of the time reserved for the model's last fit to the time of its longest fit so far: the last fit
has more records."""


class BudgetSpentError(DietlabError, RuntimeError):
    """The budget is spent."""


class Budget:
    """The seconds that a tuning may take, from now on.

    The limit is checked before each build and each block, and interrupts neither: a tuning exceeds the limit
    by at most one build or block. On servers of a tracker, it exceeds the limit by at most one round.

    Args:
        seconds: the limit, above 0 (infinite: no limit).
        now: a monotonic clock, in seconds.

    Attributes:
        stopped: whether the limit has ended the tuning.

    Raises:
        DietlabError: if ``seconds`` is not above 0.
    """

    def __init__(self, seconds: float = math.inf, now: Callable[[], float] = monotonic) -> None:
        if not seconds > 0:
            raise DietlabError("a budget must be above 0 seconds", seconds)
        self.seconds, self.stopped = seconds, False
        self._now, self._began, self._thought = now, now(), 0.0

    @property
    def spent(self) -> float:
        """Seconds since the budget began."""
        return self._now() - self._began

    @property
    def left(self) -> float:
        """Seconds left to measure: the limit less the seconds spent and the seconds reserved for the model's
        last fit."""
        return self.seconds - self.spent - AHEAD * self._thought

    def thought(self, seconds: float) -> None:
        """Stores how long a fit of the model took, in seconds."""
        self._thought = max(self._thought, seconds)

    def require(self) -> None:
        """Checks that seconds are left.

        Raises:
            BudgetSpentError: if no seconds are left.
        """
        if self.left <= 0:
            self.stopped = True
            raise BudgetSpentError("the budget must have seconds left", f"{self.seconds:g} s are spent")

    def affordable(self, count: int, costs: Iterable[float]) -> int:
        """Returns how many of ``count`` measurements fit into the seconds left, at least 1. Each is expected
        to cost the mean of ``costs``, or :data:`UNKNOWN_SECONDS` if there are none."""
        if math.isinf(self.seconds):
            return count
        mean = statistics.mean(list(costs) or [UNKNOWN_SECONDS])
        return count if mean * count <= self.left else max(1, int(self.left / mean))

    @property
    def note(self) -> str:
        """A text about the seconds left, for progress messages; empty without a limit."""
        return "" if math.isinf(self.seconds) else f", {self.spent:.0f} of {self.seconds:.0f} s"


class Limited:
    """A contender's process that gets no more requests once a budget is spent."""

    def __init__(self, seat: Questions, budget: Budget) -> None:
        self._seat, self._budget = seat, budget
        self.pace: Pace = seat.pace

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer."""
        self._budget.require()
        return self._seat.ask(request)
