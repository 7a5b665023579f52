"""The two searches of AutoTVM: simulated annealing over a learned model, and a genetic algorithm without one.

AutoTVM tunes one shape. Here each Markov chain, and each child, is judged on a *target shape*, which is drawn
by the shapes' weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from random import Random

from dietlab.scheme import Scheme
from dietlab.tuning.state import SearchState
from dietlab.tuning.strategies.knobs import Codes, Knobs, knobs_of, numbers_of


@dataclass(frozen=True)
class AnnealingStrategy:
    """Simulated annealing as in AutoTVM's ``XGBTuner``, with its constants.

    Markov chains walk through the space, one knob a step. A chain accepts a scheme of lower predicted
    throughput on its target shape with a probability that falls with the temperature, from 1 to 0. The best
    untried schemes of all chains are measured, and a share of random schemes. The first round is random.

    Args:
        chains: the number of Markov chains.
        steps: the number of steps of a chain.
        early_stop: the number of steps without a better scheme after which all chains end.
    """

    chains: int = 128
    steps: int = 500
    early_stop: int = 50
    random_share: float = 0.05

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if state.predictor is None or not state.untried:
            return state.filled((), count, random)
        met = self._met(state, count, random)
        guided = nlargest(count - round(count * self.random_share), met, key=lambda n: (met[n], -n))
        return state.filled((state.space.schemes[number] for number in guided), count, random)

    def _met(self, state: SearchState, count: int, random: Random) -> dict[int, float]:
        """Returns the best relative throughput of each untried scheme that a chain visited, by the scheme's
        index."""
        knobs, scores = knobs_of(state.space), state.relative(state.space.schemes).tolist()
        tried = {number for number, scheme in enumerate(state.space) if scheme in state.tried}
        shapes = random.choices(range(len(state.shapes)), state.shapes.weights, k=self.chains)
        at = random.choices(range(len(state.space)), k=self.chains)
        met: dict[int, float] = {}
        least, changed = -math.inf, 0
        for step in range(self.steps):
            temperature = 1 - step / self.steps
            for chain, shape in enumerate(shapes):
                ways = knobs.neighbours(at[chain])
                new = random.choice(ways) if ways else at[chain]
                score, gained = scores[new][shape], scores[new][shape] - scores[at[chain]][shape]
                if random.random() < math.exp(min(gained / (temperature + 1e-5), 1.0)):
                    at[chain] = new
                if new not in tried and score > met.get(new, -math.inf):
                    met[new] = score
                    changed = step if score > least else changed
            least = min(nlargest(count, met.values()), default=least) if len(met) >= count else least
            if step - changed > self.early_stop:
                break
        return met


@dataclass(frozen=True)
class GeneticStrategy:
    """A genetic algorithm as in AutoTVM's ``GATuner``, with the constants of ``GATuner``. It uses no
    predictions.

    Two parents, drawn by their throughput on the child's target shape, are crossed at one point of their
    knobs, and each knob of the child changes with a small probability. If a child was tried already, the
    nearest untried scheme replaces it. The first generation is random.

    Args:
        population: the number of last schemes that may be parents.
        elite: the number of best schemes that may also be parents.
        mutation: the probability that a knob changes.
    """

    population: int = 100
    elite: int = 3
    mutation: float = 0.1

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if state.predictor is None or not state.measured:
            return state.filled((), count, random)
        knobs, numbers = knobs_of(state.space), numbers_of(state.space)
        known = state.relative(state.measured).tolist()
        best = nlargest(self.elite, range(len(known)), key=lambda place: max(known[place]))
        parents = sorted({*range(len(known))[-self.population :], *best})
        free = {numbers[scheme] for scheme in state.untried}
        picks: list[Scheme] = []
        for _ in range(min(count, len(free))):
            shape = random.choices(range(len(state.shapes)), state.shapes.weights)[0]
            chosen = random.choices(parents, [known[place][shape] for place in parents], k=2)
            mother, father = (knobs.codes[numbers[state.measured[place]]] for place in chosen)
            child = self._child(mother, father, knobs, free, random)
            free.discard(child)
            picks.append(state.space.schemes[child])
        return picks

    def _child(self, mother: Codes, father: Codes, knobs: Knobs, free: set[int], random: Random) -> int:
        """Returns the untried scheme nearest to a child of two parents."""
        point = random.randrange(len(mother) + 1)
        codes = [*mother[:point], *father[point:]]
        for knob, values in enumerate(knobs.values):
            if random.random() < self.mutation:
                codes[knob] = random.randrange(len(values))
        return knobs.nearest(codes, sorted(free), lambda _: random.random())
