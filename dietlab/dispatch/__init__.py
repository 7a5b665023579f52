"""Stage 4, dispatch: portfolio, decision tree, one shared library."""

from dietlab.dispatch.build import build, versions
from dietlab.dispatch.check import checked_portfolio
from dietlab.dispatch.dispatcher import Dispatcher, train_dispatcher
from dietlab.dispatch.operator import Layer, Operator, load
from dietlab.dispatch.portfolio import Portfolio, choose_portfolio

__all__ = [
    "Dispatcher",
    "Layer",
    "Operator",
    "Portfolio",
    "build",
    "checked_portfolio",
    "choose_portfolio",
    "load",
    "train_dispatcher",
    "versions",
]
