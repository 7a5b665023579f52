"""The evolutionary search of the paper, as the paper's published code runs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from dietlab.base.statistics import Values
from dietlab.cost import adaptation_cost
from dietlab.problem import extents
from dietlab.scheme import Scheme
from dietlab.tuning.state import SearchState
from dietlab.tuning.strategies.knobs import Knobs, knobs_of

SHRINKS = 1.1
"""The largest ratio of a tile's rows to the target shape's rows at which mutation does not halve the tile
(``utils.cc`` of the published code)."""

DIVIDED = frozenset({"rows", "cols", "step", "unroll", "down", "across"})
"""The knobs that split an axis: mutation moves a divisor into or out of such a knob."""


@dataclass(frozen=True)
class PaperStrategy:
    """The evolutionary search of the paper (section 4), with the constants of its published code.

    A round draws a population, a part of it from the best measured schemes, and mutates it for some
    generations. The round proposes the best untried schemes of all generations, and a share of random
    schemes.

    - Fitness is the best score over all shapes; parents are drawn in proportion to a power of the fitness,
      whose exponent grows by one every ``sharpening`` trials.
    - A mutation is for a target shape, drawn in proportion to ``flops * weight / best throughput``, the time
      spent on this shape. The mutation halves the tile's rows until the target has nearly as many rows, then
      moves a divisor into or out of one axis.
    - Until the model has ``warm_up`` samples the score is the adaptation cost alone, ``f_occ * f_pad``.

    ``docs/search.md`` lists every difference from the published code.

    Args:
        population: the number of schemes in a generation.
        generations: the number of mutations of a population.
        mutation: the probability that a child is a mutation and not a copy.
        incumbents: the largest share of measured schemes in the first generation.
        kept: the largest number of untried schemes to propose from.
        random_share: the share of random proposals.
        warm_up: the number of samples from which on the model gives the score.
        sharpening: the number of trials until the exponent grows by one.
    """

    population: int = 2048
    generations: int = 4
    mutation: float = 0.85
    incumbents: float = 0.2
    kept: int = 128
    random_share: float = 0.05
    warm_up: int = 100
    sharpening: int = 100

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if not state.untried:
            return ()
        evolution = Evolution(self, state)
        met = evolution.met(random)
        order = sorted(met, key=lambda number: (-evolution.fitness[number], random.random()))
        guided = order[: min(self.kept, count - round(count * self.random_share))]
        return state.filled((state.space.schemes[number] for number in guided), count, random)


@dataclass(frozen=True)
class Evolution:
    """One round of the evolution. Schemes are given by their indices in the space."""

    constants: PaperStrategy
    state: SearchState

    @cached_property
    def scores(self) -> Values:
        """The predicted throughput, or the adaptation cost alone, ``[schemes, shapes]``."""
        state, space = self.state, self.state.space
        if state.predictor is None or len(state.measured) < self.constants.warm_up:
            cost = adaptation_cost(space.workload, space.hardware, "paper")
            return np.asarray(cost.statics(space.schemes, state.shapes.shapes))
        flops = np.array([space.workload.flops(shape) for shape in state.shapes], np.float64)
        return np.asarray(flops / state.predictor.seconds(space.schemes, state.shapes.shapes))

    @cached_property
    def fitness(self) -> Values:
        """The best score over all shapes, ``[schemes]``."""
        return np.asarray(self.scores.max(axis=1))

    @cached_property
    def knobs(self) -> Knobs:
        return knobs_of(self.state.space)

    @cached_property
    def measured(self) -> list[int]:
        """The indices of the measured schemes, the fittest first."""
        known = set(self.state.measured)
        found = [number for number, scheme in enumerate(self.state.space) if scheme in known]
        return sorted(found, key=lambda number: -self.fitness[number])

    @cached_property
    def targets(self) -> list[float]:
        """The weight with which each shape is the target of a mutation: its share of the time."""
        shapes, workload = self.state.shapes, self.state.space.workload
        best = self.scores[self.measured].max(axis=0) if self.measured else np.ones(len(shapes))
        pairs = zip(shapes, shapes.weights, best.tolist(), strict=True)
        return [workload.flops(shape) * weight / score for shape, weight, score in pairs]

    def met(self, random: Random) -> set[int]:
        """Returns the indices of the untried schemes in all generations."""
        most = round(self.constants.incumbents * self.constants.population)
        population = self.measured[:most]
        fresh = self.constants.population - len(population)
        population = [*population, *random.choices(range(len(self.state.space)), k=fresh)]
        tried = {number for number, scheme in enumerate(self.state.space) if scheme in self.state.tried}
        found = set(population)
        for _ in range(self.constants.generations):
            population = self._next(population, random)
            found.update(population)
        return found - tried

    def _next(self, population: list[int], random: Random) -> list[int]:
        power = 1 + math.ceil(len(self.state.tried) / self.constants.sharpening)
        relative = self.fitness[population] / self.fitness.max()  # else the power overflows
        parents = random.choices(population, (relative**power).tolist(), k=len(population))
        targets = random.choices(range(len(self.state.shapes)), self.targets, k=len(population))
        mutated = [random.random() < self.constants.mutation for _ in parents]
        lots = zip(parents, targets, mutated, strict=True)
        return [self._mutated(parent, target, random) if lot else parent for parent, target, lot in lots]

    def _mutated(self, number: int, target: int, random: Random) -> int:
        """Returns the index of the shrunk parent with one axis changed. If the space has no such scheme,
        returns the index of the shrunk parent."""
        number = self._shrunk(number, target)
        knob = random.randrange(len(self.knobs.names))
        ways = self.knobs.along(number, knob)
        if self.knobs.names[knob] in DIVIDED:
            ways = [way for way in ways if self._divides(number, way, knob)]
        return random.choice(ways) if ways else number

    def _divides(self, number: int, other: int, knob: int) -> bool:
        """Returns whether a knob's value in one scheme divides its value in the other scheme."""
        one, two = (self.knobs.values[knob][self.knobs.codes[n][knob]] for n in (number, other))
        return bool(max(one, two) % min(one, two) == 0)

    def _shrunk(self, number: int, target: int) -> int:
        """Returns the index of a scheme with a lower tile: its rows are halved while they exceed
        :data:`SHRINKS` times the rows of the target shape and the space has such a scheme."""
        space = self.state.space
        rows = extents(space.workload, self.state.shapes.shapes[target])["rows"]
        while space.schemes[number].rows > max(1, SHRINKS * rows) and "rows" in self.knobs.names:
            knob = self.knobs.names.index("rows")
            half = space.schemes[number].rows // 2
            lower = [way for way in self.knobs.along(number, knob) if space.schemes[way].rows == half]
            if not lower:
                break
            (number,) = lower
        return number
