"""Whole models from end to end: the same input through PyTorch, its rivals, and PyTorch with dietlab.

This layer knows PyTorch, `transformers` and the libraries of studies; studies know nothing of models.
"""

from dietlab.lab.models.run import DEFAULT_MODEL_CONTENDERS, MODEL_CONTENDERS, evaluate_model
from dietlab.lab.models.runtimes import time_shares
from dietlab.lab.models.summary import frame_models, frame_padding, padded_lengths, speedups
from dietlab.lab.models.zoo import CONFIGURATIONS, Model

__all__ = [
    "CONFIGURATIONS",
    "DEFAULT_MODEL_CONTENDERS",
    "MODEL_CONTENDERS",
    "Model",
    "evaluate_model",
    "frame_models",
    "frame_padding",
    "padded_lengths",
    "speedups",
    "time_shares",
]
