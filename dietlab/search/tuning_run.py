"""The result of a tuning run, and the times that follow from its records and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.cards import Card, Carded, Fold, Listing, Quantity, seconds_text, share_text
from dietlab.cost import Calibration, CostModel, too_few_pairs
from dietlab.events import PhaseSeconds
from dietlab.measure import Record, frame_records, record_quantities, record_sections
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme, Space

if TYPE_CHECKING:
    import pandas as pd

Seconds = npt.NDArray[np.float64]
"""``[schemes, shapes]``."""

CACHED_SHARE, PREDICTED_SHARE = 0.5, 0.25
"""The share of calls, 0 to 1, whose operands are expected in cache, if times there were measured and if they
were only predicted; the other calls find them in memory. A plan that is fast in one state only is a bad one,
but a prediction counts less than a measurement."""


@dataclass(frozen=True, repr=False)
class TuningRun(Carded):
    """The result of a search: its records and the model fitted on them.

    Args:
        space: the schemes that were searched.
        shapes: the shapes that it tuned for.
        records: every measurement and failure.
        model: the cost model, fitted on all records.
        seconds: wall-clock time by phase; of a resumed run's earlier parts only compile, verify and measure.
        held_out_metrics: ranking metrics of the model on the confirming measurements before it was fitted
            on them; empty if there were none.
    """

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    model: CostModel
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    held_out_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """Schemes that were measured successfully at least once."""
        return tuple(sorted({record.scheme for record in self.records if record.ok}))

    @property
    def trials(self) -> int:
        """The number of distinct schemes tried."""
        return len({record.scheme for record in self.records})

    @property
    def failures(self) -> int:
        return len({record.scheme for record in self.records if not record.ok})

    def seconds_table(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], cached: bool = False
    ) -> Seconds:
        """Returns seconds ``[schemes, shapes]``, measured where there is a record and calibrated
        predictions elsewhere: in the cache state of tuning or, if ``cached``, from the last-level cache.

        Without any record from cache, each time from memory is multiplied by the ratio of both
        predictions."""
        if not cached:
            return self._calibration.seconds(schemes, shapes)
        if self._measured_cached:
            return self._cached_calibration.seconds(schemes, shapes)
        change = self.model.in_cache.seconds(schemes, shapes) / self.model.seconds(schemes, shapes)
        return self._calibration.seconds(schemes, shapes) * change

    def mean_seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns the geometric mean of :meth:`seconds_table` over cache states.

        If tuning had operands in memory, times from cache weigh :data:`CACHED_SHARE`, or
        :data:`PREDICTED_SHARE` if none was measured: plans that memory bandwidth makes equal differ by how
        well they compute."""
        table = self.seconds_table(schemes, shapes)
        if self.model.cost.cache != "rotating":
            return table
        cached = self.seconds_table(schemes, shapes, cached=True)
        share = CACHED_SHARE if self._measured_cached else PREDICTED_SHARE
        mean: Seconds = table ** (1 - share) * cached**share
        return mean

    def expected_seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Seconds:
        """Returns :meth:`mean_seconds`, with predictions raised by their uncertainty
        (:meth:`~dietlab.cost.Calibration.doubt`), so that a measured plan is preferred to one that is only
        predicted to be as fast."""
        doubt = np.exp(self._calibration.doubt(schemes, shapes))
        expected: Seconds = self.mean_seconds(schemes, shapes) * doubt
        return expected

    @cached_property
    def _calibration(self) -> Calibration:
        return Calibration(self.model, self.records)

    @cached_property
    def _measured_cached(self) -> bool:
        return any(record.cached_seconds for record in self.records)

    @cached_property
    def _cached_calibration(self) -> Calibration:
        found = [replace(record, seconds=record.cached_seconds) for record in self.records if record.ok]
        return Calibration(self.model.in_cache, found)

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row a record: see
        :func:`~dietlab.measure.record_tables.frame_records`."""
        return frame_records(self.records, self.space.workload)

    @property
    def card(self) -> Card:
        workload = self.space.workload
        best = max((record.gflops(workload) for record in self.records), default=0.0)
        facts = (
            *record_quantities(self.records),
            Quantity(f"{best:,.1f} GFLOP/s", "at best"),
            Quantity(seconds_text(self.seconds.total), "of tuning"),
        )
        sections = (
            *record_sections(self.records, workload),
            Fold("Time of tuning", self._phases),
            Fold("Cost model", self._quality),
            Fold("Shapes", self.shapes.table),
        )
        return Card("TuningRun", f"{workload} on {self.space.hardware.name}", facts, sections)

    def _phases(self) -> Listing:
        total = self.seconds.total or 1.0
        items = list(self.seconds.to_json().items())
        return Listing(
            ("phase", "time", "share"), items, lambda i: (i[0], seconds_text(i[1]), share_text(i[1] / total))
        )

    def _quality(self) -> Listing:
        fitted = {"schemes that it was fitted on": float(self.model.samples)}
        told = {**fitted, **self.held_out_metrics, **too_few_pairs(self.held_out_metrics)}
        return Listing(("quality on held-out measurements", "value"), [*told.items()])
