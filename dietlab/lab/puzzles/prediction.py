"""Puzzle 3: one measurement tells the time of every shape."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dietlab.lab.puzzles.answers import number, same_number
from dietlab.lab.puzzles.pictures import Given, Picture, at
from dietlab.lab.puzzles.puzzle import Puzzle

MEASURED, MICROSECONDS, ROWS = 16, 500.0, 8


def _predict(T: int, rows: int, measured_T: int, us: float) -> float:
    return us * -(-T // rows) / -(-measured_T // rows)


def _cases(random: Random) -> Iterator[Given]:
    for length, rows, measured in ((32, 8, 16), (17, 8, 16), (8, 8, 16), (1, 8, 16), (16, 8, 9)):
        yield {"T": length, "rows": rows, "measured_T": measured, "us": 500.0}
    for _ in range(200):
        yield {
            "T": random.randint(1, 256),
            "rows": random.randint(1, 16),
            "measured_T": random.randint(1, 256),
            "us": round(random.uniform(10, 4000), 1),
        }


PREDICTION = Puzzle(
    title="One measurement, every shape",
    name="predict",
    statement=(
        "Every tile of a padded micro-kernel costs the same time, whether its rows are needed or not, and "
        "nothing else costs any. One length was measured. Write `predict(T, rows, measured_T, us)`: how long "
        "does it take on `T` rows?"
    ),
    gets="`T`, the `rows` of a tile, and the measurement: `us` microseconds on `measured_T` rows.",
    returns="microseconds.",
    example="predict(17, 8, 16, 500.0) == 750.0",
    lines=2,
    minutes=5,
    lesson="04_cost_model.ipynb",
    hints=(
        "The time grows in steps, not in proportion to `T`.",
        "How long does one tile take, and how many are there?",
    ),
    reference=_predict,
    cases=_cases,
    fault=lambda given, found, expected: same_number(found, expected),
    samples=lambda: [
        {"T": length, "rows": ROWS, "measured_T": MEASURED, "us": MICROSECONDS} for length in range(1, 41)
    ],
    picture=Picture(
        f"Tiles of {ROWS} rows, measured at T = {MEASURED} (grey)",
        "T (rows)",
        "time (us)",
        at("T", number),
        context=lambda given: [(MEASURED, "measured", MICROSECONDS)] if given["T"] == 1 else [],
    ),
    praise="The adaptation cost divides out: that is why the joint search measures a candidate once.",
)
