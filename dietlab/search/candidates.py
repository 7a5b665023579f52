"""From what was measured to the plans worth considering: other heights and edges of the best families."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dietlab.shapes import Shape
from dietlab.space import COMPOSED, MicroKernel, tiling_on, with_edge, with_rows
from dietlab.workloads import Workload

FAMILIES = 10
"""Families of micro-kernels that plans are made of: those that do best together."""


class Known(Protocol):
    """What a tuning run knows of micro-kernels and their times."""

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]: ...

    def seconds_table(
        self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]
    ) -> npt.NDArray[np.float64]: ...


def best_together(run: Known, shapes: Sequence[Shape], count: int) -> list[MicroKernel]:
    """Greedy: micro-kernels that together lower the mean logarithm of time most."""
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
    """What was measured and, where plans are composed, all lower heights and both edges of the families
    that do best together on ``shapes``."""
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
    """The first ``count`` numbers of ``order`` whose plans run different tiles on a shape: a finalist's place
    is not for a twin of another."""
    found: dict[Hashable, int] = {}
    for number in order:
        found.setdefault(tiling_on(plans[number], workload, shape), int(number))
        if len(found) == count:
            break
    return list(found.values())
