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
from dietlab.shapes import Shape
from dietlab.space import FMA_LATENCY, MicroKernel, plan_for
from dietlab.workloads import Workload, extents


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

    A call costs the padded multiply-adds at a throughput that grows with the register tile, plus
    the weights' first trip from the last-level cache; ``noise`` is the relative spread of a
    disturbance that depends only on the micro-kernel, the shape and ``seed``.
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
        sizes = extents(workload, shape)
        plan = plan_for(kernel, sizes["rows"])
        column_tiles = -(-sizes["cols"] // kernel.cols)
        columns_a_core = -(-column_tiles // self.hardware.cores) * kernel.cols * sizes["batch"]
        steps = 2.0 * columns_a_core * sizes["depth"]
        compute = sum(steps * r.executed_rows / self._throughput(r.kernel) for r in plan.regions)
        weights = 4.0 * columns_a_core * sizes["depth"] * (1 if kernel.order == "ws" else plan.tiles)
        stream = (self.hardware.l3_gbps or 30.0) * 1e9
        seconds = compute + (0.1 if kernel.ahead else 0.3) * weights / stream
        return seconds * (1 + self.noise * self._disturbance(kernel, shape))

    def _throughput(self, kernel: MicroKernel) -> float:
        """Flop/s of one core: each step loads ``vectors`` weights and ``rows`` inputs for rows x vectors
        multiply-adds, of which some must be under way at once."""
        vectors = kernel.vectors(self.hardware.cpu.lanes)
        reuse = kernel.rows * vectors / (kernel.rows * vectors + 0.25 * (kernel.rows + vectors))
        hidden = min(1.0, kernel.rows * vectors / FMA_LATENCY)
        return (self.hardware.peak_gflops or 100.0) * 1e9 * reuse * hidden * (1 - 0.08 / kernel.unroll)

    def _disturbance(self, kernel: MicroKernel, shape: Shape) -> float:
        """A number in [-1, 1) that depends only on what is measured."""
        digest = hashlib.sha256(f"{self.seed}/{kernel.key}/{shape}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**63 - 1
