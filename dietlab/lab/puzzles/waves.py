"""Puzzle 2: wave quantisation, or what share of the cores' time is idle."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dietlab.cost import f_occ
from dietlab.lab.puzzles.answers import number, same_number
from dietlab.lab.puzzles.pictures import Given, Picture, at
from dietlab.lab.puzzles.puzzle import Puzzle

CORES = 4


def _idle(tiles: int, cores: int) -> float:
    return 1.0 - f_occ(tiles, cores)


def _cases(random: Random) -> Iterator[Given]:
    for tiles, cores in ((13, 4), (4, 4), (1, 108), (109, 108), (5, 1), (0, 4)):
        yield {"tiles": tiles, "cores": cores}
    for _ in range(200):
        yield {"tiles": random.randint(1, 1000), "cores": random.randint(1, 132)}


WAVES = Puzzle(
    title="Wave quantisation",
    name="idle",
    statement=(
        "Equal tiles are dealt to cores. A core computes one tile at a time, so a call takes whole waves: "
        "thirteen tiles on four cores take as long as sixteen. Write `idle(tiles, cores)`: which share of "
        "the cores' time do they wait?"
    ),
    gets="the numbers of `tiles` and of `cores`.",
    returns="a number from 0 up to 1, and 0 without tiles.",
    example="idle(13, 4) == 0.1875",
    lines=2,
    minutes=5,
    lesson="10_cuda.ipynb",
    hints=(
        "How many waves are there? Each is paid by all cores.",
        "It is the first puzzle again, with cores in the place of rows.",
    ),
    reference=_idle,
    cases=_cases,
    fault=lambda given, found, expected: same_number(found, expected),
    samples=lambda: [{"tiles": tiles, "cores": CORES} for tiles in range(1, 33)],
    picture=Picture(f"Idle time on {CORES} cores", "tiles (count)", "idle time (share)", at("tiles", number)),
    praise="This is 1 - f_occ with the paper's g / G: one tile more than fits costs a whole wave.",
)
