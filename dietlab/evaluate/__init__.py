"""Stage 5, evaluate: vendors, per-shape auto-scheduling, largest-shape schedule, oracle."""

from dietlab.evaluate.evaluate import CONTENDERS, evaluate
from dietlab.evaluate.report import Contender, Report, Row, Summary

__all__ = ["CONTENDERS", "Contender", "Report", "Row", "Summary", "evaluate"]
