"""Frozen events that stages send to observers.

A stage never prints: the progress bar, the log and the widget panel are observers of one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter
from typing import Protocol

from dietlab.base.contracts import is_number, listed, require_methods
from dietlab.base.errors import DietlabError, RecordError


@dataclass(frozen=True)
class PhaseSeconds:
    """The wall-clock time of a run by phase, in seconds.

    The five phases do not overlap and add up to the time of a stage; ``compile``, ``verify`` and
    ``measure`` happen in worker processes.
    """

    compile: float = 0.0
    verify: float = 0.0
    measure: float = 0.0
    model: float = 0.0
    search: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(getattr(self, f.name) for f in fields(self)))

    def plus(self, **seconds: float) -> PhaseSeconds:
        """Returns a copy with the given phases increased."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for phase, amount in seconds.items():
            values[phase] += amount
        return PhaseSeconds(**values)

    def to_json(self) -> dict[str, float]:
        return {f.name: round(getattr(self, f.name), 3) for f in fields(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, float]) -> PhaseSeconds:
        """Returns the times of a JSON value made by :meth:`to_json`; phases that it lacks took 0 s.

        Raises:
            RecordError: for another phase, or a time that is no finite number of 0 or more.
        """
        phases = {f.name for f in fields(cls)}
        wrong = {k: v for k, v in value.items() if k not in phases or not is_number(v, 0.0)}
        if wrong:
            raise RecordError(f"{', '.join(sorted(phases))} must each take a finite time, 0 s or more", wrong)
        return cls(**value)


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class StageStarted(Event):
    """A stage begins: it has ``total`` units of work, and ``done`` of them were finished before. ``unit`` is
    the unit's name in the singular."""

    stage: str
    total: int
    unit: str = "step"
    done: int = 0


@dataclass(frozen=True)
class StageAdvanced(Event):
    """``done`` units of a stage are finished; ``note`` reports the best result so far."""

    stage: str
    done: int
    note: str = ""


@dataclass(frozen=True)
class StageFinished(Event):
    stage: str
    seconds: float


@dataclass(frozen=True)
class TrialMeasured(Event):
    """One record was made. For a failed trial, ``gflops`` is 0 and ``reason`` says why.

    ``phases`` is the trial's wall-clock time, as far as known; ``device`` is the server that measured it, or
    empty for this machine.
    """

    scheme: str
    shape: str
    gflops: float
    status: str
    trials: int
    reason: str = ""
    phases: PhaseSeconds = field(default_factory=PhaseSeconds)
    device: str = ""


@dataclass(frozen=True)
class ModelFitted(Event):
    """The cost model was refitted on ``samples`` records."""

    round: int
    samples: int
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundFinished(Event):
    round: int
    trials: int
    failures: int
    best_gflops: float
    seconds: PhaseSeconds


class Observer(Protocol):
    """A receiver of a stage's events."""

    def on_event(self, event: Event) -> None: ...


@dataclass(frozen=True)
class Audience:
    """Sends each event to every observer, in order."""

    observers: Sequence[Observer] = ()

    def send(self, event: Event) -> None:
        for observer in self.observers:
            observer.on_event(event)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "step", done: int = 0) -> Iterator[Stage]:
        """Opens a stage with progress: ``with audience.stage("build", 8) as step: step.advance()``.

        Args:
            total: the amount of work, in units.
            unit: the unit's name, in the singular.
            done: units that were done before.
        """
        started = perf_counter()
        self.send(StageStarted(name, total, unit, done))
        try:
            yield Stage(self, name, done)
        finally:
            self.send(StageFinished(name, perf_counter() - started))


@dataclass
class Stage:
    """A stage that is under way, as :meth:`Audience.stage` yields it."""

    audience: Audience
    name: str
    done: int = 0

    def advance(self, note: str = "", by: int = 1) -> None:
        self.done += by
        self.audience.send(StageAdvanced(self.name, self.done, note))


def audience(observers: Iterable[Observer] | None) -> Audience:
    """Returns the audience of some observers.

    Raises:
        DietlabError: if ``observers`` is no list, or one of them has no ``on_event``.
    """
    found = listed("what observes", observers if observers is not None else (), DietlabError)
    for observer in found:
        require_methods("an observer", observer, ("on_event",), DietlabError)
    return Audience(found)
