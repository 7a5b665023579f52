"""A tuning run's events, made up; an observer that keeps what it is sent; a clock that tests set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dietlab.base.events import Event, StageAdvanced, StageFinished, StageStarted, TrialMeasured


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Recorder:
    """Keeps every event."""

    events: list[Event] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def tuning_events(trials: int = 8) -> list[Event]:
    """Returns one stage of trials that are faster and faster; the second one fails."""
    steps: list[Event] = [StageStarted("measure", trials, "trial")]
    for i in range(1, trials + 1):
        failed = i == 2
        gflops = 0.0 if failed else 10.0 * i
        steps.append(TrialMeasured("8x48.u4.ws.p0", "T=8", gflops, "timeout" if failed else "ok", i))
        steps.append(StageAdvanced("measure", i, f"best {10 * i} GFLOP/s"))
    return [*steps, StageFinished("measure", float(trials))]
