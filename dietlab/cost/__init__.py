"""Stage 3, cost: predicted time of any micro-kernel on any shape."""

from dietlab.cost.adaptation import AdaptationCost, adaptation_cost, best_shape
from dietlab.cost.bundle import Adaptation
from dietlab.cost.calibration import Calibration
from dietlab.cost.formulas import Parts, f_occ, f_pad, padding_waste
from dietlab.cost.judging import SPLITS, Judgement, Survey, frame_judgements, judge
from dietlab.cost.known import Known
from dietlab.cost.metrics import mean_metrics, ranking_metrics, too_few_pairs
from dietlab.cost.model import CostModel, Predicts, evaluate_model, fit_cost_model
from dietlab.cost.predictor import (
    Analytic,
    Calibrated,
    Fitted,
    LearnedPredictor,
    Predictor,
    Seconds,
    fitted_by,
)
from dietlab.cost.prior import Prior
from dietlab.cost.registry import COST_MODEL, COST_MODELS, predictor_found, predictor_named, with_prior

__all__ = [
    "COST_MODEL",
    "COST_MODELS",
    "SPLITS",
    "Adaptation",
    "AdaptationCost",
    "Analytic",
    "Calibrated",
    "Calibration",
    "CostModel",
    "Fitted",
    "Judgement",
    "Known",
    "LearnedPredictor",
    "Parts",
    "Predictor",
    "Predicts",
    "Prior",
    "Seconds",
    "Survey",
    "adaptation_cost",
    "best_shape",
    "evaluate_model",
    "f_occ",
    "f_pad",
    "fit_cost_model",
    "fitted_by",
    "frame_judgements",
    "judge",
    "mean_metrics",
    "padding_waste",
    "predictor_found",
    "predictor_named",
    "ranking_metrics",
    "too_few_pairs",
    "with_prior",
]
