"""Candidate plans: the measured micro-kernels, and other heights and edges of the best families."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.shapes import Shape
from dietlab.space import COMPOSED, MicroKernel, tiling_on, with_edge, with_rows
from dietlab.workloads import Workload

FAMILIES = 10
"""The most families that candidate plans are made of, in the order of :func:`best_together`."""


class Known(Protocol):
    """A source of micro-kernels and their times, such as a tuning run."""

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]: ...

    def seconds_table(
        self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]
    ) -> npt.NDArray[np.float64]: ...


def best_together(run: Known, shapes: Sequence[Shape], count: int) -> list[MicroKernel]:
    """Selects ``count`` micro-kernels greedily: each lowers the mean logarithm of the best time most."""
    kernels = run.micro_kernels
    logs = np.log(run.seconds_table(kernels, shapes))
    best = np.full(len(shapes), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(kernels))):
        reached = np.minimum(best, logs).mean(axis=1) + 1e-3 * logs.mean(axis=1)
        reached[chosen] = np.inf
        chosen.append(int(reached.argmin()))
        best = np.minimum(best, logs[chosen[-1]])
    return [kernels[i] for i in chosen]


def candidate_plans(run: Known, shapes: Sequence[Shape]) -> tuple[MicroKernel, ...]:
    """Returns the measured micro-kernels and, where plans are composed, all lower heights and both edges of
    the families that do best together on ``shapes``."""
    measured = run.micro_kernels
    plans = set(measured)
    tallest: dict[MicroKernel, int] = {}
    for kernel in measured:
        if kernel.composed:
            tallest[kernel.family] = max(kernel.rows, tallest.get(kernel.family, 0))
    families = dict.fromkeys(kernel.family for kernel in best_together(run, shapes, 2 * FAMILIES))
    for family in list(families)[:FAMILIES]:
        for rows in range(family.granule, tallest.get(family, 0) + 1, family.granule):
            plans.update(with_edge(with_rows(family, rows), edge) for edge in COMPOSED)
    return tuple(sorted(plans))


def distinct(
    plans: Sequence[MicroKernel], order: Iterable[int], workload: Workload, shape: Shape, count: int
) -> list[int]:
    """Returns the first ``count`` plan numbers of ``order`` that run different tiles on a shape, so that two
    finalists are never the same program."""
    found: dict[Hashable, int] = {}
    for number in order:
        found.setdefault(tiling_on(plans[number], workload, shape), int(number))
        if len(found) == count:
            break
    return list(found.values())
