"""Fits the share of computing that overlaps a plan's fetch of weights, for the processor that was measured.

Row tiles that share a pass over the weights ask for the column tile to come. Where that keeps up, a pass
takes the longer of fetching and computing; some processors do little of both at once. A share ``h`` of the
computing hides the fetch::

    seconds = computing + max(0, fetch - h * computing)

There is one for weights from memory and one for weights from the last-level cache: those with which the
logarithms of predicted times deviate least from the records', by absolute values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.bundle import Calls, Speed
from dietlab.cost.formulas import FloatArray
from dietlab.measure import Record

TELLING = 0.3
"""The least ratio of fetching to computing from which a record informs the share."""

LEAST_RECORDS, LEAST_KERNELS = 12, 3
"""The fewest informative records, and schemes among them, that a share is fitted from; with fewer it
keeps its default."""

SHARES = np.linspace(0.0, 1.0, 51)
"""The shares that are tried, 0 to 1."""


class Hiding(NamedTuple):
    """The share of a pass's computing that overlaps the fetch of weights from their level, if several row
    tiles prefetch them: 1 where the processor does both at once."""

    memory: float
    cache: float


ALL_HIDDEN = Hiding(1.0, 1.0)


def fitted_hiding(cost: AdaptationCost, records: Sequence[Record], throughput: Speed) -> Hiding:
    """Returns the shares of the CPU that was measured.

    Args:
        cost: its own shares stand where too few records tell of them (:data:`LEAST_RECORDS`).
        records: in the cache state of ``cost`` and, if they say so, with operands in the last-level cache.
        throughput: flop/s of one core that a scheme reaches by itself.
    """
    formulas: Any = cost.formulas
    found: Hiding = formulas.hiding
    hot = cost.with_cache("hot")
    for seen, times in ((hot, [r.cached_seconds for r in records]), (cost, [r.seconds for r in records])):
        measured = [(r, t) for r, t in zip(records, times, strict=True) if t and r.scheme.kernel.ahead]
        found = found._replace(**_fitted(seen, measured, throughput))
    return found


def _fitted(
    cost: AdaptationCost, times: Sequence[tuple[Record, float]], throughput: Speed
) -> dict[str, float]:
    """Returns the share of each level that explains its times best, where enough of them tell."""
    schemes, shapes = [record.scheme for record, _ in times], [record.shape for record, _ in times]
    waits, computing = (
        cost.changed(hiding=Hiding(share, share)).seconds_of(schemes, shapes, throughput)
        for share in (0.0, np.inf)
    )
    fetch, measured = waits - computing, np.array([seconds for _, seconds in times])
    formulas: Any = cost.formulas
    telling, cached = fetch > TELLING * computing, formulas.from_cache(Calls.of(cost.workload, shapes))
    found = {}
    for level, here in (("memory", telling & ~cached), ("cache", telling & cached)):
        kernels = {scheme for scheme, tells in zip(schemes, here, strict=True) if tells}
        if np.count_nonzero(here) >= LEAST_RECORDS and len(kernels) >= LEAST_KERNELS:
            found[level] = _best_share(computing[here], fetch[here], measured[here])
    return found


def _best_share(computing: FloatArray, fetch: FloatArray, measured: FloatArray) -> float:
    waiting = np.maximum(0.0, fetch - SHARES[:, None] * computing)
    off = np.abs(np.log((computing + waiting) / measured)).sum(axis=1)
    return round(float(SHARES[off.argmin()]), 2)
