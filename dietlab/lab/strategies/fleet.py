"""Simulates tuning with many devices, in virtual time: how long it takes, and what it waits for.

A pure function of a tuning's work: nothing is built or measured. Rounds come from a tuning that ran
(:func:`~dietlab.lab.strategies.fleet_work.worked`), ahead or not as that was, devices from a :class:`Fleet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

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
    """The work of one round.

    Args:
        serial: seconds that the tuner itself takes, fitting and searching, before the round.
        jobs: of the round; none at last, when the tuner fits once more.
        ahead: whether the tuner proposed it while the round before was measured.
        told: seconds that the tuner takes once the round was measured.
        stage: of the tuning.
    """

    serial: float
    jobs: tuple[Job, ...]
    ahead: bool = False
    told: float = 0.0
    stage: str = ""


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


def simulate(rounds: Sequence[RoundWork], fleet: Fleet) -> FleetTime:
    """Returns the time that rounds take on a fleet.

    A round begins when the one before was measured, and the tuner is ready. Its programs are built in their
    order, and whichever is built goes to the device that is free first.
    """
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


Tunings = Mapping[str, Sequence[Sequence[RoundWork]]]
"""The rounds of tunings, one of each seed, by how they were proposed: :data:`WAITS` or :data:`AHEAD`."""

WAITS, AHEAD = "each waits for the one before", "a round ahead"


def scaling(
    tunings: Tunings, fleet: Fleet, devices: Iterable[int] = DEVICES, stage: str = ""
) -> pd.DataFrame:
    """Returns a table with one row for each way to propose rounds and number of ``devices``, of medians over
    the seeds: ``seconds``, the ``serial`` ones, and how many ``times_faster`` that is than one device and the
    same seed's rounds in the first way, from ``low`` to ``high`` over the seeds.

    Args:
        stage: of the tuning, if it is not the whole of it.
    """
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
