"""Search strategies: each proposes the schemes of the next round through one method."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from random import Random
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.cost import Predicts, adaptation_cost, best_shape
from dietlab.errors import SpaceError
from dietlab.measure import Record
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme, Space


@dataclass(frozen=True)
class SearchState:
    """The knowledge that a strategy proposes from; ``predictor`` is None before the first fit."""

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    predictor: Predicts | None

    @cached_property
    def tried(self) -> frozenset[Scheme]:
        return frozenset(record.scheme for record in self.records)

    @cached_property
    def untried(self) -> tuple[Scheme, ...]:
        return tuple(scheme for scheme in self.space if scheme not in self.tried)

    @cached_property
    def best_seconds(self) -> dict[Shape, float]:
        """Predicted seconds of the best measured scheme on each shape; before any, the most of any."""
        tried = [r.scheme for r in self.records if r.ok]
        if self.predictor is None:
            return dict.fromkeys(self.shapes, float("inf"))
        predicted = self.predictor.seconds(tried or self.untried, self.shapes.shapes)
        table = predicted.min(axis=0) if tried else predicted.max(axis=0)
        return dict(zip(self.shapes, table.tolist(), strict=True))


class Strategy(Protocol):
    """A search strategy proposes up to ``count`` untried schemes; fewer when fewer are left."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]: ...


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


@dataclass(frozen=True)
class MarginalStrategy:
    """Greedy search by marginal gain: each pick helps the shapes that earlier picks left slow.

    Predicts every untried scheme on every shape and adds, one by one, the one that lowers the
    weighted sum of logarithms of time most, given the best known time of each shape and the picks
    before it. A share at random keeps the model honest.

    Predictions of similar schemes are similar, and the first ones err together. So at most
    ``tile_share`` of the picks have one tile, and at most ``width_share`` one tile width, until only such
    are left. (Replayed on all 1512 schemes of a dense layer from a uniform first round, 64 trials end
    0.7 % above the fastest on average with these limits, 1.7 % without.)

    The first round, before there is a predictor, tries every access pattern
    (:attr:`MicroKernel.access_pattern`) in each loop order equally often: one that it leaves out has no
    evidence in its favour and may never be proposed.
    """

    random_share: float = 0.2
    tile_share: float = 1 / 8
    width_share: float = 1 / 4

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if state.predictor is None or not state.untried:
            return _dealt(state.untried, count, random)
        logs = np.log(state.predictor.seconds(state.untried, state.shapes.shapes))
        weights = np.array(state.shapes.weights)
        known = np.log([state.best_seconds[shape] for shape in state.shapes])
        guided = min(count - round(count * self.random_share), len(state.untried))
        tiles = _numbered([tuple(scheme.kernel.tile.values()) for scheme in state.untried])
        widths = _numbered([scheme.cols for scheme in state.untried])
        limits = ((tiles, guided * self.tile_share), (widths, guided * self.width_share))
        chosen: list[int] = []
        for _ in range(guided):
            gains = np.maximum(0.0, known - logs) @ weights
            # Ties (no gain) go to the best on average, so that a round is never wasted.
            scores = gains - 1e-3 * (logs @ weights)
            scores[chosen] = -np.inf
            various = scores.copy()
            for groups, most in limits:
                various[np.bincount(groups[chosen], minlength=len(groups))[groups] >= most] = -np.inf
            pick = int(scores.argmax() if np.isneginf(various).all() else various.argmax())
            chosen.append(pick)
            known = np.minimum(known, logs[pick])
        picks = [state.untried[i] for i in chosen]
        left = [scheme for scheme in state.untried if scheme not in picks]
        return picks + random.sample(left, min(count - len(picks), len(left)))


def _dealt(schemes: Sequence[Scheme], count: int, random: Random) -> list[Scheme]:
    """Draws ``count`` schemes at random, one of each access pattern in turn."""
    ways: dict[Hashable, list[Scheme]] = {}
    for scheme in random.sample(schemes, len(schemes)):
        ways.setdefault((scheme.order, scheme.kernel.access_pattern), []).append(scheme)
    turns = zip_longest(*ways.values())
    return [scheme for turn in turns for scheme in turn if scheme is not None][:count]


def _numbered(groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    """Numbers the distinct groups from 0 and returns each element's number."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[group] for group in groups], np.intp)


@dataclass(frozen=True)
class PaperStrategy:
    """The evolutionary search of the paper (section 4) with its constants.

    A population evolves by mutation and crossover; a candidate's fitness is the best score over all
    shapes; survivors are drawn for a target shape, chosen with probability proportional to
    ``flops * weight / best throughput``, that is to the time spent in it.
    """

    population: int = 2048
    generations: int = 4
    mutation: float = 0.85
    random_share: float = 0.05

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if state.predictor is None or not state.untried:
            return RandomStrategy().propose(state, count, random)
        members = list(state.untried)
        population = [random.choice(members) for _ in range(self.population)]
        alive = frozenset(members)
        scores = _Scores(state)
        for _ in range(self.generations):
            weights = [scores.fitness(scheme) for scheme in population]
            parents = random.choices(population, weights, k=2 * self.population)
            population = [
                self._child(parents[2 * i], parents[2 * i + 1], alive, random) for i in range(self.population)
            ]
        guided = count - round(count * self.random_share)
        picks = self._select(state, scores, set(population), guided, random)
        left = [scheme for scheme in members if scheme not in picks]
        return picks + random.sample(left, min(count - len(picks), len(left)))

    def _child(self, mother: Scheme, father: Scheme, alive: frozenset[Scheme], random: Random) -> Scheme:
        genes, other = list(mother.parameters), father.parameters
        if random.random() < self.mutation:
            changed = [random.choice(genes)]
        else:
            changed = [gene for gene in genes if random.random() < 0.5]
        try:
            child = mother.changed(**{gene: other[gene] for gene in changed})
        except SpaceError:  # sizes that do not go together
            return mother
        return child if child in alive else mother

    def _select(
        self, state: SearchState, scores: _Scores, pool: set[Scheme], count: int, random: Random
    ) -> list[Scheme]:
        """Selects the best of the pool for one drawn target shape after another."""
        time_spent = [
            weight * min(state.best_seconds[shape], 1.0)
            for shape, weight in zip(state.shapes, state.shapes.weights, strict=True)
        ]
        picks: list[Scheme] = []
        candidates = sorted(pool)
        while candidates and len(picks) < count:
            target = random.choices(range(len(state.shapes)), time_spent)[0]
            best = max(candidates, key=lambda scheme: scores.score(scheme, target))
            candidates.remove(best)
            picks.append(best)
        return picks


class _Scores:
    """Predicted throughput (flop/s) of the untried schemes on each shape, computed once a round."""

    def __init__(self, state: SearchState) -> None:
        assert state.predictor is not None
        seconds = state.predictor.seconds(state.untried, state.shapes.shapes)
        flops = np.array([state.space.workload.flops(shape) for shape in state.shapes])
        self._rows = dict(zip(state.untried, flops / seconds, strict=True))

    def score(self, scheme: Scheme, shape: int) -> float:
        return float(self._rows[scheme][shape])

    def fitness(self, scheme: Scheme) -> float:
        return float(self._rows[scheme].max())


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


def target_shape(scheme: Scheme, space: Space, shapes: tuple[Shape, ...]) -> Shape:
    """Returns the shape ``S*`` on which a candidate is measured: the one with the least adaptation cost."""
    return best_shape(scheme, shapes, adaptation_cost(space.workload, space.hardware))
