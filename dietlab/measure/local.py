"""Measures on this machine: parallel builds, then one timing at a time in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter

from dietlab.events import PhaseSeconds
from dietlab.hardware import Hardware
from dietlab.lower.compiler import require_linker
from dietlab.lower.cuda.nvcc import require_compiler
from dietlab.measure.builders import BUILDER, Builders, Built
from dietlab.measure.record import Record, Status, Trial
from dietlab.shapes import Shape
from dietlab.timing.cuda_clock import require_gpu
from dietlab.timing.process import WorkerCrashed, WorkerTimeout
from dietlab.timing.protocol import TOGETHER, Timing
from dietlab.timing.seat import Seat, device_options
from dietlab.timing.turns import Player, play
from dietlab.workloads import Workload

TIMER = "dietlab.measure.candidate_worker"

START_SECONDS = {"cpu": 0.0, "cuda": 120.0}
"""What the first answer of a timing process may take beyond ``time_timeout``, in seconds, by the kind of
processor: for a GPU it imports TVM and makes the device's context, seconds on an idle host, a minute on one
that was lent a moment ago."""

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The environment of a timing process, in which only the timed program has threads. NumPy's, which compute
the right result, would spin for some 25 ms more and leave no core to a candidate's second thread: a call
of 80 us then takes 4 ms, the system's time slice."""


CACHED_SHARE = 1 / 4
"""The share of a block's seconds that a block on operands in the last-level cache lasts, beside each block on
operands in memory."""

FEWEST_TURNS, BEHIND = 3, 1.1
"""The turns after which a program leaves, if it is slower than the fastest by more than the second number,
a ratio; a slow program leaves after its first. (One block of calls of 15 ms or more is 10 % off now and
then, which is more than good plans differ by.)"""


@dataclass
class LocalRunner:
    """Builds in parallel, then verifies and times one library after the other.

    Building and timing never overlap: a builder beside it would disturb the measurement. Candidates of up to
    :data:`~dietlab.timing.protocol.TOGETHER` shapes are timed in turns (:mod:`dietlab.timing.turns`), as
    contenders are when operators are evaluated, and until they are clearly slower than the fastest on their
    shape. Generated code runs in a child process only, so that a crash or a hang becomes a record. What the
    compiler says of a GPU's scheme comes first: one that spills or does not fit is refused and never run.

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
    timer_module: str = TIMER

    def __post_init__(self) -> None:
        self._open = ExitStack()
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
        """Yields the records of candidates on some shapes."""
        seat = self._opened(workload)
        playing = [_different(contest) for contest in contests]
        for candidate in (candidate for rivals in playing for candidate in rivals):
            candidate.player = Player(seat, candidate.record.shape, str(candidate.built.path))
        players = [[candidate.player for candidate in rivals if candidate.player] for rivals in playing]
        seed = f"{workload}/{[len(rivals) for rivals in players]}"
        play(players, self.timing.blocks, self._take, seed, partial(_playing_on, self.timing))
        yield from (candidate.result(self.timing.cache) for contest in contests for candidate in contest)

    def _take(self, player: Player, turn: int) -> None:
        """Takes one turn of a candidate: a block, and a shorter one on operands in cache if that may matter,
        which it hardly does for slow programs; long calls vary little, so that one turn is enough."""
        timing = self.timing
        player.take(timing.cache, timing.block_seconds)
        if timing.cache != "rotating" or self.hardware.kind != "cpu" or not player.correct:
            return
        seconds = min(player.seconds(timing.cache))
        if not timing.slow(seconds) and (turn == 0 or seconds <= timing.block_seconds):
            player.take("interleaved", CACHED_SHARE * timing.block_seconds)

    def _opened(self, workload: Workload) -> Seat:
        """Returns the process that times candidates of a workload; it stays while the workload does."""
        if self._seat is not None and self._seat[0] == workload:
            return self._seat[1]
        if self._seat is not None:
            self._seat[1].close()
        cores = self.hardware.cores if self.hardware.kind == "cpu" else 1
        request = {
            "op": "open",
            "contender": "candidates",
            "workload": workload.to_json(),
            "threads": cores,
            "options": self._options,
        }
        seat = Seat(
            request,
            self.timer_module,
            {"TVM_NUM_THREADS": str(cores), **ALONE},
            seconds=self.time_timeout,
            open_seconds=self.time_timeout + START_SECONDS[self.hardware.kind],
        )
        self._seat = workload, seat
        return seat

    def _start(self) -> None:
        if self._folder is not None:
            return
        self._require_tools()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietlab-")))
        self._pool = self._open.enter_context(
            Builders(self.hardware, folder, self.builders, self.build_timeout, self.builder_module)
        )
        self._options, _ = device_options(self.hardware, folder)
        self._folder = folder

    def _require_tools(self) -> None:
        """Raises one error for what is missing on this machine, before every candidate fails of it."""
        if self.hardware.kind == "cuda":
            if self.timer_module == TIMER:
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


def _playing_on(timing: Timing, rivals: Sequence[Player], turns: int) -> list[Player]:
    """Returns the rivals on a shape of which another block would tell more after ``turns`` turns: at first
    all but slow programs behind the fastest, then quick programs that are not behind it."""
    most = BEHIND * min(map(_mean_seconds, rivals), default=0.0)

    def plays_on(player: Player) -> bool:
        slow, behind = timing.slow(min(player.seconds(timing.cache))), _mean_seconds(player) > most
        return not (slow and behind) if turns < FEWEST_TURNS else not (slow or behind)

    return list(filter(plays_on, rivals))


def _mean_seconds(player: Player) -> float:
    """Returns the geometric mean over where operands come from, so far."""
    return geometric_mean(min(player.seconds(cache)) for cache in player.blocks)


@dataclass
class Candidate:
    """A library on one shape while it is measured, and its record so far.

    Args:
        player: of those that are timed.
        twin: has the same machine code, and what it takes holds for both.
    """

    built: Built
    record: Record
    player: Player | None = None
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

    def result(self, cache: str) -> Record:
        """Returns the record, once all turns are over.

        Args:
            cache: the state that ``seconds`` are of.
        """
        if self.twin is not None:
            twin = self.twin.result(cache)
            return replace(
                self.record,
                status=twin.status,
                seconds=twin.seconds,
                cached_seconds=twin.cached_seconds,
                spread=twin.spread,
                reason=f"same code as {twin.scheme.key}",
            )
        if self.player is None:
            return self.record
        player = self.player
        phases = self.record.phases.plus(verify=player.check_seconds, measure=player.time_seconds)
        if not player.correct:
            return replace(self.record, phases=phases, status=_status(player), reason=player.reason)
        blocks, cached = player.seconds(cache), player.seconds("interleaved")
        return replace(
            self.record,
            phases=phases,
            seconds=min(blocks),
            cached_seconds=min(cached, default=None),
            spread=median(blocks) / min(blocks) - 1,
        )


def _status(player: Player) -> Status:
    """Returns what became of a candidate that has no time."""
    if player.error is None:
        return "wrong"
    if isinstance(player.error, WorkerTimeout):
        return "timeout"
    return "crashed" if isinstance(player.error, WorkerCrashed) else "refused"
