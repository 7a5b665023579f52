"""Puzzles 8 to 10: an interval of a median, a step of evolutionary search, and a portfolio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import comb
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lab.puzzles.answers import TOLERANCE, WrongAnswer, close, kind, number, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Answer, Puzzle

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


def _wrong_interval(given: Given, found: Any, expected: tuple[float, float]) -> str:
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


def _ends(given: Given, value: Any) -> list[Point]:
    return [(len(given["samples"]), side, end) for side, end in zip(SIDES, _pair(value), strict=True)]


def _times(random: Random) -> list[float]:
    count = random.randint(2, 40)
    return [round(random.uniform(90, 130), 3) for _ in range(count)]


INTERVAL = Puzzle(
    name="interval",
    hints=(
        "Sort. The ends are `ordered[j - 1]` and `ordered[-j]`.",
        "Begin with `j = 1`, and raise it while the probability of the next `j` reaches the level.",
        "Stop where the ends would cross: `2 * j <= n` keeps them apart.",
    ),
    reference=_interval,
    arguments="samples level",
    tried=lambda random: (
        ([3.0, 1.0, 2.0, 5.0, 4.0, 6.0], LEVEL),
        ([2.0, 1.0, 3.0], LEVEL),
        ([7.0], LEVEL),
        ([float(value) for value in range(11)], LEVEL),
        *((_times(random), random.choice((0.8, 0.9, 0.95, 0.99))) for _ in range(100)),
    ),
    fault=_wrong_interval,
    shown=[([place / (count - 1) for place in range(count)], LEVEL) for count in range(2, 41)],
    picture=Picture(
        f"{LEVEL:.0%} interval of the median of samples from 0 to 1",
        "samples (count)",
        "ends of the interval (of the range)",
        _ends,
    ),
    praise="Below six samples no interval reaches 95 %: count your blocks before you trust a median.",
)


Schedule = tuple[int, ...]
KNOBS, SETTINGS, GENERATIONS = 4, 16, 16
"""Three counts: the numbers that make a schedule in this puzzle, the values of each, and the steps of the
picture."""


@dataclass(frozen=True)
class Evolved:
    """The populations after each step, and how often an answer called the model."""

    populations: tuple[tuple[Schedule, ...], ...]
    predictions: int


def predicted(schedule: Schedule) -> float:
    """Returns predicted microseconds: a bowl, plus a small part that differs between schedules."""
    bowl = sum((place + 1) * (value - 5 - place) ** 2 for place, value in enumerate(schedule))
    return 100.0 + bowl + Random(repr(schedule)).random() / 2


def _mutated(schedule: Schedule, seed: int) -> Schedule:
    """Returns a schedule with one number changed; equal arguments give the same result."""
    random, changed = Random(repr((schedule, seed))), list(schedule)
    place = random.randrange(len(changed))
    changed[place] = min(SETTINGS - 1, max(0, changed[place] + random.choice((-3, -2, -1, 1, 2, 3))))
    return tuple(changed)


def _evolve(
    population: list[Schedule],
    mutate: Callable[[Schedule], Schedule],
    predict: Callable[[Schedule], float],
    count: int,
) -> list[Schedule]:
    different = {*population, *map(mutate, population)}
    return sorted(different, key=predict)[:count]


def _run(answer: Answer, given: Given) -> Evolved:
    """Returns the populations after some steps of an answer; each step has other mutations."""
    calls, population, found = 0, list(given["population"]), []

    def predict(schedule: Schedule) -> float:
        nonlocal calls
        calls += 1
        return predicted(schedule)

    for step in range(given["steps"]):
        mutate = partial(_mutated, seed=given["seed"] + step)
        population = _as_population(answer(list(population), mutate, predict, given["count"]))
        if len(population) > given["count"]:  # it would double at every step
            raise WrongAnswer(f"expected at most {given['count']} schedules", len(population))
        found.append(tuple(population))
    return Evolved(tuple(found), calls)


def _as_population(found: Any) -> list[Schedule]:
    if not isinstance(found, (list, tuple)):
        raise WrongAnswer("expected a list of schedules", kind(found))
    for one in found:
        if not isinstance(one, tuple) or len(one) != KNOBS:
            raise WrongAnswer("expected schedules, as the population has them", kind(one))
    if not found:
        raise WrongAnswer("expected at least one schedule", "an empty list")
    return list(found)


def _wrong_population(given: Given, found: Evolved, expected: Evolved) -> str:
    pairs = zip(found.populations, expected.populations, strict=True)
    for step, (yours, wanted) in enumerate(pairs, start=1):
        where = f"after step {step} " if given["steps"] > 1 else ""
        if len(set(yours)) < len(yours):
            return f"{where}a schedule is in the list twice"
        if len(yours) != len(wanted):
            return f"{where}expected {len(wanted)} schedules, got {len(yours)}"
        if sorted(yours, key=predicted) != list(yours):
            return f"{where}expected the least predicted time first"
        if yours != wanted:
            best, got = predicted(wanted[-1]), predicted(yours[-1])
            return f"{where}expected the last one kept at {said(best)} us, got {said(got)} us"
    return ""


def _start(random: Random, size: int) -> list[Schedule]:
    return [tuple(random.randrange(SETTINGS) for _ in range(KNOBS)) for _ in range(size)]


def _searched(random: Random) -> tuple[list[Schedule], int, int, int]:
    size, count, steps = (random.randint(1, most) for most in (12, 12, 4))
    return _start(random, size), count, random.randrange(100), steps


def _bests(given: Given, value: Evolved) -> list[Point]:
    return [(step, "", min(map(predicted, kept))) for step, kept in enumerate(value.populations, start=1)]


def _questions(given: Given, value: Evolved) -> int:
    """Returns how often a right answer called the model; raises ``ValueError`` for a wrong answer, which gets
    no score.
    """
    if wrong := _wrong_population(given, value, _run(_evolve, given)):
        raise ValueError(wrong)
    return value.predictions


EVOLUTION = Puzzle(
    name="evolve",
    hints=(
        "Put parents and children into one set: what is twice goes away.",
        "`sorted(..., key=predict)` asks the model once for each.",
    ),
    reference=_evolve,
    arguments="population count seed steps",
    tried=lambda random: (
        (_start(Random(1), 4), 4, 0, 1),
        (_start(Random(2), 2), 8, 0, 1),
        (_start(Random(3), 3) * 2, 3, 0, 1),
        *(_searched(random) for _ in range(30)),
    ),
    fault=_wrong_population,
    shown=[(_start(Random(7), 8), 8, 5, GENERATIONS)],
    picture=Picture(
        "The best schedule of eight, step by step", "step (number)", "least predicted time (us)", _bests
    ),
    praise="The model does the trying, and the few survivors are worth a measurement.",
    run=_run,
    counts=("questions to the model", _questions),
)


Times = npt.NDArray[np.float64]
SMALL: Times = np.array(
    [[10.0, 22.0, 60.0, 140.0], [14.0, 20.0, 44.0, 90.0], [40.0, 42.0, 45.0, 80.0], [12.0, 30.0, 40.0, 88.0]]
)
"""The microseconds of four micro-kernels on four shapes: no micro-kernel is best on all."""


def mean_slowdown(times: Times, chosen: list[int]) -> float:
    """Returns the mean slowdown of a portfolio that has these micro-kernels alone."""
    return float((times / times.min(axis=0))[chosen].min(axis=0).mean())


def _greedy(times: Times, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [kernel for kernel in range(len(times)) if kernel not in chosen]
        chosen.append(min(left, key=lambda kernel: mean_slowdown(times, [*chosen, kernel])))
    return chosen


def _wrong_choice(given: Given, found: Any, expected: list[int]) -> str:
    chosen, times = whole_numbers(found, "a list of numbers of micro-kernels"), given["times"]
    if len(chosen) != given["count"]:
        return f"expected {given['count']} numbers of micro-kernels, got {said(chosen)}"
    if not all(0 <= kernel < len(times) for kernel in chosen):
        return f"expected numbers from 0 to {len(times) - 1}, got {said(chosen)}"
    if len(set(chosen)) < len(chosen):
        return f"expected different micro-kernels, got {said(chosen)}"
    for place, (yours, greedy) in enumerate(zip(chosen, expected, strict=True), start=1):
        if yours != greedy:
            means = [mean_slowdown(times, kept[:place]) for kept in (chosen, expected)]
            if means[0] <= means[1] * (1 + TOLERANCE):
                return f"choice {place}: of equals, expected the lower number, got {yours}"
            got = f"got {said(means[0])}, by {said(chosen[:place])}"
            return f"choice {place}: expected a mean slowdown of {said(means[1])}, {got}"
    return ""


def _drawn(random: Random) -> tuple[Times, int]:
    kernels, shapes = random.randint(1, 8), random.randint(1, 9)
    times = [[random.uniform(10, 400) for _ in range(shapes)] for _ in range(kernels)]
    return np.array(times), random.randint(1, kernels)


def _by_size(given: Given, value: Any) -> list[Point]:
    chosen = whole_numbers(value)
    return [(count, "", mean_slowdown(given["times"], chosen[:count])) for count in range(1, len(chosen) + 1)]


def _last(given: Given, value: Any) -> float:
    chosen = whole_numbers(value)
    if len(set(chosen)) != given["count"]:
        raise WrongAnswer(f"expected {given['count']} different micro-kernels", said(chosen))
    return fmean(value for _, _, value in _by_size(given, chosen))


PORTFOLIO = Puzzle(
    name="portfolio",
    hints=(
        "Divide once: `times / times.min(axis=0)`. Microseconds would let long calls decide.",
        "Keep the best slowdown so far on each shape; `np.minimum` with all rows tries every candidate.",
        "Set the means of those chosen to infinity, then `argmin`.",
    ),
    reference=_greedy,
    arguments="times count",
    tried=lambda random: (
        *((SMALL, count) for count in (1, 2, 3, 4)),
        *(_drawn(random) for _ in range(100)),
    ),
    fault=_wrong_choice,
    shown=[(SMALL, 4)],
    picture=Picture(
        "Four micro-kernels on four shapes", "micro-kernels chosen (count)", "mean slowdown (ratio)", _by_size
    ),
    praise="choose_portfolio does this with weights and then exchanges members as long as that helps.",
    counts=("mean slowdown over all sizes", _last),
)
