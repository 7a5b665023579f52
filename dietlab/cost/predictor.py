"""Predictors: what a search asks of a cost model, and the one that it uses by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.base.contracts import name_of, require_methods, require_numbers
from dietlab.base.errors import ModelError
from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.bundle import Adaptation
from dietlab.cost.calibration import Calibration, Measured
from dietlab.cost.model import CostModel, fit_cost_model
from dietlab.cost.prior import Prior
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme, Space

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
        prior: what records of other shapes, layers, operators or processors let expect.
    """

    adaptation: Adaptation = "streamed"
    cache: CacheState = "hot"
    seed: int = 0
    prior: Prior | None = None

    def fit(self, space: Space, records: Sequence[Record]) -> Calibrated | Expected:
        """Returns it fitted on the records or, if none is successful yet, what a prior of this processor
        says.

        Raises:
            ModelError: if none is successful and there is no such prior, or it is of another kind of
                processor.
        """
        if self.prior is not None:
            self.prior.require_kind(space.hardware)
            if self.prior.counts(space.hardware, 0) and not any(record.ok for record in records):
                cost = adaptation_cost(space.workload, space.hardware, self.adaptation, self.cache)
                return Expected(cost, self.prior)
        model = fit_cost_model(
            space.workload, space.hardware, records, self.adaptation, self.seed, self.cache
        )
        return Calibrated(model, tuple(records), self.prior)


@dataclass(frozen=True)
class Calibrated:
    """A cost model and the records that it was fitted on, which count where they are nearer
    (:class:`~dietlab.cost.Calibration`).

    Args:
        model: the fitted cost model.
        records: what it was fitted on.
        prior: what it started from, if anything.
    """

    model: CostModel
    records: tuple[Record, ...]
    prior: Prior | None = None

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

    def doubt(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Seconds:
        """Returns the standard deviation of the logarithms of the seconds, ``[schemes, shapes]``; of pairs
        that are not asked for, where ``at`` is not true, it says nothing."""
        return self._calibration.doubt(schemes, shapes, at)

    @cached_property
    def _calibration(self) -> Calibration:
        return Calibration(self.model.cost, self.records, self.prior)

    @cached_property
    def _measured_cached(self) -> bool:
        return any(record.cached_seconds for record in self.records)

    @cached_property
    def _cached_calibration(self) -> Calibration:
        found = [replace(record, seconds=record.cached_seconds) for record in self.records if record.ok]
        return Calibration(self.model.in_cache.cost, found, self.prior)


@dataclass(frozen=True)
class Expected:
    """A prior before anything was measured: it ranks, at a level that nothing has told yet."""

    cost: AdaptationCost
    prior: Prior

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        values = self.prior.values(self.cost, schemes, shapes)
        return np.asarray(self.cost.bound(schemes, shapes) * np.exp(values))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return np.full((len(schemes), len(shapes)), self.prior.missed)


@dataclass(frozen=True)
class PaperPredictor:
    """DietCode's own: learned throughput, times occupancy, times padding (section 3.3, equation 2), and
    nothing that corrects it where it was measured.

    Args:
        cache: where operands are while candidates are timed.
        seed: of the model.
    """

    cache: CacheState = "hot"
    seed: int = 0

    def fit(self, space: Space, records: Sequence[Record]) -> ProductForm:
        model = fit_cost_model(space.workload, space.hardware, records, "paper", self.seed, self.cache)
        measured = Measured.of(space.workload, records)
        pairs = list(zip(measured.schemes, measured.shapes, strict=True))
        missed = np.log(model.seconds_of(pairs) / measured.seconds)
        return ProductForm(model, float(np.sqrt(np.mean(missed**2))))


@dataclass(frozen=True)
class ProductForm:
    """A cost model as it is, and the root mean square of what it misses of the records that it was fitted
    on."""

    model: CostModel
    missed: float

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return self.model.seconds(schemes, shapes)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return np.full((len(schemes), len(shapes)), self.missed)


@dataclass(frozen=True)
class Checked:
    """Checks every answer of what a predictor of others fitted.

    Args:
        fitted: the object itself.
    """

    fitted: Fitted

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns its seconds ``[schemes, shapes]``.

        Raises:
            ModelError: if they are of another size, not finite, or not above 0.
        """
        found = self.fitted.seconds(schemes, shapes)
        return self._numbers("seconds", found, schemes, shapes, positive=True)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns its doubt ``[schemes, shapes]``.

        Raises:
            ModelError: if it is of another size, not finite, or below 0.
        """
        found = self.fitted.doubt(schemes, shapes)
        return self._numbers("doubt", found, schemes, shapes, positive=False)

    def _numbers(
        self, verb: str, found: object, schemes: Sequence[Scheme], shapes: Sequence[Shape], *, positive: bool
    ) -> Seconds:
        size = {"schemes": len(schemes), "shapes": len(shapes)}
        what = f"what {verb} of {name_of(self.fitted)} returns"
        return require_numbers(what, found, size, ModelError, positive=positive)


def fitted_by(predictor: Predictor, space: Space, records: Sequence[Record]) -> Fitted:
    """Returns a predictor fitted on records; what others fitted is checked with every answer.

    Args:
        predictor: whatever :class:`Predictor` says.
        space: the schemes that were searched.
        records: what was measured.

    Raises:
        ModelError: if it cannot be fitted, or fits nothing that gives seconds and their doubt.
    """
    found = predictor.fit(space, records)
    if type(found).__module__.partition(".")[0] == "dietlab":
        return found
    require_methods(f"what fit of {name_of(predictor)} returns", found, ("seconds", "doubt"), ModelError)
    return Checked(found)
