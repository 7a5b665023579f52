"""The stream of frozen events that stages emit, and who listens.

A stage never prints. It sends events to observers; the progress bar, the log and
the widget panel are three observers of one stream (DESIGN: seams).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter
from typing import Protocol

from dietlab.base.contracts import listed, require_methods
from dietlab.base.errors import DietlabError


@dataclass(frozen=True)
class PhaseSeconds:
    """The wall-clock time of a run by phase, in seconds.

    The five phases exclude each other and add up to the time spent in a stage;
    ``compile``, ``verify`` and ``measure`` happen in worker processes.
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


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class StageStarted(Event):
    """A stage with a known amount of work begins: ``total`` in ``unit``, which is in the singular, of which
    ``done`` were done before."""

    stage: str
    total: int
    unit: str = "step"
    done: int = 0


@dataclass(frozen=True)
class StageAdvanced(Event):
    """``done`` units of a step are finished; ``note`` says the best so far."""

    stage: str
    done: int
    note: str = ""


@dataclass(frozen=True)
class StageFinished(Event):
    stage: str
    seconds: float


@dataclass(frozen=True)
class TrialMeasured(Event):
    """One record was made (``gflops`` is 0 where the trial failed; ``reason`` says why in words).

    ``phases`` is the wall-clock time that this record cost, as far as it is known; ``device`` is the server
    that measured it, empty for this machine.
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
    """Whatever wants to know how a stage goes on."""

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
            name: of the stage.
            total: its amount of work, in ``unit``.
            unit: one of these, in the singular.
            done: how much of it was done before.
        """
        started = perf_counter()
        self.send(StageStarted(name, total, unit, done))
        try:
            yield Stage(self, name, done)
        finally:
            self.send(StageFinished(name, perf_counter() - started))


@dataclass
class Stage:
    """The running end of :meth:`Audience.stage`."""

    audience: Audience
    name: str
    done: int = 0

    def advance(self, note: str = "", by: int = 1) -> None:
        self.done += by
        self.audience.send(StageAdvanced(self.name, self.done, note))


def audience(observers: Iterable[Observer] | None) -> Audience:
    """Returns what sends events to observers.

    Args:
        observers: any number of objects with ``on_event``.

    Raises:
        DietlabError: if it is no list of such.
    """
    found = listed("what observes", observers if observers is not None else (), DietlabError)
    for observer in found:
        require_methods("an observer", observer, ("on_event",), DietlabError)
    return Audience(found)
