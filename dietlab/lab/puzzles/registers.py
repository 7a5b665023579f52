"""Puzzle 5: the register tile with the most work for each load."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from dietlab.lab.puzzles.answers import TOLERANCE, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle
from dietlab.targets.cpu.kernel import CpuMicroKernel

LEAST, MOST = 3, 64
"""Registers: a tile of one vector takes three, and 64 are twice what AVX-512 has."""

Tile = tuple[int, int]


def used(tile: Tile) -> int:
    """Returns the vector registers of a tile: accumulators, one step's weights and one input."""
    rows, vectors = tile
    return CpuMicroKernel(rows, vectors).registers(lanes=1)


def work(tile: Tile) -> float:
    """Returns the multiply-adds of vectors for each load: a step loads ``vectors`` weights and ``rows``
    inputs."""
    rows, vectors = tile
    return rows * vectors / (rows + vectors)


@cache
def _tile(registers: int) -> Tile:
    sizes = range(1, registers)
    return max(
        ((rows, vectors) for rows in sizes for vectors in sizes if used((rows, vectors)) <= registers),
        key=work,
    )


def _as_tile(given: Given, found: Any) -> Tile:
    """Returns an answer as a tile that fits.

    Raises:
        WrongAnswer: if it is no pair.
        ValueError: if it does not fit.
    """
    sizes = whole_numbers(found, "a pair (rows, vectors)")
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(f"expected a pair of positive numbers, got {said(tuple(sizes))}")
    tile = (sizes[0], sizes[1])
    if used(tile) > given["registers"]:
        raise ValueError(
            f"{tile[0]} x {tile[1]} takes {used(tile)} registers, expected at most {given['registers']}"
        )
    return tile


def _fault(given: Given, found: Any, expected: Tile) -> str:
    try:
        tile = _as_tile(given, found)
    except ValueError as error:
        return str(error)
    if work(tile) >= work(expected) * (1 - TOLERANCE):
        return ""
    return f"expected {said(work(expected))} multiply-adds a load, got {said(work(tile))}, by {said(tile)}"


def _cases(random: Random) -> Iterator[Given]:
    for registers in (3, 4, 8, 16, 32, *random.sample(range(LEAST, MOST + 1), 12)):
        yield {"registers": registers}


def _points(given: Given, value: Any) -> list[Point]:
    return [(given["registers"], "", work(_as_tile(given, value)))]


REGISTERS = Puzzle(
    title="Registers of a tile",
    name="tile",
    statement=(
        "A tile of `rows x vectors` keeps `rows * vectors` sums in vector registers. In each step it also "
        "holds `vectors` registers of weights and 1 register with an input. A step loads `vectors + rows` "
        "values and makes `rows * vectors` multiply-adds. Write `tile(registers)`: which tile fits and makes "
        "the most multiply-adds for each load?"
    ),
    gets="the number of vector `registers`, 3 or more.",
    returns="the pair `(rows, vectors)`; of equals, any.",
    example="tile(32) == (5, 5)",
    lines=5,
    minutes=10,
    lesson="02_search_space.ipynb",
    hints=(
        "Which pairs fit? `rows * vectors + vectors + 1 <= registers`.",
        "For each number of vectors only the tallest tile that fits matters.",
        "Try all pairs, and let `max` with a `key` choose.",
    ),
    reference=_tile,
    cases=_cases,
    fault=_fault,
    samples=lambda: [{"registers": registers} for registers in range(LEAST, 41)],
    picture=Picture(
        "The best tile by registers", "vector registers (count)", "multiply-adds a load (count)", _points
    ),
    praise="AVX2 has 16 registers and AVX-512 has 32: this is why their best tiles differ.",
    counts=(
        "multiply-adds a load in all (more is better)",
        lambda given, value: work(_as_tile(given, value)),
    ),
)
