"""A budget of seconds: what is begun within it, and what is left out."""

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
"""Seconds of a measurement before there was one: about what compiling a scheme takes on one core."""

AHEAD = 1.5
"""What is kept for the end, over what thinking took longest so far: the last fit knows more records."""


class BudgetSpentError(DietlabError, RuntimeError):
    """The seconds of a budget are over."""


class Budget:
    """Seconds that a tuning may take, from now on.

    It is asked before each build and each block, and ends none that has begun: tuning takes longer by a build
    or a block at most (on servers of a tracker, by a round).

    Args:
        seconds: above 0; infinite: none.
        now: a monotonic clock, in seconds.

    Attributes:
        stopped: whether it ended something.

    Raises:
        DietlabError: if ``seconds`` are not above 0.
    """

    def __init__(self, seconds: float = math.inf, now: Callable[[], float] = monotonic) -> None:
        if not seconds > 0:
            raise DietlabError("a budget is above 0 seconds", seconds)
        self.seconds, self.stopped = seconds, False
        self._now, self._began, self._thought = now, now(), 0.0

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self._now() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left to measure: less what the end takes, as far as that is known."""
        return self.seconds - self.spent - AHEAD * self._thought

    def thought(self, seconds: float) -> None:
        """Notes how long it took to fit what was measured."""
        self._thought = max(self._thought, seconds)

    def require(self) -> None:
        """Checks that something is left.

        Raises:
            BudgetSpentError: if nothing is.
        """
        if self.left <= 0:
            self.stopped = True
            raise BudgetSpentError("seconds of the budget are left", f"{self.seconds:g} s are spent")

    def affordable(self, count: int, costs: Iterable[float]) -> int:
        """Returns how many of ``count`` measurements are begun together: those that are over in time, or one.

        Args:
            costs: seconds of those before; if there are none, :data:`UNKNOWN_SECONDS` each.
        """
        if math.isinf(self.seconds):
            return count
        mean = statistics.mean(list(costs) or [UNKNOWN_SECONDS])
        return count if mean * count <= self.left else max(1, int(self.left / mean))

    @property
    def note(self) -> str:
        """A text for progress; empty without a limit."""
        return "" if math.isinf(self.seconds) else f", {self.spent:.0f} of {self.seconds:.0f} s"


class Limited:
    """A contender's process that is asked nothing more once a budget is spent."""

    def __init__(self, seat: Questions, budget: Budget) -> None:
        self._seat, self._budget = seat, budget
        self.pace: Pace = seat.pace

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer.

        Raises:
            BudgetSpentError: if the budget is spent.
        """
        self._budget.require()
        return self._seat.ask(request)
