"""Times contenders on the same shapes in turns. In each turn, every contender runs a block, in random order.

A shared machine is slower in one moment than in the next. The blocks of a contender are far apart and see
many moments. The blocks of rivals are next to each other and see the same moment, so its speed cancels in the
ratios of their times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any, Protocol

from dietlab.base.errors import MeasureError
from dietlab.measure.timing.contender import Plan
from dietlab.measure.timing.disturbance import Pace, Taken
from dietlab.problem import Shape


class Questions(Protocol):
    """A connection to a contender, in a local process (:class:`~dietlab.measure.timing.seat.Seat`) or on a
    server."""

    pace: Pace

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer.

        Raises:
            MeasureError: if the contender crashes, hangs or refuses.
        """


@dataclass
class Player:
    """A contender with one of its plans on one shape, and its blocks so far.

    ``samples`` are the seconds of a call in each block. ``retaken`` is the number of blocks that were thrown
    away because the processor was slow. ``kept`` is the number of blocks that count although the processor
    was slow, since the processor did not recover.

    Args:
        correct: whether the result is correct; None if the contender crashed, hung or refused.
        reason: the reason why the result is not correct.
        max_error, tolerance: the largest error of the result and the tolerance; None before the comparison.
        first_seconds: the seconds of the first call at the shape, if
            :meth:`~dietlab.measure.timing.bench.Bench.check` reports them.
        error: the error that ended the contender.
        blocks: the timed blocks by cache state.
        check_seconds, time_seconds: the total seconds of the requests to check and to time.
    """

    seat: Questions
    shape: Shape
    plan: Plan = None
    correct: bool | None = None
    reason: str = ""
    max_error: float | None = None
    tolerance: float | None = None
    first_seconds: float | None = None
    error: MeasureError | None = None
    blocks: dict[str, list[Taken]] = field(default_factory=dict)
    check_seconds: float = 0.0
    time_seconds: float = 0.0

    @property
    def samples(self) -> tuple[float, ...]:
        return tuple(seconds for cache in self.blocks for seconds in self.seconds(cache))

    @property
    def retaken(self) -> int:
        return sum(block.retaken for blocks in self.blocks.values() for block in blocks)

    @property
    def kept(self) -> int:
        return sum(block.kept for blocks in self.blocks.values() for block in blocks)

    def check(self) -> None:
        """Checks the contender's result."""
        started = perf_counter()
        try:
            answer = self._ask("check")
        except MeasureError as error:
            self.fail(error)
        else:
            self.correct = answer.get("correct")
            self.max_error, self.tolerance = answer.get("max_error"), answer.get("tolerance")
            self.first_seconds = answer.get("first_seconds")
            self.reason = "absent" if "absent" in answer else str(answer.get("reason", ""))
        self.check_seconds += perf_counter() - started

    def take(self, cache: str, block_seconds: float) -> None:
        """Times one block; a contender that fails takes no more turns."""
        if not self.correct:
            return
        started = perf_counter()
        try:
            answer = self._ask(
                "time", cache=cache, min_seconds=block_seconds, usual_probe=self.seat.pace.usual
            )
            taken = Taken(answer["seconds"], answer["retaken"], answer["kept"], answer["probe"])
        except MeasureError as error:
            self.fail(error)
        else:
            self.seat.pace.note(taken)
            self.blocks.setdefault(cache, []).append(taken)
        self.time_seconds += perf_counter() - started

    def fail(self, error: MeasureError) -> None:
        """Stores the failure, and drops all blocks."""
        self.correct, self.reason, self.error, self.blocks = None, str(error), error, {}

    def seconds(self, cache: str) -> tuple[float, ...]:
        """Returns the seconds of a call in each block."""
        return tuple(taken.seconds for taken in self.blocks.get(cache, ()))

    def _ask(self, op: str, **more: Any) -> dict[str, Any]:
        plan = {} if self.plan is None else {"plan": self.plan}
        return self.seat.ask({"op": op, "shape": self.shape.to_json(), **plan, **more})


def play(
    contests: Sequence[Sequence[Player]],
    turns: int,
    take: Callable[[Player, int], None],
    seed: str,
    plays_on: Callable[[Sequence[Player], int], Sequence[Player]] = lambda rivals, turns: rivals,
) -> None:
    """Checks all players, then times the correct ones in turns::

        turn 0: a(T=5) c(T=5) b(T=5), d(T=24) a(T=24)     turn 1: a(T=24) d(T=24), b(T=5) a(T=5) c(T=5)

    Args:
        contests: the rivals on each shape.
        take: a function that times a player in a turn; turns are counted from 0.
        seed: the seed of the random order.
        plays_on: a function that returns the rivals on a shape that take another turn, given the number of
            turns so far.
    """
    for rivals in contests:
        for player in rivals:
            player.check()
    random = Random(seed)
    playing = [[player for player in rivals if player.correct] for rivals in contests]
    for turn in range(turns):
        for rivals in random.sample(playing, len(playing)):
            for player in random.sample(rivals, len(rivals)):
                take(player, turn)
        standing = ([player for player in rivals if player.correct] for rivals in playing)
        playing = [list(plays_on(rivals, turn + 1)) for rivals in standing]
