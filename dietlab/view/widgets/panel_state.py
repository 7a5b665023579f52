"""State of the tuning panel: a value that every event makes into the next one.

Nothing here draws. The state's size is bounded, whatever the length of the run: a curve keeps at most
:data:`MAX_POINTS` points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
"""An even number: a full curve is halved."""

MAX_STAGES = 6
EVENTS_KEPT = 8

PER_SHAPE = "ansor"
"""The tuner that counts the trials of each shape apart, and tells of a batch of them at once."""


@dataclass(frozen=True)
class Point:
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

    A point stands for ``stride`` trials in a row (the last for ``filled``) and is the first of the fastest
    of them: every ``best_gflops`` is exact, and the best trial of the run is on the curve.
    """

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
class Best:
    """The fastest on one shape, in GFLOP/s."""

    gflops: float
    scheme: str


@dataclass(frozen=True)
class Outcome:
    """The number of trials that ended in one way, and the reason of the last of them."""

    count: int = 0
    reason: str = ""


@dataclass(frozen=True)
class TuningState:
    """A summary of a run's events.

    Args:
        curve: the course of the throughput.
        shapes: the best on each shape, by the shape's name.
        outcomes: by status; ``ok`` is one of them.
        fits: fits of the cost model; every second of the old ones is dropped when they get many.
        seconds: where the time went.
        counts: trials so far, of each shape apart for a tuner of single shapes.
        devices: trials by server, where servers measure.
        stages: the last stages; ``running`` are those that have not ended.
        recent: the last events, the newest first.
    """

    curve: Curve = field(default_factory=Curve)
    shapes: Mapping[str, Best] = field(default_factory=dict)
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
        state = self
        if not isinstance(event, StageAdvanced):
            state = replace(state, recent=(event, *state.recent)[:EVENTS_KEPT])
        match event:
            case StageStarted():
                return state._started(event, now)
            case StageAdvanced(stage=stage) if stage in state.stages:
                stages = {**state.stages, stage: state.stages[stage].advanced(event)}
                return replace(state, stages=stages)
            case StageFinished(stage=stage):
                return replace(state, running=state.running - {stage})
            case TrialMeasured():
                return state._measured(event, now)
            case ModelFitted():
                return replace(state, fits=_thinned((*state.fits, event)))
            case RoundFinished():
                return state._round(event)
        return state

    def _started(self, event: StageStarted, now: float) -> TuningState:
        others = {name: clock for name, clock in self.stages.items() if name != event.stage}
        stages = {**others, event.stage: StageClock.of(event, now)}
        kept = dict(list(stages.items())[-MAX_STAGES:])
        return replace(self, stages=kept, running=self.running & set(kept) | {event.stage})

    def _measured(self, event: TrialMeasured, now: float) -> TuningState:
        source = event.shape if event.scheme == PER_SHAPE else ""
        before = self.counts.get(source, 0)
        if event.trials <= before:
            return self._afresh()._measured(event, now)
        began = now if self._began is None else self._began
        spent = self._in_records + event.phases.total
        number = event.trials - before if source else 1
        failed = event.status != "ok"
        state = replace(
            self,
            counts={**self.counts, source: event.trials},
            _began=began,
            _in_records=spent,
            best_gflops=max(self.best_gflops, event.gflops),
            failures=self.failures + number * failed,
            outcomes=_counted(self.outcomes, event, number),
            devices=_of_device(self.devices, event),
            shapes=_improved(self.shapes, event),
            seconds=_plus(self.seconds, event.phases),
        )
        timed = spent + self.seconds.model + self.seconds.search if spent else now - began
        # A model's time is told after its round: no point lies before the one before it.
        seconds = max([timed, *(point.seconds for point in self.curve.points[-1:])])
        point = Point(
            state.trials,
            seconds,
            event.gflops,
            state.best_gflops,
            event.scheme,
            event.shape,
            event.status,
        )
        return replace(state, curve=self.curve.after(point))

    def _afresh(self) -> TuningState:
        """Returns the state of a new run: its trials count from one again."""
        return TuningState(stages=self.stages, running=self.running, recent=self.recent[:1])

    def _round(self, event: RoundFinished) -> TuningState:
        """Returns the state with a round's sums, which include what earlier parts of a resumed run
        measured."""
        return replace(
            self,
            seconds=event.seconds,
            best_gflops=max(self.best_gflops, event.best_gflops),
            failures=max(self.failures, event.failures),
            counts={**self.counts, "": max(event.trials, self.counts.get("", 0))},
        )


def _counted(outcomes: Mapping[str, Outcome], event: TrialMeasured, number: int) -> dict[str, Outcome]:
    known = outcomes.get(event.status, Outcome())
    return {**outcomes, event.status: Outcome(known.count + number, event.reason or known.reason)}


def _of_device(devices: Mapping[str, int], event: TrialMeasured) -> Mapping[str, int]:
    return {**devices, event.device: devices.get(event.device, 0) + 1} if event.device else devices


def _improved(shapes: Mapping[str, Best], event: TrialMeasured) -> Mapping[str, Best]:
    """Returns the mapping with a better value; the mapping itself if nothing got better, so that its drawing
    stays."""
    known = shapes.get(event.shape)
    if event.gflops <= (known.gflops if known else 0.0):
        return shapes
    return {**shapes, event.shape: Best(event.gflops, event.scheme)}


def _plus(seconds: PhaseSeconds, more: PhaseSeconds) -> PhaseSeconds:
    return seconds.plus(compile=more.compile, verify=more.verify, measure=more.measure)


def _thinned(fits: tuple[ModelFitted, ...]) -> tuple[ModelFitted, ...]:
    """Drops every second if there are too many; the first and the newest stay."""
    return fits if len(fits) <= MAX_POINTS else (*fits[:-1:2], fits[-1])
