"""Puzzle 4: one measurement tells the time of every shape."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from dietlab.puzzles.pictures import LOST
from dietlab.puzzles.puzzle import Given, Puzzle, equals
from dietlab.view.figures.base import MICRO, new_figure
from dietlab.view.theme import OPEN, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MEASURED, MICROSECONDS = 16, 500.0
ASKED = (5, 8, 9, 24, 25)


def _predict(T: int, rows: int, measured_T: int, us: float) -> float:
    return us * -(-T // rows) / -(-measured_T // rows)


def _cases(random: Random) -> Iterator[Given]:
    for length, rows, measured in ((32, 8, 16), (17, 8, 16), (8, 8, 16), (1, 8, 16), (16, 8, 9)):
        yield {"T": length, "rows": rows, "measured_T": measured, "us": 500.0}
    for _ in range(200):
        yield {
            "T": random.randint(1, 256),
            "rows": random.randint(1, 16),
            "measured_T": random.randint(1, 256),
            "us": round(random.uniform(10, 4000), 1),
        }


def _frame() -> pd.DataFrame:
    """Returns the known time, and the lengths whose times are wanted."""
    import pandas as pd

    return pd.DataFrame({"T": [MEASURED, *ASKED], "seconds": [MICROSECONDS / MICRO, *[None] * len(ASKED)]})


def _plot(frame: pd.DataFrame) -> go.Figure:
    figure = new_figure(frame, "One tile height of 8 rows, one measurement", None)
    known = frame.dropna()
    figure.add_scatter(
        x=known["T"],
        y=MICRO * known["seconds"],
        mode="markers",
        name="measured",
        hoverinfo="text",
        hovertext=[
            f"T={t} takes {MICRO * s:.0f} us" for t, s in zip(known["T"], known["seconds"], strict=True)
        ],
        marker={"color": LOST, "size": 12},
    )
    asked = frame[frame["seconds"].isna()]
    figure.add_scatter(
        x=asked["T"],
        y=[0.0] * len(asked),
        mode="markers",
        name="asked for",
        hoverinfo="text",
        hovertext=[f"How long does T={t} take?" for t in asked["T"]],
        marker={"color": PALETTE["muted"], "size": 12, "symbol": f"circle{OPEN}"},
    )
    figure.update_xaxes(title_text="T (rows)", rangemode="tozero")
    figure.update_yaxes(title_text="time (us)", range=[-60, 1000])
    return figure


PREDICTION = Puzzle(
    title="One measurement, every shape",
    name="predict",
    statement=(
        "Every tile of a padded micro-kernel costs the same time, whether its rows are needed or not, and "
        "nothing else costs any. It took us microseconds on measured_T rows. "
        "Write predict(T, rows, measured_T, us): how many microseconds does it take on T rows?"
    ),
    cases=_cases,
    fault=equals(_predict),
    to_frame=_frame,
    plot=_plot,
    praise="The adaptation cost divides out: that is why the joint search measures a candidate once.",
)
