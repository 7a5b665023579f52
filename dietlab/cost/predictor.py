"""Predictors: the protocol of cost models for a search, the default one, the paper's and the analytic one."""

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
from dietlab.cost.calibration import Calibration
from dietlab.cost.measured import Measured
from dietlab.cost.model import CostModel, fit_cost_model
from dietlab.cost.prior import Prior
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape
from dietlab.scheme import Scheme, Space

Seconds = npt.NDArray[np.float64]
"""``[schemes, shapes]``."""

DOUBT = 0.4
"""The standard deviation of the logarithm of a time that is predicted without any measurement."""


class Fitted(Protocol):
    """A fitted predictor gives the time of any scheme on any shape, and its uncertainty."""

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the seconds of a call, ``[schemes, shapes]``."""

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the standard deviation of the seconds' logarithms, ``[schemes, shapes]``."""


class Predictor(Protocol):
    """A predictor is fitted on records of a space; ``tune(predictor=...)`` takes any predictor."""

    def fit(self, space: Space, records: Sequence[Record]) -> Fitted:
        """Returns the predictor fitted on the records.

        Raises:
            ModelError: if no record is successful.
        """


@dataclass(frozen=True)
class LearnedPredictor:
    """The predictor that is used by default: a cost model, calibrated by measurements.

    Args:
        adaptation: the kind of adaptation cost: ``streamed`` knows cache levels, ``paper`` does not.
        cache: where operands are while candidates are timed.
        seed: the seed of the model.
        prior: a model of records of other shapes, layers, operators or processors.
    """

    adaptation: Adaptation = "streamed"
    cache: CacheState = "hot"
    seed: int = 0
    prior: Prior | None = None

    def fit(self, space: Space, records: Sequence[Record]) -> Calibrated | Expected:
        """Returns the predictor fitted on the records. Before the first successful record, the prior of this
        processor predicts.

        Raises:
            ModelError: if no record is successful and there is no such prior, or if the prior is for another
                kind of processor.
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
    """A cost model and the records that it was fitted on. The records correct the model's predictions near
    them (:class:`~dietlab.cost.Calibration`).

    Args:
        model: the fitted cost model.
        records: the records that the model was fitted on.
        prior: the prior that the fit started from, if any.
    """

    model: CostModel
    records: tuple[Record, ...]
    prior: Prior | None = None

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns seconds ``[schemes, shapes]``: the geometric mean over both cache states if times were
        measured in both. Plans that are equal because of memory bandwidth still differ in computing, and a
        plan that is fast in one state only is a bad plan."""
        seconds = self.seconds_in(schemes, shapes)
        if not self._measured_cached:
            return seconds
        return np.asarray(np.sqrt(seconds * self.seconds_in(schemes, shapes, cached=True)))

    def seconds_in(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], *, cached: bool = False
    ) -> Seconds:
        """Returns seconds ``[schemes, shapes]`` in the cache state of tuning or, if ``cached``, with operands
        in the last-level cache.

        Without a record in that state, each time with operands in memory is multiplied by the ratio of the
        model's predictions for the two states."""
        if not cached:
            return self._calibration.seconds(schemes, shapes)
        if self._measured_cached:
            return self._cached_calibration.seconds(schemes, shapes)
        change = self.model.in_cache.seconds(schemes, shapes) / self.model.seconds(schemes, shapes)
        return self._calibration.seconds(schemes, shapes) * change

    def doubt(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Seconds:
        """Returns the standard deviation of the logarithms of the seconds, ``[schemes, shapes]``. Where
        ``at`` is false, the values mean nothing."""
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
    """A prior before any measurement. The prior ranks schemes, but the level of their times is not known
    yet."""

    cost: AdaptationCost
    prior: Prior

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        values = self.prior.values(self.cost, schemes, shapes)
        return np.asarray(self.cost.bound(schemes, shapes) * np.exp(values))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return np.full((len(schemes), len(shapes)), self.prior.missed)


@dataclass(frozen=True)
class PaperPredictor:
    """DietCode's model: the learned throughput, multiplied by occupancy and padding (section 3.3, equation
    2), without a correction near measurements."""

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
    """A cost model, and the root mean square error of its log times on the records that it was fitted on."""

    model: CostModel
    missed: float

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return self.model.seconds(schemes, shapes)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        return np.full((len(schemes), len(shapes)), self.missed)


@dataclass(frozen=True)
class AnalyticPredictor:
    """Predicts from the bound and the adaptation, without learning."""

    cache: CacheState = "hot"

    def fit(self, space: Space, records: Sequence[Record]) -> Analytic:
        return Analytic.of(space, self.cache)


@dataclass(frozen=True)
class Analytic:
    """The adaptation cost of a space at the highest throughput that the target expects of a tile. If the
    processor's peak was not measured, only ratios of times have a meaning.

    Args:
        cost: the adaptation cost.
    """

    cost: AdaptationCost

    @classmethod
    def of(cls, space: Space, cache: CacheState = "hot", kind: Adaptation = "streamed") -> Analytic:
        """Returns the predictions for a space before any measurement."""
        return cls(adaptation_cost(space.workload, space.hardware, kind, cache))

    def on(self, space: Space) -> Analytic:
        """Returns the predictions for the schemes of another space."""
        return Analytic.of(space, self.cost.cache, self.cost.kind)

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the seconds of arithmetic and traffic at the processor's peaks, ``[schemes, shapes]``."""
        return self.cost.expected(schemes, shapes)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns :data:`DOUBT` for every scheme and shape, ``[schemes, shapes]``."""
        return np.full((len(schemes), len(shapes)), DOUBT)


@dataclass(frozen=True)
class Checked:
    """Checks every prediction of a fitted predictor that is not dietlab's own."""

    fitted: Fitted

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the predictor's seconds ``[schemes, shapes]``."""
        found = self.fitted.seconds(schemes, shapes)
        return self._numbers("seconds", found, schemes, shapes, positive=True)

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the predictor's doubt ``[schemes, shapes]``."""
        found = self.fitted.doubt(schemes, shapes)
        return self._numbers("doubt", found, schemes, shapes, positive=False)

    def _numbers(
        self, verb: str, found: object, schemes: Sequence[Scheme], shapes: Sequence[Shape], *, positive: bool
    ) -> Seconds:
        size = {"schemes": len(schemes), "shapes": len(shapes)}
        what = f"what {verb} of {name_of(self.fitted)} returns"
        return require_numbers(what, found, size, ModelError, positive=positive)


def fitted_by(predictor: Predictor, space: Space, records: Sequence[Record]) -> Fitted:
    """Returns a predictor fitted on records. If the predictor is not dietlab's own, every prediction is
    checked.

    Args:
        predictor: any :class:`Predictor`.
        space: the schemes that were searched.
        records: the measurements.

    Raises:
        ModelError: if the predictor cannot be fitted, or its fit has no ``seconds`` or ``doubt``.
    """
    found = predictor.fit(space, records)
    if type(found).__module__.partition(".")[0] == "dietlab":
        return found
    require_methods(f"what fit of {name_of(predictor)} returns", found, ("seconds", "doubt"), ModelError)
    return Checked(found)
