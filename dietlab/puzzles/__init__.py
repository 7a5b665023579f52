"""Puzzles: small functions to write, each with a picture and a check.

``puzzles.PADDING.show()`` poses one, ``puzzles.PADDING.check(waste)`` judges an answer;
``notebooks/puzzles.ipynb`` has a stub for each.
"""

from dietlab.puzzles.heights import HEIGHTS
from dietlab.puzzles.local_padding import LOCAL_PADDING, dense_schedule
from dietlab.puzzles.padding import PADDING
from dietlab.puzzles.portfolio import PORTFOLIO
from dietlab.puzzles.prediction import PREDICTION
from dietlab.puzzles.puzzle import CheckResult, Puzzle
from dietlab.puzzles.split import SPLIT
from dietlab.puzzles.waves import WAVES

PUZZLES = (PADDING, WAVES, HEIGHTS, PREDICTION, PORTFOLIO, SPLIT, LOCAL_PADDING)
"""In the order of the notebook."""

__all__ = [
    "HEIGHTS",
    "LOCAL_PADDING",
    "PADDING",
    "PORTFOLIO",
    "PREDICTION",
    "PUZZLES",
    "SPLIT",
    "WAVES",
    "CheckResult",
    "Puzzle",
    "dense_schedule",
]
