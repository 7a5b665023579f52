"""Stage 3, cost: predicted time of any micro-kernel on any shape."""

from dietlab.cost.adaptation import AdaptationCost, Parts, best_shape, f_occ, f_pad, padding_waste
from dietlab.cost.calibration import Calibration
from dietlab.cost.metrics import ranking_metrics
from dietlab.cost.model import CostModel, evaluate_model, fit_cost_model

__all__ = [
    "AdaptationCost", "Calibration", "CostModel", "Parts", "best_shape", "evaluate_model", "f_occ",
    "f_pad", "fit_cost_model", "padding_waste", "ranking_metrics",
]  # fmt: skip
