"""Puzzle 3: cover rows exactly, with tiles of nearly equal height."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from dietlab.plans import plan_for
from dietlab.puzzles.pictures import stacked_bars
from dietlab.puzzles.puzzle import Given, Puzzle, equals, same_sequence
from dietlab.space import CpuMicroKernel, Scheme

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LENGTH, ROWS = 31, 14
COLS = 16
"""Any width: heights do not depend on it."""


def _heights(T: int, rows: int) -> list[int]:
    plan = plan_for(Scheme(CpuMicroKernel(rows, COLS), "even"), T)
    return [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]


def _cases(random: Random) -> Iterator[Given]:
    for length, rows in ((31, 14), (28, 14), (1, 8), (8, 8), (9, 8), (0, 8)):
        yield {"T": length, "rows": rows}
    for _ in range(200):
        yield {"T": random.randint(1, 300), "rows": random.randint(1, 32)}


def _frame() -> pd.DataFrame:
    """Returns the tiles of one length with local padding: how many of their rows are needed."""
    import pandas as pd

    needed = [min(ROWS, LENGTH - first) for first in range(0, LENGTH, ROWS)]
    tiles = range(1, len(needed) + 1)
    return pd.DataFrame({"tile": tiles, "needed": needed, "padding": [ROWS - rows for rows in needed]})


def _plot(frame: pd.DataFrame) -> go.Figure:
    parts = {"needed": "needed rows", "padding": "rows of padding"}
    title = f"T = {LENGTH} by tiles of {ROWS} rows, with padding"
    return stacked_bars(frame, parts, title, "rows computed (count)")


HEIGHTS = Puzzle(
    title="Nothing sticks out",
    name="heights",
    statement=(
        "Composition covers T rows exactly: with as few tiles as possible, none of them higher than rows, "
        "and heights that differ by at most one. Write heights(T, rows): the list of heights, tallest "
        "first. For T = 0 it is empty. The picture has the first case with padding instead."
    ),
    cases=_cases,
    fault=equals(_heights, same_sequence),
    to_frame=_frame,
    plot=_plot,
    praise="This is the edge 'even' of a plan: no padding, for the price of a few more micro-kernels.",
)
