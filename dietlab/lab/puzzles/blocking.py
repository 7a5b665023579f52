"""Puzzle 11: the order of tiles that loads least through a small cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dietlab.lab.puzzles.answers import WrongAnswer, kind, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture
from dietlab.lab.puzzles.puzzle import Puzzle

Tile = tuple[int, int]
BUSY = 2
"""Panels that a cache needs beside those kept: the last two that streamed through. With one place, the least
recently used panel would be a kept one."""


def loads(tiles: Sequence[Tile], fits: int) -> int:
    """Returns the panels loaded: tile (i, j) reads row panel i and column panel j, and the cache forgets the
    panel that was not used for longest."""
    cache: dict[tuple[str, int], None] = {}  # a dict keeps its order: the least recently used is first
    count = 0
    for row, col in tiles:
        for panel in (("row", row), ("col", col)):
            if panel in cache:
                del cache[panel]
            else:
                count += 1
                if len(cache) == fits:
                    del cache[next(iter(cache))]
            cache[panel] = None
    return count


def _strips(rows: int, cols: int, high: int) -> list[Tile]:
    """Returns strips of rows, one after another, and within a strip column by column."""
    firsts = range(0, rows, high)
    return [(i, j) for first in firsts for j in range(cols) for i in range(first, min(rows, first + high))]


def _order(rows: int, cols: int, fits: int) -> list[Tile]:
    """Returns strips as high as fit, in the direction that should load less; of two equal ones the one that
    loads more, so that either is a right answer."""
    high = fits - BUSY
    lying, upright = _strips(rows, cols, high), [(i, j) for j, i in _strips(cols, rows, high)]
    by_formula = ((-(-rows // high) * cols + rows, lying), (-(-cols // high) * rows + cols, upright))
    least = min(count for count, _ in by_formula)
    return max((tiles for count, tiles in by_formula if count == least), key=lambda one: loads(one, fits))


def _as_tiles(given: Given, found: Any) -> list[Tile]:
    if not isinstance(found, (list, tuple)):
        raise WrongAnswer("expected a list of pairs (i, j)", kind(found))
    pairs = [whole_numbers(one, "pairs (i, j)") for one in found]
    if any(len(pair) != 2 for pair in pairs):
        raise WrongAnswer("expected pairs (i, j)", said(next(pair for pair in pairs if len(pair) != 2)))
    tiles = [(pair[0], pair[1]) for pair in pairs]
    wanted = {(i, j) for i in range(given["rows"]) for j in range(given["cols"])}
    if len(tiles) != len(wanted) or set(tiles) != wanted:
        missing, others = len(wanted - set(tiles)), len(set(tiles) - wanted)
        twice = len(tiles) - len(set(tiles))
        raise WrongAnswer(
            f"expected each of {len(wanted)} tiles once",
            f"{len(tiles)}: {missing} are missing, {twice} come again, {others} do not exist",
        )
    return tiles


def _fault(given: Given, found: Any, expected: list[Tile]) -> str:
    yours, enough = (loads(tiles, given["fits"]) for tiles in (_as_tiles(given, found), expected))
    return "" if yours <= enough else f"expected at most {enough} loads, got {yours}"


BLOCKING = Puzzle(
    title="Blocks for a cache",
    name="order",
    statement=(
        "The output is `rows x cols` tiles. Tile `(i, j)` reads row panel `i`, then column panel `j`. The "
        "cache has place for `fits` panels of either kind; a panel that is not there is loaded, in the place "
        "of the one that was not used for longest. Write `order(rows, cols, fits)`: in which order are the "
        "tiles computed, so that little is loaded? Row by row, the picture's 36 tiles take 42 loads; 18 are "
        "enough."
    ),
    gets="the numbers of `rows` and `cols` of tiles, and the panels that the cache `fits`, 3 or more.",
    returns="a list with each pair `(i, j)` once, that loads no more than the reference (fewer is welcome).",
    example="sorted(order(2, 2, 3)) == [(0, 0), (0, 1), (1, 0), (1, 1)]",
    lines=6,
    minutes=20,
    lesson="02_search_space.ipynb",
    hints=(
        "Keep some row panels in the cache, and stream the columns through it.",
        "Of `fits` panels, two are for the stream: a strip is `fits - 2` rows high. Within it go column by "
        "column.",
        "The strips may as well stand upright: count `ceil(rows / h) * cols + rows` for both, and take the "
        "lesser.",
    ),
    reference=_order,
    arguments="rows cols fits",
    tried=lambda random: (
        *((6, 6, 5), (4, 8, 12), (1, 5, 3), (3, 9, 5), (9, 3, 5), (5, 5, 3)),
        *((random.randint(1, 12), random.randint(1, 12), random.randint(3, 12)) for _ in range(40)),
    ),
    fault=_fault,
    shown=[(6, 6, 5)],
    picture=Picture(
        "Order of tiles, 5 panels fit",
        "column j",
        "row i",
        lambda given, value: [(j, i, n) for n, (i, j) in enumerate(_as_tiles(given, value), start=1)],
        "grid",
        "step",
    ),
    praise="This is cache blocking; K-blocking does it once more along the depth, so that panels are small.",
    counts=("panels loaded", lambda given, value: loads(_as_tiles(given, value), given["fits"])),
)
