"""Puzzle 6: cover rows exactly, with tiles of nearly equal height."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from dietlab.lab.puzzles.answers import said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle
from dietlab.scheme import Scheme, plan_for
from dietlab.targets.cpu.kernel import CpuMicroKernel

ROWS = 14
COLS = 16
"""Any width: heights do not depend on it."""


def _heights(T: int, rows: int) -> list[int]:
    plan = plan_for(Scheme(CpuMicroKernel(rows, COLS), "even"), T)
    return [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]


def _fault(given: Given, found: Any, expected: list[int]) -> str:
    """Returns which property fails: the right list would be the solution."""
    tiles, rows = whole_numbers(found, "a list of heights"), given["rows"]
    got = f", got {said(tiles)}"
    if sum(tiles) != given["T"]:
        return f"the heights add up to {sum(tiles)}, expected {given['T']}{got}"
    if any(not 1 <= height <= rows for height in tiles):
        return f"expected heights from 1 to {rows}{got}"
    if len(tiles) > len(expected):
        return f"{len(tiles)} tiles, expected fewer: {len(expected)} are enough{got}"
    if max(tiles, default=0) - min(tiles, default=0) > 1:
        return f"expected heights that differ by at most one{got}"
    return "" if tiles == expected else f"expected the tallest first{got}"


def _cases(random: Random) -> Iterator[Given]:
    for length, rows in ((31, 14), (28, 14), (1, 8), (8, 8), (9, 8), (0, 8)):
        yield {"T": length, "rows": rows}
    for _ in range(200):
        yield {"T": random.randint(1, 300), "rows": random.randint(1, 32)}


def _points(given: Given, value: Any) -> list[Point]:
    return [(given["T"], "", height) for height in whole_numbers(value)]


HEIGHTS = Puzzle(
    title="Nothing sticks out",
    name="heights",
    statement=(
        "Composition covers `T` rows exactly: with as few tiles as possible, none of them higher than "
        "`rows`, and with heights that differ by at most one. Write `heights(T, rows)`: which heights does "
        "it take?"
    ),
    gets="`T` and the greatest height, `rows`.",
    returns="the list of heights, tallest first; empty for `T = 0`.",
    example="heights(11, 4) == [4, 4, 3]",
    lines=4,
    minutes=10,
    lesson="01_dynamic_shapes_and_padding.ipynb",
    hints=(
        "There are as many tiles as with padding.",
        "`divmod(T, tiles)` gives the lower height, and how many tiles are one row taller.",
        "Lists multiply: `[2] * 3 == [2, 2, 2]`.",
    ),
    reference=_heights,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"T": length, "rows": ROWS} for length in range(1, 43)],
    picture=Picture(f"Heights of at most {ROWS} rows", "T (rows)", "rows covered (count)", _points, "bars"),
    praise="This is the edge 'even' of a plan: no padding, for the price of a few more micro-kernels.",
)
