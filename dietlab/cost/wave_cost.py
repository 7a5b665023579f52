"""Fits the constants of ``f_occ`` for the GPU that was measured.

What a wave costs that is not full differs between processors. DietCode (MLSys 2022, section 3.3) fits one
constant ``c`` below a wave of blocks and one above, 1.433 and 2.14 on its T4::

    f_occ = c g / ((c - 1) g + G)      g blocks on C places,  G = C ceil(g / C)

A micro-kernel computes at one throughput, so that its labels, from which ``f_occ`` is divided
out, are alike on all shapes if ``c`` is right::

    log label = log label at c = 1  -  log c  +  log(1 + (c - 1) u)      u = g / G

The two constants are chosen together that make the labels of each micro-kernel deviate least from their
median. Full waves (u = 1) have the same label whatever ``c`` is; what a fit needs are blocks that fill their
places differently well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log, nan
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.cost.cuda_adaptation import LAUNCH_SECONDS, CudaAdaptation, Imbalance
from dietlab.cost.formulas import f_occ
from dietlab.measure import Record
from dietlab.plans import plan_for
from dietlab.space import CudaMicroKernel
from dietlab.workloads import extents

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RANGE = (1.0, 8.0)
"""Constants that are tried: at 1 a wave costs the same however few blocks it has, at 8 hardly more than its
blocks."""

LEAST_RECORDS, LEAST_KERNELS = 12, 3
"""The fewest informative records, and micro-kernels among them, that a constant is fitted from; with fewer
the paper's stands."""

TELLING = 0.1
"""The least change of a record's label, as a logarithm against the others of its micro-kernel, from one
end of :data:`RANGE` to the other, from which the record informs a constant."""

LAUNCHES = 4.0
"""The least length of a call, in launches, from which it informs the constants: a shorter one measures the
launch."""

OUTLIER = 0.05
"""The deviation, as a logarithm, up to which the loss is quadratic and beyond which it is linear (Huber's
loss), so that single disturbed records pull little."""

POINTS, ROUNDS = 13, 8
"""Values of each constant that are tried at once, evenly over its logarithm, and rounds of trying: each in
half the range, around the best. The last values are 0.2 % apart."""


class Sighting(NamedTuple):
    """The evidence of one record.

    ``label`` is the logarithm of its label at c = 1, ``filled`` is u, the share of the places paid for that
    have a block, and ``above`` says whether there is more than a wave of blocks.
    """

    label: float
    filled: float
    above: bool


@dataclass(frozen=True)
class Sightings:
    """The evidence of many records, as tables ``[micro-kernels, records]``; missing records have labels
    that are not numbers."""

    labels: Values
    filled: Values
    above: Flags

    @classmethod
    def of(cls, groups: Sequence[Sequence[Sighting]]) -> Sightings:
        most = max(map(len, groups), default=0)
        rows = [[*group, *[Sighting(nan, 1.0, True)] * (most - len(group))] for group in groups]
        table = np.array(rows, np.float64).reshape(len(rows), most, 3)
        return cls(table[..., 0], table[..., 1], table[..., 2] > 0)

    def gains(self, imbalance: Imbalance) -> Values:
        """Returns the amount that a pair of constants takes off each label."""
        constants = np.where(self.above, imbalance[1], imbalance[0])
        gains: Values = np.log(constants) - np.log1p((constants - 1) * self.filled)
        return np.where(np.isnan(self.labels), nan, gains)

    def telling(self) -> tuple[Flags, Flags]:
        """Returns which records inform the constant below a wave, and which that above."""
        one, most = RANGE
        below, above = (np.abs(centred(self.gains(pair))) > TELLING for pair in ((most, one), (one, most)))
        return below & ~self.above, above & self.above

    def loss(self, imbalance: Imbalance) -> float:
        """Returns the disagreement of each micro-kernel's labels: the sum of Huber's losses."""
        off = np.abs(centred(self.labels - self.gains(imbalance)))
        return float(np.nansum(np.where(off < OUTLIER, off**2 / 2, OUTLIER * (off - OUTLIER / 2))))


def centred(table: Values) -> Values:
    """Returns each row's deviations from its median; what is not a number stays so and does not count."""
    # In order such values are last. NumPy's own nanmedian takes rows one by one.
    ordered, counts = np.sort(table, axis=1), np.count_nonzero(~np.isnan(table), axis=1)
    rows = np.arange(len(table))
    medians = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    deviations: Values = table - medians[:, None]
    return deviations


def with_fitted_imbalance(cost: CudaAdaptation, records: Iterable[Record]) -> CudaAdaptation:
    """Returns the adaptation with the constants of the GPU that was measured (:func:`fit_imbalance`); the
    paper's adaptation keeps the paper's."""
    return cost if cost.kind == "paper" else replace(cost, imbalance=fit_imbalance(cost, records))


def fit_imbalance(cost: CudaAdaptation, records: Iterable[Record]) -> Imbalance:
    """Returns the constants of ``f_occ`` below a wave of blocks and above.

    Args:
        cost: what else it costs to cover a shape; its own constants stand where too few records tell of
            them (:data:`LEAST_RECORDS`).
        records: those that did not wait for memory.
    """
    sightings = Sightings.of([group for group in sighted(cost, records).values() if len(group) > 1])
    ranges = [
        RANGE if enough(telling) else (known, known)
        for telling, known in zip(sightings.telling(), cost.imbalance, strict=True)
    ]
    return least(sightings.loss, ranges)


def enough(telling: Flags) -> bool:
    """Returns whether a constant can be fitted on these records, ``[micro-kernels, records]``."""
    kernels = int(np.count_nonzero(telling.any(axis=1)))
    return int(np.count_nonzero(telling)) >= LEAST_RECORDS and kernels >= LEAST_KERNELS


def sighted(cost: CudaAdaptation, records: Iterable[Record]) -> dict[CudaMicroKernel, list[Sighting]]:
    """Collects the evidence of records by the tile that computes most of a call: lower tiles of a plan
    have another throughput."""
    plain = replace(cost, imbalance=(1.0, 1.0))
    found: dict[CudaMicroKernel, list[Sighting]] = {}
    for record in records:
        scheme, shape, seconds = record.scheme, record.shape, record.seconds or 0.0
        if seconds < LAUNCHES * LAUNCH_SECONDS:
            continue
        blocks, places = cost.filling(scheme, shape)
        regions = plan_for(scheme, extents(cost.workload, shape)["rows"]).regions
        if blocks:
            tile = max(regions, key=lambda region: region.executed_rows).kernel
            label = log(plain.throughput(scheme, shape, seconds))
            found.setdefault(tile, []).append(Sighting(label, f_occ(blocks, places), blocks >= places))
    return found


def least(loss: Callable[[Imbalance], float], ranges: Sequence[tuple[float, float]]) -> Imbalance:
    """Returns the pair with the least loss; a constant whose range is one value stays at it.

    Both are sought together, on a grid that shrinks around the best pair: they share the medians of the
    micro-kernels that have records on both sides.
    """
    spans, best = list(ranges), (ranges[0][0], ranges[1][0])
    for _ in range(ROUNDS):
        below, above = (np.geomspace(low, high, POINTS if low < high else 1).tolist() for low, high in spans)
        best = min(product(below, above), key=loss)
        reaches = [(high / low) ** 0.25 for low, high in spans]
        spans = [
            (max(low, value / reach), min(high, value * reach))
            for (low, high), value, reach in zip(ranges, best, reaches, strict=True)
        ]
    return best
