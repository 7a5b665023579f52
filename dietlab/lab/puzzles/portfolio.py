"""Puzzle 10: a portfolio, greedily."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lab.puzzles.answers import TOLERANCE, WrongAnswer, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

Times = npt.NDArray[np.float64]
SMALL: Times = np.array(
    [[10.0, 22.0, 60.0, 140.0], [14.0, 20.0, 44.0, 90.0], [40.0, 42.0, 45.0, 80.0], [12.0, 30.0, 40.0, 88.0]]
)
"""Microseconds of four micro-kernels on four shapes: no micro-kernel is best on all."""


def slowdowns(times: Times) -> Times:
    """Returns the slowdown: time over the least time of any micro-kernel on the shape, ``[micro-kernels,
    shapes]``."""
    table: Times = times / times.min(axis=0)
    return table


def mean_slowdown(times: Times, chosen: list[int]) -> float:
    """Returns the mean slowdown of a portfolio that has these micro-kernels alone."""
    return float(slowdowns(times)[chosen].min(axis=0).mean())


def _greedy(times: Times, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [kernel for kernel in range(len(times)) if kernel not in chosen]
        chosen.append(min(left, key=lambda kernel: mean_slowdown(times, [*chosen, kernel])))
    return chosen


def _fault(given: Given, found: Any, expected: list[int]) -> str:
    chosen, times = whole_numbers(found, "a list of numbers of micro-kernels"), given["times"]
    if len(chosen) != given["count"]:
        return f"expected numbers of micro-kernels, as many as count; got {said(chosen)}"
    if not all(0 <= kernel < len(times) for kernel in chosen):
        return f"expected numbers from 0 to {len(times) - 1}, got {said(chosen)}"
    if len(set(chosen)) < len(chosen):
        return f"expected different micro-kernels, got {said(chosen)}"
    for place, (yours, greedy) in enumerate(zip(chosen, expected, strict=True), start=1):
        if yours != greedy:
            means = [mean_slowdown(times, kept[:place]) for kept in (chosen, expected)]
            if means[0] <= means[1] * (1 + TOLERANCE):
                return f"choice {place}: of equals, expected the lower number, got {yours}"
            return (
                f"choice {place}: expected a mean slowdown of {said(means[1])}, got {said(means[0])}, "
                f"by {said(chosen[:place])}"
            )
    return ""


def _cases(random: Random) -> Iterator[Given]:
    for count in (1, 2, 3, 4):
        yield {"times": SMALL, "count": count}
    for _ in range(100):
        kernels, shapes = random.randint(1, 8), random.randint(1, 9)
        times = [[random.uniform(10, 400) for _ in range(shapes)] for _ in range(kernels)]
        yield {"times": np.array(times), "count": random.randint(1, kernels)}


def _points(given: Given, value: Any) -> list[Point]:
    chosen = whole_numbers(value)
    return [(count, "", mean_slowdown(given["times"], chosen[:count])) for count in range(1, len(chosen) + 1)]


def _last(given: Given, value: Any) -> float:
    chosen = whole_numbers(value)
    if len(set(chosen)) != given["count"]:
        raise WrongAnswer("expected different micro-kernels, as many as count", said(chosen))
    return sum(mean_slowdown(given["times"], chosen[: count + 1]) for count in range(len(chosen))) / len(
        chosen
    )


PORTFOLIO = Puzzle(
    title="Greedy portfolio",
    name="portfolio",
    statement=(
        "The slowdown of a portfolio on a shape is the time of its best micro-kernel there over the time of "
        "the best of all. A greedy choice takes one micro-kernel after another: each time the one that makes "
        "the mean slowdown over all shapes least. Write `portfolio(times, count)`."
    ),
    gets="the array `times[micro-kernel][shape]` in microseconds, and how many to choose, `count`.",
    returns=(
        "the numbers of the micro-kernels in the order in which they are taken; of equals the lower number."
    ),
    example="list(portfolio(np.array([[1.0, 9.0], [2.0, 2.0], [9.0, 1.0]]), 2)) == [1, 0]",
    lines=7,
    minutes=20,
    lesson="06_dispatch.ipynb",
    hints=(
        "Divide once: `times / times.min(axis=0)`. Microseconds would let long calls decide.",
        "Keep the best slowdown so far on each shape; `np.minimum` with all rows tries every candidate.",
        "Set the means of those chosen to infinity, then `argmin`.",
    ),
    reference=_greedy,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"times": SMALL, "count": 4}],
    picture=Picture(
        "Four micro-kernels on four shapes", "micro-kernels chosen (count)", "mean slowdown (ratio)", _points
    ),
    praise="choose_portfolio does this with weights and then exchanges members as long as that helps.",
    counts=("mean slowdown over all sizes", _last),
)
