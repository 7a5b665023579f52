"""Simulates tuning with many devices, in virtual time: the time that it takes, and the time that it waits.

Rounds come from a tuning that ran (:func:`worked`), with rounds proposed ahead or not. The simulation is a
pure function of their work: nothing is built or measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from random import Random
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dietlab.base.errors import DietlabError
from dietlab.base.events import PhaseSeconds
from dietlab.base.files import read_json, reading
from dietlab.measure import Measures, Record, Trial
from dietlab.problem import Workload
from dietlab.tuning import Proposal, Tuner

if TYPE_CHECKING:
    import pandas as pd

DEVICES = (1, 2, 4, 8, 16, 32, 64)
WAITS, AHEAD = "each waits for the one before", "a round ahead"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Job:
    """One scheme of a round: the seconds to build it, and the seconds to check and time it on each shape."""

    build: float
    measures: tuple[float, ...]


@dataclass(frozen=True)
class RoundWork:
    """The work of one round.

    Args:
        serial: the seconds that the tuner itself takes for fitting and searching before the round.
        jobs: the schemes to measure; none in the last entry, when the tuner fits once more.
        ahead: whether the tuner proposed the round while the previous one was measured.
        told: the seconds that the tuner takes after the round was measured.
    """

    serial: float
    jobs: tuple[Job, ...]
    ahead: bool = False
    told: float = 0.0
    stage: str = ""


Tunings = Mapping[str, Sequence[Sequence[RoundWork]]]
"""The rounds of one tuning for each seed, by how rounds were proposed: :data:`WAITS` or :data:`AHEAD`."""


# --- what a tuning works ----------------------------------------------------------------------


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
    """Runs the rounds of a tuner one after the other. Returns two values: the final tuner, and a
    :class:`RoundWork` for each round. With ``ahead``, each round is proposed before the results of the
    previous one are known, as in ``tune``. ``now`` is the clock, in seconds, that times the tuner itself: by
    default processor time, which other processes hardly disturb."""

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
    """Returns a JSON value with the tuner's own seconds in each round, and the round's jobs. Equal jobs are
    one entry: the seconds to build one, the seconds of a shape, the number of shapes, and the number of jobs.
    """
    return {way: [[_written(work) for work in rounds] for rounds in of] for way, of in tunings.items()}


def _written(work: RoundWork) -> dict[str, Any]:
    equal = Counter(
        (round(job.build, 3), round(sum(job.measures) / max(1, len(job.measures)), 3), len(job.measures))
        for job in work.jobs
    )
    seconds = {"serial": round(work.serial, 3), "told": round(work.told, 3)}
    jobs = [(*job, n) for job, n in equal.items()]
    return {**seconds, "jobs": jobs, "ahead": work.ahead, "stage": work.stage}


def tunings_from_json(value: Mapping[str, Any], measure: float | None = None) -> dict[str, Any]:
    """Returns the tunings of a JSON value made by :func:`tunings_to_json`; ``measure``, if given, replaces
    the seconds of each shape.
    """

    def read(work: Mapping[str, Any]) -> RoundWork:
        jobs = [
            Job(build, (seconds if measure is None else measure,) * shapes)
            for build, seconds, shapes, count in work["jobs"]
            for _ in range(count)
        ]
        return RoundWork(work["serial"], tuple(jobs), work["ahead"], work["told"], work["stage"])

    return {way: [tuple(map(read, rounds)) for rounds in of] for way, of in value.items()}


def load_tunings(path: str | Path, measure: float | None = None) -> dict[str, Any]:
    """Returns the ``tunings`` of a file, as :func:`tunings_from_json` does."""
    with reading(DietlabError, "the file must hold the tunings of a fleet", path):
        return tunings_from_json(read_json(path)["tunings"], measure)


# --- what a fleet makes of it -----------------------------------------------------------------


@dataclass(frozen=True)
class Fleet:
    """Devices that measure at the same time, one program each.

    Args:
        builders: the number of programs that are built at the same time, elsewhere.
        latency: the seconds to send a program to a device and to get its answer.
        failure: the probability that a device dies during a measurement. The measurement is repeated once,
            elsewhere.
        timeout: the seconds until a dead device is noticed and works again.
        seed: the seed of the failures.
    """

    devices: int
    builders: int = 16
    latency: float = 0.02
    failure: float = 0.0
    timeout: float = 10.0
    seed: int = 0


@dataclass(frozen=True)
class FleetTime:
    """The ``seconds`` of a tuning on a fleet. During ``serial`` of these seconds the fleet waited for the
    tuner. ``busy`` is the sum of all devices' measuring seconds, with latency. ``lost`` counts measurements
    that failed twice."""

    seconds: float
    serial: float
    busy: float
    lost: int


def simulate(rounds: Sequence[RoundWork], fleet: Fleet) -> FleetTime:
    """Returns the time that rounds take on a fleet. A round begins when the previous one is measured and the
    tuner is ready. Its programs are built in their order; each built program goes to the device that is free
    first."""
    random = Random(fleet.seed)
    now = serial = busy = 0.0
    begun, lost = 0.0, 0
    for work in rounds:
        ready = (begun if work.ahead else now) + work.serial
        serial += max(0.0, ready - now)
        begun = max(now, ready)
        now, spent, failed = _measured(work.jobs, fleet, begun, random)
        now, serial = now + work.told, serial + work.told
        busy, lost = busy + spent, lost + failed
    return FleetTime(now, serial, busy, lost)


def _measured(jobs: Sequence[Job], fleet: Fleet, begun: float, random: Random) -> tuple[float, float, int]:
    """Returns three values: the time at which the jobs of a round are done, the devices' seconds in all, and
    the number of measurements lost.
    """
    free = [begun] * fleet.devices
    end, busy, lost = begun, 0.0, 0
    waiting = [(built, seconds, False) for built, seconds in _built(jobs, fleet.builders, begun)]
    heapify(waiting)
    while waiting:
        built, seconds, again = heappop(waiting)
        dies = random.random() < fleet.failure
        took = fleet.timeout if dies else fleet.latency + seconds
        done = max(free[0], built) + took
        heapreplace(free, done)
        end, busy = max(end, done), busy + took
        if dies and again:
            lost += 1
        elif dies:
            heappush(waiting, (done, seconds, True))
    return end, busy, lost


def _built(jobs: Sequence[Job], builders: int, begun: float) -> Iterator[tuple[float, float]]:
    """Yields two values for each measurement: the time at which its program is built, and its seconds."""
    free = [begun] * builders
    for job in jobs:
        built = free[0] + job.build
        heapreplace(free, built)
        yield from ((built, seconds) for seconds in job.measures)


def scaling(
    tunings: Tunings, fleet: Fleet, devices: Iterable[int] = DEVICES, stage: str = ""
) -> pd.DataFrame:
    """Returns a table with one row for each pair of a way to propose rounds and a number of ``devices``.
    ``seconds``, ``serial`` seconds and ``times_faster`` are medians over the seeds. ``times_faster`` compares
    with the time of the same seed's rounds on one device, proposed in the first way. Its range over the seeds
    is ``low`` to ``high``. With ``stage``, only the rounds of that stage count."""
    import pandas as pd

    def time(rounds: Sequence[RoundWork], count: int) -> FleetTime:
        some = [work for work in rounds if work.stage == stage or not stage]
        return simulate(some, replace(fleet, devices=count))

    first = [time(rounds, 1).seconds for rounds in next(iter(tunings.values()))]
    rows = []
    for way, of in tunings.items():
        for count in devices:
            found = [time(rounds, count) for rounds in of]
            faster = [one / each.seconds for one, each in zip(first, found, strict=True)]
            every = [(each.seconds, each.serial, ratio) for each, ratio in zip(found, faster, strict=True)]
            rows.append((way, count, *np.median(every, axis=0).tolist(), min(faster), max(faster)))
    names = ["proposed", "devices", "seconds", "serial", "times_faster", "low", "high"]
    return pd.DataFrame(rows, columns=names)
