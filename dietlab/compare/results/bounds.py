"""Compares a kernel with the roofline of its processor."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH, Row
from dietlab.machine import Roofline
from dietlab.measure.timing.rotation import roofline_of
from dietlab.problem import Shape


@dataclass(frozen=True)
class Bound:
    """One workload, shape and cache state: the least times that single limits allow, and ours.

    Args:
        used: what a call uses, in words.
        flops, bytes: of one call; bytes that any implementation must move at least once.
        roofline: of all cores in use.
        seconds: our median.
    """

    workload: str
    used: str
    cache: str
    shape: Shape
    flops: int
    bytes: int
    roofline: Roofline
    seconds: float

    @property
    def length(self) -> int:
        """The extent of T."""
        return self.shape[LENGTH]

    @property
    def compute_share(self) -> float:
        """Of the FMA peak."""
        return self.roofline.compute_seconds / self.seconds

    @property
    def share(self) -> float:
        """Of the roofline of this cache state."""
        return self.roofline.least_seconds(self.cache) / self.seconds


def bound_of(report: Report, cache: str, row: Row) -> Bound | None:
    """Returns the bound of one of our rows; None for a processor whose peaks are not known."""
    workload = report.operator
    roofline = roofline_of(workload, row.shape, report.processor)
    if roofline is None:
        return None
    flops, moved = workload.flops(row.shape), workload.bytes(row.shape)
    return Bound(report.name, report.used, cache, row.shape, flops, moved, roofline, row.seconds_median)
