"""Puzzles: small functions to write, each with hints, a check and a picture of the answer.

``puzzles.PADDING.show()`` poses one, ``puzzles.PADDING.hint()`` helps, and ``puzzles.PADDING.check(waste)``
judges an answer; ``notebooks/puzzles.ipynb`` has a stub for each.
"""

from dietlab.lab.puzzles.local_padding import LOCAL_PADDING, dense_schedule
from dietlab.lab.puzzles.pointers import POINTER
from dietlab.lab.puzzles.puzzle import CheckResult, Hint, Puzzle, Score, score_table
from dietlab.lab.puzzles.sizes import BANK_CONFLICTS, HEIGHTS, PACKING, PADDING, PREDICTION, REGISTERS, WAVES
from dietlab.lab.puzzles.trees import BLOCKING, SPLIT, TREE
from dietlab.lab.puzzles.tuning import EVOLUTION, INTERVAL, PORTFOLIO

PUZZLES = (
    PADDING,
    WAVES,
    PREDICTION,
    PACKING,
    REGISTERS,
    HEIGHTS,
    BANK_CONFLICTS,
    INTERVAL,
    EVOLUTION,
    PORTFOLIO,
    BLOCKING,
    SPLIT,
    TREE,
    LOCAL_PADDING,
    POINTER,
)
"""All puzzles in the order of the notebook: from one line to a schedule, then a convolution's addresses."""

__all__ = [
    "BANK_CONFLICTS",
    "BLOCKING",
    "EVOLUTION",
    "HEIGHTS",
    "INTERVAL",
    "LOCAL_PADDING",
    "PACKING",
    "PADDING",
    "POINTER",
    "PORTFOLIO",
    "PREDICTION",
    "PUZZLES",
    "REGISTERS",
    "SPLIT",
    "TREE",
    "WAVES",
    "CheckResult",
    "Hint",
    "Puzzle",
    "Score",
    "dense_schedule",
    "score_table",
]
