"""Contenders in processes of their own, checked first, then timed in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from time import sleep
from typing import Any

from dietlab.errors import MeasureError
from dietlab.evaluation.report import Contender
from dietlab.evaluation.vendors import contender_env
from dietlab.hardware import Hardware
from dietlab.measure.process import WorkerProcess
from dietlab.shapes import Shape
from dietlab.workloads import Workload

WORKER = "dietlab.evaluation.contender_worker"
OPEN_SECONDS = 120.0
ANSWER_SECONDS = 120.0
SETTLE_SECONDS = 0.005
"""Threads of the contender before spin for a few milliseconds before they sleep."""


@dataclass(frozen=True)
class Entry:
    """One contender of a match: what its process opens, and which plan it runs (None: its own)."""

    name: str
    opens: str
    kind: str = ""
    options: Mapping[str, Any] | None = None
    detail: str = ""


@dataclass(frozen=True)
class Turn:
    """What a contender did on one shape: right or not, and mean seconds of a call in each block."""

    correct: bool
    reason: str
    samples: tuple[float, ...]


class Match:
    """Opens contenders, then plays shapes: ``with Match(...) as match: match.play(shape, ...)``.

    Each contender has a process, because OpenMP runtimes collide in one; only one runs at a time.
    """

    def __init__(self, workload: Workload, hardware: Hardware, entries: Sequence[Entry]) -> None:
        self._workload, self._hardware = workload, hardware
        self._entries = entries
        self._open = ExitStack()
        self._workers: dict[str, WorkerProcess] = {}
        self.contenders: list[Contender] = []

    def __enter__(self) -> Match:
        try:
            for entry in self._entries:
                self.contenders.append(self._admit(entry))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Contenders that are present."""
        return tuple(self._workers)

    def _admit(self, entry: Entry) -> Contender:
        cores = self._hardware.cores
        worker = WorkerProcess(WORKER, contender_env(cores))
        request = {
            "op": "open", "contender": entry.opens, "workload": self._workload.to_json(), "threads": cores,
            "options": {"l3_bytes": self._hardware.cpu.l3_bytes, **(entry.options or {})},
        }  # fmt: skip
        try:
            answer = worker.ask(request, OPEN_SECONDS)
        except MeasureError as error:
            answer = {"absent": str(error)}
        if "absent" in answer:
            worker.close()
            return Contender(entry.name, entry.kind, absent=answer["absent"], detail=entry.detail)
        self._workers[entry.name] = self._open.enter_context(worker)
        return Contender(entry.name, entry.kind or answer["kind"], answer["version"], detail=entry.detail)

    def play(
        self, shape: Shape, cache: str, blocks: int, block_seconds: float, plans: Mapping[str, Sequence[int]]
    ) -> dict[str, Turn]:
        """Every contender on one shape, in turns, in an order drawn anew for each block.

        Args:
            plans: contenders that try several plans; they are known as ``name#plan``.

        Contenders that have nothing for this shape are left out.
        """
        players = {
            name if plan is None else f"{name}#{plan}": (name, plan)
            for name in self._workers
            for plan in plans.get(name, [None])
        }
        verdicts = {player: self._check(shape, *who) for player, who in players.items()}
        samples: dict[str, list[float]] = {p: [] for p, verdict in verdicts.items() if verdict[0]}
        random = Random(f"{shape}/{cache}")
        for _ in range(blocks):
            for player in random.sample(list(samples), len(samples)):
                try:
                    samples[player].append(self._time(shape, *players[player], cache, block_seconds))
                except MeasureError as error:  # one contender's fall does not end the match
                    verdicts[player] = (False, str(error))
                    del samples[player]
        return {
            player: Turn(correct, reason, tuple(samples.get(player, ())))
            for player, (correct, reason) in verdicts.items()
            if correct or reason != "absent"
        }

    def _time(self, shape: Shape, name: str, plan: int | None, cache: str, seconds: float) -> float:
        """Mean seconds of a call in one block."""
        request = {
            "op": "time", "shape": shape.to_json(), "cache": cache, "min_seconds": seconds,
        } | ({} if plan is None else {"plan": plan})  # fmt: skip
        if self._hardware.cores > 1:
            sleep(SETTLE_SECONDS)
        return float(self._workers[name].ask(request, ANSWER_SECONDS)["seconds"])

    def _check(self, shape: Shape, name: str, plan: int | None) -> tuple[bool, str]:
        request = {"op": "check", "shape": shape.to_json()} | ({} if plan is None else {"plan": plan})
        try:
            answer = self._workers[name].ask(request, ANSWER_SECONDS)
        except MeasureError as error:
            return False, str(error)
        if "absent" in answer:
            return False, "absent"
        return bool(answer["correct"]), str(answer.get("reason", ""))
