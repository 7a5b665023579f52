"""Fits the share of computing that overlaps a plan's fetch of weights, for the processor that was measured.

Row tiles that share a pass over the weights ask for the column tile to come. Where that keeps up, a pass
takes the longer of fetching and computing; some processors do little of both at once. A share ``h`` of the
computing hides the fetch::

    seconds = computing + max(0, fetch - h * computing)

There is one for weights from memory and one for weights from the last-level cache: those with which the
logarithms of predicted times deviate least from the records', by absolute values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.cpu_adaptation import CpuAdaptation, Hiding
from dietlab.measure import Record
from dietlab.space import CpuMicroKernel, Scheme

TELLING = 0.3
"""The least ratio of fetching to computing from which a record informs the share."""

LEAST_RECORDS, LEAST_KERNELS = 12, 3
"""The fewest informative records, and schemes among them, that a share is fitted from; with fewer it
keeps its default."""

SHARES = np.linspace(0.0, 1.0, 51)
"""The shares that are tried, 0 to 1."""


def with_fitted_hiding(
    cost: AdaptationCost, records: Iterable[Record], throughput: Callable[[Scheme], float]
) -> AdaptationCost:
    """Returns the adaptation with the shares of the CPU that was measured; a GPU has none.

    Args:
        cost: its own shares stand where too few records tell of them (:data:`LEAST_RECORDS`).
        records: in the cache state of ``cost`` and, if they say so, with operands in the last-level cache.
        throughput: flop/s of one core that a scheme reaches by itself.
    """
    if not isinstance(cost, CpuAdaptation):
        return cost
    hot, records = cost.with_cache("hot"), list(records)
    for seen, times in ((hot, [r.cached_seconds for r in records]), (cost, [r.seconds for r in records])):
        share = _fitted(seen, zip(records, times, strict=True), throughput)
        if share is not None:
            cost = replace(cost, hiding=cost.hiding._replace(**{seen.weights_from: share}))
    return cost


def _fitted(
    cost: CpuAdaptation,
    times: Iterable[tuple[Record, float | None]],
    throughput: Callable[[Scheme], float],
) -> float | None:
    """Returns the share that explains these times best; None if too few tell."""
    none, all_of_it = (replace(cost, hiding=Hiding(share, share)) for share in (0.0, np.inf))
    found: list[tuple[float, float, float]] = []
    schemes: set[Scheme] = set()
    for record, seconds in times:
        scheme = record.scheme
        if not seconds or not isinstance(scheme.kernel, CpuMicroKernel) or not scheme.kernel.ahead:
            continue
        computing = all_of_it.seconds(scheme, record.shape, throughput)
        fetch = none.seconds(scheme, record.shape, throughput) - computing
        if fetch > TELLING * computing:
            found.append((computing, fetch, seconds))
            schemes.add(scheme)
    if len(found) < LEAST_RECORDS or len(schemes) < LEAST_KERNELS:
        return None
    computing, fetch, measured = np.array(found).T
    waiting = np.maximum(0.0, fetch - SHARES[:, None] * computing)
    off = np.abs(np.log((computing + waiting) / measured)).sum(axis=1)
    return round(float(SHARES[off.argmin()]), 2)
