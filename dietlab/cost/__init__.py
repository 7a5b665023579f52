"""Stage 3, cost: predicted time of any micro-kernel on any shape."""

from dietlab.cost.adaptation import Adaptation, AdaptationCost, adaptation_cost, best_shape
from dietlab.cost.calibration import Calibration
from dietlab.cost.formulas import Parts, f_occ, f_pad, padding_waste
from dietlab.cost.known import Known
from dietlab.cost.metrics import mean_metrics, ranking_metrics, too_few_pairs
from dietlab.cost.model import CostModel, Predicts, evaluate_model, fit_cost_model
from dietlab.cost.predictor import Calibrated, Fitted, LearnedPredictor, Predictor, Seconds

__all__ = [
    "Adaptation",
    "AdaptationCost",
    "Calibrated",
    "Calibration",
    "CostModel",
    "Fitted",
    "Known",
    "LearnedPredictor",
    "Parts",
    "Predictor",
    "Predicts",
    "Seconds",
    "adaptation_cost",
    "best_shape",
    "evaluate_model",
    "f_occ",
    "f_pad",
    "fit_cost_model",
    "mean_metrics",
    "padding_waste",
    "ranking_metrics",
    "too_few_pairs",
]
