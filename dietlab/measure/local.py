"""Measures on this machine: parallel builds, then one timing at a time in a child process."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from dietlab.events import PhaseSeconds
from dietlab.hardware import Hardware
from dietlab.lower.compiler import require_linker
from dietlab.lower.cuda.nvcc import require_compiler
from dietlab.measure.builders import BUILDER, Builders, Built
from dietlab.measure.record import Record, Status, Trial
from dietlab.shapes import Shape
from dietlab.timing.cuda_clock import require_gpu
from dietlab.timing.process import WorkerCrashed, WorkerProcess, WorkerRefused, WorkerTimeout
from dietlab.timing.protocol import TOGETHER, Timing
from dietlab.workloads import Workload

TIMERS = {"cpu": "dietlab.measure.time_worker", "cuda": "dietlab.measure.cuda_time_worker"}
"""By the kind of processor."""

START_SECONDS = {"cpu": 0.0, "cuda": 120.0}
"""What the first answer of a timing process may take beyond ``time_timeout``, in seconds, by the kind of
processor: for a GPU it imports TVM and makes the device's context, seconds on an idle host, a minute on one
that was lent a moment ago."""

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The environment of a timing process, in which only the timed program has threads. NumPy's, which compute
the right result, would spin for some 25 ms more and leave no core to a candidate's second thread: a call
of 80 us then takes 4 ms, the system's time slice."""


FEWEST_TURNS, BEHIND = 3, 1.1
"""The turns after which a program leaves, if it is slower than the fastest by more than the second number,
a ratio; a slow program leaves after its first. (One block of calls of 15 ms or more is 10 % off now and
then, which is more than good plans differ by.)"""


@dataclass
class LocalRunner:
    """Builds in parallel, then verifies and times one library after the other.

    Building and timing never overlap: a builder beside it would disturb the measurement. Candidates that
    share a shape are timed in turns, since a shared machine is not the same from minute to minute. Generated
    code runs in a child process only, so that a crash or a hang becomes a record. What the compiler says
    of a GPU's scheme comes first: one that spills or does not fit is refused and never run.

    Args:
        hardware: what to compile for; its ``cores`` is how many threads the operator uses.
        timing: the protocol of measuring.
        builders: parallel builds (default: the processors this process may use).
        build_timeout, time_timeout: seconds for one library; a process that was just started gets
            :data:`START_SECONDS` more.
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

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child processes and removes the libraries; the next call starts new ones."""
        self._open.close()
        self._folder = None

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Returns one record for every shape of every trial, shape by shape; failures are records too."""
        self._start()
        started = perf_counter()
        built = list(self._pool.build(workload, trials))
        # Builds overlap, so each trial is charged its share of the wall-clock time.
        wall, busy = perf_counter() - started, sum(b.seconds for b in built) or 1.0
        rivals: dict[Shape, list[Candidate]] = {}
        for trial, library in zip(trials, built, strict=True):
            compile_seconds = wall * library.seconds / busy / max(1, len(trial.shapes))
            for shape in trial.shapes:
                rivals.setdefault(shape, []).append(Candidate.of(library, shape, compile_seconds))
        ordered = [rivals[shape] for shape in sorted(rivals)]
        for start in range(0, len(ordered), TOGETHER):
            yield from self._in_turns(workload, ordered[start : start + TOGETHER])
        for library in built:
            library.path.unlink(missing_ok=True)

    def _in_turns(self, workload: Workload, contests: Sequence[Sequence[Candidate]]) -> Iterator[Record]:
        """Yields the records of candidates on some shapes, the rivals of each shape together.

        On a CPU, which is slower in one moment than in the next, all of them take turns, a block each, so
        that the blocks of one lie far apart; those of one shape follow each other until they are clearly
        slower than the fastest. A GPU runs no other program::

            turn 0: a(T=5) b(T=5) c(T=5), a(T=24) d(T=24)     turn 1: d(T=24) a(T=24), c(T=5) b(T=5) a(T=5)
        """
        in_turns = self.hardware.kind == "cpu"
        timing = replace(self.timing, blocks=1) if in_turns else self.timing
        playing = [_different(contest) for contest in contests]
        for turn in range(self.timing.blocks if in_turns else 1):
            for rivals in playing[:: -1 if turn % 2 else 1]:
                for candidate in rivals[:: -1 if turn % 2 else 1]:
                    self._take(workload, candidate, timing, turn)
            playing = [_playing_on(rivals, self.timing, turn + 1) for rivals in playing]
        yield from (candidate.result for contest in contests for candidate in contest)

    def _take(self, workload: Workload, candidate: Candidate, timing: Timing, turn: int) -> None:
        """Takes one turn of one candidate; the first turn verifies it."""
        request = {
            "workload": workload.to_json(),
            "shape": candidate.record.shape.to_json(),
            "library": str(candidate.built.path),
            "cores": self.hardware.cores,
            "packs": candidate.built.answer["packs"],
            "timing": timing.to_json(),
            "last_level_bytes": self.hardware.last_level_bytes,
            "turn": turn,
            "call_seconds": min(candidate.blocks, default=None),
        }
        if self.hardware.kind == "cpu":
            request["l2_bytes"] = self.hardware.cpu.l2_bytes
        started = perf_counter()
        try:
            candidate.note(self._timer.ask(request, self._patience))
        except (WorkerTimeout, WorkerCrashed, WorkerRefused) as error:
            status: Status = (
                "timeout"
                if isinstance(error, WorkerTimeout)
                else "crashed"
                if isinstance(error, WorkerCrashed)
                else "refused"
            )
            candidate.fail(status, str(error), measure=perf_counter() - started)

    @property
    def _patience(self) -> float:
        """Returns the seconds that the timing process gets for its next answer."""
        starting = self._timer.pid is None
        return self.time_timeout + (START_SECONDS[self.hardware.kind] if starting else 0.0)

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
        """Raises one error for what is missing on this machine, before every candidate fails of it."""
        if self.hardware.kind == "cuda":
            if self.timer_module is None:
                require_gpu(self.hardware)
            require_compiler()
        require_linker()


def _different(contest: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates of a shape that were built; of equal machine code the first, whose twins the
    others become."""
    alike: dict[str, Candidate] = {}
    for candidate in contest:
        first = alike.setdefault(candidate.code, candidate)
        candidate.twin = None if first is candidate else first
    return [candidate for candidate in contest if candidate.record.ok and candidate.twin is None]


def _playing_on(rivals: Sequence[Candidate], timing: Timing, turns: int) -> list[Candidate]:
    """Returns the rivals on a shape of which another block would tell more."""
    right = [candidate for candidate in rivals if candidate.record.ok]
    most = BEHIND * min((candidate.mean_seconds for candidate in right), default=0.0)
    return [candidate for candidate in right if candidate.plays_on(timing, turns, most)]


@dataclass
class Candidate:
    """A library on one shape while it is measured: its record so far, and seconds of a call in each block.

    ``twin`` has the same machine code, and what it takes holds for both.
    """

    built: Built
    record: Record
    blocks: list[float] = field(default_factory=list)
    cached_blocks: list[float] = field(default_factory=list)
    twin: Candidate | None = None

    @classmethod
    def of(cls, built: Built, shape: Shape, compile_seconds: float) -> Candidate:
        record = Record(
            built.scheme,
            shape,
            "ok",
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            phases=PhaseSeconds(compile=compile_seconds),
            code_bytes=built.answer.get("code_bytes", 0),
            code_hash=built.answer.get("code_hash", ""),
            resources=built.answer.get("resources", {}),
        )
        if built.failure:
            record = replace(record, status=built.failure[0], reason=built.failure[1])
        return cls(built, record)

    @property
    def code(self) -> str:
        """Equal for equal machine code."""
        return self.record.code_hash or self.record.scheme.key

    def note(self, answer: Mapping[str, Any]) -> None:
        """Keeps what the timer answered to one turn."""
        spent = {"verify": answer["verify_seconds"], "measure": answer["measure_seconds"]}
        if answer["reason"]:
            self.fail("wrong", answer["reason"], **spent)
            return
        self._spend(**spent)
        self.blocks += answer["blocks"]
        self.cached_blocks += answer.get("cached_blocks", ())

    def fail(self, status: Status, reason: str, **spent: float) -> None:
        self._spend(**spent)
        self.record = replace(self.record, status=status, reason=reason)

    def _spend(self, **seconds: float) -> None:
        self.record = replace(self.record, phases=self.record.phases.plus(**seconds))

    @property
    def mean_seconds(self) -> float:
        """The geometric mean over where operands come from, so far."""
        states = [min(blocks) for blocks in (self.blocks, self.cached_blocks) if blocks]
        return math.prod(states) ** (1 / len(states))

    def plays_on(self, timing: Timing, turns: int, most: float) -> bool:
        """Returns whether another block would tell more after ``turns`` turns: at first for all but slow
        programs over ``most`` seconds, then for quick programs under it."""
        slow, behind = timing.slow(min(self.blocks)), self.mean_seconds > most
        return not (slow and behind) if turns < FEWEST_TURNS else not (slow or behind)

    @property
    def result(self) -> Record:
        """The record, once all turns are over."""
        if self.twin is not None:
            twin = self.twin.result
            return replace(
                self.record,
                status=twin.status,
                seconds=twin.seconds,
                cached_seconds=twin.cached_seconds,
                spread=twin.spread,
                reason=f"same code as {twin.scheme.key}",
            )
        if not self.record.ok:
            return self.record
        least = min(self.blocks)
        return replace(
            self.record,
            seconds=least,
            cached_seconds=min(self.cached_blocks, default=None),
            spread=median(self.blocks) / least - 1,
        )
