"""The result of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity, seconds_text, share_text
from dietlab.base.events import PhaseSeconds
from dietlab.cost import Known, too_few_pairs
from dietlab.measure import Record, frame_records, record_quantities, record_sections
from dietlab.measure.record import each_once

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class TuningRun(Known, Carded):
    """The result of a tuning: its records and the model fitted on them. The records of a replay repeat a
    measurement in each round that used it; ``measurements`` and ``seconds`` count each measurement once.

    Args:
        seconds: the wall-clock time by phase. The earlier parts of a resumed run count only in compile,
            verify and measure.
        held_out_metrics: the ranking metrics of predictions one round ahead: each round of the search is
            predicted from the rounds before; empty if there was one round.
    """

    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    held_out_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """The number of distinct schemes that were tried."""
        return len({record.scheme for record in self.records})

    @property
    def measurements(self) -> tuple[Record, ...]:
        """The records of the measurements that were made, each once."""
        return each_once(self.records)

    @property
    def failures(self) -> int:
        """The number of schemes with a failed measurement."""
        return len({record.scheme for record in self.records if not record.ok})

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row for each record: see
        :func:`~dietlab.measure.record_tables.frame_records`."""
        return frame_records(self.records, self.space.workload)

    @property
    def card(self) -> Card:
        """The run's card in a notebook: counts, the best throughput, and folded sections with records, times
        and the model."""
        workload = self.space.workload
        best = max((record.gflops(workload) for record in self.records), default=0.0)
        facts = (
            *record_quantities(self.measurements),
            Quantity(f"{best:,.1f} GFLOP/s", "at best"),
            Quantity(seconds_text(self.seconds.total), "of tuning"),
        )
        sections = (
            *record_sections(self.measurements, workload),
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
        fitted = {"schemes that it was fitted on": float(len(self.schemes))}
        rows = {**fitted, **self.held_out_metrics, **too_few_pairs(self.held_out_metrics)}
        return Listing(("quality on held-out measurements", "value"), [*rows.items()])
