"""Puzzle 4: where an element of the weights lies in the packed layout."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dietlab.lab.puzzles.answers import number, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

COLS, DEPTH, LANES = 8, 4, 4
"""Of the weights in the picture: two panels, small enough to label each element."""


def _place(n: int, k: int, K: int, lanes: int) -> int:
    panel, column = divmod(n, lanes)
    return (panel * K + k) * lanes + column


def _fault(given: Given, found: object, expected: int) -> str:
    number(found)
    (place,) = whole_numbers([found], "a whole number")
    if place == expected:
        return ""
    panel = given["K"] * given["lanes"]
    if place // panel != expected // panel:
        return (
            f"expected a place in panel {expected // panel}, got {place}, which is in panel {place // panel}"
        )
    step, column = divmod(place % panel, given["lanes"])
    where = f"step {step}, column {column} of panel {place // panel}"
    return f"expected another place in this panel, got {place}, which is {where}"


def _cases(random: Random) -> Iterator[Given]:
    for n, k in ((0, 0), (3, 0), (0, 1), (2, 3), (4, 0), (7, 3)):
        yield {"n": n, "k": k, "K": DEPTH, "lanes": LANES}
    for _ in range(200):
        depth, lanes = random.randint(1, 768), random.choice((4, 8, 16))
        yield {"n": random.randint(0, 2303), "k": random.randrange(depth), "K": depth, "lanes": lanes}


def _points(given: Given, value: object) -> list[Point]:
    return [(given["k"], given["n"], number(value))]


PACKING = Puzzle(
    title="Packed weights",
    name="place",
    statement=(
        "Weights `w[n][k]` are packed so that a micro-kernel reads them one after another. Panels of `lanes` "
        "columns `n` follow each other; within a panel, step `k = 0` of all its columns comes first, then "
        "`k = 1`, and so on. Write `place(n, k, K, lanes)`: how many elements lie before `w[n][k]`?"
    ),
    gets="`n` and `k` of an element, the depth `K`, and the `lanes` of a panel.",
    returns="a whole number.",
    example="place(5, 2, 4, 4) == 25",
    lines=2,
    minutes=10,
    lesson="02_search_space.ipynb",
    hints=(
        "In which panel is column `n`, and which column of that panel is it? `divmod` says both.",
        "A panel before it holds `K * lanes` elements.",
        "A step before it, in the same panel, holds `lanes`.",
    ),
    reference=_place,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"n": n, "k": k, "K": DEPTH, "lanes": LANES} for n in range(COLS) for k in range(DEPTH)],
    picture=Picture(
        f"Places of w[n][k], K = {DEPTH}, panels of {LANES} columns", "k", "n", _points, "grid", "place"
    ),
    praise="A vector load of a step's weights is one line of a panel, and the prefetcher sees one stream.",
)
