"""Decides between plans: measures the pairs of a scheme and a shape on which the best library depends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dietlab.cost import Known
from dietlab.measure import Trial
from dietlab.problem import Shape, ShapeSet, extents_of
from dietlab.scheme import Scheme
from dietlab.tuning.candidates import candidate_plans
from dietlab.tuning.choice import Choice
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.losses import lost

Values = npt.NDArray[np.float64]
Pair = tuple[Scheme, Shape]

BAND, NEAR = 0.3, 0.15
"""The most by which a predicted time exceeds the least of its shape, as a logarithm, if the pair may be
measured, and the most by which a scheme's does on its best shape, if it is to be considered: 35 and 16 %."""

CANDIDATES = 600
"""The most schemes that are considered: choosing a library among them takes half a second a round. A CPU has
about as many; a GPU's space has ten times more."""

HOPE, LEAST_HOPE = 2.0, 0.5
"""How many standard deviations below its prediction a time is hoped to be, at the first decision and at the
last: at first any library may turn out to be the best, at last its own schemes compete."""

REACH = 0.5
"""The difference of extents, of natural logarithms, over which one measurement tells of another shape: at one
of them what is left to be told of it has risen to 0.4."""

PAIR_SECONDS, CALLS = 0.02, 10
"""What a measurement costs: seconds to start and check it, and calls."""


@dataclass(frozen=True)
class Decision:
    """A decision compares the best library by what is known with the best by what may be hoped.

    A *library* is the few micro-kernels that lose least over all shapes. By the times that are expected, each
    raised by its doubt, it is what would ship now; by those lowered by their doubt it is the best that one
    may hope for. A scheme of what is hoped for, or another one of what would ship, may be faster than the one
    that serves a shape::

        gain(shape) = loss of what would serve it, at its time at worst
                      over the better of the two rivals, at its time at best

    Args:
        known: what was measured, and what is predicted.
        max_kernels: the most micro-kernels of the library.
        progress: the share of all decisions that was taken, 0 to 1.
        measurable: pairs that can be measured (None: all).
    """

    known: Known
    max_kernels: int
    progress: float = 0.0
    measurable: Collection[Pair] | None = None

    @property
    def expected_loss(self) -> float:
        """The share of the time, by weight, that the library may lose at most by what is not decided yet."""
        return float(np.expm1(self._gained) @ np.array(self._grid.weights))

    def trials(self, count: int, asked: Collection[Shape] = ()) -> tuple[Trial, ...]:
        """Returns trials of up to ``count`` pairs, those that promise the largest gain for their cost first.

        On each shape the scheme that would serve it is timed next to its rivals and to the one that is
        expected to be fastest. A measurement tells of neighbouring shapes, too, so that those come later.

        Args:
            count: the most pairs.
            asked: shapes on which the rivals are being measured already.
        """
        left = lost(np.exp(self._gained)) * np.array(self._grid.weights) / self._costs
        near = _nearness(self._places)

        def told(left: Values, column: int) -> Values:
            """Returns what is left to be gained once the rivals on a shape were measured."""
            alike = (self._hoped == self._hoped[column]) & (self._shipped == self._shipped[column])
            found = np.where(alike, left * (1 - near[column]), left)
            found[column] = 0.0
            return found

        for column, shape in enumerate(self._grid.shapes):
            left = told(left, column) if shape in asked else left
        wanted: dict[Scheme, list[Shape]] = {}
        total = 0
        for _ in range(len(self._grid)):
            column = int(left.argmax())
            rivals, shape = self._rivals(column), self._grid.shapes[column]
            if left[column] <= 0 or total + len(rivals) > count:
                break
            for scheme in rivals:
                wanted.setdefault(scheme, []).append(shape)
            total += len(rivals)
            left = told(left, column)
        return tuple(Trial(scheme, tuple(sorted(wanted[scheme]))) for scheme in sorted(wanted))

    def _rivals(self, column: int) -> list[Scheme]:
        """Returns the schemes that compete for a shape, and what is expected to be fastest there."""
        rivals = self._shipped, self._hoped, self._runner_up, self._leader
        found = [self._plans[number] for number in dict.fromkeys(numbers[column] for numbers in rivals)]
        told, shape = self.measurable, self._grid.shapes[column]
        return [scheme for scheme in found if told is None or (scheme, shape) in told]

    @cached_property
    def _grid(self) -> ShapeSet:
        """The shapes that the tree is trained on and that may be measured."""
        workload, shapes = self.known.space.workload, self.known.shapes
        grid = length_grid(workload, shapes)
        told = None if self.measurable is None else {shape for _, shape in self.measurable}
        held_out = shapes.held_out
        weights = zip(grid.shapes, grid.weights, strict=True)
        return ShapeSet.of({s: w for s, w in weights if s not in held_out and (told is None or s in told)})

    @cached_property
    def _candidates(self) -> tuple[tuple[Scheme, ...], Values]:
        """Candidates that are :data:`NEAR` the fastest on some shape, the nearest :data:`CANDIDATES`, and the
        logarithms of their times, ``[candidates, shapes]``."""
        known, shapes = self.known, self._grid.shapes
        plans: set[Scheme] = {*known.space, *candidate_plans(known, shapes)}
        if self.measurable is not None:
            plans &= {scheme for scheme, _ in self.measurable}
        ordered = sorted(plans - {record.scheme for record in known.records if not record.ok})
        logs = np.log(known.mean_seconds(ordered, shapes))
        behind = (logs - logs.min(axis=0)).min(axis=1)
        nearest = behind.argsort(kind="stable")[:CANDIDATES]
        kept = np.sort(nearest[behind[nearest] < NEAR])
        return tuple(ordered[number] for number in kept), logs[kept]

    @property
    def _plans(self) -> tuple[Scheme, ...]:
        return self._candidates[0]

    @property
    def _logs(self) -> Values:
        return self._candidates[1]

    @cached_property
    def _doubts(self) -> Values:
        near = self._logs - self._logs.min(axis=0) < BAND
        return self.known.doubts(self._plans, self._grid.shapes, near)

    @cached_property
    def _at_worst(self) -> Values:
        return self._logs + self._doubts

    @cached_property
    def _at_best(self) -> Values:
        hope = LEAST_HOPE + (HOPE - LEAST_HOPE) * (1 - self.progress)
        return np.asarray(self._logs - hope * self._doubts)

    @cached_property
    def _library(self) -> tuple[Choice, tuple[int, ...]]:
        """The micro-kernels that would ship now."""
        choice = Choice(self.known.space.workload, self._plans, self._grid, np.exp(self._at_worst))
        return choice, choice.best(self.max_kernels)[0]

    @cached_property
    def _shipped(self) -> npt.NDArray[np.intp]:
        """The scheme that would serve each shape now, ``[shape]``."""
        choice, kernels = self._library
        return choice.fastest(kernels)

    @cached_property
    def _hoped(self) -> npt.NDArray[np.intp]:
        """The scheme that would serve each shape if all times were as low as may be hoped."""
        choice = self._library[0].with_table(np.exp(self._at_best))
        return choice.fastest(choice.best(self.max_kernels)[0])

    @cached_property
    def _runner_up(self) -> npt.NDArray[np.intp]:
        """The scheme of the library that would ship which may be hoped to be fastest beside the one that
        serves the shape."""
        choice, kernels = self._library
        logs = np.where(choice.covered(kernels), self._at_best, np.inf)
        logs[self._shipped, self._every] = np.inf
        found = logs.argmin(axis=0)
        faster = logs[found, self._every] < self._at_worst[self._shipped, self._every]
        return np.asarray(np.where(faster, found, self._shipped))

    @cached_property
    def _leader(self) -> npt.NDArray[np.intp]:
        """The fastest scheme of each shape, however many micro-kernels that takes."""
        return np.asarray(self._at_worst.argmin(axis=0))

    @property
    def _every(self) -> npt.NDArray[np.intp]:
        return np.arange(len(self._grid))

    @cached_property
    def _gained(self) -> Values:
        """The logarithm of the time at worst of what would ship over that at best of its rivals, ``[shape]``;
        0 where it has none."""
        found = np.zeros(len(self._grid))
        for rivals in (self._hoped, self._runner_up):
            gained = self._at_worst[self._shipped, self._every] - self._at_best[rivals, self._every]
            found = np.maximum(found, np.where(rivals == self._shipped, 0.0, gained))
        return found

    @cached_property
    def _costs(self) -> Values:
        seconds = np.exp(self._logs[self._shipped, self._every])
        return np.asarray(PAIR_SECONDS + CALLS * seconds)

    @cached_property
    def _places(self) -> Values:
        found = extents_of(self.known.space.workload, self._grid.shapes)
        return np.asarray(np.log(np.maximum(1, np.stack(list(found.values()), axis=1))))


def _nearness(places: Values) -> Values:
    """Returns how much a measurement of one shape tells of another, 0 to 1, ``[shapes, shapes]``."""
    squares = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * squares / REACH**2))
