"""Spaces of which every time is known: what replayed comparisons are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import RecordError
from dietlab.cost import Survey
from dietlab.measure import CacheState, Record, ReplayRunner, SyntheticRunner, Trial
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space
from dietlab.tuning import Effort

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Surveyed:
    """A space whose every scheme was timed on every shape.

    Args:
        name: of the survey.
        space: the schemes that were timed on all shapes.
        shapes: those that strategies tune for and are judged on, of equal weight.
        records: one for each pair.
        cache: where operands were.
    """

    name: str
    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    cache: CacheState = "hot"

    def timed(self, effort: Effort) -> Effort:
        """Returns an effort that times in the survey's cache state."""
        return replace(effort, timing=replace(effort.timing, cache=self.cache))

    @cached_property
    def runner(self) -> ReplayRunner:
        return ReplayRunner(self.records)

    @cached_property
    def seconds(self) -> Values:
        """The seconds of a call, ``[schemes, shapes]``."""
        found = {(record.scheme, record.shape): record.seconds for record in self.records}
        return np.array([[found[s, shape] for shape in self.shapes] for s in self.space], np.float64)

    @cached_property
    def efficiency(self) -> Values:
        """The time of the exhaustive optimum of each shape over every scheme's, ``[schemes, shapes]``."""
        return np.asarray(self.seconds.min(axis=0) / self.seconds)

    @cached_property
    def number(self) -> dict[Scheme, int]:
        """The row of each scheme in the tables."""
        return {scheme: number for number, scheme in enumerate(self.space)}

    @cached_property
    def compile_seconds(self) -> Mapping[Scheme, float]:
        """Seconds that building a scheme took, once for all of its shapes."""
        found: dict[Scheme, float] = {}
        for record in self.records:
            found[record.scheme] = max(found.get(record.scheme, 0.0), record.phases.compile)
        return found

    def chosen(self, numbers: npt.NDArray[np.intp]) -> float:
        """Returns :meth:`quality` of one scheme for each shape, by number."""
        return self.quality(self.efficiency[numbers, range(len(numbers))])

    def quality(self, efficiencies: Values) -> float:
        """Returns the weighted geometric mean over the shapes, 1 where each has its optimum."""
        weights = np.array(self.shapes.weights)
        return float(np.exp(np.log(efficiencies) @ weights / weights.sum()))


def surveyed(survey: Survey, shapes: Iterable[Shape] = ()) -> Surveyed:
    """Returns the schemes of a survey with a time on every shape; each pair's is that of its rounds together
    (:attr:`~dietlab.cost.Survey.truth`).

    Args:
        shapes: those that count (default: every shape of the survey).

    Raises:
        RecordError: if no scheme was timed on all of them.
    """
    timed = {(record.scheme, record.shape): record for record in survey.truth}
    wanted = tuple(sorted(shapes)) or tuple(sorted({shape for _, shape in timed}))
    whole = [scheme for scheme in survey.space if all((scheme, shape) in timed for shape in wanted)]
    if not whole:
        raise RecordError(
            "a survey has a scheme that was timed on every shape",
            f"{len(survey.space)} schemes and {len(wanted)} shapes",
            "Measure one with `dietlab survey`; a tuning's records have gaps.",
        )
    space = survey.space.restricted_to(whole)
    records = tuple(timed[scheme, shape] for scheme in space for shape in wanted)
    return Surveyed(survey.name, space, ShapeSet.of(dict.fromkeys(wanted, 1.0)), records, survey.cache)


def synthetic_survey(space: Space, shapes: Sequence[Shape], noise: float = 0.02, seed: int = 0) -> Surveyed:
    """Returns the survey of a simple machine, for tests and for playing: its times are no result."""
    runner = SyntheticRunner(space.hardware, noise, seed)
    trials = [Trial(scheme, tuple(shapes)) for scheme in space]
    records = tuple(runner.measure(space.workload, trials))
    return Surveyed("synthetic", space, ShapeSet.of(dict.fromkeys(shapes, 1.0)), records)
