"""The joint loop: propose, build, measure once each, refit, for all shapes at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from dietlab.cost import Adaptation, Calibration, CostModel, evaluate_model, fit_cost_model
from dietlab.errors import ModelError
from dietlab.events import (
    Audience,
    ModelFitted,
    Observer,
    PhaseSeconds,
    RoundFinished,
    TrialMeasured,
    audience,
)
from dietlab.measure import Record, RecordStore, Runner, Trial
from dietlab.search.candidates import best_together, candidate_plans, distinct, tiling_on
from dietlab.search.dense import dense_shapes
from dietlab.search.effort import Effort, effort_named
from dietlab.search.strategies import SearchState, Strategy, strategy_named, target_shape
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel, Space
from dietlab.workloads import axis_of

if TYPE_CHECKING:
    import pandas as pd

Result = TypeVar("Result")
Seconds = npt.NDArray[np.float64]
"""``[micro-kernels, shapes]``."""

CACHED_SHARE, PREDICTED_SHARE = 0.5, 0.25
"""How often operands are expected in cache; the other calls find them in memory. Nobody knows which it will
be, and a plan that is good in one state only is a bad one; but a prediction counts less."""

FINALISTS = 3
"""Plans measured for each shape in a round of verifying."""

FEW_ROWS, MORE_FINALISTS = 8, 8
"""The same for shapes of so few rows: there memory bounds the time, and the model tells plans apart worst."""

MANY_ROWS = 128
"""Beyond so many rows a call takes long, and neighbouring shapes differ by little."""

VERIFYING_ROUNDS = 2
"""What the first round finds changes what is probably fastest. The second one looks between the first one's
shapes, and again where another plan is expected to win now."""

SEARCH, VERIFY = "search", "verify"
"""Rounds of the search are called this and how many micro-kernels were tried before; those of verifying
have a number."""


@dataclass(frozen=True)
class TuningRun:
    """What a search found out; everything later is computed from it.

    ``seconds`` is the wall-clock time by phase, earlier sittings of a resumed run included as far
    as their records tell (model and search time of earlier sittings is not kept).
    ``held_out_metrics`` judges the model before it saw the confirming measurements, on them: pairs of
    micro-kernel and shape that were held out from its fit (empty if there were none).
    """

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    model: CostModel
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    held_out_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """Those measured successfully at least once."""
        return tuple(sorted({record.micro_kernel for record in self.records if record.ok}))

    @property
    def trials(self) -> int:
        """Distinct micro-kernels tried."""
        return len({record.micro_kernel for record in self.records})

    @property
    def failures(self) -> int:
        return len({record.micro_kernel for record in self.records if not record.ok})

    def seconds_table(
        self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape], cached: bool = False
    ) -> Seconds:
        """Measured seconds where there are any, calibrated predictions elsewhere: with operands from where
        tuning had them or, if ``cached``, from the last-level cache."""
        return (self._cached_calibration if cached else self._calibration).seconds(kernels, shapes)

    def mean_seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Seconds:
        """The geometric mean over where operands come from: :meth:`seconds_table` for the state of tuning
        and, if that was from memory, a share of :data:`CACHED_SHARE` for operands in cache, or of
        :data:`PREDICTED_SHARE` if nothing was measured there. Plans that memory makes equal differ by how
        well they compute."""
        table = self.seconds_table(kernels, shapes)
        if self.model.cost.cache != "rotating":
            return table
        cached = self.seconds_table(kernels, shapes, cached=True)
        known = any(record.cached_seconds for record in self.records)
        share = CACHED_SHARE if known else PREDICTED_SHARE
        mean: Seconds = table ** (1 - share) * cached**share
        return mean

    def expected_seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Seconds:
        """What to count on: :meth:`mean_seconds`, and predictions with their doubt
        (:meth:`~dietlab.cost.Calibration.doubt`), so that a plan which was measured is preferred to one
        that is only said to be as fast."""
        doubt = np.exp(self._calibration.doubt(kernels, shapes))
        expected: Seconds = self.mean_seconds(kernels, shapes) * doubt
        return expected

    @cached_property
    def _calibration(self) -> Calibration:
        return Calibration(self.model, self.records)

    @cached_property
    def _cached_calibration(self) -> Calibration:
        """The same for operands in cache."""
        model = replace(self.model, cost=self.model.cost.with_cache("hot"))
        return Calibration(
            model, [replace(record, seconds=record.cached_seconds) for record in self.records if record.ok]
        )

    def frame(self) -> pd.DataFrame:
        """One row a record."""
        import pandas as pd

        workload = self.space.workload
        return pd.DataFrame(
            [
                {
                    "micro_kernel": r.micro_kernel.key, **r.shape.to_json(), "status": r.status,
                    "microseconds": None if r.seconds is None else r.seconds * 1e6,
                    "gflops": r.gflops(workload), "reason": r.reason,
                }
                for r in self.records
            ]
        )  # fmt: skip


def tune(
    space: Space,
    shapes: ShapeSet,
    runner: Runner,
    effort: str | Effort = "quick",
    strategy: str | Strategy = "marginal",
    observers: Iterable[Observer] = (),
    store: RecordStore | None = None,
    adaptation: Adaptation = "streamed",
    seed: int = 0,
) -> TuningRun:
    """Searches ``space`` for all ``shapes`` at once.

    Each micro-kernel is measured once or twice (:func:`search_shapes`); then the best are confirmed on
    more shapes, and their plans verified where they compete. What ``store`` holds already counts, so
    that an interrupted run goes on where it stopped.

    Raises:
        ModelError: if every candidate failed.
    """
    effort, strategy = effort_named(effort), strategy_named(strategy)
    store = RecordStore() if store is None else store
    listeners = audience(observers)
    clock = _Clock()
    goal = min(effort.trials, len(space))
    model: CostModel | None = None
    if store.records:
        model = _fit(space, store.records, effort, adaptation, seed, clock)
    with listeners.stage("tune", goal, "micro-kernel") as progress:
        state = SearchState(space, shapes.train, searched(store.records), model)
        progress.advance("resumed" if state.tried else "", by=min(goal, len(state.tried)))
        begun = [Trial(kernel, search_shapes(kernel, state, effort)) for kernel in sorted(state.tried)]
        left = missing(begun, state.records)
        _measure(space, left, runner, store, listeners, lambda *_: None, f"{SEARCH} {len(state.tried)}")
        while len(state.tried) < goal:
            random = Random(f"{seed}/{len(state.tried)}")  # the same after a restart
            count = min(effort.batch, goal - len(state.tried))
            kernels = clock.charge("search", partial(strategy.propose, state, count, random))
            if not kernels:
                break
            trials = [Trial(kernel, search_shapes(kernel, state, effort)) for kernel in kernels]
            asked_by = f"{SEARCH} {len(state.tried)}"
            _measure(space, trials, runner, store, listeners, progress.advance, asked_by, count_trials=True)
            model = _fit(space, store.records, effort, adaptation, seed, clock)
            _announce(space, store, model, clock, listeners)
            state = SearchState(space, shapes.train, searched(store.records), model)
    known = searched(store.records)
    model = _fit(space, known, effort, adaptation, seed, clock)
    if model is None:
        raise ModelError(
            "at least one candidate is measured", f"{len(store.records)} failures",
            "Their reasons stand in the records; `dietlab doctor` checks the machine.",
        )  # fmt: skip
    # Each stage sees what those before it measured, whatever else is in the store: a finished run that is
    # repeated asks for the same measurements, and has them all.
    confirmed = confirm(TuningRun(space, shapes, known, model), runner, effort, listeners, store)
    metrics = evaluate_model(model, confirmed)
    known += confirmed
    for number in range(1, 1 + VERIFYING_ROUNDS):
        model = _fit(space, known, effort, adaptation, seed, clock) or model
        run = TuningRun(space, shapes, known, model)
        known += verify(run, runner, effort, listeners, store, number)
    model = _fit(space, store.records, effort, adaptation, seed, clock) or model
    return TuningRun(space, shapes, tuple(store.records), model, clock.seconds_with(store.records), metrics)


def search_shapes(kernel: MicroKernel, state: SearchState, effort: Effort) -> tuple[Shape, ...]:
    """Where the search measures a candidate: on the shape on which it wastes least and, if operands come
    from memory, on the smallest of the range too. There memory bounds the time, and how well a
    micro-kernel streams its weights tells nothing about how well it computes."""
    target = target_shape(kernel, state)
    dims = state.space.workload.dims
    smallest = Shape.of(**{name: dim.low for name, dim in dims.items()})
    return tuple(sorted({target, smallest})) if effort.timing.cache == "rotating" else (target,)


def searched(records: Iterable[Record]) -> tuple[Record, ...]:
    """What the search itself measured. Whatever confirmed or verified it later is left out, so that running
    the same command again goes on in the same way. (Records that nobody signed are taken for its own.)"""
    return tuple(r for r in records if r.asked_by.startswith(SEARCH) or not r.asked_by)


def confirm(
    run: TuningRun, runner: Runner, effort: Effort, listeners: Audience, store: RecordStore
) -> tuple[Record, ...]:
    """Measures the best micro-kernels on more shapes, the tuned ones and others between them."""
    shapes = confirm_shapes(run.shapes, run.space, effort.confirm_shapes)
    trials = [Trial(kernel, shapes) for kernel in best_together(run, shapes, effort.confirm_kernels)]
    return measured("confirm", "confirm", run, trials, runner, listeners, store)


def verify(
    run: TuningRun, runner: Runner, effort: Effort, listeners: Audience, store: RecordStore, number: int
) -> tuple[Record, ...]:
    """Measures, for shapes all over the range, the plans that are probably fastest there.

    The model tells programs apart that differ much; which of a few good ones wins on a shape is
    measured, next to each other, unless the fastest of them has been. Shapes are those of the dispatcher's
    training, as many as the effort has time for.
    """
    if not effort.verify_shapes:
        return ()
    workload = run.space.workload
    shapes = verified_shapes(run, effort.verify_shapes, number)
    plans = candidate_plans(run, shapes)
    order = run.mean_seconds(plans, shapes).argsort(axis=0)
    rows, verified = axis_of(workload, "rows"), _verified(run)
    wanted: dict[MicroKernel, list[Shape]] = {}
    for column, shape in enumerate(shapes):
        count = MORE_FINALISTS if rows.at(shape) <= FEW_ROWS else FINALISTS
        finalists = distinct(plans, order[:, column], workload, shape, count)
        if tiling_on(plans[finalists[0]], workload, shape) not in verified.get(shape, ()):
            for plan in finalists:
                wanted.setdefault(plans[plan], []).append(shape)
    trials = [Trial(plan, tuple(wanted[plan])) for plan in sorted(wanted)]
    return measured(VERIFY, f"{VERIFY} {number}", run, trials, runner, listeners, store)


def verified_shapes(run: TuningRun, count: int, number: int) -> tuple[Shape, ...]:
    """The shapes of round ``number``: about ``count`` all over the range; from the second round on also those
    between them where one more row changes much."""
    workload = run.space.workload
    rows, first = axis_of(workload, "rows"), set(dense_shapes(workload, run.shapes, count))
    dense = dense_shapes(workload, run.shapes, number * count)
    return tuple(sorted(first | {shape for shape in dense if rows.at(shape) <= MANY_ROWS}))


def _verified(run: TuningRun) -> dict[Shape, set[Hashable]]:
    """By shape: what was measured in earlier rounds of verifying."""
    found: dict[Shape, set[Hashable]] = {}
    for record in run.records:
        if record.asked_by.startswith(VERIFY):
            tiles = tiling_on(record.micro_kernel, run.space.workload, record.shape)
            found.setdefault(record.shape, set()).add(tiles)
    return found


def measured(
    stage: str, asked_by: str, run: TuningRun, trials: Sequence[Trial], runner: Runner, listeners: Audience,
    store: RecordStore,
) -> tuple[Record, ...]:  # fmt: skip
    """Records of ``trials`` in the round ``asked_by``; what the store lacks of them is measured, but for what
    failed before."""
    left = missing(trials, (r for r in store.records if r.asked_by == asked_by or not r.ok))
    with listeners.stage(stage, sum(len(trial.shapes) for trial in left), "measurement") as progress:
        _measure(run.space, left, runner, store, listeners, progress.advance, asked_by)
    wanted = {(trial.micro_kernel, shape) for trial in trials for shape in trial.shapes}
    return tuple(
        record
        for record in store.records
        if record.asked_by == asked_by and (record.micro_kernel, record.shape) in wanted
    )


def missing(trials: Iterable[Trial], records: Iterable[Record]) -> list[Trial]:
    """What of some trials has no record."""
    done = {(record.micro_kernel, record.shape) for record in records}
    return [
        Trial(trial.micro_kernel, left)
        for trial in trials
        if (left := tuple(shape for shape in trial.shapes if (trial.micro_kernel, shape) not in done))
    ]


def confirm_shapes(shapes: ShapeSet, space: Space, count: int) -> tuple[Shape, ...]:
    """The tuned shapes, the ends of the range, and ``count`` evenly spread over the logarithm of T.

    Small shapes get more of them: there one row more changes the most.
    """
    dims = space.workload.dims
    if len(dims) != 1:
        return shapes.train.shapes
    name, dim = next(iter(dims.items()))
    spread = np.geomspace(dim.low, dim.high, count).round().astype(int)
    return tuple(sorted({Shape.of(**{name: int(t)}) for t in spread} | set(shapes.train)))


def _measure(
    space: Space,
    trials: Sequence[Trial],
    runner: Runner,
    store: RecordStore,
    listeners: Audience,
    advance: Callable[[str, int], None],
    asked_by: str,
    *,
    count_trials: bool = False,
) -> None:
    """Runs the trials; every record is on disk before it is announced. Progress counts records, or trials
    with all their shapes."""
    if not trials:
        return
    left = {trial.micro_kernel: len(trial.shapes) for trial in trials}
    best = max((record.gflops(space.workload) for record in store.records), default=0.0)
    with _closed_on_error(runner):
        for measurement in runner.measure(space.workload, trials):
            record = replace(measurement, asked_by=asked_by)
            store.append(record)
            gflops = record.gflops(space.workload)
            best = max(best, gflops)
            listeners.send(_announcement(record, gflops, len(store.records)))
            left[record.micro_kernel] -= 1
            advance(f"best {best:.1f} GFLOP/s", int(not count_trials or not left[record.micro_kernel]))


def _announcement(record: Record, gflops: float, trials: int) -> TrialMeasured:
    kernel, shape = record.micro_kernel.key, str(record.shape)
    return TrialMeasured(kernel, shape, gflops, record.status, trials, record.reason, record.phases)


@contextmanager
def _closed_on_error(runner: Runner) -> Iterator[None]:
    """An error, a stop or an interruption leaves no worker process; the runner can be used again."""
    try:
        yield
    except BaseException:
        close = getattr(runner, "close", None)
        if close is not None:
            close()
        raise


def _fit(
    space: Space, records: Sequence[Record], effort: Effort, adaptation: Adaptation, seed: int, clock: _Clock
) -> CostModel | None:
    if not any(record.ok for record in records):
        return None
    fit = partial(
        fit_cost_model, space.workload, space.hardware, records, adaptation, seed, effort.timing.cache
    )
    return clock.charge("model", fit)


def _announce(
    space: Space, store: RecordStore, model: CostModel | None, clock: _Clock, listeners: Audience
) -> None:
    rounds = len(clock.rounds) + 1
    clock.rounds.append(len(store.records))
    if model is not None:
        listeners.send(ModelFitted(rounds, model.samples, evaluate_model(model, store.records)))
    failures = sum(not record.ok for record in store.records)
    best = max((record.gflops(space.workload) for record in store.records), default=0.0)
    seconds = clock.seconds_with(store.records)
    listeners.send(RoundFinished(rounds, len(store.records), failures, best, seconds))


def with_records(seconds: PhaseSeconds, records: Iterable[Record]) -> PhaseSeconds:
    """Model and search time with the other phases, which stand in the records."""
    found = [record.phases for record in records]
    return replace(
        seconds, compile=sum(phases.compile for phases in found),
        verify=sum(phases.verify for phases in found), measure=sum(phases.measure for phases in found),
    )  # fmt: skip


class _Clock:
    """Adds up model and search time; the other phases stand in the records."""

    def __init__(self) -> None:
        self.seconds = PhaseSeconds()
        self.rounds: list[int] = []

    def charge(self, phase: str, work: Callable[[], Result]) -> Result:
        started = perf_counter()
        result = work()
        self.seconds = self.seconds.plus(**{phase: perf_counter() - started})
        return result

    def seconds_with(self, records: Iterable[Record]) -> PhaseSeconds:
        return with_records(self.seconds, records)
