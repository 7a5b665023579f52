"""Puzzle 12: one split of a decision tree, by time lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lab.puzzles.answers import TOLERANCE, WrongAnswer, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

Losses = npt.NDArray[np.float64]
Split = tuple[int, int, int]
"""``(at_most, low, high)``: plan ``low`` where ``T <= at_most``, else plan ``high``."""

TRAP: Losses = np.array([[0.0, 3.0]] * 4 + [[90.0, 0.0]] * 2 + [[0.0, 2.0]] * 6 + [[60.0, 0.0]] * 2)
"""Plan 0 wins on ten of fourteen lengths, and loses much on the other four."""


def lost(losses: Losses, split: Split) -> float:
    """Returns the microseconds that a split loses over all lengths ``T = 1 .. len(losses)``."""
    at_most, low, high = split
    return float(losses[:at_most, low].sum() + losses[at_most:, high].sum())


def _best(losses: Losses) -> Split:
    lengths, plans = losses.shape
    splits = product(range(lengths + 1), range(plans), range(plans))
    return min(splits, key=lambda split: lost(losses, split))


def _fault(given: Given, found: Any, expected: Split) -> str:
    split = _as_split(given, found)
    spent, least = lost(given["losses"], split), lost(given["losses"], expected)
    if spent <= least * (1 + TOLERANCE) + TOLERANCE:
        return ""
    return f"expected to lose {said(least)} us, got {said(split)}, which loses {said(spent)} us"


def _as_split(given: Given, found: Any) -> Split:
    """Returns an answer that is a split of this table.

    Raises:
        WrongAnswer: if it is none.
    """
    values, (lengths, plans) = whole_numbers(found, "(at_most, low, high)"), given["losses"].shape
    if len(values) == 3:
        at_most, low, high = values
        if 0 <= at_most <= lengths and 0 <= low < plans and 0 <= high < plans:
            return (at_most, low, high)
    raise WrongAnswer("expected (at_most, low, high) within the table", said(tuple(values)))


def _cases(random: Random) -> Iterator[Given]:
    yield {"losses": TRAP}
    yield {"losses": np.array([[0.0, 5.0], [0.0, 5.0], [5.0, 0.0]])}
    yield {"losses": np.array([[0.0, 1.0]] * 3)}
    yield {"losses": np.array([[4.0, 0.0, 9.0], [0.0, 3.0, 9.0]])}
    for _ in range(60):
        lengths, plans = random.randint(1, 24), random.randint(2, 4)
        times = np.array([[random.uniform(50, 200) for _ in range(plans)] for _ in range(lengths)])
        yield {"losses": times - times.min(axis=1, keepdims=True)}


def _points(given: Given, value: Any) -> list[Point]:
    at_most, low, high = _as_split(given, value)
    served = enumerate(given["losses"], start=1)
    return [(T, "", float(row[low if at_most >= T else high])) for T, row in served]


def _plans(given: Given) -> list[Point]:
    table = enumerate(given["losses"], start=1)
    return [(T, f"plan {plan}", float(value)) for T, row in table for plan, value in enumerate(row)]


SPLIT = Puzzle(
    title="One split by time lost",
    name="split",
    statement=(
        "`losses[T - 1][plan]` has the microseconds that a plan loses on `T` against the best plan there, "
        "for `T = 1, 2, 3` and so on. In the picture plan 0 is the better one on most lengths: being right "
        "often is not the aim. Write `split(losses)`: the rule that loses least in total, where plan `low` "
        "serves every `T <= at_most` and plan `high` all others."
    ),
    gets="the array `losses[T - 1][plan]`.",
    returns="`(at_most, low, high)`, with `at_most = 0` if plan `low` serves none; of equals, any.",
    example="split(np.array([[0.0, 5.0], [0.0, 5.0], [5.0, 0.0]])) == (2, 0, 1)",
    lines=5,
    minutes=15,
    lesson="06_dispatch.ipynb",
    hints=(
        "How much does one rule lose? The sum of two parts of two columns.",
        "Thresholds run from 0 to the number of lengths, both included.",
        "`min` over `itertools.product` of thresholds, plans and plans, by what each loses.",
    ),
    reference=_best,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"losses": TRAP}],
    picture=Picture("What the rule loses", "T (rows)", "time lost (us)", _points, context=_plans),
    praise="train_dispatcher finds all splits at once by dynamic programming, with the same measure.",
    counts=("time lost (us)", lambda given, value: lost(given["losses"], _as_split(given, value))),
)
