"""The loop of tuning as a value, which proposes rounds of trials and takes their records."""

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
from dietlab.measure.timing.target import roofline_of
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space
from dietlab.tuning.decide import Decision, Pair
from dietlab.tuning.effort import Effort
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.state import SearchState, Strategy, proposed, target_shape

REFERENCES = 2
"""The number of earlier schemes that each round of the search measures again on a shape. These schemes make
rounds comparable."""

COMPARED = 4
"""The fewest new schemes on a shape for which earlier schemes are measured again: with fewer new schemes,
repeats would double the cost."""

RIDGE = 4
"""The number of rounding steps per unit of a distance from the roofline's ridge. The distance is the natural
logarithm of fetching time over computing time: shapes within 1.3x count as equally near."""


@dataclass(frozen=True)
class Proposal:
    """Trials to be measured together, in turns, as one round.

    Args:
        round: the round, which names the proposal in the records.
        trials: the schemes to time, each with its shapes.
        new: the schemes that no earlier round has tried.
    """

    round: Round
    trials: tuple[Trial, ...]
    new: tuple[Scheme, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of each scheme with each of its shapes."""
        return tuple((trial.scheme, shape) for trial in self.trials for shape in trial.shapes)


@dataclass(frozen=True)
class Tuner:
    """A tuner proposes the next measurements. From the same records, it makes the same proposal.

    ``tuner.ask()`` returns a proposal, or None at the end; ``tuner.tell(proposal, records)`` returns a tuner
    that also has these records::

        tuner = Tuner(space, shapes, effort, strategy)
        while proposal := tuner.ask():
            tuner = tuner.tell(proposal, runner.measure(space.workload, proposal.trials))

    First, rounds of the search try schemes all over the space, each scheme on the shape on which it wastes
    least. Then rounds of deciding measure the pairs on which the best library depends
    (:class:`~dietlab.tuning.decide.Decision`), until this library is known or the effort is spent.

    Args:
        space: the schemes to search, of one workload and hardware.
        shapes: the weighted shapes to tune for; held-out ones are never measured.
        effort: how much to try and to measure.
        strategy: the strategy that proposes the schemes of the search.
        predictor: the predictor, which is fitted on the records and predicts all other times.
        max_kernels: the largest number of micro-kernels in the library that the tuning is for.
        seed: the seed of the proposals.
        measurable: the pairs that can be measured, as in a replay (None: all pairs).
        records: all records so far.
        searched: the number of records of the search.
        rounds: the number of proposals whose records are known.
        decide_rounds: the number of these proposals that were decisions.
        judged: for each proposal, the ranking metrics on its new pairs, predicted by the predictor that was
            fitted before; empty without a predictor.
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
            during: a round that is being measured. Then the round after that round is returned, proposed
                without the records of ``during``; None if the other records are too few to propose it, or if
                nothing is left.

        Raises:
            ModelError: if every scheme of the search failed.
        """
        if during is not None and self.fitted is None:
            return None
        return self._search_round(during) or self._decide_round(during)

    def _decide_round(self, during: Proposal | None) -> Proposal | None:
        """Returns the next round of deciding; None once the library's expected loss is below the effort's, or
        the effort's measurements are spent."""
        if not any(record.ok for record in self.records):
            if during is not None:
                return None
            first = next(iter(self.records), None)
            reason = f", the first of which {first.status}: {first.reason}" if first else ""
            raise ModelError(
                "at least one candidate must be measured",
                f"{len(self.records)} failures{reason}",
                "The records hold all reasons; `dietlab doctor` checks the machine.",
            )
        begun = during.pairs if during is not None and during.round.stage == DECIDE else ()
        decided = self.decided + len(begun)
        left = self.effort.decisions - decided
        if left <= 0:
            return None
        progress = decided / self.effort.decisions
        decision = Decision(self.known, self.max_kernels, progress, self.measurable)
        if decision.expected_loss <= self.effort.decided_loss:
            return None
        trials = decision.trials(min(left, self.effort.decision_batch), {shape for _, shape in begun})
        number = 1 + self.decide_rounds + bool(begun)
        return Proposal(Round(DECIDE, number), trials) if trials else None

    def tell(self, proposal: Proposal, records: Iterable[Record]) -> Tuner:
        """Returns the tuner with the records of a proposal added, failures included. A record without a round
        gets the proposal's round."""
        named = tuple(r if r.asked_by else replace(r, asked_by=proposal.round) for r in records)
        found, judged = (*self.records, *named), (*self.judged, self._judged(named))
        after = replace(self, records=found, rounds=self.rounds + 1, judged=judged)
        if proposal.round.stage == SEARCH:
            return replace(after, searched=len(found))
        return replace(after, decide_rounds=self.decide_rounds + 1)

    def _judged(self, records: Iterable[Record]) -> dict[str, float]:
        known = {(record.scheme, record.shape) for record in self.records}
        new = [record for record in records if (record.scheme, record.shape) not in known]
        return evaluate_model(self.fitted, new) if self.fitted and new else {}

    @cached_property
    def fitted(self) -> Fitted | None:
        """The predictor fitted on all records; None before the first successful record, unless the predictor
        needs no record."""
        try:
            return fitted_by(self.predictor, self.space, self.records)
        except ModelError:
            if any(record.ok for record in self.records):
                raise
            return None

    @property
    def known(self) -> Known:
        """The records and the fitted model, for choosing a portfolio."""
        assert self.fitted is not None
        return Known(self.space, self.shapes, self.records, self.fitted)

    @property
    def goal(self) -> int:
        """The number of schemes that the search tries."""
        return min(self.effort.trials, len(self.space))

    @cached_property
    def state(self) -> SearchState:
        """The knowledge that a strategy proposes from."""
        # The cost model alone predicts quicker than the calibrated one, and its proposals find equally fast
        # schemes (replay of quickstart's records, eight seeds). A prior is in the calibrated one only.
        fitted = self.fitted
        model = fitted.model if isinstance(fitted, Calibrated) and fitted.prior is None else fitted
        return SearchState(self.space, self.shapes.train, self.records, model, self.effort.timing.cache)

    @property
    def decided(self) -> int:
        """The number of measurements for decisions."""
        return len(self.records) - self.searched

    @property
    def held_out_metrics(self) -> dict[str, float]:
        """The mean ranking metrics of predictions one round ahead: each round of the search is predicted from
        the rounds before. Empty if the search had one round.

        Decisions do not count: they measure pairs of nearly equal predictions, whose order is mostly noise.
        """
        return mean_metrics(filter(None, self.judged[1 : self.rounds - self.decide_rounds]))

    def _search_round(self, during: Proposal | None) -> Proposal | None:
        """Returns the next round of the search; None once the effort's schemes were tried."""
        if self.decided or (during is not None and during.round.stage == DECIDE):
            return None
        state = self.state if during is None else replace(self.state, measuring=during.new)
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
        """Returns the shapes on which the search measures a scheme: the shape with the least adaptation cost
        and, if operands come from memory, the shape that is most bound by memory and the shape at the
        roofline's ridge. A scheme's speed at computing, its speed at streaming weights and its speed at both
        at once do not predict each other."""
        shapes, pairs = self.state.shapes.shapes, self.measurable
        if pairs is not None:
            shapes = tuple(shape for shape in shapes if (scheme, shape) in pairs) or shapes
        found = {target_shape(scheme, self.space, shapes)}
        more = self._bound_by_memory if self.effort.timing.cache == "rotating" else ()
        found |= {shape for shape in more if pairs is None or (scheme, shape) in pairs}
        return tuple(sorted(found))

    @cached_property
    def _bound_by_memory(self) -> tuple[Shape, ...]:
        """The shape that is most bound by memory, which has the largest ``bytes^2 / flops`` (one row of a
        network's largest layer). If the roofline is known, also the shape with the most bytes at its
        ridge."""
        workload, held_out = self.space.workload, self.shapes.held_out
        grid = [shape for shape in length_grid(workload, self.shapes) if shape not in held_out]
        if self.measurable is not None:
            allowed = {shape for _, shape in self.measurable}
            grid = [shape for shape in grid if shape in allowed]
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
        """Returns trials that measure the best earlier schemes again on shapes with many new schemes.

        A shared machine can lose half of its speed for long: the speed of memory or, while a neighbour uses
        the other thread of the core, the speed of computing. So rounds are compared by the schemes that they
        have in common (:func:`dietlab.cost.measured.settled_seconds`).
        """
        if self.effort.timing.cache != "rotating":
            return ()
        counts = Counter(shape for trial in trials for shape in trial.shapes)
        wanted: dict[Scheme, list[Shape]] = {}
        for shape in sorted(shape for shape, count in counts.items() if count >= COMPARED):
            seconds = {r.scheme: r.seconds for r in self.records if r.shape == shape and r.seconds}
            for scheme in sorted(seconds, key=lambda scheme: (seconds[scheme], scheme))[:REFERENCES]:
                wanted.setdefault(scheme, []).append(shape)
        return tuple(Trial(scheme, tuple(wanted[scheme])) for scheme in sorted(wanted))
