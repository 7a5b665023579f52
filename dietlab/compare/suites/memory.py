"""Watches the peak of memory of this process and its workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import psutil

from dietlab.base.events import Event, TrialMeasured

SECONDS_BETWEEN = 0.5
"""The shortest time between two samples of memory, in seconds. A sample takes some milliseconds. The system
keeps the peak of a live process, so only a process that begins and ends between two samples is missed."""


class PeakMemory:
    """An observer that keeps the peak of resident memory, workers included, while events come.

    Each live process counts with its own peak, so the sum is an upper bound of their joint memory. The peak
    of this process is reset first, where the system allows it. ``look`` takes a sample and returns bytes.
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
        """The peak of tuning so far; None until a trial was measured: before, nothing was tuned."""
        return self._most if self._measured else None


def tree_bytes() -> int:
    """Returns the sum of the resident peaks of this process and of all its live descendants, in bytes."""
    here = psutil.Process()
    return sum(_peak(process) for process in (here, *here.children(recursive=True)))


def _peak(process: psutil.Process) -> int:
    """Returns ``VmHWM`` of proc(5); the resident memory of now if the system lacks it; 0 for a process that
    ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
        kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(kilobytes[0]) if kilobytes else int(process.memory_info().rss)
    except (OSError, psutil.Error):
        return 0


def _begin_anew() -> None:
    """Resets this process's peak to its resident memory of now (proc(5), ``clear_refs``)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # the peak is then that of the whole process so far: never too low
