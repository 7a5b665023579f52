"""Puzzles 1 to 7: arithmetic of tiles, cores, panels, registers and banks."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from dietlab.cost import f_occ, padding_waste
from dietlab.lab.puzzles.answers import TOLERANCE, number, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture
from dietlab.lab.puzzles.puzzle import Puzzle
from dietlab.scheme import Scheme, plan_for
from dietlab.targets.cpu.kernel import CpuMicroKernel

ROWS, TALLEST, CORES = 8, 14, 4
"""Three numbers of the pictures: the rows of a tile, the greatest height of composed tiles, and the cores."""

MEASURED, MICROSECONDS = 16, 500.0
"""The measurement of the picture: the number of rows, and the time of a call (us)."""

COLS, DEPTH, LANES = 8, 4, 4
"""Sizes of the packed weights in the picture: two panels, small enough to label each element."""

LEAST, MOST = 3, 64
"""The fewest and the most registers: a tile of one vector takes three, and 64 are twice what AVX-512 has."""

BANKS, THREADS = 32, 32
"""The numbers of banks of shared memory and of threads of a warp (CUDA C Programming Guide, shared
memory)."""

Tile = tuple[int, int]

PADDING = Puzzle(
    name="waste",
    hints=(
        "How many whole tiles does it take? The last one is paid in full.",
        "`-(-a // b)` is `a / b`, rounded up.",
        "One minus the needed over the computed rows; guard the case without rows.",
    ),
    reference=lambda T, rows: padding_waste({"rows": T}, {"rows": rows}),
    arguments="T rows",
    tried=lambda random: (
        *((15, 14), (14, 14), (1, 14), (27, 14), (9, 1), (0, 8)),
        *((random.randint(1, 2048), random.randint(1, 32)) for _ in range(200)),
    ),
    shown=[(length, ROWS) for length in range(1, 41)],
    picture=Picture(f"Waste of tiles of {ROWS} rows", "T (rows)", "waste (share)"),
    praise="This is 1 - f_pad of the cost model: arithmetic, known before anything is measured.",
)

WAVES = Puzzle(
    name="idle",
    hints=(
        "How many waves are there? Each is paid by all cores.",
        "It is the first puzzle again, with cores in the place of rows.",
    ),
    reference=lambda tiles, cores: 1.0 - f_occ(tiles, cores),
    arguments="tiles cores",
    tried=lambda random: (
        *((13, 4), (4, 4), (1, 108), (109, 108), (5, 1), (0, 4)),
        *((random.randint(1, 1000), random.randint(1, 132)) for _ in range(200)),
    ),
    shown=[(tiles, CORES) for tiles in range(1, 33)],
    picture=Picture(f"Idle time on {CORES} cores", "tiles (count)", "idle time (share)"),
    praise="This is 1 - f_occ with the paper's g / G: one tile more than fits costs a whole wave.",
)


def _us(random: Random) -> float:
    return round(random.uniform(10, 4000), 1)


PREDICTION = Puzzle(
    name="predict",
    hints=(
        "The time grows in steps, not in proportion to `T`.",
        "How long does one tile take, and how many are there?",
    ),
    reference=lambda T, rows, measured_T, us: us * -(-T // rows) / -(-measured_T // rows),
    arguments="T rows measured_T us",
    tried=lambda random: (
        *((T, 8, measured, 500.0) for T, measured in ((32, 16), (17, 16), (8, 16), (1, 16), (16, 9))),
        *((*map(random.randint, (1, 1, 1), (256, 16, 256)), _us(random)) for _ in range(200)),
    ),
    shown=[(length, ROWS, MEASURED, MICROSECONDS) for length in range(1, 41)],
    picture=Picture(
        f"Tiles of {ROWS} rows, measured at T = {MEASURED} (grey)",
        "T (rows)",
        "time (us)",
        context=lambda given: [(MEASURED, "measured", MICROSECONDS)] if given["T"] == 1 else [],
    ),
    praise="The adaptation cost divides out: that is why the joint search measures a candidate once.",
)


def _element(random: Random) -> tuple[int, ...]:
    depth, lanes = random.randint(1, 768), random.choice((4, 8, 16))
    return random.randint(0, 2303), random.randrange(depth), depth, lanes


def _wrong_place(given: Given, found: object, expected: int) -> str:
    number(found)
    (place,) = whole_numbers([found], "a whole number")
    if place == expected:
        return ""
    panel, inside = divmod(place, given["K"] * given["lanes"])
    right = expected // (given["K"] * given["lanes"])
    if panel != right:
        return f"expected a place in panel {right}, got {place}, which is in panel {panel}"
    step, column = divmod(inside, given["lanes"])
    where = f"step {step}, column {column} of panel {panel}"
    return f"expected another place in this panel, got {place}, which is {where}"


PACKING = Puzzle(
    name="place",
    hints=(
        "In which panel is column `n`, and which column of that panel is it? `divmod` says both.",
        "A panel before it holds `K * lanes` elements.",
        "A step before it, in the same panel, holds `lanes`.",
    ),
    reference=lambda n, k, K, lanes: (n // lanes * K + k) * lanes + n % lanes,
    arguments="n k K lanes",
    tried=lambda random: (
        *((n, k, DEPTH, LANES) for n, k in ((0, 0), (3, 0), (0, 1), (2, 3), (4, 0), (7, 3))),
        *(_element(random) for _ in range(200)),
    ),
    fault=_wrong_place,
    shown=[(n, k, DEPTH, LANES) for n in range(COLS) for k in range(DEPTH)],
    picture=Picture(
        f"Places of w[n][k], K = {DEPTH}, panels of {LANES} columns",
        "k",
        "n",
        lambda given, value: [(given["k"], given["n"], number(value))],
        "grid",
        "place",
    ),
    praise="A vector load of a step's weights is one line of a panel, and the prefetcher sees one stream.",
)


def used(tile: Tile) -> int:
    """Returns the number of a tile's vector registers: accumulators, one step's weights and one input."""
    return CpuMicroKernel(*tile).registers(lanes=1)


def work(tile: Tile) -> float:
    """Returns the number of multiply-adds for each load: a step loads ``vectors`` weights and ``rows``
    inputs.
    """
    rows, vectors = tile
    return rows * vectors / (rows + vectors)


@cache
def _best_tile(registers: int) -> Tile:
    sizes = range(1, registers)
    tiles = ((rows, vectors) for rows in sizes for vectors in sizes)
    return max((tile for tile in tiles if used(tile) <= registers), key=work)


def _as_tile(given: Given, found: Any) -> Tile:
    """Returns an answer as a tile that fits."""
    sizes = whole_numbers(found, "a pair (rows, vectors)")
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(f"expected a pair of positive numbers, got {said(tuple(sizes))}")
    tile = (sizes[0], sizes[1])
    if used(tile) > given["registers"]:
        takes = f"{tile[0]} x {tile[1]} takes {used(tile)} registers"
        raise ValueError(f"{takes}, expected at most {given['registers']}")
    return tile


def _worse_tile(given: Given, found: Any, expected: Tile) -> str:
    try:
        tile = _as_tile(given, found)
    except ValueError as error:
        return str(error)
    if work(tile) >= work(expected) * (1 - TOLERANCE):
        return ""
    return f"expected {said(work(expected))} multiply-adds a load, got {said(work(tile))}, by {said(tile)}"


REGISTERS = Puzzle(
    name="tile",
    hints=(
        "Which pairs fit? `rows * vectors + vectors + 1 <= registers`.",
        "For each number of vectors only the tallest tile that fits matters.",
        "Try all pairs, and let `max` with a `key` choose.",
    ),
    reference=_best_tile,
    arguments="registers",
    tried=lambda random: zip((3, 4, 8, 16, 32, *random.sample(range(LEAST, MOST + 1), 12)), strict=True),
    fault=_worse_tile,
    shown=[(registers,) for registers in range(LEAST, 41)],
    picture=Picture(
        "The best tile by registers",
        "vector registers (count)",
        "multiply-adds a load (count)",
        lambda given, value: [(given["registers"], "", work(_as_tile(given, value)))],
    ),
    praise="AVX2 has 16 registers and AVX-512 has 32: this is why their best tiles differ.",
    counts=(
        "multiply-adds a load in all (more is better)",
        lambda given, value: work(_as_tile(given, value)),
    ),
)


def _heights(T: int, rows: int) -> list[int]:
    plan = plan_for(Scheme(CpuMicroKernel(rows, 16), "even"), T)  # of any width
    return [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]


def _wrong_heights(given: Given, found: Any, expected: list[int]) -> str:
    """Returns a text that says which property fails. It does not name the right list: that would be the
    solution.
    """
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


HEIGHTS = Puzzle(
    name="heights",
    hints=(
        "There are as many tiles as with padding.",
        "`divmod(T, tiles)` gives the lower height, and how many tiles are one row taller.",
        "Lists multiply: `[2] * 3 == [2, 2, 2]`.",
    ),
    reference=_heights,
    arguments="T rows",
    tried=lambda random: (
        *((31, 14), (28, 14), (1, 8), (8, 8), (9, 8), (0, 8)),
        *((random.randint(1, 300), random.randint(1, 32)) for _ in range(200)),
    ),
    fault=_wrong_heights,
    shown=[(length, TALLEST) for length in range(1, 43)],
    picture=Picture(
        f"Heights of at most {TALLEST} rows",
        "T (rows)",
        "rows covered (count)",
        lambda given, value: [(given["T"], "", height) for height in whole_numbers(value)],
        "bars",
    ),
    praise="This is the edge 'even' of a plan: no padding, for the price of a few more micro-kernels.",
)


def _passes(words: list[int]) -> int:
    return max(sum(word % BANKS == bank for word in set(words)) for bank in range(BANKS))


def _strided(stride: int) -> list[int]:
    return [thread * stride for thread in range(THREADS)]


def _words(random: Random, most: int) -> list[int]:
    return [random.randrange(most) for _ in range(THREADS)]


BANK_CONFLICTS = Puzzle(
    name="passes",
    hints=(
        "Threads that want the same word share a pass: count each word once.",
        "Which bank has the most different words? It needs the most passes.",
        "`Counter(word % 32 for word in set(words))` counts them by bank.",
    ),
    reference=_passes,
    arguments="words",
    tried=lambda random: (
        *((_strided(stride),) for stride in (1, 2, 32, 33, 0, 8)),
        ([thread % 2 * 32 for thread in range(THREADS)],),
        *((_words(random, random.choice((16, 64, 1024))),) for _ in range(60)),
    ),
    shown=[(_strided(stride),) for stride in range(0, 41)],
    picture=Picture(
        "Thread t reads word t * stride",
        "stride (words)",
        "passes of shared memory (count)",
        lambda given, value: [(given["words"][1], "", number(value))],
    ),
    praise="A stride of 33 costs what a stride of 1 costs: lines in shared memory are padded for this.",
)
