"""Runs contenders in separate processes: checks their results, then times them in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import sleep
from typing import Any, Protocol

from dietlab.base.errors import MeasureError
from dietlab.base.statistics import median_interval, paired_ratio
from dietlab.compare.results.row import OURS, ContenderInfo, Row
from dietlab.compare.target import WorkerModule, evaluation_target
from dietlab.compare.vendor import contender_env
from dietlab.machine import Hardware
from dietlab.machine.system import usable_cores
from dietlab.measure.timing.disturbance import Pace
from dietlab.measure.timing.rotation import shortage
from dietlab.measure.timing.seat import Seat
from dietlab.measure.timing.target import timing_target
from dietlab.measure.timing.threads import host_threads
from dietlab.measure.timing.turns import Player, play
from dietlab.problem import Shape

OPEN_SECONDS = 120.0
"""The longest that a contender may take to open, in seconds. Opening includes importing its libraries."""

SETTLE_SECONDS = 0.005
"""The pause between two contenders, in seconds. Threads of the first one spin for a few milliseconds before
they sleep."""


class Computed(Protocol):
    """An operator or a whole model that contenders compute."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Entrant:
    """One contender of a session.

    Args:
        opens: the name of the contender that its process opens.
        workload: the operator or model that it computes (None: the session's).
    """

    name: str
    opens: str
    kind: str = ""
    options: Mapping[str, Any] | None = None
    detail: str = ""
    workload: Computed | None = None


class TimingSession:
    """Opens contenders, then plays shapes: ``with TimingSession(...) as match: match.play(shape, ...)``.

    Each contender has a process, because OpenMP runtimes collide in one; only one runs at a time.
    ``unprobed`` is the reason why nothing checked whether the processor was slow for moments; ``short`` is
    the consequence of too little memory. Both are empty otherwise.

    Args:
        workload: the operator or model of all entrants that name none.
        module: the module that each process runs (default: the worker for operators on this kind of
            processor).
    """

    def __init__(
        self,
        workload: Computed,
        hardware: Hardware,
        entries: Sequence[Entrant],
        module: WorkerModule | None = None,
    ) -> None:
        self._workload, self._hardware = workload, hardware
        self._module = module or evaluation_target(hardware.kind).WORKER
        self._entries = entries
        self._open = ExitStack()
        self._seats: dict[str, Seat] = {}
        self.contenders: list[ContenderInfo] = []
        self.unprobed = self.short = ""

    def __enter__(self) -> TimingSession:
        try:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
            options, self.unprobed = timing_target(self._hardware.kind).options(self._hardware, folder)
            level = options.get("last_level_bytes", self._hardware.last_level_bytes)
            self.short = shortage(self._hardware, level)
            options["problems"] = str(folder)
            with ThreadPoolExecutor(usable_cores()) as pool:  # they import libraries; nothing is timed yet
                admitted = [*pool.map(partial(self._admit, options=options), self._entries)]
            for info, seat in admitted:
                self.contenders.append(info)
                if seat:
                    self._seats[info.name] = seat
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The contenders that are present."""
        return tuple(self._seats)

    @property
    def paces(self) -> dict[str, Pace]:
        """The numbers of blocks of each contender: timed, timed again, and kept although slow."""
        return {name: seat.pace for name, seat in self._seats.items()}

    @property
    def note(self) -> str:
        """A remark for the report about moments in which the processor was slow."""
        if self.unprobed:
            return f"Slow moments of the processor could not be detected: {self.unprobed}"
        paces = self.paces.values()
        return (
            f"{sum(p.blocks for p in paces)} blocks were timed; {sum(p.retaken for p in paces)} more were "
            "thrown away because the processor was slow around them, and "
            f"{sum(p.kept for p in paces)} count although it stayed slow."
        )

    def _admit(self, entry: Entrant, options: Mapping[str, Any]) -> tuple[ContenderInfo, Seat | None]:
        cores = host_threads(self._hardware)
        workload = entry.workload or self._workload
        request = {
            "op": "open",
            "contender": entry.opens,
            "workload": workload.to_json(),
            "threads": cores,
            "options": {**options, **(entry.options or {})},
        }
        seat = Seat(
            request,
            self._module.name,
            contender_env(cores),
            seconds=self._module.seconds,
            open_seconds=OPEN_SECONDS,
        )
        self._open.callback(seat.close)
        try:
            answer = seat.open()
        except MeasureError as error:
            answer = {"absent": str(error)}
        if "absent" in answer:
            seat.close()
            return ContenderInfo(entry.name, entry.kind, absent=answer["absent"], detail=entry.detail), None
        self.unprobed = answer.get("unprobed") or self.unprobed
        kind, version = entry.kind or answer["kind"], answer["version"]
        return ContenderInfo(entry.name, kind, version, detail=entry.detail), seat

    def play(
        self, shape: Shape, cache: str, blocks: int, block_seconds: float, plans: Mapping[str, Sequence[int]]
    ) -> dict[str, list[Player]]:
        """Times every contender on one shape in turns, in an order that is drawn again for each block.
        Returns each contender's turns, one for each plan; contenders without a program for this shape are
        left out.

        Args:
            cache: a state of :class:`~dietlab.measure.timing.device.Device`.
            plans: the indices of the plans to time, by the contender's name.
        """
        players = {
            name: [Player(seat, shape, plan) for plan in plans.get(name, [None])]
            for name, seat in self._seats.items()
        }

        def take(player: Player, turn: int) -> None:
            if self._hardware.threads > 1:
                sleep(SETTLE_SECONDS)
            player.take(cache, block_seconds)

        play([list(chain(*players.values()))], blocks, take, f"{shape}/{cache}")
        turns = {
            name: [one for one in several if one.reason != "absent"] for name, several in players.items()
        }
        return {name: several for name, several in turns.items() if several}

    def ask(self, name: str, op: str, shape: Shape) -> dict[str, Any] | None:
        """Returns a contender's answer to another request about a shape; None if it crashes or refuses."""
        try:
            return self._seats[name].ask({"op": op, "shape": shape.to_json()})
        except MeasureError:
            return None


def timed_row(shape: Shape, contender: str, cache: str, turn: Player, *, flops: int, held_out: bool) -> Row:
    """Returns the row of a contender's turn: the median with its interval, and the throughput."""
    time = median_interval(turn.samples) if turn.samples else None
    seconds = time.median if time else float("nan")
    return Row(
        shape=shape,
        held_out=held_out,
        contender=contender,
        cache=cache,
        seconds_median=seconds,
        seconds_low=time.low if time else seconds,
        seconds_high=time.high if time else seconds,
        gflops=flops / seconds / 1e9 if time else 0.0,
        correct=turn.correct,
        plan=turn.reason or None,
        retaken=turn.retaken,
        first_seconds=turn.first_seconds,
    )


def with_speedup(row: Row, turn: Player, ours: Sequence[float]) -> Row:
    """Returns a contender's row with our speedup over it in the same blocks, if both have a time."""
    if row.contender == OURS or not ours or not turn.samples:
        return row
    return replace(row, speedup=paired_ratio(turn.samples, ours))
