"""The joint loop: propose, build, measure once each, refit, for all shapes at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from random import Random

from dietlab.cost import Adaptation, CostModel, evaluate_model, fit_cost_model
from dietlab.errors import ModelError
from dietlab.events import Audience, ModelFitted, Observer, RoundFinished, audience
from dietlab.measure import Record, RecordStore, Runner, Trial
from dietlab.search.effort import Effort, effort_named
from dietlab.search.phases import PhaseTimer, with_records
from dietlab.search.rounds import measure_all, missing
from dietlab.search.strategies import SearchState, Strategy, strategy_named, target_shape
from dietlab.search.tuning_run import TuningRun
from dietlab.search.verify import confirm, verify
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel, Space
from dietlab.workloads import smallest_shape

VERIFYING_ROUNDS = 2
"""What the first round finds changes what is probably fastest. The second one looks between the first one's
shapes, and again where another plan is expected to win now."""

REFERENCES = 2
"""Micro-kernels of earlier rounds that are measured again in each round of the search."""

SEARCH = "search"
"""Rounds of the search are called this and how many micro-kernels were tried before; what is left of an
interrupted round is a round of its own."""


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
    clock = PhaseTimer()
    runner = clock.watched(runner)
    goal = min(effort.trials, len(space))
    model: CostModel | None = None
    if store.records:
        model = _fit(space, store.records, effort, adaptation, seed, clock)
    with listeners.stage("tune", goal, "micro-kernel") as progress:
        state = SearchState(space, shapes.train, searched(store.records), model)
        progress.advance("resumed" if state.tried else "", by=min(goal, len(state.tried)))
        begun = [Trial(kernel, search_shapes(kernel, state, effort)) for kernel in sorted(state.tried)]
        left = missing(begun, state.records)
        asked_by = f"{SEARCH} {len(state.tried)}, resumed"
        trials = [*left, *references(state, effort)] if left else []
        measure_all(space, trials, runner, store, listeners, lambda *_: None, asked_by)
        for number in count(1):
            if len(state.tried) >= goal:
                break
            random = Random(f"{seed}/{len(state.tried)}")  # the same after a restart
            kernels = strategy.propose(state, min(effort.batch, goal - len(state.tried)), random)
            if not kernels:
                break
            trials = [Trial(kernel, search_shapes(kernel, state, effort)) for kernel in kernels]
            trials += references(state, effort)
            asked_by = f"{SEARCH} {len(state.tried)}"
            measure_all(space, trials, runner, store, listeners, progress.advance, asked_by, counted=kernels)
            model = _fit(space, store.records, effort, adaptation, seed, clock)
            _announce(number, space, store, model, clock, listeners)
            state = SearchState(space, shapes.train, searched(store.records), model)
    known = searched(store.records)
    model = _fit(space, known, effort, adaptation, seed, clock)
    if model is None:
        raise ModelError(
            "at least one candidate is measured",
            f"{len(store.records)} failures",
            "Their reasons stand in the records; `dietlab doctor` checks the machine.",
        )
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
    seconds = with_records(clock.seconds, store.records)
    return TuningRun(space, shapes, tuple(store.records), model, seconds, metrics)


def search_shapes(kernel: MicroKernel, state: SearchState, effort: Effort) -> tuple[Shape, ...]:
    """Where the search measures a candidate: on the shape on which it wastes least and, if operands come
    from memory, on the smallest of the range too. There memory bounds the time, and how well a
    micro-kernel streams its weights tells nothing about how well it computes."""
    target = target_shape(kernel, state)
    if effort.timing.cache != "rotating":
        return (target,)
    return tuple(sorted({target, smallest_shape(state.space.workload)}))


def references(state: SearchState, effort: Effort) -> list[Trial]:
    """The best of earlier rounds on the smallest shape, which are measured there again. The memory of a
    shared machine can be twice as quick a minute later: rounds can only be compared by what they have in
    common (:func:`dietlab.cost.calibration.settled_seconds`)."""
    if effort.timing.cache != "rotating":
        return []
    smallest = smallest_shape(state.space.workload)
    seconds = {r.micro_kernel: r.seconds for r in state.records if r.shape == smallest and r.seconds}
    best = sorted(seconds, key=lambda kernel: (seconds[kernel], kernel))[:REFERENCES]
    return [Trial(kernel, (smallest,)) for kernel in sorted(best)]


def searched(records: Iterable[Record]) -> tuple[Record, ...]:
    """What the search itself measured. Whatever confirmed or verified it later is left out, so that running
    the same command again goes on in the same way. (Records that nobody signed are taken for its own.)"""
    return tuple(r for r in records if r.asked_by.startswith(SEARCH) or not r.asked_by)


def _fit(
    space: Space,
    records: Sequence[Record],
    effort: Effort,
    adaptation: Adaptation,
    seed: int,
    clock: PhaseTimer,
) -> CostModel | None:
    if not any(record.ok for record in records):
        return None
    fit = partial(
        fit_cost_model, space.workload, space.hardware, records, adaptation, seed, effort.timing.cache
    )
    return clock.fit(fit)


def _announce(
    number: int,
    space: Space,
    store: RecordStore,
    model: CostModel | None,
    clock: PhaseTimer,
    listeners: Audience,
) -> None:
    if model is not None:
        listeners.send(ModelFitted(number, model.samples, evaluate_model(model, store.records)))
    failures = sum(not record.ok for record in store.records)
    best = max((record.gflops(space.workload) for record in store.records), default=0.0)
    seconds = with_records(clock.seconds, store.records)
    listeners.send(RoundFinished(number, len(store.records), failures, best, seconds))
