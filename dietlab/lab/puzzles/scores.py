"""The table of all puzzles: what is solved, and how well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dietlab.lab.puzzles.answers import said
from dietlab.lab.puzzles.puzzle import Answer, Puzzle

if TYPE_CHECKING:
    import pandas as pd


def score_table(puzzles: Iterable[Puzzle], answers: Iterable[Answer]) -> pd.DataFrame:
    """Checks an answer to each puzzle and returns the results as a table.

    Args:
        puzzles: in any order.
        answers: a function for each, in the same order.

    Returns:
        A row for each puzzle: title, minutes, whether it is solved, cases that are right before the first
        that is not, and the score, in three columns.
    """
    import pandas as pd

    rows = []
    for puzzle, answer in zip(puzzles, answers, strict=True):
        result = puzzle.check(answer)
        rows.append(
            {
                "puzzle": puzzle.title,
                "minutes": puzzle.minutes,
                "solved": "yes" if result.solved else "",
                "right cases": result.passed,
                "counted": result.score.what if result.score else "",
                "yours": said(result.score.yours) if result.score else "",
                "to reach": said(result.score.reach) if result.score else "",
            }
        )
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))
