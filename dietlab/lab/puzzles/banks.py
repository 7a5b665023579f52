"""Puzzle 7: bank conflicts of a warp's reads from shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dietlab.lab.puzzles.answers import number, same_number
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle

BANKS, THREADS = 32, 32
"""Of shared memory, and of a warp (CUDA C Programming Guide, shared memory)."""


def _passes(words: list[int]) -> int:
    return max(sum(word % BANKS == bank for word in set(words)) for bank in range(BANKS))


def _strided(stride: int) -> Given:
    return {"words": [thread * stride for thread in range(THREADS)]}


def _cases(random: Random) -> Iterator[Given]:
    for stride in (1, 2, 32, 33, 0, 8):
        yield _strided(stride)
    yield {"words": [thread % 2 * 32 for thread in range(THREADS)]}
    for _ in range(60):
        most = random.choice((16, 64, 1024))
        yield {"words": [random.randrange(most) for _ in range(THREADS)]}


def _points(given: Given, value: object) -> list[Point]:
    return [(given["words"][1], "", number(value))]


BANK_CONFLICTS = Puzzle(
    title="Bank conflicts",
    name="passes",
    statement=(
        "The threads of a warp each read a word of shared memory. Word `a` lies in bank `a % 32`. In one "
        "pass every bank hands out one word, to all threads that want it. Write `passes(words)`: how many "
        "passes does the read take?"
    ),
    gets="`words`, the numbers of the 32 words that the threads read.",
    returns="a whole number of passes.",
    example="passes([0, 32, 64, 1, 1, 1]) == 3",
    lines=2,
    minutes=10,
    lesson="10_cuda.ipynb",
    hints=(
        "Threads that want the same word share a pass: count each word once.",
        "Which bank has the most different words? It needs the most passes.",
        "`Counter(word % 32 for word in set(words))` counts them by bank.",
    ),
    reference=_passes,
    cases=_cases,
    fault=lambda given, found, expected: same_number(found, expected),
    samples=lambda: [_strided(stride) for stride in range(0, 41)],
    picture=Picture(
        "Thread t reads word t * stride", "stride (words)", "passes of shared memory (count)", _points
    ),
    praise="A stride of 33 costs what a stride of 1 costs: lines in shared memory are padded for this.",
)
