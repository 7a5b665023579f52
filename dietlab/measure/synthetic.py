"""Computes plausible times from a simple model of a processor, so that a search needs no hardware."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dietlab.base.errors import MeasureError
from dietlab.machine import Hardware
from dietlab.measure.record import Record, Trial
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme
from dietlab.scheme.target import space_target


def synthetic_seconds(hardware: Hardware, workload: Workload, scheme: Scheme, shape: Shape) -> float:
    """Returns the modelled seconds of a call.

    Raises:
        MeasureError: if the micro-kernel is of another kind of processor.
    """
    if not isinstance(scheme.kernel, space_target(hardware.kind).KERNEL):
        raise MeasureError(f"micro-kernels must be of a {hardware.kind} processor", scheme.key)
    return timing_target(hardware.kind).seconds(hardware, workload, scheme, shape)


@dataclass(frozen=True)
class SyntheticRunner:
    """Computes times from a simple model of a processor: for tests and for playing, never for results.

    ``noise`` bounds a relative disturbance, which depends only on the micro-kernel, the shape and ``seed``.

    Args:
        hardware: the modelled processor.
    """

    hardware: Hardware
    noise: float = 0.02
    seed: int = 0

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields a record for each trial's scheme on each of its shapes; nothing runs, nothing fails."""
        for trial in trials:
            for shape in trial.shapes:
                seconds = self.seconds(workload, trial.scheme, shape)
                yield Record(trial.scheme, shape, "ok", seconds=seconds, code_bytes=2000)

    def seconds(self, workload: Workload, scheme: Scheme, shape: Shape) -> float:
        """Returns the modelled seconds of a call, with noise; equal seeds give equal noise."""
        plain = synthetic_seconds(self.hardware, workload, scheme, shape)
        return plain * (1 + self.noise * self._disturbance(scheme, shape))

    def _disturbance(self, scheme: Scheme, shape: Shape) -> float:
        """Returns a number in [-1, 1) that depends only on scheme, shape and seed."""
        digest = hashlib.sha256(f"{self.seed}/{scheme.key}/{shape}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**63 - 1
