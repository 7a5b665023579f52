"""Stage 5, evaluate: vendors, per-shape auto-scheduling, largest-shape schedule, oracle."""

from dietlab.evaluation.evaluate import evaluate
from dietlab.evaluation.lineup import CONTENDERS, DEFAULT_CONTENDERS
from dietlab.evaluation.report import ContenderInfo, Report, Row, Summary

__all__ = ["CONTENDERS", "DEFAULT_CONTENDERS", "ContenderInfo", "Report", "Row", "Summary", "evaluate"]
