"""Runs a tuning: all rounds of a tuner. Every record is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from dietlab.base.contracts import require_methods
from dietlab.base.errors import MeasureError, SpaceError, require_type
from dietlab.base.events import ModelFitted, Observer, audience
from dietlab.cost import COST_MODEL, Fitted, Predictor, Prior, fitted_by, predictor_named, with_prior
from dietlab.measure import Budget, Measures, Record, RecordStore
from dietlab.measure.budget import BudgetSpentError
from dietlab.measure.record import DECIDE, SEARCH
from dietlab.problem import ShapeSet
from dietlab.scheme import Space
from dietlab.tuning.decide import Pair
from dietlab.tuning.effort import Effort, effort_named
from dietlab.tuning.phases import PhaseTimer, with_records
from dietlab.tuning.rounds import Answering, Proposals, Sitting
from dietlab.tuning.state import Strategy
from dietlab.tuning.strategies.registry import strategy_named
from dietlab.tuning.tuner import Tuner
from dietlab.tuning.tuning_run import TuningRun


def tune(
    space: Space,
    shapes: ShapeSet,
    runner: Measures,
    effort: str | Effort = "quick",
    strategy: str | Strategy = "draft",
    observers: Iterable[Observer] = (),
    store: RecordStore | None = None,
    predictor: str | Predictor = COST_MODEL,
    max_kernels: int = 8,
    seed: int = 0,
    measurable: Collection[Pair] | None = None,
    prior: Prior | None = None,
    ahead: bool | None = None,
    budget: Budget | None = None,
) -> TuningRun:
    """Tunes for all ``shapes`` at once: searches ``space``, then measures the pairs on which the library
    depends.

    The rounds are those of :class:`~dietlab.tuning.tuner.Tuner`. An interrupted run continues from the
    records in ``store``, if ``ahead`` is the same.

    Args:
        space: the schemes to search, of one workload and hardware.
        shapes: the weighted shapes to tune for; held-out ones are never measured.
        runner: the runner that measures trials, such as a local, a replay or a synthetic one.
        effort: the name of a preset (``smoke``, ``brief``, ``quick``, ``full``), or an effort with counts and
            seconds of your own.
        strategy: a strategy's name (:data:`~dietlab.tuning.STRATEGIES`, or ``MODULE:NAME``) or an object with
            ``propose``.
        observers: the observers, which get every progress event.
        store: the store, which receives every record before the record is announced (None: a store in
            memory).
        predictor: the predictor of times from records: a cost model's name (``dietlab.cost.COST_MODELS``, or
            ``MODULE:NAME``) or an object with ``fit``.
        max_kernels: the largest number of micro-kernels in the library that the tuning is for.
        seed: the seed of the proposals and of the default predictor.
        measurable: the pairs of a scheme and a shape that ``runner`` can measure (None: the ``pairs`` of
            ``runner``, if it has any, as a replay does; else all pairs).
        prior: a model of records of other shapes, layers, operators or processors, for the default predictor.
        ahead: whether a round is proposed while the round before is measured, without the records of that
            round: no device waits, but each proposal uses fewer records (None: only if ``runner`` has several
            ``devices``).
        budget: the time after which nothing more is begun, in seconds (None: no limit). The model is fitted
            on the records so far, and a later call with the same ``store`` continues.

    Raises:
        ModelError: if every candidate failed; if the cost model is unknown, takes no prior or predicts no
            times; or if the prior is for another kind of processor.
        SpaceError: if arguments are in the wrong order, or if the strategy is unknown or proposes anything
            but untried schemes.
        MeasureError: if ``runner`` does not measure, or leaves out a record.
        BudgetSpentError: if the budget is spent before anything was measured.
    """
    order = "The order is tune(space, shapes, runner)."
    require_type("the first argument of tune", space, Space, SpaceError, order)
    require_type("the second argument of tune", shapes, ShapeSet, SpaceError, order)
    require_methods("the third argument of tune, a runner,", runner, ("measure",), MeasureError)
    effort, clock, measures = effort_named(effort), PhaseTimer(), Answering(runner)
    store = RecordStore() if store is None else store
    predictor = with_prior(predictor_named(predictor, effort.timing.cache, seed), prior)
    tuner = Tuner(
        space=space,
        shapes=shapes,
        effort=effort,
        strategy=strategy_named(strategy),
        predictor=_Timed(predictor, clock),
        max_kernels=max_kernels,
        seed=seed,
        measurable=measures.pairs if measurable is None else measurable,
    )
    budget = budget or Budget()
    before = budget.spent
    measures.begin(budget)
    sitting = Sitting(space, measures, store, audience(observers), clock, budget)
    # Deciding multiplies many small matrices, in which threads of a BLAS mostly spin and wait for each other.
    with (
        threadpool_limits(1, "blas"),
        Proposals(measures.devices > 1 if ahead is None else ahead) as proposals,
    ):
        try:
            for stage in (SEARCH, DECIDE):
                tuner = _after(tuner, sitting, proposals, stage)
        except BudgetSpentError:
            if not any(record.ok for record in store.records):
                raise BudgetSpentError(
                    "a budget must last until something is measured",
                    f"{budget.seconds:g} s, and {before:.1f} s were spent before tuning began",
                    "Give it more seconds; the measurements of the machine are kept.",
                ) from None
    fitted = tuner.predictor.fit(space, store.records)
    seconds = with_records(clock.seconds, store.records)
    return TuningRun(space, shapes, tuple(store.records), fitted, seconds, tuner.held_out_metrics)


@dataclass(frozen=True)
class _Timed:
    """A predictor whose fitting time counts for the phase ``model``."""

    predictor: Predictor
    clock: PhaseTimer

    def fit(self, space: Space, records: Sequence[Record]) -> Fitted:
        return self.clock.fit(lambda: fitted_by(self.predictor, space, records))


def _after(tuner: Tuner, sitting: Sitting, proposals: Proposals, stage: str) -> Tuner:
    """Returns the tuner after the rounds of a stage; the stage ends early if fewer measurements suffice."""
    searches = stage == SEARCH
    stages = [(r.scheme, r.asked_by.stage if r.asked_by else SEARCH) for r in sitting.store.records]
    earlier = [scheme for scheme, asked_by in stages if asked_by == stage]
    goal, unit, known = tuner.effort.decisions, "measurement", len(earlier)
    if searches:
        goal, unit, known = tuner.goal, "scheme", len({*earlier})
    with sitting.listeners.stage(stage, goal, unit, min(goal, known)) as progress:

        def advance(note: str, last: int) -> None:
            # Not beyond the goal: the count of earlier ones is a guess if the store holds another effort's.
            progress.advance(note, min(last if searches else 1, goal - progress.done))

        while (proposal := proposals.next(tuner, stage)) is not None:
            number = tuner.rounds + 1
            found = sitting.records(proposal, advance)
            sitting.announce_round(number)
            proposals.wait()
            began = sitting.budget.spent
            tuner = tuner.tell(proposal, found)
            sitting.budget.thought(sitting.budget.spent - began)
            if samples := len({record.scheme for record in tuner.records if record.ok}):
                sitting.listeners.send(ModelFitted(number, samples, dict(tuner.judged[-1])))
        progress.advance("", goal - progress.done)
    return tuner
