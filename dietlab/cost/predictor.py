"""Predictors: what a search asks of a cost model, and the one that it uses by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.cost.adaptation import Adaptation
from dietlab.cost.calibration import Calibration
from dietlab.cost.model import CostModel, fit_cost_model
from dietlab.errors import ModelError
from dietlab.measure import CacheState, Record
from dietlab.shapes import Shape
from dietlab.space import Scheme, Space

Seconds = npt.NDArray[np.float64]
"""``[schemes, shapes]``."""


class Fitted(Protocol):
    """A fitted predictor gives the time of any scheme on any shape, and how sure it is."""

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the seconds of a call, ``[schemes, shapes]``: near what was measured, where it was."""

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the standard deviation of their logarithms, ``[schemes, shapes]``."""


class Predictor(Protocol):
    """A predictor is fitted on records of a space; ``tune(predictor=...)`` takes any."""

    def fit(self, space: Space, records: Sequence[Record]) -> Fitted:
        """Returns it fitted on the records.

        Raises:
            ModelError: if none of them is successful.
        """


@dataclass(frozen=True)
class LearnedPredictor:
    """The predictor that is used by default: a cost model, calibrated by what was measured.

    Args:
        adaptation: the adaptation cost: ``streamed`` knows cache levels, ``paper`` does not.
        cache: where operands are while candidates are timed.
        seed: of the model.
    """

    adaptation: Adaptation = "streamed"
    cache: CacheState = "hot"
    seed: int = 0

    def fit(self, space: Space, records: Sequence[Record]) -> Calibrated:
        model = fit_cost_model(
            space.workload, space.hardware, records, self.adaptation, self.seed, self.cache
        )
        return Calibrated(model, tuple(records))


@dataclass(frozen=True)
class Calibrated:
    """A cost model and the records that it was fitted on, which count where they are nearer
    (:class:`~dietlab.cost.Calibration`)."""

    model: CostModel
    records: tuple[Record, ...]

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the geometric mean over cache states, where times were measured in two: plans that memory
        bandwidth makes equal differ by how well they compute, and a plan that is fast in one state only is a
        bad one."""
        seconds = self.seconds_in(schemes, shapes)
        if not self._measured_cached:
            return seconds
        return np.asarray(np.sqrt(seconds * self.seconds_in(schemes, shapes, cached=True)))

    def seconds_in(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], *, cached: bool = False
    ) -> Seconds:
        """Returns seconds ``[schemes, shapes]`` in the cache state of tuning or, if ``cached``, from the
        last-level cache.

        Without any record from cache, each time from memory is multiplied by the ratio of both predictions of
        the model."""
        if not cached:
            return self._calibration.seconds(schemes, shapes)
        if self._measured_cached:
            return self._cached_calibration.seconds(schemes, shapes)
        change = self.model.in_cache.seconds(schemes, shapes) / self.model.seconds(schemes, shapes)
        return self._calibration.seconds(schemes, shapes) * change

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the standard deviation of the logarithms of the seconds, ``[schemes, shapes]``."""
        return self._calibration.doubt(schemes, shapes)

    @cached_property
    def _calibration(self) -> Calibration:
        return Calibration(self.model.cost, self.records)

    @cached_property
    def _measured_cached(self) -> bool:
        return any(record.cached_seconds for record in self.records)

    @cached_property
    def _cached_calibration(self) -> Calibration:
        found = [replace(record, seconds=record.cached_seconds) for record in self.records if record.ok]
        return Calibration(self.model.in_cache.cost, found)


def model_of(predictor: Fitted) -> CostModel:
    """Returns the cost model behind a fitted predictor.

    Raises:
        ModelError: if it has none.
    """
    if isinstance(predictor, Calibrated):
        return predictor.model
    raise ModelError(
        "this run was predicted by a cost model",
        type(predictor).__name__,
        "Tune with LearnedPredictor(), or fit_cost_model on the run's records.",
    )
