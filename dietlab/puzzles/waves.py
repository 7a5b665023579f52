"""Puzzle 2: wave quantisation, or what share of the cores' time is idle."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from dietlab.cost import f_occ
from dietlab.puzzles.pictures import stacked_bars
from dietlab.puzzles.puzzle import Given, Puzzle, equals

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

TILES, CORES = 13, 4


def _idle(tiles: int, cores: int) -> float:
    return 1.0 - f_occ(tiles, cores)


def _cases(random: Random) -> Iterator[Given]:
    for tiles, cores in ((13, 4), (4, 4), (1, 108), (109, 108), (5, 1), (0, 4)):
        yield {"tiles": tiles, "cores": cores}
    for _ in range(200):
        yield {"tiles": random.randint(1, 1000), "cores": random.randint(1, 132)}


def _frame() -> pd.DataFrame:
    """Returns busy and idle cores in each wave."""
    import pandas as pd

    busy = [min(CORES, TILES - start) for start in range(0, TILES, CORES)]
    waves = range(1, len(busy) + 1)
    return pd.DataFrame({"wave": waves, "busy": busy, "idle": [CORES - count for count in busy]})


def _plot(frame: pd.DataFrame) -> go.Figure:
    parts = {"busy": "busy cores", "idle": "idle cores"}
    return stacked_bars(frame, parts, f"{TILES} tiles on {CORES} cores", "cores (count)")


WAVES = Puzzle(
    title="Wave quantisation",
    name="idle",
    statement=(
        "Equal tiles are dealt to cores; a core computes one tile at a time, so that a call takes whole "
        "waves. Write idle(tiles, cores): which share of the cores' time do they wait? It is 0 without "
        "tiles."
    ),
    cases=_cases,
    fault=equals(_idle),
    to_frame=_frame,
    plot=_plot,
    praise="This is 1 - f_occ with the paper's g / G: one tile more than fits costs a whole wave.",
)
