"""The work of a tuning's rounds: their measurements, and what the tuner itself takes between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any, TypeVar

from dietlab.base.errors import DietlabError
from dietlab.base.events import PhaseSeconds
from dietlab.base.files import read_json, reading
from dietlab.lab.strategies.fleet import Job, RoundWork, Tunings
from dietlab.measure import Measures, Record, Trial
from dietlab.problem import Workload
from dietlab.tuning import Proposal, Tuner

Result = TypeVar("Result")


@dataclass(frozen=True)
class Costs:
    """The seconds of a measurement: ``build`` a scheme, then ``check`` and ``time`` a shape of it."""

    build: float
    check: float
    time: float


@dataclass
class Priced:
    """A runner whose records say that they cost as much as measurements do; each scheme is built once."""

    runner: Measures
    costs: Costs
    _built: set[object] = field(default_factory=set)

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for record in self.runner.measure(workload, trials):
            build = 0.0 if record.scheme in self._built else self.costs.build
            self._built.add(record.scheme)
            yield replace(record, phases=PhaseSeconds(build, self.costs.check, self.costs.time))


def worked(
    tuner: Tuner, runner: Measures, *, ahead: bool, now: Callable[[], float] = thread_time
) -> tuple[Tuner, tuple[RoundWork, ...]]:
    """Runs the rounds of a tuner one after the other, and returns it at the end and the work of its rounds:
    with what ``tune`` does at the same time, ``ahead``, in its place.

    Args:
        now: the clock of the tuner's own seconds (default: of the processor, which others hardly disturb).
    """

    def timed(work: Callable[[], Result]) -> tuple[float, Result]:
        started = now()
        result = work()
        return now() - started, result

    found: list[RoundWork] = []
    early: tuple[float, Proposal | None] = 0.0, None
    while True:
        serial, proposal = early if early[1] else timed(tuner.ask)
        if proposal is None:
            return tuner, (*found, RoundWork(serial + timed(partial(getattr, tuner, "fitted"))[0], ()))
        records = tuple(runner.measure(tuner.space.workload, proposal.trials))
        was_early, early = bool(early[1]), timed(partial(tuner.ask, proposal)) if ahead else (0.0, None)
        after, tuner = timed(partial(tuner.tell, proposal, records))
        found.append(RoundWork(serial, _jobs(records), was_early, after, proposal.round.stage))


def _jobs(records: Iterable[Record]) -> tuple[Job, ...]:
    grouped: dict[object, list[PhaseSeconds]] = {}
    for record in records:
        grouped.setdefault(record.scheme, []).append(record.phases)
    return tuple(
        Job(sum(each.compile for each in phases), tuple(each.verify + each.measure for each in phases))
        for phases in grouped.values()
    )


def tunings_to_json(tunings: Tunings) -> dict[str, Any]:
    """Returns what rounds took of the tuner itself, and their jobs: of those that are equal the
    seconds to build one, those of a shape, the number of shapes, and how many such jobs there are."""
    return {way: [[_written(work) for work in rounds] for rounds in of] for way, of in tunings.items()}


def _written(work: RoundWork) -> dict[str, Any]:
    equal = Counter(
        (round(job.build, 3), round(sum(job.measures) / max(1, len(job.measures)), 3), len(job.measures))
        for job in work.jobs
    )
    return {
        "serial": round(work.serial, 3),
        "told": round(work.told, 3),
        "jobs": [(*job, n) for job, n in equal.items()],
        "ahead": work.ahead,
        "stage": work.stage,
    }


def tunings_from_json(value: Mapping[str, Any], measure: float | None = None) -> dict[str, Any]:
    """Returns what :func:`tunings_to_json` wrote; with ``measure`` seconds for each shape, if not as then."""

    def read(work: Mapping[str, Any]) -> RoundWork:
        jobs = [
            Job(build, (seconds if measure is None else measure,) * shapes)
            for build, seconds, shapes, count in work["jobs"]
            for _ in range(count)
        ]
        return RoundWork(work["serial"], tuple(jobs), work["ahead"], work["told"], work["stage"])

    return {way: [tuple(map(read, rounds)) for rounds in of] for way, of in value.items()}


def load_tunings(path: str | Path, measure: float | None = None) -> dict[str, Any]:
    """Returns the ``tunings`` of a file, as :func:`tunings_to_json` has them; with ``measure`` seconds for
    each shape, if not as then.

    Raises:
        DietlabError: if it is no such file.
    """
    with reading(DietlabError, "a file holds the tunings of a fleet", path):
        return tunings_from_json(read_json(path)["tunings"], measure)
