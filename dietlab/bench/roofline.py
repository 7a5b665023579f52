"""How close a kernel is to what the processor can do at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dietlab.bench.samples import blocks
from dietlab.bench.table import BenchTable
from dietlab.shapes import Shape

SHOWN = (1, 8, 16, 32, 64, 128, 512, 2048)


@dataclass(frozen=True)
class Bound:
    """One workload, shape and cache state: the least times that single limits allow, and ours.

    Args:
        flops, bytes: of one call; bytes that any implementation must move at least once.
        peak_gflops: fp32 multiply-adds of all cores in use.
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
    def compute_share(self) -> float:
        """Of the FMA peak."""
        return self.compute_seconds / self.seconds


def bounds(table: BenchTable, lengths: tuple[int, ...] = SHOWN) -> Iterator[Bound]:
    """The bounds of our rows at some lengths, for processors whose peaks were measured."""
    for block in blocks(table):
        workload, hardware = block.facts.operator, block.facts.processor
        if hardware.total_gflops is None or hardware.dram_gbps is None:
            continue
        (dim,) = workload.dims
        for length in sorted(set(lengths) & set(block.ours)):
            shape = Shape.of(**{dim: length})
            yield Bound(
                block.facts.name, block.facts.threads, block.cache, length, workload.flops(shape),
                workload.bytes(shape), hardware.total_gflops, hardware.dram_gbps, hardware.l3_gbps,
                block.ours[length].seconds_median, block.ours[length].roofline,
            )  # fmt: skip
