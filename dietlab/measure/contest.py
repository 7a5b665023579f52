"""Contests: candidates on the same shape are timed in turns, and fast candidates take the most turns. Each
result becomes a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from statistics import fmean, geometric_mean, median

from dietlab.base.events import PhaseSeconds
from dietlab.measure.builders import Built, Libraries
from dietlab.measure.record import Record, Status, Trial
from dietlab.measure.timing.process import WorkerCrashed, WorkerTimeout
from dietlab.measure.timing.protocol import Timing
from dietlab.measure.timing.turns import Player, Questions, play
from dietlab.problem import Shape, Workload

CACHED_SHARE = 1 / 4
"""The ratio of a block's length with operands in the last-level cache to its length with operands in
memory."""

FEWEST_TURNS = 3
"""The fewest turns after which a program leaves because it is slow or behind the fastest: one block of calls
of 15 ms or more is 10 % off now and then, and good plans differ by less. A program that is both slow and
behind leaves after its first turn."""

BEHIND = 1.1
"""The ratio of a program's time to the fastest time above which the program is behind."""


def built_contests(
    libraries: Libraries, workload: Workload, trials: Sequence[Trial]
) -> tuple[list[list[Candidate]], list[Built]]:
    """Builds the libraries of trials. Returns two values: the candidates on each shape, and the libraries."""
    built = libraries.built(workload, trials)
    rivals: dict[Shape, list[Candidate]] = {}
    for trial, library in zip(trials, built, strict=True):
        compile_seconds = library.seconds / max(1, len(trial.shapes))
        for shape in trial.shapes:
            rivals.setdefault(shape, []).append(Candidate.of(library, shape, compile_seconds))
    return [rivals[shape] for shape in sorted(rivals)], built


def play_contests(
    seat: Questions, contests: Sequence[Sequence[Candidate]], timing: Timing, states: Sequence[str]
) -> None:
    """Times candidates on some shapes in turns, and stores the results in the candidates.

    Args:
        seat: the process that checks and times them.
        contests: the candidates on each shape.
        states: the processor's cache states. If ``interleaved`` is among them, candidates that are timed with
            operands in memory are also timed with operands in the last-level cache.
    """
    playing = [_different(contest) for contest in contests]
    for candidate in (candidate for rivals in playing for candidate in rivals):
        candidate.player = Player(seat, candidate.record.shape, str(candidate.built.path))
    players = [[candidate.player for candidate in rivals if candidate.player] for rivals in playing]
    seed = f"{[(str(rivals[0].shape), len(rivals)) for rivals in players if rivals]}"
    play(
        players,
        timing.blocks,
        partial(_take, timing, "interleaved" in states),
        seed,
        partial(_playing_on, timing),
    )


def _take(timing: Timing, cached: bool, player: Player, turn: int) -> None:
    """Takes one turn of a candidate: a block, and a shorter block with operands in the last-level cache. Slow
    programs skip the second block. Programs with calls longer than a block take the second block in the first
    turn only, since their times vary little."""
    player.take(timing.cache, timing.block_seconds)
    if timing.cache != "rotating" or not cached or not player.correct:
        return
    seconds = min(player.seconds(timing.cache))
    if not timing.slow(seconds) and (turn == 0 or seconds <= timing.block_seconds):
        player.take("interleaved", CACHED_SHARE * timing.block_seconds)


def quick(blocks: Sequence[float]) -> float:
    """Returns the mean of the two shortest of some blocks' seconds.

    Disturbances only slow down; a single block may be lucky. On raw blocks of a disturbed machine
    (``data/blocks``), this mean over five blocks separates programs as well as the minimum of five blocks
    with retakes (up to four for each block, while a probe found the processor slow). Retakes needed 1.7 times
    as many blocks."""
    return fmean(sorted(blocks)[:2])


def _different(contest: Sequence[Candidate]) -> list[Candidate]:
    """Returns one built candidate of a shape for each different machine code. The others become its twins."""
    firsts: dict[str, Candidate] = {}
    for candidate in contest:
        first = firsts.setdefault(candidate.code, candidate)
        candidate.twin = None if first is candidate else first
    return [candidate for candidate in contest if candidate.record.ok and candidate.twin is None]


def _playing_on(timing: Timing, rivals: Sequence[Player], turns: int) -> list[Player]:
    """Returns the rivals on a shape that take another turn after ``turns`` turns. Before
    :data:`FEWEST_TURNS`, rivals that are both slow and behind the fastest are left out. Afterwards, all
    rivals that are slow or behind are left out."""
    most = BEHIND * min(map(_mean_seconds, rivals), default=0.0)

    def plays_on(player: Player) -> bool:
        slow, behind = timing.slow(min(player.seconds(timing.cache))), _mean_seconds(player) > most
        return not (slow and behind) if turns < FEWEST_TURNS else not (slow or behind)

    return list(filter(plays_on, rivals))


def _mean_seconds(player: Player) -> float:
    """Returns the geometric mean of a candidate's seconds over the cache states that were timed so far."""
    return geometric_mean(quick(player.seconds(cache)) for cache in player.blocks)


@dataclass
class Candidate:
    """A library on one shape while it is measured, and its record so far.

    Args:
        player: the player that times the candidate; None if the candidate is not timed.
        twin: a candidate with the same machine code, whose times hold for both.
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
        """A text that is equal for equal machine code."""
        return self.record.code_hash or self.record.scheme.key

    def settled(self, timing: Timing) -> bool:
        """Returns whether the candidate failed, or was timed often enough for a record before the last
        turn."""
        if self.twin is not None:
            return self.twin.settled(timing)
        if self.player is None:
            return True
        if not self.player.correct:
            return self.player.error is not None or bool(self.player.reason)
        blocks = self.player.seconds(timing.cache)
        return len(blocks) >= min(FEWEST_TURNS, timing.blocks) or (bool(blocks) and timing.slow(min(blocks)))

    def result(self, cache: str) -> Record:
        """Returns the record after all turns. The record's ``seconds`` were measured in the cache state
        ``cache``."""
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
            seconds=quick(blocks),
            cached_seconds=quick(cached) if cached else None,
            spread=median(blocks) / quick(blocks) - 1,
        )


def _status(player: Player) -> Status:
    """Returns the status of a candidate without a time."""
    if player.error is None:
        return "wrong"
    if isinstance(player.error, WorkerTimeout):
        return "timeout"
    return "crashed" if isinstance(player.error, WorkerCrashed) else "refused"
