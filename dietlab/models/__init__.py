"""Whole models from end to end: the same words through PyTorch, its rivals, and PyTorch with dietlab."""

from dietlab.models.run import MODEL_CONTENDERS, evaluate_model
from dietlab.models.shares import time_shares
from dietlab.models.summary import frame_models, speedups
from dietlab.models.zoo import CONFIGURATIONS, Model

__all__ = [
    "CONFIGURATIONS",
    "MODEL_CONTENDERS",
    "Model",
    "evaluate_model",
    "frame_models",
    "speedups",
    "time_shares",
]
