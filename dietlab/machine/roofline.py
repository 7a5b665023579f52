"""The roofline: lower bounds of a call's time by the processor's peak and bandwidths, and its ceilings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["memory", "L3", "L2", "L1", "shared memory"]


@dataclass(frozen=True)
class Ceiling:
    """The bandwidth of one level of memory.

    Args:
        level: the level that is read.
        gbps: the bandwidth of all cores or multiprocessors together, in GB/s.
        source: the source of the number, in words.
    """

    level: Level
    gbps: float
    source: str


def above_roofline(shares: Iterable[float | None]) -> list[str]:
    """Returns a list with a note on the shares above 1; empty if there are none.

    Args:
        shares: the share of the roofline that each shape reaches; None if unknown.
    """
    above = [share for share in shares if share is not None and share > 1]
    if not above:
        return []
    calls = "1 time is" if len(above) == 1 else f"{len(above)} times are"
    most = f"{100 * max(above):.0f} %"
    return [
        f"{calls} above 100 % of the roofline, up to {most}: the bandwidth was measured once, "
        "by a plain sum over an array, and a memory that others share is sometimes faster than it was then."
    ]


@dataclass(frozen=True)
class Roofline:
    """Lower bounds of a call's time for any program (Williams, Waterman and Patterson, "Roofline", 2009), in
    seconds.

    Args:
        compute_seconds: the time of all multiply-adds at the peak of all cores.
        memory_seconds: the time to fetch the bytes that a rotating call needs from memory, at memory's
            bandwidth.
        l3_seconds: the time to move all bytes once from or to the last-level cache, divided among the cores;
            None if the cache's bandwidth is unknown.
    """

    compute_seconds: float
    memory_seconds: float
    l3_seconds: float | None = None

    def least_seconds(self, cache: str) -> float:
        """Returns the lower bound for a cache state (``dietlab.measure.CacheState``): the larger of the
        compute time and the time to transfer the operands from the memory level where this state leaves them.
        Hot operands are in the nearest cache and have no transfer time."""
        moved = {"rotating": self.memory_seconds, "interleaved": self.l3_seconds}.get(cache)
        return max(self.compute_seconds, moved or 0.0)
