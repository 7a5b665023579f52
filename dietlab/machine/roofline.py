"""The least times that single limits of a processor allow one call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def above_roofline(shares: Iterable[float | None]) -> list[str]:
    """Returns a note on the shares of the roofline above 1, as a list; empty if there are none.

    Args:
        shares: of 1, of each shape; None where there is none.
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
    """The least times of a call that any program can reach (Williams, Waterman and Patterson, "Roofline",
    2009), in seconds.

    Args:
        compute_seconds: with the multiply-add units of all cores always busy.
        memory_seconds: with the bytes that rotating calls fetch from memory, once.
        l3_seconds: with every byte from or to the last-level cache, once, each core moving its part;
            None where that bandwidth is not known.
    """

    compute_seconds: float
    memory_seconds: float
    l3_seconds: float | None = None

    def least_seconds(self, cache: str) -> float:
        """Returns the roofline of a cache state (``dietlab.measure.CacheState``): multiply-adds, or bytes
        from where the state leaves them. Hot operands are in the nearest cache, which bounds nothing."""
        moved = {"rotating": self.memory_seconds, "interleaved": self.l3_seconds}.get(cache)
        return max(self.compute_seconds, moved or 0.0)
