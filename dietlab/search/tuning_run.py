"""What a search found out, and the times that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.cost import Calibration, CostModel
from dietlab.events import PhaseSeconds
from dietlab.measure import Record
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel, Space

if TYPE_CHECKING:
    import pandas as pd

Seconds = npt.NDArray[np.float64]
"""``[micro-kernels, shapes]``."""

CACHED_SHARE, PREDICTED_SHARE = 0.5, 0.25
"""How often operands are expected in cache; the other calls find them in memory. Nobody knows which it will
be, and a plan that is good in one state only is a bad one; but a prediction counts less."""


@dataclass(frozen=True)
class TuningRun:
    """What a search found out; everything later is computed from it.

    ``seconds`` is the wall-clock time by phase, earlier sittings of a resumed run included as far
    as their records tell (model and search time of earlier sittings is not kept).
    ``held_out_metrics`` judges the model before it saw the confirming measurements, on them: pairs of
    micro-kernel and shape that were held out from its fit (empty if there were none).
    """

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    model: CostModel
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    held_out_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """Those measured successfully at least once."""
        return tuple(sorted({record.micro_kernel for record in self.records if record.ok}))

    @property
    def trials(self) -> int:
        """Distinct micro-kernels tried."""
        return len({record.micro_kernel for record in self.records})

    @property
    def failures(self) -> int:
        return len({record.micro_kernel for record in self.records if not record.ok})

    def seconds_table(
        self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape], cached: bool = False
    ) -> Seconds:
        """Measured seconds where there are any, calibrated predictions elsewhere: with operands from where
        tuning had them or, if ``cached``, from the last-level cache.

        If no record says how long a call takes from there, what the model expects of the change stands
        for it: each time as measured from memory, times the ratio of both predictions."""
        if not cached:
            return self._calibration.seconds(kernels, shapes)
        if self._measured_cached:
            return self._cached_calibration.seconds(kernels, shapes)
        change = self.model.in_cache.seconds(kernels, shapes) / self.model.seconds(kernels, shapes)
        return self._calibration.seconds(kernels, shapes) * change

    def mean_seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Seconds:
        """The geometric mean over where operands come from: :meth:`seconds_table` for the state of tuning
        and, if that was from memory, a share of :data:`CACHED_SHARE` for operands in cache, or of
        :data:`PREDICTED_SHARE` if nothing was measured there. Plans that memory makes equal differ by how
        well they compute."""
        table = self.seconds_table(kernels, shapes)
        if self.model.cost.cache != "rotating":
            return table
        cached = self.seconds_table(kernels, shapes, cached=True)
        share = CACHED_SHARE if self._measured_cached else PREDICTED_SHARE
        mean: Seconds = table ** (1 - share) * cached**share
        return mean

    def expected_seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Seconds:
        """What to count on: :meth:`mean_seconds`, and predictions with their doubt
        (:meth:`~dietlab.cost.Calibration.doubt`), so that a plan which was measured is preferred to one
        that is only said to be as fast."""
        doubt = np.exp(self._calibration.doubt(kernels, shapes))
        expected: Seconds = self.mean_seconds(kernels, shapes) * doubt
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

    def frame(self) -> pd.DataFrame:
        """One row a record."""
        import pandas as pd

        workload = self.space.workload
        return pd.DataFrame(
            [
                {
                    "micro_kernel": r.micro_kernel.key,
                    **r.shape.to_json(),
                    "status": r.status,
                    "microseconds": None if r.seconds is None else r.seconds * 1e6,
                    "gflops": r.gflops(workload),
                    "reason": r.reason,
                }
                for r in self.records
            ]
        )
