"""Candidate plans: the measured schemes, and schemes of the best families with other heights and edges."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from dietlab.cost import Known
from dietlab.problem import Shape, Workload
from dietlab.scheme import COMPOSED, Scheme, scheme_with, tiling

FAMILIES = 10
"""The most families that candidate plans are made of, in the order of :func:`best_together`."""


def best_together(run: Known, shapes: Sequence[Shape], count: int) -> list[Scheme]:
    """Selects ``count`` schemes greedily: each lowers the mean logarithm of the best time most.

    Args:
        run: measurements and predictions.
        shapes: the shapes whose best times count, with equal weights.
        count: the largest number of schemes.
    """
    schemes = run.schemes
    logs = np.log(run.seconds_table(schemes, shapes))
    best = np.full(len(shapes), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(schemes))):
        reached = np.minimum(best, logs).mean(axis=1) + 1e-3 * logs.mean(axis=1)
        reached[chosen] = np.inf
        chosen.append(int(reached.argmin()))
        best = np.minimum(best, logs[chosen[-1]])
    return [schemes[i] for i in chosen]


def candidate_plans(run: Known, shapes: Sequence[Shape]) -> tuple[Scheme, ...]:
    """Returns the measured schemes. If plans are composed, also returns the schemes of the families that are
    fastest together on ``shapes``, with all lower heights and both edges.

    Args:
        run: measurements and predictions.
        shapes: the shapes that the families are judged on.
    """
    measured = run.schemes
    plans = set(measured)
    tallest: dict[Scheme, int] = {}
    for scheme in measured:
        if scheme.composed:
            tallest[scheme.family] = max(scheme.rows, tallest.get(scheme.family, 0))
    families = dict.fromkeys(scheme.family for scheme in best_together(run, shapes, 2 * FAMILIES))
    for family in list(families)[:FAMILIES]:
        granule = family.kernel.granule
        for rows in range(granule, tallest.get(family, 0) + 1, granule):
            plans.update(scheme_with(family, rows=rows, edge=edge) for edge in COMPOSED)
    return tuple(sorted(plans))


def distinct(
    plans: Sequence[Scheme], order: Iterable[int], workload: Workload, shape: Shape, count: int
) -> list[int]:
    """Returns the first ``count`` indices in ``order`` whose plans run different tiles on a shape, so that no
    two of these plans are the same program.

    Args:
        plans: all plans.
        order: the indices of plans, the best plan first.
        workload: the operator.
        shape: the shape whose tiles are compared.
        count: the largest number of indices.
    """
    found: dict[Hashable, int] = {}
    for number in order:
        found.setdefault(tiling(plans[number], workload, shape), int(number))
        if len(found) == count:
            break
    return list(found.values())
