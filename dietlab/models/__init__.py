"""Whole models from end to end: the same words through PyTorch, its rivals, and PyTorch with dietlab."""

from dietlab.models.run import MODEL_CONTENDERS, evaluate_model
from dietlab.models.zoo import CONFIGURATIONS, Model

__all__ = ["CONFIGURATIONS", "MODEL_CONTENDERS", "Model", "evaluate_model"]
