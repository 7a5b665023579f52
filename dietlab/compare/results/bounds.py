"""Compares a kernel with the roofline of its processor."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.compare.results.report import Report
from dietlab.compare.results.row import Row, length_of
from dietlab.machine import Roofline
from dietlab.measure.timing.target import roofline_of
from dietlab.problem import Shape


@dataclass(frozen=True)
class Bound:
    """Our time on one shape in one cache state, and the least times that the processor's limits allow.

    Args:
        used: the cores or the GPU that a call uses, in words.
        flops, bytes: the operations of one call, and the bytes that any implementation must move at least
            once.
        roofline: the roofline of all cores in use.
        seconds: our median time of a call.
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
        return length_of(self.shape)

    @property
    def compute_share(self) -> float:
        """Our share of the FMA peak."""
        return self.roofline.compute_seconds / self.seconds

    @property
    def share(self) -> float:
        """Our share of the roofline of this cache state."""
        return self.roofline.least_seconds(self.cache) / self.seconds


def bound_of(report: Report, cache: str, row: Row) -> Bound | None:
    """Returns the bound of one of our rows; None if the processor's peaks are unknown."""
    workload = report.operator
    roofline = roofline_of(workload, row.shape, report.processor)
    if roofline is None:
        return None
    flops, moved = workload.flops(row.shape), workload.bytes(row.shape)
    return Bound(report.name, report.used, cache, row.shape, flops, moved, roofline, row.seconds_median)
