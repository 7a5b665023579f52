"""Search strategies by name, and the two that ask no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from dietlab.errors import SpaceError
from dietlab.search.autotvm import AnnealingStrategy, GeneticStrategy
from dietlab.search.marginal import DraftStrategy, MarginalStrategy
from dietlab.search.paper import PaperStrategy
from dietlab.search.state import SearchState, Strategy
from dietlab.search.tpe import TpeStrategy
from dietlab.space import Scheme


@dataclass(frozen=True)
class RandomStrategy:
    """Random search proposes uniformly, without replacement: the baseline of every strategy."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        return state.filled((), count, random)


@dataclass(frozen=True)
class GridStrategy:
    """Grid search goes over the ordered space in even steps, which halve whenever it comes to the end; at
    last it has proposed every scheme."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        schemes, bits = state.space.schemes, max(1, (len(state.space) - 1).bit_length())
        turns = (int(f"{turn:0{bits}b}"[::-1], 2) for turn in range(1 << bits))
        order = (schemes[place] for place in turns if place < len(schemes))
        return [scheme for scheme in order if scheme not in state.tried][:count]


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "draft": DraftStrategy,
    "marginal": MarginalStrategy,
    "paper": PaperStrategy,
    "annealing": AnnealingStrategy,
    "genetic": GeneticStrategy,
    "tpe": TpeStrategy,
    "random": RandomStrategy,
    "grid": GridStrategy,
}
"""Strategies by name; called without arguments, each makes a new one."""


def strategy_named(strategy: str | Strategy) -> Strategy:
    """Returns the strategy of that name, or the strategy itself.

    Raises:
        SpaceError: for an unknown name.
    """
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        raise SpaceError(f"a strategy is one of {', '.join(STRATEGIES)}", repr(strategy))
    return STRATEGIES[strategy]()
