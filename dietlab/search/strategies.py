"""Search strategies by name, and the two that ask no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from dietlab.errors import SpaceError
from dietlab.search.marginal import MarginalStrategy
from dietlab.search.paper import PaperStrategy
from dietlab.search.state import SearchState, Strategy
from dietlab.space import Scheme


@dataclass(frozen=True)
class RandomStrategy:
    """Random search proposes uniformly, without replacement: the baseline of every strategy."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        return random.sample(state.untried, min(count, len(state.untried)))


@dataclass(frozen=True)
class ExhaustiveStrategy:
    """Exhaustive search proposes every scheme in order: for small spaces and for replay."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        return state.untried[:count]


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "marginal": MarginalStrategy,
    "paper": PaperStrategy,
    "random": RandomStrategy,
    "exhaustive": ExhaustiveStrategy,
}


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
