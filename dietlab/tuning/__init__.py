"""Stages 3 and 4: the loop that tunes all shapes at once, and its results: portfolio, tree and operator."""

from dietlab.tuning.build import build, versions
from dietlab.tuning.candidates import best_together, candidate_plans, distinct
from dietlab.tuning.choice import Choice
from dietlab.tuning.decide import Decision
from dietlab.tuning.dispatcher import Dispatcher, train_dispatcher
from dietlab.tuning.effort import EFFORTS, Effort, effort_named
from dietlab.tuning.length_grid import DENSE_SHAPES, length_grid
from dietlab.tuning.losses import lost
from dietlab.tuning.operator import Layer, Operator, load
from dietlab.tuning.phases import PhaseTimer, with_records
from dietlab.tuning.portfolio import Portfolio, choose_portfolio, usual_kernels
from dietlab.tuning.state import SearchState, Strategy
from dietlab.tuning.strategies.registry import STRATEGIES
from dietlab.tuning.survey import survey
from dietlab.tuning.tune import tune
from dietlab.tuning.tuner import Proposal, Tuner
from dietlab.tuning.tuning_run import TuningRun

__all__ = [
    "DENSE_SHAPES",
    "EFFORTS",
    "STRATEGIES",
    "Choice",
    "Decision",
    "Dispatcher",
    "Effort",
    "Layer",
    "Operator",
    "PhaseTimer",
    "Portfolio",
    "Proposal",
    "SearchState",
    "Strategy",
    "Tuner",
    "TuningRun",
    "best_together",
    "build",
    "candidate_plans",
    "choose_portfolio",
    "distinct",
    "effort_named",
    "length_grid",
    "load",
    "lost",
    "survey",
    "train_dispatcher",
    "tune",
    "usual_kernels",
    "versions",
    "with_records",
]
