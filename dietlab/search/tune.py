"""The joint loop: propose, build, measure once each, refit, for all shapes at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from random import Random

from dietlab.cost import Adaptation, CostModel, evaluate_model, fit_cost_model
from dietlab.errors import ModelError, SpaceError, require_type
from dietlab.events import Audience, ModelFitted, Observer, RoundFinished, audience
from dietlab.measure import Record, RecordStore, Round, Runner, Trial
from dietlab.search.effort import Effort, effort_named
from dietlab.search.phases import PhaseTimer, with_records
from dietlab.search.rounds import measure_all, missing
from dietlab.search.strategies import SearchState, Strategy, strategy_named, target_shape
from dietlab.search.tuning_run import TuningRun
from dietlab.search.verify import confirm, verify
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme, Space
from dietlab.workloads import axis_of, smallest_shape

REFERENCES = 2
"""Schemes of earlier rounds that each round of the search measures again, to compare rounds."""

SEARCH = "search"
"""The name of the search's stage. A round has the number of schemes tried before it; the rest of an
interrupted round is a separate round."""


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

    Each scheme is measured once or twice (:func:`search_shapes`); then the best are confirmed on
    more shapes, and their plans verified where they compete. An interrupted run continues from the records
    in ``store``.

    Args:
        space: the schemes to search, of one workload and hardware.
        shapes: the weighted shapes to tune for; only its training shapes are measured by the search.
        runner: measures trials: local, replay or synthetic.
        effort: a preset's name (``smoke``, ``quick``, ``full``) or counts of trials and seconds.
        strategy: a strategy's name or an object with ``propose``.
        observers: get every progress event.
        store: receives every record before it is announced; in memory if None.
        adaptation: the adaptation cost of the model: ``streamed`` knows cache levels, ``paper`` does not.
        seed: of the proposals and of the model.

    Raises:
        ModelError: if every candidate failed.
        SpaceError: if an argument stands in another's place.
    """
    order = "The order is tune(space, shapes, runner)."
    require_type("the first argument of tune", space, Space, SpaceError, order)
    require_type("the second argument of tune", shapes, ShapeSet, SpaceError, order)
    effort, strategy = effort_named(effort), strategy_named(strategy)
    store = RecordStore() if store is None else store
    listeners = audience(observers)
    clock = PhaseTimer()
    runner = clock.watched(runner)
    goal = min(effort.trials, len(space))
    model: CostModel | None = None
    if store.records:
        model = _fit(space, store.records, effort, adaptation, seed, clock)
    state = SearchState(space, shapes.train, searched(store.records), model)
    tried = min(goal, len(state.tried))
    with listeners.stage(SEARCH, goal, "scheme", done=tried) as progress:
        begun = [Trial(scheme, search_shapes(scheme, state, effort)) for scheme in sorted(state.tried)]
        left = missing(begun, state.records)
        asked_by = Round(SEARCH, len(state.tried), part=1)
        trials = [*left, *references(state, effort)] if left else []
        measure_all(space, trials, runner, store, listeners, lambda *_: None, asked_by)
        for number in count(1):
            if len(state.tried) >= goal:
                break
            random = Random(f"{seed}/{len(state.tried)}")  # the same after a restart
            schemes = strategy.propose(state, min(effort.batch, goal - len(state.tried)), random)
            if not schemes:
                break
            trials = [Trial(scheme, search_shapes(scheme, state, effort)) for scheme in schemes]
            trials += references(state, effort)
            asked_by = Round(SEARCH, len(state.tried))
            measure_all(space, trials, runner, store, listeners, progress.advance, asked_by, counted=schemes)
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
    for number in range(1, 1 + effort.verify_rounds):
        model = _fit(space, known, effort, adaptation, seed, clock) or model
        run = TuningRun(space, shapes, known, model)
        known += verify(run, runner, effort, listeners, store, number)
    model = _fit(space, store.records, effort, adaptation, seed, clock) or model
    seconds = with_records(clock.seconds, store.records)
    return TuningRun(space, shapes, tuple(store.records), model, seconds, metrics)


def search_shapes(scheme: Scheme, state: SearchState, effort: Effort) -> tuple[Shape, ...]:
    """Returns the shapes on which the search measures a candidate: the one with the least adaptation cost
    and, if operands come from memory, the smallest of the range too. Memory bounds the time there, and how
    well a scheme streams its weights says nothing about how well it computes."""
    target = target_shape(scheme, state)
    if effort.timing.cache != "rotating":
        return (target,)
    return tuple(sorted({target, streaming_shape(state)}))


def streaming_shape(state: SearchState) -> Shape:
    """Returns the shape whose time memory bounds most: the fewest rows of the largest weights. Of one
    dimension it is the lower end of the range, whichever shapes were given."""
    workload = state.space.workload
    if len(workload.dims) < 2:
        return smallest_shape(workload)
    rows = axis_of(workload, "rows")
    return min(state.shapes, key=lambda shape: (rows.at(shape), -workload.bytes(shape)))


def references(state: SearchState, effort: Effort) -> list[Trial]:
    """Returns trials of the best earlier schemes on the smallest shape, to be measured again.

    The memory of a shared machine can be twice as fast a minute later, so rounds are compared by the
    schemes that they have in common (:func:`dietlab.cost.calibration.settled_seconds`).
    """
    if effort.timing.cache != "rotating":
        return []
    smallest = streaming_shape(state)
    seconds = {r.scheme: r.seconds for r in state.records if r.shape == smallest and r.seconds}
    best = sorted(seconds, key=lambda scheme: (seconds[scheme], scheme))[:REFERENCES]
    return [Trial(scheme, (smallest,)) for scheme in sorted(best)]


def searched(records: Iterable[Record]) -> tuple[Record, ...]:
    """Returns the records of the search itself, without those that confirmed or verified it later, so that a
    repeated command continues in the same way. Records without a round count as the search's."""
    return tuple(r for r in records if not r.asked_by or r.asked_by.stage == SEARCH)


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
