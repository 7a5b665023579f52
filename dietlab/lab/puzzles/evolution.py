"""Puzzle 9: a step of evolutionary search, guided by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from dietlab.lab.puzzles.answers import WrongAnswer, kind, said
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Answer, Puzzle

Schedule = tuple[int, ...]
KNOBS, SETTINGS = 4, 16
"""Of a schedule in this puzzle: numbers, and values of each."""

GENERATIONS = 16
"""Of the picture: enough for eight schedules to come near the best one."""


@dataclass(frozen=True)
class Evolved:
    """The populations after each step, and how often an answer asked the model."""

    populations: tuple[tuple[Schedule, ...], ...]
    predictions: int


def predicted(schedule: Schedule) -> float:
    """Returns microseconds that a model predicts: a bowl, with a small share that no two schedules have in
    common."""
    bowl = sum((place + 1) * (value - 5 - place) ** 2 for place, value in enumerate(schedule))
    return 100.0 + bowl + Random(repr(schedule)).random() / 2


def _mutated(schedule: Schedule, seed: int) -> Schedule:
    """Returns a schedule with one number changed; the same one each time it is asked for."""
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
    """Returns what some steps of an answer give, each with other mutations."""
    asked, population, found = 0, list(given["population"]), []

    def predict(schedule: Schedule) -> float:
        nonlocal asked
        asked += 1
        return predicted(schedule)

    for step in range(given["steps"]):
        population = _as_population(
            answer(
                list(population),
                lambda one, step=step: _mutated(one, given["seed"] + step),
                predict,
                given["count"],
            )
        )
        if len(population) > given["count"]:  # it would double at every step
            raise WrongAnswer(f"expected at most {given['count']} schedules", len(population))
        found.append(tuple(population))
    return Evolved(tuple(found), asked)


def _as_population(found: Any) -> list[Schedule]:
    if not isinstance(found, (list, tuple)):
        raise WrongAnswer("expected a list of schedules", kind(found))
    for one in found:
        if not isinstance(one, tuple) or len(one) != KNOBS:
            raise WrongAnswer("expected schedules, as the population has them", kind(one))
    if not found:
        raise WrongAnswer("expected at least one schedule", "an empty list")
    return list(found)


def _fault(given: Given, found: Evolved, expected: Evolved) -> str:
    for step, (yours, wanted) in enumerate(
        zip(found.populations, expected.populations, strict=True), start=1
    ):
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


def _cases(random: Random) -> Iterator[Given]:
    yield {"population": _start(Random(1), 4), "count": 4, "seed": 0, "steps": 1}
    yield {"population": _start(Random(2), 2), "count": 8, "seed": 0, "steps": 1}
    yield {"population": _start(Random(3), 3) * 2, "count": 3, "seed": 0, "steps": 1}
    for _ in range(30):
        size, count, steps = random.randint(1, 12), random.randint(1, 12), random.randint(1, 4)
        yield {
            "population": _start(random, size),
            "count": count,
            "seed": random.randrange(100),
            "steps": steps,
        }


def _points(given: Given, value: Evolved) -> list[Point]:
    return [(step, "", min(map(predicted, kept))) for step, kept in enumerate(value.populations, start=1)]


def _questions(given: Given, value: Evolved) -> int:
    """Returns how often a right answer asked the model; another one has no score."""
    if wrong := _fault(given, value, _run(_evolve, given)):
        raise ValueError(wrong)
    return value.predictions


EVOLUTION = Puzzle(
    title="Survival of the predicted",
    name="evolve",
    statement=(
        "Ansor searches by evolution: it changes schedules at random, asks a cost model, which costs far "
        "less than measuring, and keeps the best. Write `evolve(population, mutate, predict, count)`, one "
        "step: each schedule of the population has one child, `mutate(schedule)`; of parents and children "
        "together, the `count` different schedules with the least predicted time survive. `check` runs "
        "several steps, and the score counts how often the model is asked."
    ),
    gets=(
        "a list of schedules (tuples of numbers), the functions `mutate`, to a schedule, and `predict`, to "
        "microseconds, and `count`."
    ),
    returns="the list of survivors, least predicted time first, none twice; all of them if there are fewer.",
    example="evolve([(9,)], lambda s: (s[0] - 1,), sum, 1) == [(8,)]",
    lines=2,
    minutes=10,
    lesson="05_joint_search.ipynb",
    hints=(
        "Put parents and children into one set: what is twice goes away.",
        "`sorted(..., key=predict)` asks the model once for each.",
    ),
    reference=_evolve,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"population": _start(Random(7), 8), "count": 8, "seed": 5, "steps": GENERATIONS}],
    picture=Picture(
        "The best schedule of eight, step by step", "step (number)", "least predicted time (us)", _points
    ),
    praise="The model does the trying, and the few survivors are worth a measurement.",
    run=_run,
    counts=("questions to the model", _questions),
)
