"""How close a kernel is to what the processor can do at all."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.bench.table import StudyFacts
from dietlab.evaluation.report import Row


@dataclass(frozen=True)
class Bound:
    """One workload, shape and cache state: the least times that single limits allow, and ours.

    Args:
        flops, bytes: of one call; bytes that any implementation must move at least once.
        peak_gflops: multiply-adds of all cores in use, of the workload's type.
        dram_gbps, l3_gbps: measured bandwidths: memory (all cores), last-level cache (one core).
        seconds: our median.
        share: of the roofline, as the row has it: of the greater of the two least times, compute and
            memory, as far as the cache state makes operands come from memory.
    """

    workload: str
    threads: int
    cache: str
    length: int
    flops: int
    bytes: int
    peak_gflops: float
    dram_gbps: float
    l3_gbps: float | None
    seconds: float
    share: float | None

    @property
    def compute_seconds(self) -> float:
        """With the multiply-add units always busy."""
        return self.flops / self.peak_gflops / 1e9

    @property
    def memory_seconds(self) -> float:
        """With every byte from memory, once."""
        return self.bytes / self.dram_gbps / 1e9

    @property
    def l3_seconds(self) -> float | None:
        """With every byte from the last-level cache, once, each core reading its part."""
        return None if self.l3_gbps is None else self.bytes / (self.l3_gbps * self.threads) / 1e9

    @property
    def least_seconds(self) -> float:
        """The roofline of this cache state: compute, or every byte from where the state leaves operands.
        (What stays in the nearest cache bounds nothing.)"""
        moved = {"rotating": self.memory_seconds, "interleaved": self.l3_seconds}.get(self.cache)
        return max(self.compute_seconds, moved or 0.0)

    @property
    def compute_share(self) -> float:
        """Of the FMA peak."""
        return self.compute_seconds / self.seconds


def bound_of(facts: StudyFacts, cache: str, length: int, row: Row) -> Bound | None:
    """The bound of one of our rows; None for a processor whose peaks are not known."""
    workload, hardware = facts.operator, facts.processor
    peak = hardware.peak_for(workload.dtype)
    if peak is None or hardware.dram_gbps is None:
        return None
    return Bound(
        facts.name,
        facts.threads,
        cache,
        length,
        workload.flops(row.shape),
        workload.bytes(row.shape),
        hardware.cores * peak,
        hardware.dram_gbps,
        hardware.l3_gbps,
        row.seconds_median,
        row.roofline,
    )
