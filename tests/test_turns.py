"""Who is timed when: turns in random order, who leaves, and falls that end nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import MeasureError
from dietlab.compare.session import timed_row
from dietlab.measure import Timing
from dietlab.measure.contest import CACHED_SHARE, FEWEST_TURNS, _playing_on, _take
from dietlab.measure.timing.disturbance import Pace
from dietlab.measure.timing.turns import Player, play
from dietlab.problem import Shape

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class ScriptedSeat:
    """A contender whose every answer is told; it remembers the questions."""

    def __init__(self, seconds: Callable[[int, int], float], check: Answer = lambda asked: {}) -> None:
        self.pace = Pace()
        self.asked: list[tuple[str, int, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self._seconds, self._check = seconds, check

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        length, plan = request["shape"]["T"], request["plan"]
        self.asked.append((request["op"], length, plan))
        self.requests.append(request)
        if request["op"] == "check":
            return {"correct": True, "reason": "", "max_error": 0.0, "tolerance": 1.0, **self._check(request)}
        return {"seconds": self._seconds(length, plan), "retaken": 1, "kept": False, "probe": 2.0}


def contests(seat: Any, lengths: range, plans: int) -> list[list[Player]]:
    return [[Player(seat, Shape.of(T=t), plan) for plan in range(plans)] for t in lengths]


def take(timing: Timing, player: Player, turn: int) -> None:
    player.take(timing.cache, timing.block_seconds)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_each_turn_is_everybody_s_and_rivals_follow_each_other(shapes: int, plans: int, turns: int) -> None:
    seat = ScriptedSeat(lambda length, plan: 1.0)
    players = contests(seat, range(1, 1 + shapes), plans)
    play(players, turns, partial(take, Timing()), "seed")
    everybody = {(t, plan) for t in range(1, 1 + shapes) for plan in range(plans)}
    checks, timed = seat.asked[: len(everybody)], seat.asked[len(everybody) :]
    assert {(t, plan) for _, t, plan in checks} == everybody and {op for op, *_ in checks} == {"check"}
    assert len(timed) == turns * len(everybody)
    for turn in range(turns):
        asked = [(t, plan) for _, t, plan in timed[turn * len(everybody) : (turn + 1) * len(everybody)]]
        assert set(asked) == everybody
        lengths = [t for t, _ in asked]
        assert sum(a != b for a, b in pairwise(lengths)) == shapes - 1
    assert seat.pace.blocks == seat.pace.retaken == len(timed) and seat.pace.usual == 2.0


def test_the_order_is_another_in_each_turn_and_the_same_in_each_run() -> None:
    orders = []
    for _ in range(2):
        seat = ScriptedSeat(lambda length, plan: 1.0)
        play(contests(seat, range(1, 2), 6), 3, partial(take, Timing()), "seed")
        orders.append([plan for op, _, plan in seat.asked if op == "time"])
    assert orders[0] == orders[1] and orders[0][:6] != orders[0][6:12]


@pytest.mark.parametrize("told", [{}, {"first_seconds": None}, {"first_seconds": 0.5}])
def test_what_the_first_call_took_stands_in_the_row(told: dict[str, Any]) -> None:
    seat: Any = ScriptedSeat(lambda length, plan: 0.25, lambda asked: told)
    player = Player(seat, Shape.of(T=5), 0)
    play([[player]], 1, partial(take, Timing()), "seed")
    row = timed_row(player.shape, "a", "hot", player, flops=1, held_out=False)
    assert (row.seconds_median, row.first_seconds) == (0.25, told.get("first_seconds"))


def turns_of(seat: ScriptedSeat) -> Counter[tuple[int, int]]:
    return Counter((t, plan) for op, t, plan in seat.asked if op == "time")


@pytest.mark.parametrize(
    ("stop_beyond", "quick", "behind"), [(None, 5, FEWEST_TURNS), (0.0, FEWEST_TURNS, 1)]
)
def test_who_is_clearly_behind_is_not_asked_again(stop_beyond: float | None, quick: int, behind: int) -> None:
    """The second plan takes T + 1: 11 % more and above up to T=9, 9 % and below from T=11. Slow programs
    leave after one turn if they are behind, and after three if they are not."""
    seat = ScriptedSeat(lambda length, plan: (length + plan) * 1e-3)
    timing = Timing(5, stop_beyond=stop_beyond)
    play(contests(seat, range(1, 15), 2), 5, partial(take, timing), "seed", partial(_playing_on, timing))
    for (length, plan), turns in turns_of(seat).items():
        assert turns == (behind if plan and length < 10 else quick), (length, plan)


def test_a_fall_ends_one_player_and_who_is_wrong_is_not_timed() -> None:
    def seconds(length: int, plan: int) -> float:
        if (length, plan) == (2, 1):
            raise MeasureError("the worker must stay alive", "signal 6")
        return 1.0

    def check(request: dict[str, Any]) -> dict[str, Any]:
        return {"correct": False, "reason": "an error"} if request["plan"] == 2 else {}

    seat = ScriptedSeat(seconds, check)
    players = contests(seat, range(1, 4), 3)
    play(players, 3, partial(take, Timing()), "seed")
    fallen = players[1][1]
    assert fallen.correct is None and "signal 6" in fallen.reason and not fallen.blocks
    for player in (p for rivals in players for p in rivals if p is not fallen):
        assert len(player.seconds("hot")) == (0 if player.plan == 2 else 3)
        assert player.correct is (player.plan != 2)


@pytest.mark.parametrize(
    ("cache", "seconds", "turn", "cached"),
    [
        ("hot", 1e-4, 0, False),
        ("rotating", 1e-4, 0, True),
        ("rotating", 1e-4, 1, True),
        ("rotating", 5e-3, 0, True),
        ("rotating", 5e-3, 1, False),
        ("rotating", 2e-2, 0, False),
    ],
)
def test_operands_in_cache_are_timed_beside_those_in_memory(
    cache: Any, seconds: float, turn: int, cached: bool
) -> None:
    """Long calls in the first turn only, slow programs never."""
    seat: Any = ScriptedSeat(lambda length, plan: seconds)
    player = Player(seat, Shape.of(T=5), 0, correct=True)
    timing = Timing(5, 0.002, stop_beyond=0.015, cache=cache)
    _take(timing, True, player, turn)
    states = [(request["cache"], request["min_seconds"]) for request in seat.requests]
    assert states == [(cache, 0.002), *[("interleaved", CACHED_SHARE * 0.002)] * cached]
    seat.requests.clear()
    _take(timing, False, player, turn)
    assert [request["cache"] for request in seat.requests] == [cache], "a GPU has no such state"
