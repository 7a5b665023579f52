"""Search strategies by name, and the two strategies that use no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from random import Random
from typing import cast

from dietlab.base.contracts import require_methods, shown
from dietlab.base.errors import SpaceError
from dietlab.base.registry import Registry
from dietlab.scheme import Scheme
from dietlab.tuning.state import SearchState, Strategy
from dietlab.tuning.strategies.autotvm import AnnealingStrategy, GeneticStrategy
from dietlab.tuning.strategies.marginal import DraftStrategy, MarginalStrategy
from dietlab.tuning.strategies.paper import PaperStrategy
from dietlab.tuning.strategies.tpe import TpeStrategy


@dataclass(frozen=True)
class RandomStrategy:
    """Random search proposes uniformly, without replacement: the baseline of every strategy."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        return state.filled((), count, random)


@dataclass(frozen=True)
class GridStrategy:
    """Grid search goes over the ordered space in even steps. At the end of the space, it halves the step and
    starts again, until it has proposed every scheme."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        schemes, bits = state.space.schemes, max(1, (len(state.space) - 1).bit_length())
        turns = (int(f"{turn:0{bits}b}"[::-1], 2) for turn in range(1 << bits))
        order = (schemes[place] for place in turns if place < len(schemes))
        return [scheme for scheme in order if scheme not in state.tried][:count]


def _strategy(name: str, value: object) -> Callable[[], Strategy]:
    """Returns a function without arguments that returns the strategy. If ``value`` is a class, the function
    makes an object of the class."""
    if hasattr(value, "propose") and not isinstance(value, type):
        return lambda: cast(Strategy, value)
    if not callable(value) or (isinstance(value, type) and not hasattr(value, "propose")):
        raise SpaceError(f"the strategy {name} must be a class or an object with propose", shown(value))
    return value


STRATEGIES: Registry[Callable[[], Strategy]] = Registry(
    "a strategy",
    "dietlab.strategies",
    {
        "draft": DraftStrategy,
        "marginal": MarginalStrategy,
        "paper": PaperStrategy,
        "annealing": AnnealingStrategy,
        "genetic": GeneticStrategy,
        "tpe": TpeStrategy,
        "random": RandomStrategy,
        "grid": GridStrategy,
    },
    _strategy,
    SpaceError,
)
"""The functions that make strategies, by name; they are called without arguments. ``STRATEGIES["climb"] =
HillClimb`` enters a class, or an object, of your own."""


def strategy_named(strategy: str | Strategy) -> Strategy:
    """Returns the strategy with a name, or ``strategy`` itself if it is an object.

    Args:
        strategy: a key of :data:`STRATEGIES`, ``MODULE:NAME``, or an object with ``propose``.
    """
    if not isinstance(strategy, str):
        require_methods("a strategy", strategy, ("propose",), SpaceError)
        return strategy
    return _made(strategy, STRATEGIES.named(strategy))


def strategy_found(name: str) -> Strategy:
    """Returns the strategy that a file names. No module is imported to find the strategy."""
    return _made(name, STRATEGIES.found(name))


def _made(name: str, make: Callable[[], Strategy]) -> Strategy:
    try:
        signature(make).bind()
    except TypeError as error:
        rule = f"it must be possible to make the strategy {name} without arguments"
        raise SpaceError(rule, error, "Give them defaults, or enter an object.") from None
    made = make()
    require_methods(f"the strategy {name}", made, ("propose",), SpaceError)
    return made
