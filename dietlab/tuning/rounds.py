"""Runs the rounds of a tuner, and measures the pairs without a record in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from dietlab.base.contracts import name_of, shown
from dietlab.base.errors import MeasureError
from dietlab.base.events import Audience, RoundFinished, TrialMeasured
from dietlab.measure import Budget, Measures, Record, RecordStore, Round, Runner, Trial
from dietlab.measure.record import each_once
from dietlab.problem import Workload
from dietlab.scheme import Space
from dietlab.tuning.decide import Pair
from dietlab.tuning.phases import PhaseTimer, with_records
from dietlab.tuning.tuner import Proposal, Tuner

Advance = Callable[[str, int], None]
"""A function that is called for each new record, with a note and with 1 if the record completes a scheme that
is new in its round, else 0."""

RECENT = 64
"""The number of latest records from which the cost of a measurement is estimated. Costs change: schemes of
the search are compiled one by one, and measurements of deciding share libraries."""


def missing(trials: Iterable[Trial], records: Iterable[Record]) -> list[Trial]:
    """Returns the trials that lack a record, each with only the shapes without a record."""
    return without(trials, {(record.scheme, record.shape) for record in records})


def without(trials: Iterable[Trial], pairs: Collection[Pair]) -> list[Trial]:
    """Returns the trials after some pairs of a scheme and a shape are removed."""
    return [
        Trial(trial.scheme, left)
        for trial in trials
        if (left := tuple(shape for shape in trial.shapes if (trial.scheme, shape) not in pairs))
    ]


@dataclass
class Sitting:
    """One run of a tuning. Records of earlier runs are used first; each record is used once.

    Args:
        runner: the runner that measures pairs without a record.
        store: the store, which receives every record before the record is announced.
        listeners: the observers, which receive every new measurement. A replay may return a measurement that
            was announced before: its record is kept for the round, and not announced again.
        clock: the timer that separates the runner's time from the time of the search.
        budget: the time within which measurements are begun.
    """

    space: Space
    runner: Runner
    store: RecordStore
    listeners: Audience
    clock: PhaseTimer = field(default_factory=PhaseTimer)
    budget: Budget = field(default_factory=Budget)
    _taken: set[int] = field(default_factory=set)
    _announced: dict[Record, None] = field(init=False)

    def __post_init__(self) -> None:
        self._announced = dict.fromkeys(each_once(self.store.records))

    def records(self, proposal: Proposal, advance: Advance) -> tuple[Record, ...]:
        """Returns the records of a proposal, in the proposal's order: unused records of earlier runs, and new
        measurements.

        The rest of an interrupted round counts as another round, since the machine may have changed."""
        known = self._left_over(proposal)
        asked_by = replace(proposal.round, part=self._earlier_parts(proposal.round))
        rest = without(proposal.trials, known)
        while rest:
            begun = self._affordable(rest)
            known |= self._measured(begun, proposal, advance, asked_by=asked_by)
            rest = without(rest, known)
        return tuple(known[pair] for pair in proposal.pairs if pair in known)

    def _affordable(self, trials: list[Trial]) -> list[Trial]:
        """Returns the first trials, as many as the budget is expected to suffice for."""
        self.budget.require()
        costs = [record.phases.total for record in self.store.records[-RECENT:]]
        count = self.budget.affordable(sum(len(trial.shapes) for trial in trials), costs)
        begun: list[Trial] = []
        for trial in trials:
            shapes = trial.shapes[: count - sum(len(one.shapes) for one in begun)]
            begun += [Trial(trial.scheme, shapes)] if shapes else []
        return begun

    def _left_over(self, proposal: Proposal) -> dict[Pair, Record]:
        """Returns unused records of the proposal's pairs. Records of the same round are preferred to records
        of other rounds, which another effort may have left."""
        wanted, found = set(proposal.pairs), dict[Pair, int]()
        numbered = enumerate(self.store.records)
        for number, record in sorted(numbered, key=lambda item: not _is_of(item[1], proposal.round)):
            pair = record.scheme, record.shape
            if pair in wanted and number not in self._taken:
                found.setdefault(pair, number)
        self._taken.update(found.values())
        return {pair: self.store.records[number] for pair, number in found.items()}

    def _earlier_parts(self, asked_by: Round) -> int:
        """Returns the number of parts of a round in the store, from other runs or efforts."""
        parts = [r.asked_by.part for r in self.store.records if r.asked_by and _is_of(r, asked_by)]
        return 1 + max(parts, default=-1)

    def _measured(
        self, trials: Sequence[Trial], proposal: Proposal, advance: Advance, *, asked_by: Round
    ) -> dict[Pair, Record]:
        if not trials:
            return {}
        left = {trial.scheme: len(trial.shapes) for trial in trials}
        workload = self.space.workload
        best = max((record.gflops(workload) for record in self.store.records), default=0.0)
        found: dict[Pair, Record] = {}
        try:
            for measurement in self.clock.watched(self.runner.measure(workload, trials)):
                record = replace(measurement, asked_by=asked_by)
                self._taken.add(len(self.store.records))
                self.store.append(record)
                found[record.scheme, record.shape] = record
                best = max(best, record.gflops(workload))
                self._announce(replace(record, asked_by=None))
                left[record.scheme] -= 1
                last = record.scheme in proposal.new and not left[record.scheme]
                advance(f"best {best:.1f} GFLOP/s{self.budget.note}", int(last))
                self.budget.require()
        except BaseException:  # also at a stop no worker process stays
            self.runner.close()
            raise
        return found

    def _announce(self, record: Record) -> None:
        if record in self._announced:
            return
        self._announced[record] = None
        gflops = record.gflops(self.space.workload)
        scheme, shape, trials = record.scheme.key, str(record.shape), len(self._announced)
        self.listeners.send(
            TrialMeasured(
                scheme, shape, gflops, record.status, trials, record.reason, record.phases, record.device
            )
        )

    def announce_round(self, number: int) -> None:
        """Sends the totals of all rounds so far."""
        records, workload = [*self._announced], self.space.workload
        failures = sum(not record.ok for record in records)
        best = max((record.gflops(workload) for record in records), default=0.0)
        seconds = with_records(self.clock.seconds, records)
        self.listeners.send(RoundFinished(number, len(records), failures, best, seconds))


@dataclass(frozen=True)
class Answering:
    """A :class:`~dietlab.measure.Runner` made of any object with ``measure``. Other members have defaults.
    Each pair of the trials must get one record."""

    runner: Measures

    @property
    def pairs(self) -> Collection[Pair] | None:
        """The pairs that the runner can measure (None: all)."""
        found: Collection[Pair] | None = getattr(self.runner, "pairs", None)
        return found

    @property
    def devices(self) -> int:
        """The number of devices that the runner measures on at the same time."""
        return int(getattr(self.runner, "devices", 1))

    def close(self) -> None:
        """Closes the runner, if the runner can be closed."""
        getattr(self.runner, "close", lambda: None)()

    def begin(self, budget: Budget) -> None:
        """Sets the budget of a runner that has one."""
        if hasattr(self.runner, "budget"):
            self.runner.budget = budget

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields the runner's records, as they come."""
        what = f"what measure of {name_of(self.runner)} returns"
        left = {(trial.scheme, shape) for trial in trials for shape in trial.shapes}
        found = self.runner.measure(workload, trials)
        if not isinstance(found, Iterable) or isinstance(found, (str, Mapping)):
            raise MeasureError(f"{what} must be an iterable of records", shown(found))
        for record in found:
            if not isinstance(record, Record):
                raise MeasureError(f"{what} must be records", shown(record))
            if (record.scheme, record.shape) not in left:
                pair = f"{record.scheme.key} on {record.shape}"
                raise MeasureError(f"{what} needs one record for each scheme and shape of the trials", pair)
            left.remove((record.scheme, record.shape))
            yield record
        if left:
            scheme, shape = min(left)
            raise MeasureError(
                f"{what} must have one record for each scheme and shape of the trials, also of a failure",
                f"none of {len(left)}, such as {scheme.key} on {shape}",
            )


class Proposals:
    """The proposals of a tuner, in order. Each proposal is made after the previous round was measured or,
    with ``ahead``, in a thread while that round is measured. Proposals depend on nothing else: a resumed or
    replayed run gets the same proposals. If too little is known to propose ahead, as in the first round
    without a prior, a proposal waits for the previous round.
    """

    def __init__(self, ahead: bool) -> None:
        self._thread = ThreadPoolExecutor(1) if ahead else None
        self._thought: Future[Proposal | None] | None = None
        self._kept: Proposal | None = None

    def __enter__(self) -> Proposals:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def next(self, tuner: Tuner, stage: str) -> Proposal | None:
        """Returns the next proposal of a tuner that has the last proposal's records. Returns None at the end,
        or if the next proposal is of another stage, for which it is kept."""
        if self._kept is None:
            self._kept = (self._thought.result() if self._thought else None) or tuner.ask()
        found = self._kept
        if found is None or found.round.stage != stage:
            return None
        self._kept = None
        if self._thread is not None:
            self._thought = self._thread.submit(tuner.ask, found)
        return found

    def wait(self) -> None:
        """Waits for the thread, which uses the tuner until then."""
        if self._thought is not None:
            wait([self._thought])


def _is_of(record: Record, asked_by: Round) -> bool:
    """Returns whether a record belongs to any part of a round."""
    return record.asked_by is not None and replace(record.asked_by, part=0) == asked_by
