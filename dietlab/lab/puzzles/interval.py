"""Puzzle 8: an interval of the median, by counting."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from random import Random
from typing import Any

from dietlab.lab.puzzles.answers import WrongAnswer, close, kind, number, said
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

LEVEL = 0.95
SIDES = ("lower", "upper")


def _interval(samples: list[float], level: float) -> tuple[float, float]:
    ordered, count = sorted(samples), len(samples)
    inward, outside = 0, 1  # how far from both ends; arrangements of coin tosses beyond one end
    while 2 * (inward + 1) < count and 1 - 2 * (outside + comb(count, inward + 1)) / 2**count >= level:
        inward += 1
        outside += comb(count, inward)
    return ordered[inward], ordered[-1 - inward]


def _pair(found: Any) -> tuple[float, float]:
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise WrongAnswer("expected a pair (low, high)", kind(found))
    return number(found[0]), number(found[1])


def _fault(given: Given, found: Any, expected: tuple[float, float]) -> str:
    low, high = _pair(found)
    got = f"got {said((low, high))}"
    if any(all(not close(end, sample) for sample in given["samples"]) for end in (low, high)):
        return f"expected two of the samples, {got}"
    if close(low, expected[0]) and close(high, expected[1]):
        return ""
    if low < expected[0] and high > expected[1]:
        return f"expected a narrower interval, {got}: a narrower one reaches the level, too"
    if low > expected[0] and high < expected[1]:
        return f"expected a wider interval, {got}, which does not reach the level"
    return f"expected ends as far from the least sample as from the greatest, {got}"


def _cases(random: Random) -> Iterator[Given]:
    yield {"samples": [3.0, 1.0, 2.0, 5.0, 4.0, 6.0], "level": LEVEL}
    yield {"samples": [2.0, 1.0, 3.0], "level": LEVEL}
    yield {"samples": [7.0], "level": LEVEL}
    yield {"samples": [float(value) for value in range(11)], "level": LEVEL}
    for _ in range(100):
        count = random.randint(2, 40)
        samples = [round(random.uniform(90, 130), 3) for _ in range(count)]
        yield {"samples": samples, "level": random.choice((0.8, 0.9, 0.95, 0.99))}


def _samples() -> list[Given]:
    return [
        {"samples": [place / (count - 1) for place in range(count)], "level": LEVEL} for count in range(2, 41)
    ]


def _points(given: Given, value: Any) -> list[Point]:
    return [(len(given["samples"]), side, end) for side, end in zip(SIDES, _pair(value), strict=True)]


INTERVAL = Puzzle(
    title="The interval of a median",
    name="interval",
    statement=(
        "Each of n independent times lies below the true median with probability 1/2, as a coin falls. So "
        "the interval from the `j`-th least to the `j`-th greatest of them misses the median only if fewer "
        "than `j` coins show heads, or fewer than `j` show tails: it holds the median with probability `1 - "
        "2 * sum(comb(n, i) for i in range(j)) / 2**n`, whatever the distribution. Write `interval(samples, "
        "level)`: the narrowest such interval that reaches the level."
    ),
    gets="`samples`, one time or more, in any order, and the `level`, such as 0.95.",
    returns=(
        "the pair `(low, high)`, two of the samples; the least and the greatest if no `j` reaches the level."
    ),
    example="interval([3, 1, 2, 5, 4, 6], 0.95) == (1, 6)",
    lines=6,
    minutes=15,
    lesson="03_measurement.ipynb",
    hints=(
        "Sort. The ends are `ordered[j - 1]` and `ordered[-j]`.",
        "Begin with `j = 1`, and raise it while the probability of the next `j` reaches the level.",
        "Stop where the ends would cross: `2 * j <= n` keeps them apart.",
    ),
    reference=_interval,
    cases=_cases,
    fault=_fault,
    samples=_samples,
    picture=Picture(
        f"{LEVEL:.0%} interval of the median of samples from 0 to 1",
        "samples (count)",
        "ends of the interval (of the range)",
        _points,
    ),
    praise="Below six samples no interval reaches 95 %: count your blocks before you trust a median.",
)
