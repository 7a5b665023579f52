"""Measures on this machine: parallel builds, then one timing at a time in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import perf_counter

from dietlab.events import PhaseSeconds
from dietlab.hardware import Hardware
from dietlab.lower.compiler import require_linker
from dietlab.lower.cuda.nvcc import require_compiler
from dietlab.measure.builders import BUILDER, Builders, Built
from dietlab.measure.cuda_clock import require_gpu
from dietlab.measure.process import WorkerCrashed, WorkerProcess, WorkerRefused, WorkerTimeout
from dietlab.measure.record import Record, Status, Trial
from dietlab.measure.timing import Timing
from dietlab.shapes import Shape
from dietlab.workloads import Workload

TIMERS = {"cpu": "dietlab.measure.time_worker", "cuda": "dietlab.measure.cuda_time_worker"}
"""By the kind of processor."""


ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Whoever times has no threads but those of what is timed. NumPy's, which compute the right result, would
spin for some 25 ms more and leave no core to a candidate's second thread: a call of 80 us then takes 4 ms,
the system's time slice."""


@dataclass
class LocalRunner:
    """Builds in parallel, then verifies and times one library after the other.

    Building and timing never overlap: a builder beside it would disturb the measurement. Generated
    code runs in a child process only, so that a crash or a hang becomes a record. What the compiler says
    of a GPU's micro-kernel comes first: one that spills or does not fit is refused and never run.

    Args:
        hardware: what to compile for; its ``cores`` is how many threads the operator uses.
        timing: the protocol of measuring.
        builders: parallel builds (default: the processors this process may use).
        build_timeout, time_timeout: seconds for one library.
    """

    hardware: Hardware
    timing: Timing = field(default_factory=Timing)
    builders: int | None = None
    build_timeout: float = 60.0
    time_timeout: float = 60.0
    builder_module: str = BUILDER
    timer_module: str | None = None

    def __post_init__(self) -> None:
        self._open = ExitStack()
        self._folder: Path | None = None
        self._measured: dict[tuple[str, Shape], Record] = {}

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child processes and removes the libraries; the next call starts new ones."""
        self._open.close()
        self._folder = None

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """One record for every shape of every trial; failures are records too."""
        self._start()
        started = perf_counter()
        built = list(self._pool.build(workload, trials))
        # Builds overlap, so each trial is charged its share of the wall-clock time.
        wall, busy = perf_counter() - started, sum(b.seconds for b in built) or 1.0
        for trial, library in zip(trials, built, strict=True):
            compile_seconds = wall * library.seconds / busy / max(1, len(trial.shapes))
            for shape in trial.shapes:
                yield self._record(workload, library, shape, compile_seconds)
            library.path.unlink(missing_ok=True)

    def _start(self) -> None:
        if self._folder is not None:
            return
        self._require_tools()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietlab-")))
        self._pool = self._open.enter_context(
            Builders(self.hardware, folder, self.builders, self.build_timeout, self.builder_module)
        )
        self._folder = folder
        cores = self.hardware.cores if self.hardware.kind == "cpu" else 1
        self._timer = self._open.enter_context(
            WorkerProcess(
                self.timer_module or TIMERS[self.hardware.kind], {"TVM_NUM_THREADS": str(cores), **ALONE}
            )
        )

    def _require_tools(self) -> None:
        """What is missing on this machine is one error, not a failure of every candidate."""
        if self.hardware.kind == "cuda":
            if self.timer_module is None:
                require_gpu(self.hardware)
            require_compiler()
        require_linker()

    def _record(self, workload: Workload, built: Built, shape: Shape, compile_seconds: float) -> Record:
        record = Record(
            built.kernel, shape, "ok", at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            phases=PhaseSeconds(compile=compile_seconds),
            code_bytes=built.answer.get("code_bytes", 0), code_hash=built.answer.get("code_hash", ""),
            resources=built.answer.get("resources", {}),
        )  # fmt: skip
        if built.failure:
            return replace(record, status=built.failure[0], reason=built.failure[1])
        twin = self._measured.get((record.code_hash, shape))
        if twin is not None:
            return replace(
                record, status=twin.status, seconds=twin.seconds, spread=twin.spread,
                reason=f"same code as {twin.micro_kernel.key}",
            )  # fmt: skip
        record = self._timed(workload, built, record)
        self._measured[record.code_hash, shape] = record
        return record

    def _timed(self, workload: Workload, built: Built, record: Record) -> Record:
        request = {
            "workload": workload.to_json(), "shape": record.shape.to_json(), "library": str(built.path),
            "cores": self.hardware.cores, "packed_shape": built.answer["packed_shape"],
            "timing": self.timing.to_json(), "last_level_bytes": self.hardware.last_level_bytes,
        }  # fmt: skip
        started = perf_counter()
        try:
            answer = self._timer.ask(request, self.time_timeout)
        except (WorkerTimeout, WorkerCrashed, WorkerRefused) as error:
            status: Status = (
                "timeout" if isinstance(error, WorkerTimeout)
                else "crashed" if isinstance(error, WorkerCrashed)
                else "refused"
            )  # fmt: skip
            spent = record.phases.plus(measure=perf_counter() - started)
            return replace(record, status=status, reason=str(error), phases=spent)
        phases = record.phases.plus(verify=answer["verify_seconds"], measure=answer["measure_seconds"])
        if not answer["blocks"]:
            return replace(record, status="wrong", reason=answer["reason"], phases=phases)
        least = min(answer["blocks"])
        spread = median(answer["blocks"]) / least - 1
        return replace(record, seconds=least, spread=spread, phases=phases)
