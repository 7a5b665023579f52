"""Measures on this machine: builds in parallel, then times in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware
from dietlab.measure.budget import Budget, BudgetSpentError, Limited
from dietlab.measure.builders import BUILDER, Builders, Libraries
from dietlab.measure.contest import built_contests, play_contests
from dietlab.measure.record import Record, Trial
from dietlab.measure.timing.process import ENTERED, WorkerCrashed, WorkerRefused, WorkerTimeout
from dietlab.measure.timing.protocol import TOGETHER, Timing
from dietlab.measure.timing.seat import Seat
from dietlab.measure.timing.target import timing_target
from dietlab.measure.timing.threads import pool_env
from dietlab.problem import Workload, require_entered

TIMER = "dietlab.measure.candidate_worker"
"""The module that the checking and timing process runs."""

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The environment of a timing process: NumPy gets one thread. Other threads of NumPy would spin for some 25
ms after they computed the reference and leave no core to a candidate's second thread: a call of 80 us would
then take 4 ms, the system's time slice."""


@dataclass
class LocalRunner:
    """Builds in parallel, then verifies and times one library after the other.

    Building and timing never overlap: a builder would disturb the measurement. The candidates on up to
    :data:`~dietlab.measure.timing.protocol.TOGETHER` shapes are timed in turns
    (:mod:`dietlab.measure.timing.turns`), as in the evaluation of operators; a candidate leaves once it is
    clearly slower than the fastest on its shape. Generated code runs in a child process only, so that a crash
    or a hang becomes a record. A GPU's scheme is refused, and never run, if the compiler reports that it
    spills registers or does not fit.

    Args:
        hardware: the processor to compile for. The operator uses one thread for each of its ``cores``.
        timing: the protocol of timing.
        builders: the number of parallel builds (default: the number of processors that this process may use).
        build_timeout, time_timeout: the limits for building and for timing one library, in seconds. The first
            answer of a process may take its target's ``START_SECONDS`` longer.
        builder_module: the module of the processes that build.
        timer_module: the module of the process that verifies and times.
        ready: libraries that were built before (:mod:`dietlab.measure.ready`). These are measured and not
            deleted; nothing is built and no compiler is needed.
        budget: the time within which builds and blocks may begin (default: no limit).
    """

    hardware: Hardware
    timing: Timing = field(default_factory=Timing)
    builders: int | None = None
    build_timeout: float = 60.0
    time_timeout: float = 60.0
    builder_module: str = BUILDER
    timer_module: str = TIMER
    ready: Libraries | None = None
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self._open = ExitStack()
        self._libraries: Libraries
        self._folder: Path | None = None
        self._seat: tuple[Workload, Seat] | None = None

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child processes and removes the libraries; the next call starts new ones."""
        if self._seat is not None:
            self._seat[1].close()
        self._open.close()
        self._folder = self._seat = None

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields a record for every shape of every trial, shape by shape. A failure is a record too.

        Raises:
            MeasureError: if this machine cannot time candidates.
            BudgetSpentError: if the budget is spent. Candidates with enough blocks get their records first.
            WorkloadError: if the operator cannot be sent to the processes that measure.
        """
        require_entered(workload)
        libraries = self._started()
        contests, built = built_contests(libraries, workload, trials)
        states = timing_target(self.hardware.kind).CACHE_STATES
        for start in range(0, len(contests), TOGETHER):
            some = contests[start : start + TOGETHER]
            seat = Limited(self._opened(workload), self.budget)
            try:
                play_contests(seat, some, self.timing, states)
            except BudgetSpentError:
                timed = (one for contest in some for one in contest if one.settled(self.timing))
                yield from (candidate.result(self.timing.cache) for candidate in timed)
                raise
            yield from (candidate.result(self.timing.cache) for contest in some for candidate in contest)
        for library in built if self.ready is None else ():
            library.path.unlink(missing_ok=True)

    def _opened(self, workload: Workload) -> Seat:
        """Returns the process that times a workload's candidates. The process is kept until another workload
        comes."""
        if self._seat is not None and self._seat[0] == workload:
            return self._seat[1]
        if self._seat is not None:
            self._seat[1].close()
        seat = candidates_seat(workload.to_json(), self.hardware, self.time_timeout, self.timer_module)
        self._seat = workload, seat
        try:
            missing = seat.open().get("absent")
        except WorkerRefused as error:
            missing = error.value
        except (
            WorkerCrashed,
            WorkerTimeout,
        ):  # this repeats with the first candidate, and becomes its record
            missing = None
        if missing:
            self.close()
            raise MeasureError("it must be possible to time candidates on this machine", missing)
        return seat

    def _started(self) -> Libraries:
        if self._folder is None:
            require_tools(self.hardware, timer=self.timer_module == TIMER, compiler=self.ready is None)
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietlab-")))
            self._libraries = self.ready or self._open.enter_context(
                Builders(
                    self.hardware,
                    folder,
                    self.builders,
                    self.build_timeout,
                    self.builder_module,
                    lambda: self.budget.require(),
                )
            )
            self._folder = folder
        return self._libraries


def require_tools(hardware: Hardware, *, timer: bool = True, compiler: bool = True) -> None:
    """Raises :class:`DietlabError` if this machine lacks the processor or a compiler, before every candidate
    fails for that reason."""
    if timer:
        timing_target(hardware.kind).require_here(hardware)
    if compiler:
        lower_target(hardware.kind).require_tools()


def candidates_seat(
    workload: Mapping[str, Any],
    hardware: Hardware,
    seconds: float,
    module: str = TIMER,
    entered: Mapping[str, Any] | None = None,
) -> Seat:
    """Returns the process that checks and times the candidates of a workload on this machine.

    Args:
        workload: the operator as JSON; this process need not know its class.
        seconds: the longest time to wait for an answer.
        entered: objects entered in the process of the client for which this process measures (None: objects
            entered here).
    """
    cores = hardware.threads
    options, _ = timing_target(hardware.kind).options(hardware, None)
    request = {
        "op": "open",
        "contender": "candidates",
        "workload": dict(workload),
        "threads": cores,
        "options": options,
        **({} if entered is None else {ENTERED: entered}),
    }
    return Seat(
        request,
        module,
        {**pool_env(cores), **ALONE},
        seconds=seconds,
        open_seconds=seconds + timing_target(hardware.kind).START_SECONDS,
    )
