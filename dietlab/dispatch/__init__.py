"""Stage 4, dispatch: portfolio, decision tree, one shared library."""

from dietlab.dispatch.build import build, versions
from dietlab.dispatch.candidates import best_together, candidate_plans, distinct
from dietlab.dispatch.choice import Choice
from dietlab.dispatch.dispatcher import Dispatcher, train_dispatcher
from dietlab.dispatch.length_grid import DENSE_SHAPES, length_grid
from dietlab.dispatch.operator import Layer, Operator, load
from dietlab.dispatch.portfolio import Portfolio, choose_portfolio, usual_kernels
from dietlab.dispatch.ways import lost

__all__ = [
    "DENSE_SHAPES",
    "Choice",
    "Dispatcher",
    "Layer",
    "Operator",
    "Portfolio",
    "best_together",
    "build",
    "candidate_plans",
    "choose_portfolio",
    "distinct",
    "length_grid",
    "load",
    "lost",
    "train_dispatcher",
    "usual_kernels",
    "versions",
]
