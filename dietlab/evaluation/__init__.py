"""Stage 5, evaluate: vendors, per-shape auto-scheduling, largest-shape schedule, oracle."""

from dietlab.evaluation.evaluate import evaluate
from dietlab.evaluation.lineup import CONTENDERS, DEFAULT_CONTENDERS
from dietlab.evaluation.parts import Part
from dietlab.evaluation.report import ContenderInfo, Report, Row
from dietlab.evaluation.summary import Summary

__all__ = [
    "CONTENDERS",
    "DEFAULT_CONTENDERS",
    "ContenderInfo",
    "Part",
    "Report",
    "Row",
    "Summary",
    "evaluate",
]
