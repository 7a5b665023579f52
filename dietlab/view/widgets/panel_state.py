"""State of the tuning panel: a value that every event makes into the next one.

Nothing here draws. The state's size is bounded, whatever the length of the run: a curve keeps at most
:data:`MAX_POINTS` points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dietlab.base.events import (
    Event,
    ModelFitted,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)
from dietlab.view.progress import StageClock

MAX_POINTS = 300
"""The most points of a curve; an even number, since a full curve is halved."""

MAX_STAGES = 6
EVENTS_KEPT = 8

PER_SHAPE = "ansor"
"""The tuner that counts the trials of each shape separately, and reports them in batches."""


class Point(NamedTuple):
    """A trial on a curve: ``seconds`` spent tuning until then, its throughput in GFLOP/s (0 if it failed),
    and the best throughput after it."""

    trial: int
    seconds: float
    gflops: float
    best_gflops: float
    scheme: str
    shape: str
    status: str


@dataclass(frozen=True)
class Curve:
    """The course of a run in at most :data:`MAX_POINTS` points, in order.

    A point stands for ``stride`` successive trials (the last point for ``filled``) and is the fastest of
    these, the first one if several are. So every ``best_gflops`` is exact, and the best trial of the run is
    on the curve."""

    points: tuple[Point, ...] = ()
    stride: int = 1
    filled: int = 0

    def after(self, point: Point) -> Curve:
        if self.points and self.filled < self.stride:
            fastest = _faster(self.points[-1], point)
            return Curve((*self.points[:-1], fastest), self.stride, self.filled + 1)
        if len(self.points) < MAX_POINTS:
            return Curve((*self.points, point), self.stride, 1)
        halved = tuple(map(_faster, self.points[::2], self.points[1::2]))
        return Curve((*halved, point), 2 * self.stride, 1)


def _faster(earlier: Point, later: Point) -> Point:
    return later if later.gflops > earlier.gflops else earlier


@dataclass(frozen=True)
class Outcome:
    """The number of trials that ended in one way, and the reason of the last of them."""

    count: int = 0
    reason: str = ""


@dataclass(frozen=True)
class TuningState:
    """A summary of a run's events. Parts that an event does not change stay the same objects.

    Args:
        curve: the course of the throughput.
        shapes: the fastest trial on each shape, by the shape's name.
        outcomes: the outcomes of trials by status; ``ok`` is one status.
        fits: the fits of the cost model; when there are many, every second old fit is dropped.
        seconds: the seconds of each phase.
        counts: the number of trials so far, by shape for a tuner of single shapes.
        devices: the number of trials by server, where servers measure.
        stages: the last stages; ``running`` has the names of those that have not ended.
        recent: the last events, the newest first.
    """

    curve: Curve = field(default_factory=Curve)
    shapes: Mapping[str, TrialMeasured] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    fits: tuple[ModelFitted, ...] = ()
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    counts: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    stages: Mapping[str, StageClock] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    recent: tuple[Event, ...] = ()
    best_gflops: float = 0.0
    failures: int = 0
    _began: float | None = None
    _in_records: float = 0.0

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    def after(self, event: Event, now: float) -> TuningState:
        """Returns the state after one more event, which came at ``now`` (seconds on a monotonic clock)."""
        if isinstance(event, StageAdvanced):
            advanced = {
                name: self.stages[name].advanced(event) for name in self.stages if name == event.stage
            }
            return replace(self, stages={**self.stages, **advanced})
        state = replace(self, recent=(event, *self.recent)[:EVENTS_KEPT])
        match event:
            case StageStarted(stage):
                others = [(name, clock) for name, clock in self.stages.items() if name != stage]
                stages = dict([*others, (stage, StageClock.of(event, now))][-MAX_STAGES:])
                return replace(state, stages=stages, running=self.running & {*stages} | {stage})
            case StageFinished(stage):
                return replace(state, running=self.running - {stage})
            case TrialMeasured():
                return state._measured(event, now)
            case ModelFitted():
                fits = (*self.fits, event)
                return replace(state, fits=fits if len(fits) <= MAX_POINTS else (*fits[:-1:2], event))
            case RoundFinished():  # its sums include what earlier parts of a resumed run measured
                return replace(
                    state,
                    seconds=event.seconds,
                    best_gflops=max(self.best_gflops, event.best_gflops),
                    failures=max(self.failures, event.failures),
                    counts={**self.counts, "": max(event.trials, self.counts.get("", 0))},
                )
        return state

    def _measured(self, event: TrialMeasured, now: float) -> TuningState:
        source = event.shape if event.scheme == PER_SHAPE else ""
        before = self.counts.get(source, 0)
        if event.trials <= before:  # another run: its trials count from one again
            afresh = TuningState(stages=self.stages, running=self.running, recent=self.recent[:1])
            return afresh._measured(event, now)
        number = event.trials - before if source else 1
        began = now if self._began is None else self._began
        spent = self._in_records + event.phases.total
        seconds = self.seconds.plus(**vars(event.phases))
        last = self.outcomes.get(event.status, Outcome())
        outcome = Outcome(last.count + number, event.reason or last.reason)
        fastest = self.shapes.get(event.shape)
        better = event.gflops > (fastest.gflops if fastest else 0.0)
        served = self.devices.get(event.device, 0) + 1
        counts = {**self.counts, source: event.trials}
        timed = spent + seconds.model + seconds.search if spent else now - began
        point = Point(
            sum(counts.values()),
            # A model's time is reported after its round: no point lies before the one before it.
            max([timed, *(point.seconds for point in self.curve.points[-1:])]),
            event.gflops,
            max(self.best_gflops, event.gflops),
            event.scheme,
            event.shape,
            event.status,
        )
        return replace(
            self,
            curve=self.curve.after(point),
            shapes={**self.shapes, event.shape: event} if better else self.shapes,
            outcomes={**self.outcomes, event.status: outcome},
            seconds=seconds,
            counts=counts,
            devices={**self.devices, event.device: served} if event.device else self.devices,
            best_gflops=point.best_gflops,
            failures=self.failures + number * (event.status != "ok"),
            _began=began,
            _in_records=spent,
        )
