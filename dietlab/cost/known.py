"""The state of knowledge of a tuning: its records, and the predicted times of any scheme on any shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dietlab.base.contracts import name_of
from dietlab.base.errors import ModelError
from dietlab.cost.model import CostModel
from dietlab.cost.predictor import Calibrated, Checked, Fitted, Seconds
from dietlab.measure import Record
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space


@dataclass(frozen=True, repr=False)
class Known:
    """The records of a tuning, and the predictions from these records.

    Args:
        space: the schemes that are searched.
        shapes: the shapes that are tuned for.
        records: every measurement and failure so far.
        predictor: the predictor, fitted on all records.
    """

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    predictor: Fitted

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """The schemes that were measured successfully at least once."""
        return tuple(sorted({record.scheme for record in self.records if record.ok}))

    @property
    def model(self) -> CostModel:
        """The cost model behind the predictor.

        Raises:
            ModelError: if the predictor has no cost model.
        """
        found: object = getattr(self.predictor, "model", self.predictor)
        if isinstance(found, CostModel):
            return found
        raise ModelError(
            "the run must have been predicted by a cost model",
            name_of(self.predictor.fitted if isinstance(self.predictor, Checked) else self.predictor),
            "Tune with LearnedPredictor() (--cost-model learned), or fit_cost_model on the run's records.",
        )

    def seconds_table(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], cached: bool = False
    ) -> Seconds:
        """Returns the seconds that are predicted from the records, ``[schemes, shapes]``: in the cache state
        of tuning or, if ``cached``, with operands in the last-level cache (if the predictor distinguishes
        cache states)."""
        if isinstance(self.predictor, Calibrated):
            return self.predictor.seconds_in(schemes, shapes, cached=cached)
        return self.predictor.seconds(schemes, shapes)

    def mean_seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the predicted seconds over all cache states, ``[schemes, shapes]``, as the predictor weighs
        the states."""
        return self.predictor.seconds(schemes, shapes)

    def doubts(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_]
    ) -> Seconds:
        """Returns the standard deviations of the logarithms of predictions, ``[schemes, shapes]``, where
        ``at`` is true. Elsewhere the result is 0: computing all deviations takes long."""
        if isinstance(self.predictor, Calibrated):
            return np.where(at, self.predictor.doubt(schemes, shapes, at), 0.0)
        return np.where(at, self.predictor.doubt(schemes, shapes), 0.0)

    def expected_seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns :meth:`mean_seconds` raised by one standard deviation, so that a measured plan is preferred
        to one that is only predicted to be as fast."""
        doubt = np.exp(self.predictor.doubt(schemes, shapes))
        return np.asarray(self.mean_seconds(schemes, shapes) * doubt)
