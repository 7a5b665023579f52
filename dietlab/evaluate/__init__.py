"""Stage 5, evaluate: vendors, per-shape auto-scheduling, largest-shape schedule, oracle."""

from dietlab.evaluate.evaluate import evaluate
from dietlab.evaluate.lineup import CONTENDERS
from dietlab.evaluate.report import Contender, Report, Row, Summary

__all__ = ["CONTENDERS", "Contender", "Report", "Row", "Summary", "evaluate"]
