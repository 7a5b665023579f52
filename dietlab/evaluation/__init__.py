"""Stage 5, evaluate: vendors, per-shape auto-scheduling, largest-shape schedule, oracle."""

from dietlab.evaluation.evaluate import evaluate
from dietlab.evaluation.lineup import CONTENDERS, DEFAULT_CONTENDERS

__all__ = ["CONTENDERS", "DEFAULT_CONTENDERS", "evaluate"]
