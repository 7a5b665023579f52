"""Runners that need no hardware: one replays records, one computes plausible times."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dietlab.errors import RecordError
from dietlab.hardware import Hardware
from dietlab.measure.record import Record, Trial
from dietlab.measure.store import read_records
from dietlab.measure.synthetic import synthetic_seconds
from dietlab.shapes import Shape
from dietlab.space import MicroKernel
from dietlab.workloads import Workload


class ReplayRunner:
    """Answers from records: every search strategy can be tried without the hardware.

    A missing record is an error and not a guess, so that a replayed result is a measured one.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {(r.micro_kernel, r.shape): r for r in records}

    @classmethod
    def load(cls, path: str | Path) -> ReplayRunner:
        """Replays a ``records.jsonl`` or ``records.jsonl.gz``."""
        return cls(read_records(path).records)

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        return tuple(sorted({kernel for kernel, _ in self._records}))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(sorted({shape for _, shape in self._records}))

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for trial in trials:
            for shape in trial.shapes:
                record = self._records.get((trial.micro_kernel, shape))
                if record is None:
                    raise RecordError(
                        "the records to replay hold this measurement",
                        f"{trial.micro_kernel} on {shape}",
                        "Search only micro-kernels and shapes that were recorded, or measure.",
                    )
                yield record


@dataclass(frozen=True)
class SyntheticRunner:
    """Computes times from a simple machine: for tests and for playing, never for results.

    ``noise`` is the relative spread of a disturbance that depends only on the micro-kernel, the shape and
    ``seed``.
    """

    hardware: Hardware
    noise: float = 0.02
    seed: int = 0

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for trial in trials:
            for shape in trial.shapes:
                seconds = self.seconds(workload, trial.micro_kernel, shape)
                yield Record(trial.micro_kernel, shape, "ok", seconds=seconds, code_bytes=2000)

    def seconds(self, workload: Workload, kernel: MicroKernel, shape: Shape) -> float:
        plain = synthetic_seconds(self.hardware, workload, kernel, shape)
        return plain * (1 + self.noise * self._disturbance(kernel, shape))

    def _disturbance(self, kernel: MicroKernel, shape: Shape) -> float:
        """A number in [-1, 1) that depends only on what is measured."""
        digest = hashlib.sha256(f"{self.seed}/{kernel.key}/{shape}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**63 - 1
