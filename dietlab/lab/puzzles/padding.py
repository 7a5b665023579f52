"""Puzzle 1: what share of the work is padding."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dietlab.cost import padding_waste
from dietlab.lab.puzzles.answers import number, same_number
from dietlab.lab.puzzles.pictures import Given, Picture, at
from dietlab.lab.puzzles.puzzle import Puzzle

ROWS = 8


def _waste(T: int, rows: int) -> float:
    return padding_waste({"rows": T}, {"rows": rows})


def _cases(random: Random) -> Iterator[Given]:
    for length, rows in ((15, 14), (14, 14), (1, 14), (27, 14), (9, 1), (0, 8)):
        yield {"T": length, "rows": rows}
    for _ in range(200):
        yield {"T": random.randint(1, 2048), "rows": random.randint(1, 32)}


PADDING = Puzzle(
    title="Padding waste",
    name="waste",
    statement=(
        "Tiles of a fixed number of rows cover `T` rows of the output; the last one may stick out. Write "
        "`waste(T, rows)`: which share of the multiply-adds computes rows that no output needs?"
    ),
    gets="`T`, the rows of the output, and `rows`, those of a tile.",
    returns="a number from 0 up to 1: 0 where nothing sticks out, and 0 for `T = 0`.",
    example="waste(28, 16) == 0.125",
    lines=2,
    minutes=5,
    lesson="01_dynamic_shapes_and_padding.ipynb",
    hints=(
        "How many whole tiles does it take? The last one is paid in full.",
        "`-(-a // b)` is `a / b`, rounded up.",
        "One minus the needed over the computed rows; guard the case without rows.",
    ),
    reference=_waste,
    cases=_cases,
    fault=lambda given, found, expected: same_number(found, expected),
    samples=lambda: [{"T": length, "rows": ROWS} for length in range(1, 41)],
    picture=Picture(f"Waste of tiles of {ROWS} rows", "T (rows)", "waste (share)", at("T", number)),
    praise="This is 1 - f_pad of the cost model: arithmetic, known before anything is measured.",
)
