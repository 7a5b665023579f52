"""Watches how much memory a process and its workers have had at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import psutil

from dietlab.base.events import Event, TrialMeasured

SECONDS_BETWEEN = 0.5
"""The least time between two looks, in seconds: one takes some milliseconds. Peaks of a live process are kept
by the system, so that only one that begins and ends between two looks is missed."""


class PeakMemory:
    """An observer that keeps the peak of resident memory, workers included, as long as events come.

    Each live process counts with its own peak, so the sum is the most that they had together, or more. The
    peak of this process begins anew with the watch where the system allows that.

    Args:
        look: returns bytes; one look.
        clock: a reading in seconds.

    ``bytes`` is None until a trial was measured: a stage that measured nothing tells nothing of tuning.
    """

    def __init__(
        self, look: Callable[[], int] | None = None, clock: Callable[[], float] = perf_counter
    ) -> None:
        if look is None:
            _begin_anew()
        self._look, self._clock = look or tree_bytes, clock
        self._next, self._most, self._measured = clock(), 0, False

    def on_event(self, event: Event) -> None:
        self._measured |= isinstance(event, TrialMeasured)
        if self._clock() >= self._next:
            self._most = max(self._most, self._look())
            self._next = self._clock() + SECONDS_BETWEEN

    @property
    def bytes(self) -> int | None:
        """The peak so far."""
        return self._most if self._measured else None


def tree_bytes() -> int:
    """Returns the sum of the resident peaks of this process and of all its live descendants, in bytes."""
    here = psutil.Process()
    return sum(_peak(process) for process in (here, *here.children(recursive=True)))


def _peak(process: psutil.Process) -> int:
    """Returns ``VmHWM`` of proc(5); what is resident now where the system does not tell; 0 of one that
    ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
        kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(kilobytes[0]) if kilobytes else int(process.memory_info().rss)
    except (OSError, psutil.Error):
        return 0


def _begin_anew() -> None:
    """Sets this process's peak back to what is resident now, as proc(5) says under clear_refs."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # the peak is then that of the whole process so far: never too low
