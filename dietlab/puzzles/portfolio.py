"""Puzzle 5: a portfolio, greedily."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.puzzles.puzzle import Given, Puzzle, equals, same_sequence
from dietlab.view.figures.base import new_figure

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Times = npt.NDArray[np.float64]
SMALL: Times = np.array(
    [[10.0, 22.0, 60.0, 140.0], [14.0, 20.0, 44.0, 90.0], [40.0, 42.0, 45.0, 80.0], [12.0, 30.0, 40.0, 88.0]]
)
"""Microseconds of four micro-kernels on four shapes: no micro-kernel is best on all."""
LENGTHS = (1, 16, 64, 128)


def slowdowns(times: Times) -> Times:
    """Returns the slowdown: time over the least time of any micro-kernel on the shape, ``[micro-kernels,
    shapes]``."""
    table: Times = times / times.min(axis=0)
    return table


def _greedy(times: Times, count: int) -> list[int]:
    table, chosen = slowdowns(times), list[int]()
    for _ in range(count):
        means = [
            np.inf if kernel in chosen else float(table[[*chosen, kernel]].min(axis=0).mean())
            for kernel in range(len(table))
        ]
        chosen.append(int(np.argmin(means)))
    return chosen


def _cases(random: Random) -> Iterator[Given]:
    for count in (1, 2, 3, 4):
        yield {"times": SMALL, "count": count}
    for _ in range(100):
        kernels, shapes = random.randint(1, 8), random.randint(1, 9)
        times = [[random.uniform(10, 400) for _ in range(shapes)] for _ in range(kernels)]
        yield {"times": np.array(times), "count": random.randint(1, kernels)}


def _frame() -> pd.DataFrame:
    """Returns the slowdown of each micro-kernel on each shape of the small example."""
    import pandas as pd

    rows = [
        {"micro_kernel": f"number {kernel}", "T": length, "slowdown": slowdown}
        for kernel, row in enumerate(slowdowns(SMALL))
        for length, slowdown in zip(LENGTHS, row.tolist(), strict=True)
    ]
    return pd.DataFrame(rows)


def _plot(frame: pd.DataFrame) -> go.Figure:
    figure = new_figure(frame, "Slowdown of four micro-kernels on four shapes", None)
    table = frame.pivot(index="micro_kernel", columns="T", values="slowdown")
    figure.add_heatmap(
        x=[f"T={length}" for length in table.columns],
        y=list(table.index),
        z=table.to_numpy(),
        colorscale="Cividis",
        colorbar={"title": "times the<br>best's time"},
        text=table.round(2).to_numpy(),
        texttemplate="%{text}",
        hovertemplate="%{y} on %{x} takes %{z:.2f} times the best's time<extra></extra>",
    )
    figure.update_xaxes(title_text="shape")
    figure.update_yaxes(title_text="micro-kernel", autorange="reversed")
    return figure


PORTFOLIO = Puzzle(
    title="Greedy portfolio",
    name="portfolio",
    statement=(
        "times[kernel][shape] has microseconds. The slowdown of a portfolio on a shape is the time of its "
        "best micro-kernel there over the time of the best of all. Write portfolio(times, count): the "
        "numbers of count micro-kernels in the order in which a greedy choice takes them: each time the one "
        "that makes the mean slowdown over all shapes least; of equals the lower number. The picture is of "
        "the first cases."
    ),
    cases=_cases,
    fault=equals(_greedy, same_sequence),
    to_frame=_frame,
    plot=_plot,
    praise="choose_portfolio does this with weights and then exchanges members as long as that helps.",
)
