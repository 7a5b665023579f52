"""Decides between plans: measures the pairs of a scheme and a shape on which the best library depends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.cost import Known
from dietlab.cost.places import squared_exponential
from dietlab.measure import Trial
from dietlab.problem import Shape, ShapeSet, extents_of
from dietlab.scheme import Scheme
from dietlab.tuning.candidates import candidate_plans
from dietlab.tuning.choice import Choice
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.losses import lost

Pair = tuple[Scheme, Shape]

BAND = 0.3
"""The largest ratio of a measured pair's predicted time to the fastest time on its shape, as a natural
logarithm: 35 % slower."""

NEAR = 0.15
"""The largest ratio of a considered scheme's predicted time on its best shape to the fastest time on that
shape, as a natural logarithm: 16 % slower."""

CANDIDATES = 600
"""The most schemes that are considered: choosing a library among them takes half a second a round. A CPU has
about as many; a GPU's space has ten times more."""

HOPE, LEAST_HOPE = 2.0, 0.5
"""The number of standard deviations from a prediction down to its optimistic time, in the first decision and
in the last. At first any library may be the best; at last mostly schemes of the shipped library compete."""

REACH = 0.5
"""The distance between the extents of two shapes, in natural logarithms, at which a measurement on one shape
decides 0.6 of the other shape's gain."""

PAIR_SECONDS = 0.02
"""The time to start and check the measurement of a pair, in seconds."""

CALLS = 10
"""The number of calls in a measurement."""


@dataclass(frozen=True)
class Decision:
    """A decision compares the library that would ship now with the best one that is still possible.

    A *library* is the few micro-kernels that lose least over all shapes. The best library at pessimistic
    times (predictions raised by their doubt) would ship now. The best library at optimistic times
    (predictions lowered by their doubt) is still possible. The scheme that would serve a shape has two rivals
    that may be faster: the scheme of the possible library, and the second-best scheme of the shipped
    library::

        gain(shape) = loss of the scheme that would serve it, at its pessimistic time
                      over the better of the two rivals, at its optimistic time

    Args:
        known: the measurements and the predictions.
        max_kernels: the largest number of micro-kernels in the library.
        progress: the share of the effort's decisions that were taken so far, from 0 to 1.
        measurable: the pairs that can be measured (None: all pairs).
    """

    known: Known
    max_kernels: int
    progress: float = 0.0
    measurable: Collection[Pair] | None = None

    @property
    def expected_loss(self) -> float:
        """The largest share of the time that undecided pairs may still cost the library: a weighted mean over
        shapes."""
        return float(np.expm1(self._gained) @ np.array(self._grid.weights))

    def trials(self, count: int, begun: Collection[Shape] = ()) -> tuple[Trial, ...]:
        """Returns trials of up to ``count`` pairs. Shapes with the largest gain per second of measuring are
        chosen first.

        On each shape, the scheme that would serve the shape is timed next to its rivals and to the scheme
        that is predicted fastest. A measurement also informs about neighbouring shapes, so neighbours come
        later.

        Args:
            count: the largest number of pairs.
            begun: the shapes on which the rivals are already being measured.
        """
        seconds = np.exp(self._candidates[1][self._shipped, self._every])
        left = lost(np.exp(self._gained)) * np.array(self._grid.weights) / (PAIR_SECONDS + CALLS * seconds)
        near = self._nearness

        def after(left: Values, column: int) -> Values:
            """Returns the gains that remain after the rivals on a shape were measured."""
            same = (self._hoped == self._hoped[column]) & (self._shipped == self._shipped[column])
            found = np.where(same, left * (1 - near[column]), left)
            found[column] = 0.0
            return found

        for column, shape in enumerate(self._grid.shapes):
            left = after(left, column) if shape in begun else left
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
            left = after(left, column)
        return tuple(Trial(scheme, tuple(sorted(wanted[scheme]))) for scheme in sorted(wanted))

    def _rivals(self, column: int) -> list[Scheme]:
        """Returns the schemes that compete for a shape, and the scheme that is predicted fastest."""
        rivals = self._shipped, self._hoped, self._runner_up, self._leader
        plans, _ = self._candidates
        found = [plans[number] for number in dict.fromkeys(numbers[column] for numbers in rivals)]
        pairs, shape = self.measurable, self._grid.shapes[column]
        return [scheme for scheme in found if pairs is None or (scheme, shape) in pairs]

    @cached_property
    def _grid(self) -> ShapeSet:
        """The shapes that the tree is trained on and that may be measured."""
        workload, shapes = self.known.space.workload, self.known.shapes
        grid = length_grid(workload, shapes)
        allowed = {*grid.shapes} if self.measurable is None else {shape for _, shape in self.measurable}
        weights = zip(grid.shapes, grid.weights, strict=True)
        return ShapeSet.of({s: w for s, w in weights if s in allowed and s not in shapes.held_out})

    @cached_property
    def _candidates(self) -> tuple[tuple[Scheme, ...], Values]:
        """At most :data:`CANDIDATES` schemes that are within :data:`NEAR` of the fastest on some shape, and
        the logarithms of their times, ``[candidates, shapes]``."""
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

    @cached_property
    def _doubts(self) -> Values:
        plans, logs = self._candidates
        return self.known.doubts(plans, self._grid.shapes, logs - logs.min(axis=0) < BAND)

    @cached_property
    def _at_worst(self) -> Values:
        return self._candidates[1] + self._doubts

    @cached_property
    def _at_best(self) -> Values:
        hope = LEAST_HOPE + (HOPE - LEAST_HOPE) * (1 - self.progress)
        return np.asarray(self._candidates[1] - hope * self._doubts)

    @cached_property
    def _library(self) -> tuple[Choice, tuple[int, ...]]:
        """The choice at pessimistic times, and the micro-kernels that would ship now."""
        plans, _ = self._candidates
        choice = Choice(self.known.space.workload, plans, self._grid, np.exp(self._at_worst))
        return choice, choice.best(self.max_kernels)[0]

    @cached_property
    def _shipped(self) -> npt.NDArray[np.intp]:
        """The index of the candidate that would serve each shape now, ``[shapes]``."""
        choice, kernels = self._library
        return choice.fastest(kernels)

    @cached_property
    def _hoped(self) -> npt.NDArray[np.intp]:
        """The index of the candidate that would serve each shape at optimistic times, ``[shapes]``."""
        choice = self._library[0].with_table(np.exp(self._at_best))
        return choice.fastest(choice.best(self.max_kernels)[0])

    @cached_property
    def _runner_up(self) -> npt.NDArray[np.intp]:
        """The index of the other candidate with the least optimistic time in the library that would ship,
        ``[shapes]``. If no other candidate may be faster, the index of the serving candidate itself."""
        choice, kernels = self._library
        logs = np.where(choice.covered(kernels), self._at_best, np.inf)
        logs[self._shipped, self._every] = np.inf
        found = logs.argmin(axis=0)
        faster = logs[found, self._every] < self._at_worst[self._shipped, self._every]
        return np.asarray(np.where(faster, found, self._shipped))

    @cached_property
    def _leader(self) -> npt.NDArray[np.intp]:
        """The index of the fastest candidate on each shape at pessimistic times, whether the library has this
        candidate or not."""
        return np.asarray(self._at_worst.argmin(axis=0))

    @property
    def _every(self) -> npt.NDArray[np.intp]:
        return np.arange(len(self._grid))

    @cached_property
    def _gained(self) -> Values:
        """The logarithm of the serving scheme's pessimistic time over its best rival's optimistic time,
        ``[shapes]``; 0 without a rival."""
        found = np.zeros(len(self._grid))
        for rivals in (self._hoped, self._runner_up):
            gained = self._at_worst[self._shipped, self._every] - self._at_best[rivals, self._every]
            found = np.maximum(found, np.where(rivals == self._shipped, 0.0, gained))
        return found

    @property
    def _nearness(self) -> Values:
        """The share of a shape's gain that a measurement on another shape decides, ``[shapes, shapes]``."""
        extents = extents_of(self.known.space.workload, self._grid.shapes)
        places = np.log(np.maximum(1, np.stack(list(extents.values()), axis=1))) / REACH
        return squared_exponential(places, places)
