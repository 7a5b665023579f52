"""The loop of tuning as a value: it proposes rounds of trials, and is told their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from random import Random

from dietlab.base.errors import ModelError
from dietlab.cost import (
    Calibrated,
    Fitted,
    Known,
    LearnedPredictor,
    Predictor,
    evaluate_model,
    fitted_by,
    mean_metrics,
)
from dietlab.measure import Record, Round, Trial
from dietlab.measure.record import DECIDE, SEARCH
from dietlab.measure.timing.rotation import roofline_of
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space
from dietlab.tuning.decide import Decision, Pair
from dietlab.tuning.effort import Effort
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.state import SearchState, Strategy, proposed, target_shape

REFERENCES = 2
"""Schemes of earlier rounds that each round of the search measures again on a shape, to compare rounds."""

COMPARED = 4
"""The fewest new schemes on a shape for which earlier ones are measured again; beside fewer, these would
double the cost."""

RIDGE = 4
"""The inverse of a difference, of natural logarithms of fetching over computing, below which shapes are as
near to the ridge as each other: 1.3x."""


@dataclass(frozen=True)
class Proposal:
    """Trials that a tuner wants measured together, in turns, as one round.

    Args:
        round: its name in the records.
        trials: schemes, each with the shapes that it is to be timed on.
        new: the schemes that no earlier round has tried.
    """

    round: Round
    trials: tuple[Trial, ...]
    new: tuple[Scheme, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each scheme with each shape that it is to be measured on."""
        return tuple((trial.scheme, shape) for trial in self.trials for shape in trial.shapes)


@dataclass(frozen=True)
class Tuner:
    """A tuner proposes what to measure next; told the same records, it proposes the same.

    ``tuner.ask()`` returns a proposal, or None at the end; ``tuner.tell(proposal, records)`` returns the
    tuner that knows them::

        tuner = Tuner(space, shapes, effort, strategy)
        while proposal := tuner.ask():
            tuner = tuner.tell(proposal, runner.measure(space.workload, proposal.trials))

    First, rounds of the search try schemes all over the space, each on the shape where it wastes least.
    Then rounds of deciding measure the pairs on which the best library depends
    (:class:`~dietlab.tuning.decide.Decision`), until that is known or the effort is spent.

    Args:
        space: the schemes to search, of one workload and hardware.
        shapes: the weighted shapes to tune for; held-out ones are never measured.
        effort: how much to try and to measure.
        strategy: what proposes the schemes of the search.
        predictor: what is fitted on the records, to predict all other times.
        max_kernels: the most micro-kernels of the library that the tuning is for.
        seed: of the proposals.
        measurable: pairs that can be measured, as in a replay (None: all).
        records: everything told so far.
        searched: how many of these the search asked for.
        rounds: proposals told so far.
        decide_rounds: how many of these were decisions.
        judged: for each of them ranking metrics, on its new pairs, of the predictor that was fitted on those
            before; empty where none was.
    """

    space: Space
    shapes: ShapeSet
    effort: Effort
    strategy: Strategy
    predictor: Predictor = field(default_factory=LearnedPredictor)
    max_kernels: int = 8
    seed: int = 0
    measurable: Collection[Pair] | None = None
    records: tuple[Record, ...] = ()
    searched: int = 0
    rounds: int = 0
    decide_rounds: int = 0
    judged: tuple[Mapping[str, float], ...] = ()

    def ask(self, during: Proposal | None = None) -> Proposal | None:
        """Returns the next round; None if there is nothing left to search or to decide.

        Args:
            during: a round that is being measured. What is returned comes after it, and knows what it asks
                for but no record of it; None if that is too little to propose from, or if nothing is left.

        Raises:
            ModelError: if every scheme of the search failed.
        """
        if during is not None and self.fitted is None:
            return None
        return self._search_round(during) or self._decide_round(during)

    def _decide_round(self, during: Proposal | None) -> Proposal | None:
        """Returns the next round of deciding; None once the library's expected loss is below the effort's, or
        its measurements are spent."""
        if not any(record.ok for record in self.records):
            if during is not None:
                return None
            first = next(iter(self.records), None)
            reason = f", the first of which {first.status}: {first.reason}" if first else ""
            raise ModelError(
                "at least one candidate is measured",
                f"{len(self.records)} failures{reason}",
                "All reasons stand in the records; `dietlab doctor` checks the machine.",
            )
        asked = during.pairs if during is not None and during.round.stage == DECIDE else ()
        decided = self.decided + len(asked)
        left = self.effort.decisions - decided
        if left <= 0:
            return None
        progress = decided / self.effort.decisions
        decision = Decision(self.known, self.max_kernels, progress, self.measurable)
        if decision.expected_loss <= self.effort.decided_loss:
            return None
        trials = decision.trials(min(left, self.effort.decision_batch), {shape for _, shape in asked})
        number = 1 + self.decide_rounds + bool(asked)
        return Proposal(Round(DECIDE, number), trials) if trials else None

    def tell(self, proposal: Proposal, records: Iterable[Record]) -> Tuner:
        """Returns the tuner that knows the records of a proposal, failures included; those that name no round
        are of the proposal's."""
        named = tuple(r if r.asked_by else replace(r, asked_by=proposal.round) for r in records)
        found, judged = (*self.records, *named), (*self.judged, self._judged(named))
        told = replace(self, records=found, rounds=self.rounds + 1, judged=judged)
        if proposal.round.stage == SEARCH:
            return replace(told, searched=len(found))
        return replace(told, decide_rounds=self.decide_rounds + 1)

    def _judged(self, records: Iterable[Record]) -> dict[str, float]:
        known = {(record.scheme, record.shape) for record in self.records}
        new = [record for record in records if (record.scheme, record.shape) not in known]
        return evaluate_model(self.fitted, new) if self.fitted and new else {}

    @cached_property
    def fitted(self) -> Fitted | None:
        """The predictor fitted on all records; before one is successful, what it knows without, or None."""
        try:
            return fitted_by(self.predictor, self.space, self.records)
        except ModelError:
            if any(record.ok for record in self.records):
                raise
            return None

    @property
    def known(self) -> Known:
        """The records and the fitted model, as choosing a portfolio takes them."""
        assert self.fitted is not None
        return Known(self.space, self.shapes, self.records, self.fitted)

    @property
    def goal(self) -> int:
        """The number of schemes that the search tries."""
        return min(self.effort.trials, len(self.space))

    @cached_property
    def state(self) -> SearchState:
        """The knowledge that a strategy proposes from."""
        # The cost model alone costs less to ask than the calibrated one, and in a replay of quickstart's
        # records (eight seeds) its proposals find equally fast schemes.
        # What a prior says is in the calibrated one alone.
        fitted = self.fitted
        model = fitted.model if isinstance(fitted, Calibrated) and fitted.prior is None else fitted
        return SearchState(self.space, self.shapes.train, self.records, model, self.effort.timing.cache)

    @property
    def decided(self) -> int:
        """The number of measurements that decisions have cost."""
        return len(self.records) - self.searched

    @property
    def held_out_metrics(self) -> dict[str, float]:
        """Ranking metrics of predictions one round ahead: of each round of the search, by the predictor that
        was fitted on the rounds before; their mean. Empty if the search had one round.

        Decisions do not count: they measure what is expected to be as fast, whose order is mostly noise.
        """
        return mean_metrics(filter(None, self.judged[1 : self.rounds - self.decide_rounds]))

    def _search_round(self, during: Proposal | None) -> Proposal | None:
        """Returns the next round of the search; None once the effort's schemes were tried."""
        if self.decided or (during is not None and during.round.stage == DECIDE):
            return None
        state = self.state if during is None else replace(self.state, asked=during.new)
        tried = len(state.tried)
        if tried >= self.goal:
            return None
        random = Random(f"{self.seed}/{tried}")  # the same after a restart
        schemes = proposed(self.strategy, state, min(self.effort.batch, self.goal - tried), random)
        if not schemes:
            return None
        trials = [Trial(scheme, self._shapes_of(scheme)) for scheme in schemes]
        return Proposal(Round(SEARCH, tried), (*trials, *self._references(trials)), schemes)

    def _shapes_of(self, scheme: Scheme) -> tuple[Shape, ...]:
        """Returns the shapes on which the search measures a scheme: the one with the least adaptation cost
        and, if operands come from memory, the one that waits for it most and the one that takes as long to
        fetch as to compute. How well a scheme streams its weights says nothing about how well it computes,
        and neither says how much of both it does at once."""
        shapes, told = self.state.shapes.shapes, self.measurable
        if told is not None:
            shapes = tuple(shape for shape in shapes if (scheme, shape) in told) or shapes
        found = {target_shape(scheme, self.space, shapes)}
        more = self._bound_by_memory if self.effort.timing.cache == "rotating" else ()
        found |= {shape for shape in more if told is None or (scheme, shape) in told}
        return tuple(sorted(found))

    @cached_property
    def _bound_by_memory(self) -> tuple[Shape, ...]:
        """The shape with the most bytes at the fewest flops a byte, of layers of a network one row of the
        largest; and the one at the roofline's ridge, of several the one with the most bytes, if that is
        known."""
        workload, held_out = self.space.workload, self.shapes.held_out
        grid = [shape for shape in length_grid(workload, self.shapes) if shape not in held_out]
        if self.measurable is not None:
            told = {shape for _, shape in self.measurable}
            grid = [shape for shape in grid if shape in told]
        most = max(grid, key=lambda shape: workload.bytes(shape) ** 2 / max(1, workload.flops(shape)))
        limits = {shape: roofline_of(workload, shape, self.space.hardware) for shape in grid}
        apart = {
            shape: round(RIDGE * abs(log(limit.memory_seconds / limit.compute_seconds)))
            for shape, limit in limits.items()
            if limit is not None and limit.memory_seconds and limit.compute_seconds
        }
        ridge = sorted(apart, key=lambda shape: (apart[shape], -workload.bytes(shape), shape))[:1]
        return (most, *ridge)

    def _references(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Returns trials of the best earlier schemes on the shapes of many new ones, to be measured again.

        A shared machine can be half as fast a minute later, for good: its memory, or while a neighbour uses
        the other half of the core all that computes. So rounds are compared by the schemes that they have in
        common (:func:`dietlab.cost.measured.settled_seconds`).
        """
        if self.effort.timing.cache != "rotating":
            return ()
        asked = Counter(shape for trial in trials for shape in trial.shapes)
        wanted: dict[Scheme, list[Shape]] = {}
        for shape in sorted(shape for shape, count in asked.items() if count >= COMPARED):
            seconds = {r.scheme: r.seconds for r in self.records if r.shape == shape and r.seconds}
            for scheme in sorted(seconds, key=lambda scheme: (seconds[scheme], scheme))[:REFERENCES]:
                wanted.setdefault(scheme, []).append(shape)
        return tuple(Trial(scheme, tuple(wanted[scheme])) for scheme in sorted(wanted))
