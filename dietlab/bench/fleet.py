"""Simulates tuning with many devices, in virtual time: how long it takes, and what it waits for.

A pure function of a tuning's work: nothing is built or measured. Rounds come from a tuning that ran
(:func:`rounds_of`), devices from a :class:`Fleet`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dietlab.errors import DietlabError
from dietlab.events import Event, PhaseSeconds, RoundFinished
from dietlab.files import write_json
from dietlab.measure import Record, Runner, Trial
from dietlab.workloads import Workload

if TYPE_CHECKING:
    import pandas as pd

DEVICES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Job:
    """One scheme of a round: the seconds to build it, and those to check and time it on each of its
    shapes."""

    build: float
    measures: tuple[float, ...]


@dataclass(frozen=True)
class RoundWork:
    """The work of one round: the seconds that the tuner itself takes, fitting and searching, and the jobs
    that it then asks for."""

    serial: float
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Fleet:
    """Devices that measure at the same time, one program each.

    Args:
        devices: how many.
        builders: programs that are built at the same time, elsewhere.
        latency: seconds to send a program to a device and to get its answer.
        failure: the probability that a device dies during a measurement. It is noticed after ``timeout``
            seconds, and the measurement is repeated elsewhere, once.
        timeout: seconds until a dead device is noticed, and back.
        seed: of the failures.
    """

    devices: int
    builders: int = 16
    latency: float = 0.02
    failure: float = 0.0
    timeout: float = 10.0
    seed: int = 0


@dataclass(frozen=True)
class FleetTime:
    """The time of a tuning on a fleet.

    Args:
        seconds: of the whole tuning.
        serial: those in which the fleet waited for the tuner's own fitting and searching.
        busy: those that all devices together measured, latency included.
        lost: measurements that failed twice.
    """

    seconds: float
    serial: float
    busy: float
    lost: int


def simulate(rounds: Sequence[RoundWork], fleet: Fleet, *, ahead: bool = False) -> FleetTime:
    """Returns the time that rounds take on a fleet.

    A round begins when the one before was measured. Its programs are built in their order, and whichever is
    built goes to the device that is free first.

    Args:
        ahead: whether the tuner fits and searches for a round while the one before is measured, from what
            was known before that one.
    """
    random = Random(fleet.seed)
    now = serial = busy = 0.0
    begun, lost = 0.0, 0
    for work in rounds:
        ready = begun + work.serial if ahead else now + work.serial
        serial += max(0.0, ready - now)
        begun = max(now, ready)
        now, spent, failed = _measured(work.jobs, fleet, begun, random)
        busy, lost = busy + spent, lost + failed
    return FleetTime(now, serial, busy, lost)


def _measured(jobs: Sequence[Job], fleet: Fleet, begun: float, random: Random) -> tuple[float, float, int]:
    """Returns when the jobs of a round are done, the devices' seconds, and the measurements lost."""
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
    """Yields when each measurement's program is built, and its seconds."""
    free = [begun] * builders
    for job in jobs:
        built = free[0] + job.build
        heapreplace(free, built)
        yield from ((built, seconds) for seconds in job.measures)


def scaling(
    rounds: Sequence[RoundWork], fleet: Fleet, devices: Iterable[int] = DEVICES, *, ahead: bool = False
) -> pd.DataFrame:
    """Returns a table with one row for each number of ``devices``: ``seconds``, ``times_faster`` than one
    device, the ``serial`` seconds, and ``efficiency``, the share of the devices' time in which they
    measured."""
    import pandas as pd

    one = simulate(rounds, replace(fleet, devices=1), ahead=ahead)
    rows = []
    for count in devices:
        found = simulate(rounds, replace(fleet, devices=count), ahead=ahead)
        share = found.busy / (count * found.seconds)
        rows.append((count, found.seconds, one.seconds / found.seconds, found.serial, share, found.lost))
    return pd.DataFrame(rows, columns=["devices", "seconds", "times_faster", "serial", "efficiency", "lost"])


# --- the work of a tuning -------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """The seconds of a measurement: ``build`` a scheme, then ``check`` and ``time`` a shape of it."""

    build: float
    check: float
    time: float


@dataclass
class Priced:
    """A runner whose records say that they cost as much as measurements do; each scheme is built once."""

    runner: Runner
    costs: Costs
    _built: set[object] = field(default_factory=set)

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for record in self.runner.measure(workload, trials):
            build = 0.0 if record.scheme in self._built else self.costs.build
            self._built.add(record.scheme)
            yield replace(record, phases=PhaseSeconds(build, self.costs.check, self.costs.time))


@dataclass
class RoundClock:
    """An observer that keeps what each round of a tuning took."""

    ends: list[tuple[int, float]] = field(default_factory=list)
    """The number of records at each round's end, and the seconds of model and search until then."""

    def on_event(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.ends.append((event.trials, event.seconds.model + event.seconds.search))


def rounds_of(records: Sequence[Record], clock: RoundClock) -> tuple[RoundWork, ...]:
    """Returns the work of a tuning's rounds, from its records and what a clock kept of the same run. What the
    tuner itself took until a round's end counts before the round."""
    found, first, passed = [], 0, 0.0
    for end, spent in clock.ends:
        found.append(RoundWork(spent - passed, _jobs(records[first:end])))
        first, passed = end, spent
    return tuple(found)


def _jobs(records: Iterable[Record]) -> tuple[Job, ...]:
    grouped: dict[object, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.scheme, []).append(record)
    return tuple(
        Job(
            sum(record.phases.compile for record in group),
            tuple(record.phases.verify + record.phases.measure for record in group),
        )
        for group in grouped.values()
    )


def save_rounds(rounds: Sequence[RoundWork], path: str | Path) -> None:
    """Writes what rounds took of the tuner itself, and what they asked for: for each job the seconds to build
    it, and the number of its shapes."""
    value = [
        {
            "serial": round(work.serial, 3),
            "jobs": [(round(job.build, 3), len(job.measures)) for job in work.jobs],
        }
        for work in rounds
    ]
    write_json(Path(path), {"rounds": value}, indent=None)


def load_rounds(path: str | Path, measure: float) -> tuple[RoundWork, ...]:
    """Returns what :func:`save_rounds` wrote, with ``measure`` seconds for each shape.

    Raises:
        DietlabError: if it is no such file.
    """
    try:
        rounds = json.loads(Path(path).read_text(encoding="utf-8"))["rounds"]
        return tuple(
            RoundWork(work["serial"], tuple(Job(build, (measure,) * count) for build, count in work["jobs"]))
            for work in rounds
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DietlabError("rounds are a file of save_rounds", f"{path}: {error!r}") from None
