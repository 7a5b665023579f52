"""Stage 5: contenders timed in turns with the operator."""

from dietlab.compare.evaluate import evaluate

__all__ = [
    "evaluate",
]
