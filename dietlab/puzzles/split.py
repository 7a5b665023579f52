"""Puzzle 6: one split of a decision tree, by time lost."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.puzzles.pictures import LOST, NEEDED
from dietlab.puzzles.puzzle import TOLERANCE, Answer, Given, Puzzle, said
from dietlab.view.figures.base import MICRO, new_figure

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Losses = npt.NDArray[np.float64]
Split = tuple[int, int, int]
"""``(at_most, low, high)``: plan ``low`` where ``T <= at_most``, else plan ``high``."""

TRAP: Losses = np.array([[0.0, 3.0]] * 4 + [[90.0, 0.0]] * 2 + [[0.0, 2.0]] * 6 + [[60.0, 0.0]] * 2)
"""Plan 0 wins on ten of fourteen lengths, and loses much on the other four."""


def lost(losses: Losses, split: Split) -> float:
    """Returns the microseconds that a split loses over all lengths ``T = 1 .. len(losses)``."""
    at_most, low, high = split
    return float(losses[:at_most, low].sum() + losses[at_most:, high].sum())


def _best(losses: Losses) -> Split:
    lengths, plans = losses.shape
    splits = product(range(lengths + 1), range(plans), range(plans))
    return min(splits, key=lambda split: lost(losses, split))


def _fault(answer: Answer, given: Given) -> str:
    losses: Losses = given["losses"]
    found = answer(deepcopy(losses))
    split = _as_split(found, losses)
    if split is None:
        return f"expected (at_most, low, high) within the table, got {said(found)}"
    best = _best(losses)
    least, spent = lost(losses, best), lost(losses, split)
    if spent <= least * (1 + TOLERANCE) + TOLERANCE:
        return ""
    return f"expected to lose {said(least)} us, as {best} does, got {split}, which loses {said(spent)} us"


def _as_split(found: Any, losses: Losses) -> Split | None:
    """Returns an answer if it is a split of this table."""
    try:
        at_most, low, high = (int(value) for value in found)
    except (TypeError, ValueError):
        return None
    lengths, plans = losses.shape
    inside = 0 <= at_most <= lengths and 0 <= low < plans and 0 <= high < plans
    return (at_most, low, high) if inside else None


def _cases(random: Random) -> Iterator[Given]:
    yield {"losses": TRAP}
    yield {"losses": np.array([[0.0, 5.0], [0.0, 5.0], [5.0, 0.0]])}
    yield {"losses": np.array([[0.0, 1.0]] * 3)}
    yield {"losses": np.array([[4.0, 0.0, 9.0], [0.0, 3.0, 9.0]])}
    for _ in range(60):
        lengths, plans = random.randint(1, 24), random.randint(2, 4)
        times = np.array([[random.uniform(50, 200) for _ in range(plans)] for _ in range(lengths)])
        yield {"losses": times - times.min(axis=1, keepdims=True)}


def _frame() -> pd.DataFrame:
    """Returns the time that each plan loses on each length of the first case."""
    import pandas as pd

    rows = [
        {"T": length, "plan": plan, "lost_seconds": value / MICRO}
        for length, row in enumerate(TRAP.tolist(), start=1)
        for plan, value in enumerate(row)
    ]
    return pd.DataFrame(rows)


def _plot(frame: pd.DataFrame) -> go.Figure:
    figure = new_figure(frame, "Time that two plans lose against the better one", None)
    for plan, colour in ((0, NEEDED), (1, LOST)):
        part = frame[frame["plan"] == plan]
        hover = [
            f"plan {plan} loses {MICRO * row.lost_seconds:.0f} us on T={row.T}" for row in part.itertuples()
        ]
        figure.add_scatter(
            x=part["T"],
            y=MICRO * part["lost_seconds"],
            name=f"plan {plan}",
            mode="lines+markers",
            hovertext=hover,
            hoverinfo="text",
            line={"color": colour, "dash": ("solid", "dash")[plan]},
        )
    figure.update_xaxes(title_text="T (rows)")
    figure.update_yaxes(title_text="time lost (us)")
    return figure


SPLIT = Puzzle(
    title="One split by time lost",
    name="split",
    statement=(
        "losses[T - 1][plan] has the microseconds that a plan loses on T against the best plan there, for "
        "T = 1, 2, 3 and so on. Write split(losses): the rule (at_most, low, high) that loses least in "
        "total, where plan low serves every T <= at_most (0 if it serves none) and plan high all others. "
        "The picture is the first case: plan 0 is the better one on most lengths."
    ),
    cases=_cases,
    fault=_fault,
    to_frame=_frame,
    plot=_plot,
    praise="train_dispatcher finds all splits at once by dynamic programming, with the same measure.",
)
