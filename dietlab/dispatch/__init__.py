"""Stage 4, dispatch: portfolio, decision tree, one shared library."""

from dietlab.dispatch.build import build, versions
from dietlab.dispatch.dispatcher import Dispatcher, train_dispatcher
from dietlab.dispatch.operator import Layer, Operator, load
from dietlab.dispatch.portfolio import Portfolio, candidate_plans, choose_portfolio, dense_shapes

__all__ = [
    "Dispatcher", "Layer", "Operator", "Portfolio", "build", "candidate_plans", "choose_portfolio",
    "dense_shapes", "load", "train_dispatcher", "versions",
]  # fmt: skip
