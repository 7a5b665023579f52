"""Puzzle 1: what share of the work is padding."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from dietlab.cost import padding_waste
from dietlab.puzzles.pictures import stacked_bars
from dietlab.puzzles.puzzle import Given, Puzzle, equals

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROWS = 8
LENGTHS = range(1, 41)


def _waste(T: int, rows: int) -> float:
    return padding_waste({"rows": T}, {"rows": rows})


def _cases(random: Random) -> Iterator[Given]:
    for length, rows in ((15, 14), (14, 14), (1, 14), (27, 14), (9, 1), (0, 8)):
        yield {"T": length, "rows": rows}
    for _ in range(200):
        yield {"T": random.randint(1, 2048), "rows": random.randint(1, 32)}


def _frame() -> pd.DataFrame:
    """Returns rows that outputs need and rows of padding for each length."""
    import pandas as pd

    padding = [-length % ROWS for length in LENGTHS]
    return pd.DataFrame({"T": list(LENGTHS), "needed": list(LENGTHS), "padding": padding})


def _plot(frame: pd.DataFrame) -> go.Figure:
    parts = {"needed": "needed rows", "padding": "rows of padding"}
    return stacked_bars(frame, parts, f"Rows computed by tiles of {ROWS} rows", "rows computed (count)")


PADDING = Puzzle(
    title="Padding waste",
    name="waste",
    statement=(
        "Tiles of a fixed number of rows cover T rows of the output; the last one may stick out. "
        "Write waste(T, rows): which share of the multiply-adds computes rows that no output needs? "
        "It is 0 where nothing sticks out, and 0 for T = 0."
    ),
    cases=_cases,
    fault=equals(_waste),
    to_frame=_frame,
    plot=_plot,
    praise="This is 1 - f_pad of the cost model: arithmetic, known before anything is measured.",
)
