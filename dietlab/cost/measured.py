"""Computes one time for each measured program, from rounds in which the machine was faster or slower."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from statistics import median, median_low

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.base.statistics import Values
from dietlab.measure import Record
from dietlab.problem import Role, Shape, Workload, name_of_role
from dietlab.scheme import Scheme, tiling

Program = tuple[Hashable, Shape]
"""The key of a program (:func:`program_on`), and the shape that the program runs on."""

Times = Mapping[Hashable, Mapping[Hashable, float]]
"""The seconds on one shape, by program and round."""

FITS = 16
"""The number of reweighted fits of the rounds' slowness. Each fit gives less weight to times with large
errors in the fit before."""

NOISE = 0.01
"""The least error of a time, as a logarithm, that lowers its weight: smaller errors are noise."""


@dataclass(frozen=True)
class Measured:
    """The measured pairs, each program once: their schemes, shapes and settled seconds, and the number of
    times that each was measured, ``[n]``.

    Args:
        programs: the keys of the programs that ran.
    """

    programs: tuple[Program, ...]
    schemes: tuple[Scheme, ...]
    shapes: tuple[Shape, ...]
    seconds: Values
    times: Values

    @classmethod
    def of(cls, workload: Workload, records: Iterable[Record]) -> Measured:
        """Returns the pairs of the successful records."""
        records = successful(records)
        distinct: dict[Program, Record] = {}
        rounds: dict[Program, set[Hashable]] = {}
        for record in records:
            program = program_on(record.scheme, workload, record.shape), record.shape
            distinct.setdefault(program, record)
            rounds.setdefault(program, set()).add(record.asked_by)
        settled = settled_seconds(workload, records)
        return cls(
            tuple(distinct),
            tuple(record.scheme for record in distinct.values()),
            tuple(record.shape for record in distinct.values()),
            np.array([settled[program] for program in distinct]),
            np.array([len(rounds[program]) for program in distinct], np.float64),
        )

    def at(self, numbers: Sequence[int]) -> Measured:
        """Returns some of the pairs."""
        programs, schemes = tuple(self.programs[n] for n in numbers), tuple(self.schemes[n] for n in numbers)
        shapes = tuple(self.shapes[n] for n in numbers)
        return Measured(programs, schemes, shapes, self.seconds[numbers], self.times[numbers])


def successful(records: Iterable[Record]) -> list[Record]:
    """Returns the records that have a time. Raises a ModelError if there are none."""
    found = [record for record in records if record.ok and record.seconds]
    if not found:
        raise ModelError(
            "a cost model can only be fitted on successful records",
            "none",
            "Tune longer, or look at the reasons in the records.",
        )
    return found


def settled_seconds(workload: Workload, records: Iterable[Record]) -> dict[Program, float]:
    """Returns one time for each program.

    Schemes that run the same program on a shape share its time. On each shape, a measured time is the
    program's own time multiplied by the slowness of its round (``asked_by``), since records of a round ran in
    turns. Programs that several rounds measured determine the slowness of these rounds. Each of a program's
    times is divided by the slowness of its round. Of two such times the lower one counts, of three the middle
    one: disturbances only slow down.
    """
    shapes: dict[Shape, dict[Hashable, dict[Hashable, float]]] = {}
    for record in records:
        if record.ok and record.seconds:
            program = program_on(record.scheme, workload, record.shape)
            rounds = shapes.setdefault(record.shape, {}).setdefault(program, {})
            rounds[record.asked_by] = min(record.seconds, rounds.get(record.asked_by, record.seconds))
    return {
        (program, shape): seconds
        for shape, times in shapes.items()
        for program, seconds in _settled(times).items()
    }


def _settled(times: Times) -> dict[Hashable, float]:
    """Returns the time of each program in a round of mean slowness."""
    slowness = _slowness(tuple(tuple(rounds.items()) for rounds in times.values()))
    return {
        program: median_low([seconds / slowness[name] for name, seconds in rounds.items()])
        for program, rounds in times.items()
    }


@lru_cache(maxsize=1 << 10)  # a round of a tuning measures on a few of all shapes
def _slowness(times: tuple[tuple[tuple[Hashable, float], ...], ...]) -> dict[Hashable, float]:
    """Returns the slowness of each round, 1 on average. Reweighted least squares minimise the absolute
    deviations of logarithms. Eliminating the programs' times leaves one normal equation for each round."""
    found = dict.fromkeys(name for rounds in times for name, _ in rounds)
    names = {name: number for number, name in enumerate(found)}
    groups: list[Values] = [
        np.array([(names[name], log(seconds)) for name, seconds in rounds]).T
        for rounds in times
        if len(rounds) > 1
    ]
    added: Values = np.zeros(len(names))
    weights: list[Values] = [np.ones(len(values)) for _, values in groups]
    for _ in range(FITS if groups else 0):
        matrix, right = np.zeros((len(names), len(names))), np.zeros(len(names))
        for (rounds, values), weight in zip(groups, weights, strict=True):
            at = rounds.astype(int)
            share = weight / weight.sum()
            np.add.at(matrix, (at[:, None], at[None, :]), np.diag(weight) - weight[:, None] * share)
            np.add.at(right, at, weight * (values - share @ values))
        added = np.linalg.pinv(matrix, rcond=1e-9, hermitian=True) @ right
        weights = [_weights(values - added[rounds.astype(int)]) for rounds, values in groups]
    return {name: exp(float(added[number])) for name, number in names.items()}


def _weights(own: Values) -> Values:
    """Returns the weights of one program's times. A weight falls with the distance of its time from the
    median."""
    found: Values = 1.0 / np.maximum(np.abs(own - median(own.tolist())), NOISE)
    return found


def program_on(scheme: Scheme, workload: Workload, shape: Shape) -> Hashable:
    """Returns a key that is equal for schemes that run the same program on a shape, so that they share one
    time. Schemes with the same tiles run the same program, unless the launch reserves resources for its
    tallest tile."""
    return scheme if scheme.kernel.reserves else tiling(scheme, workload, shape)


def same_work(scheme: Scheme, workload: Workload, shape: Shape) -> Shape:
    """Returns a representative shape, which is equal for all shapes on which a scheme does the same work.

    A launch of a GPU's blocks computes whole tiles: 65 to 128 rows in granules of 64 are the same grid, the
    same tiles and the same steps, and take nearly the same time. What a CPU computes at the end depends on
    each row."""
    rows, granule = name_of_role(workload, "rows"), scheme.kernel.granule
    others: tuple[Role, ...] = "cols", "depth"
    if (
        not scheme.kernel.reserves
        or tuple(workload.dims) != (rows,)
        or rows in [name_of_role(workload, role) for role in others]
    ):
        return shape
    return Shape.of(**{rows: -(-shape[rows] // granule) * granule})
