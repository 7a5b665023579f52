"""Runs the rounds of a tuner: what the store has no record of is measured."""

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
"""Is told of each new record: a note, and 1 if the record was the last of a scheme that no earlier round had
tried, else 0."""


RECENT = 64
"""The latest records that tell what a measurement costs: those of the search are compiled one by one, those
of deciding share libraries."""


def missing(trials: Iterable[Trial], records: Iterable[Record]) -> list[Trial]:
    """Returns the trials without a record, each with its missing shapes only."""
    return without(trials, {(record.scheme, record.shape) for record in records})


def without(trials: Iterable[Trial], pairs: Collection[Pair]) -> list[Trial]:
    """Returns the trials less some pairs of a scheme and a shape."""
    return [
        Trial(trial.scheme, left)
        for trial in trials
        if (left := tuple(shape for shape in trial.shapes if (trial.scheme, shape) not in pairs))
    ]


@dataclass
class Sitting:
    """One run of a tuning: the records of earlier ones answer first, each once.

    Args:
        space: what is tuned.
        runner: measures what has no record yet.
        store: receives every record before it is announced.
        listeners: are told of every new measurement. A replay may answer with one that was told before: it
            is kept for the round that asked, and told no more.
        clock: tells time that the runner takes from the search's own.
        budget: what measurements are begun within.
    """

    space: Space
    runner: Runner
    store: RecordStore
    listeners: Audience
    clock: PhaseTimer = field(default_factory=PhaseTimer)
    budget: Budget = field(default_factory=Budget)
    _taken: set[int] = field(default_factory=set)
    _told: dict[Record, None] = field(init=False)

    def __post_init__(self) -> None:
        self._told = dict.fromkeys(each_once(self.store.records))

    def records(self, proposal: Proposal, advance: Advance) -> tuple[Record, ...]:
        """Returns the records of a proposal, in its order; measures those that no earlier sitting left.

        The rest of an interrupted round is another round: the machine may be another by now.

        Raises:
            BudgetSpentError: if the budget is spent before all are measured.
        """
        known = self._left_over(proposal)
        asked_by = replace(proposal.round, part=self._earlier_parts(proposal.round))
        rest = without(proposal.trials, known)
        while rest:
            begun = self._affordable(rest)
            known |= self._measured(begun, proposal, advance, asked_by=asked_by)
            rest = without(rest, known)
        return tuple(known[pair] for pair in proposal.pairs if pair in known)

    def _affordable(self, trials: list[Trial]) -> list[Trial]:
        """Returns the first of the trials, as many as the budget is expected to last for."""
        self.budget.require()
        costs = [record.phases.total for record in self.store.records[-RECENT:]]
        count = self.budget.affordable(sum(len(trial.shapes) for trial in trials), costs)
        begun: list[Trial] = []
        for trial in trials:
            shapes = trial.shapes[: count - sum(len(one.shapes) for one in begun)]
            begun += [Trial(trial.scheme, shapes)] if shapes else []
        return begun

    def _left_over(self, proposal: Proposal) -> dict[Pair, Record]:
        """Returns records of the proposal's pairs that no round has taken yet: its own or, after another
        effort, one of any round."""
        wanted, found = set(proposal.pairs), dict[Pair, int]()
        numbered = enumerate(self.store.records)
        for number, record in sorted(numbered, key=lambda item: not _is_of(item[1], proposal.round)):
            pair = record.scheme, record.shape
            if pair in wanted and number not in self._taken:
                found.setdefault(pair, number)
        self._taken.update(found.values())
        return {pair: self.store.records[number] for pair, number in found.items()}

    def _earlier_parts(self, asked_by: Round) -> int:
        """Returns how many parts of a round other sittings, or another effort's round of its name, left."""
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
                self._tell(replace(record, asked_by=None))
                left[record.scheme] -= 1
                last = record.scheme in proposal.new and not left[record.scheme]
                advance(f"best {best:.1f} GFLOP/s{self.budget.note}", int(last))
                self.budget.require()
        except BaseException:  # a stop, too: no worker process stays
            self.runner.close()
            raise
        return found

    def _tell(self, record: Record) -> None:
        if record in self._told:
            return
        self._told[record] = None
        gflops = record.gflops(self.space.workload)
        scheme, shape, trials = record.scheme.key, str(record.shape), len(self._told)
        self.listeners.send(
            TrialMeasured(
                scheme, shape, gflops, record.status, trials, record.reason, record.phases, record.device
            )
        )

    def announce_round(self, number: int) -> None:
        """Tells what all rounds so far have come to."""
        records, workload = [*self._told], self.space.workload
        failures = sum(not record.ok for record in records)
        best = max((record.gflops(workload) for record in records), default=0.0)
        seconds = with_records(self.clock.seconds, records)
        self.listeners.send(RoundFinished(number, len(records), failures, best, seconds))


@dataclass(frozen=True)
class Answering:
    """The :class:`~dietlab.measure.Runner` that any object with ``measure`` makes: what else it lacks has a
    default, and each pair that it was given has one record, or there is an error.

    Args:
        runner: whatever :class:`~dietlab.measure.Measures` says.
    """

    runner: Measures

    @property
    def pairs(self) -> Collection[Pair] | None:
        """The pairs that it can measure (None: all)."""
        found: Collection[Pair] | None = getattr(self.runner, "pairs", None)
        return found

    @property
    def devices(self) -> int:
        """The devices that it measures on at the same time."""
        return int(getattr(self.runner, "devices", 1))

    def close(self) -> None:
        """Closes it, if it can be closed."""
        getattr(self.runner, "close", lambda: None)()

    def begin(self, budget: Budget) -> None:
        """Lets it begin nothing beyond a budget, if it knows such."""
        if hasattr(self.runner, "budget"):
            self.runner.budget = budget

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields the runner's records, as they come.

        Raises:
            MeasureError: if it returns anything else, another pair, one twice, or leaves one out.
        """
        what = f"what measure of {name_of(self.runner)} returns"
        asked = {(trial.scheme, shape) for trial in trials for shape in trial.shapes}
        found = self.runner.measure(workload, trials)
        if not isinstance(found, Iterable) or isinstance(found, (str, Mapping)):
            raise MeasureError(f"{what} is records to go over", shown(found))
        for record in found:
            if not isinstance(record, Record):
                raise MeasureError(f"{what} is records", shown(record))
            if (record.scheme, record.shape) not in asked:
                pair = f"{record.scheme.key} on {record.shape}"
                raise MeasureError(f"{what} is one record of each pair that it was asked for", pair)
            asked.remove((record.scheme, record.shape))
            yield record
        if asked:
            scheme, shape = min(asked)
            raise MeasureError(
                f"{what} is one record of each pair that it was asked for, also of a failure",
                f"none of {len(asked)}, such as {scheme.key} on {shape}",
            )


class Proposals:
    """The proposals of a tuner, in their order: each is made when the one before was measured or, ``ahead``,
    in a thread while that is being measured. They depend on nothing else, so that a run that is resumed or
    replayed gets the same.

    A round that follows too little to propose from, such as the first one without a prior, is waited for.
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
        """Returns the next proposal of a tuner that was told the last one; None if it is of another stage,
        for which it is kept, or if there is none."""
        if self._kept is None:
            thought = self._thought.result() if self._thought is not None else None
            self._kept = thought or tuner.ask()
        found = self._kept
        if found is None or found.round.stage != stage:
            return None
        self._kept = None
        if self._thread is not None:
            self._thought = self._thread.submit(tuner.ask, found)
        return found

    def wait(self) -> None:
        """Waits until nothing is thought of any more: until then the tuner is the thread's."""
        if self._thought is not None:
            wait([self._thought])


def _is_of(record: Record, asked_by: Round) -> bool:
    """Returns whether a record is of a part of that round."""
    return record.asked_by is not None and replace(record.asked_by, part=0) == asked_by
