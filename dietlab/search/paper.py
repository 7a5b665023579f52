"""The evolutionary search of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from dietlab.errors import SpaceError
from dietlab.search.state import SearchState
from dietlab.space import Scheme


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
            return random.sample(state.untried, min(count, len(state.untried)))
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
