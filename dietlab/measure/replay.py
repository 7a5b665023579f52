"""Replays recorded measurements, so that a search needs no hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dietlab.base.errors import RecordError
from dietlab.measure.record import Record, Trial
from dietlab.measure.store import read_records
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme


class ReplayRunner:
    """Returns recorded measurements, so that search strategies can be tried without the hardware.

    A missing record is an error, never a guess.

    Args:
        records: the records to replay. If a scheme has several on a shape, the last one counts.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {(r.scheme, r.shape): r for r in records}

    @classmethod
    def load(cls, path: str | Path) -> ReplayRunner:
        """Replays a ``records.jsonl`` or ``records.jsonl.gz``."""
        return cls(read_records(path).records)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """The schemes that were recorded, sorted."""
        return tuple(sorted({scheme for scheme, _ in self._records}))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that were recorded, sorted."""
        return tuple(sorted({shape for _, shape in self._records}))

    @property
    def pairs(self) -> frozenset[tuple[Scheme, Shape]]:
        """The recorded pairs of a scheme and a shape: a tuning can request no others."""
        return frozenset(self._records)

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields the recorded measurement of each trial's scheme on each of its shapes.

        Raises:
            RecordError: for a pair that was not recorded.
        """
        for trial in trials:
            for shape in trial.shapes:
                record = self._records.get((trial.scheme, shape))
                if record is None:
                    raise RecordError(
                        "the records to replay must hold each measurement that is requested",
                        f"{trial.scheme} on {shape}",
                        "Search only schemes and shapes that were recorded, or measure.",
                    )
                yield record
