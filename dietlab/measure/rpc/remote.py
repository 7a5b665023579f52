"""Measures on other machines, through TVM's RPC tracker and servers: builds here, times there.

All free servers of a key are used at the same time. The rivals on a shape take turns on one machine, so that
the machine's speed cancels in the ratios of their times.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from dietlab.base.errors import MeasureError
from dietlab.base.events import PhaseSeconds
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware
from dietlab.measure.builders import BUILDER, Builders
from dietlab.measure.contest import Candidate, built_contests, play_contests
from dietlab.measure.record import Record, Trial
from dietlab.measure.rpc.client import WATCH_SECONDS, DeviceLostError, NoServerError, RemoteDevice, Servers
from dietlab.measure.timing.protocol import TOGETHER, Timing
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Workload, require_entered

RETRIES = 1
"""How often, at most, candidates are measured again on another server after their server was lost."""


@dataclass
class Batch:
    """The rivals on some shapes. One server times all rivals of a batch in turns; ``lost`` is the number of
    servers that were lost while they timed the batch."""

    contests: list[list[Candidate]]
    lost: int = 0


@dataclass
class RemoteRunner:
    """Builds here and times on all free servers of a key; servers may join at any time.

    If a server dies or hangs, its candidates are measured once more elsewhere; if that fails too, they are
    recorded as crashed. If other clients wait for the key, servers are freed between two calls.

    Args:
        hardware: the processor that each server must have.
        tracker: host and port of TVM's RPC tracker.
        key: the key that the servers were started with.
        timing: the protocol of timing.
        builders: the number of parallel builds on this machine.
        build_timeout, time_timeout: the limits for building and for timing one library, in seconds.
        patience: the longest time to wait while there is no server, in seconds.
        builder_module: the module of the processes that build.
    """

    hardware: Hardware
    tracker: tuple[str, int]
    key: str
    timing: Timing = field(default_factory=Timing)
    builders: int | None = None
    build_timeout: float = 60.0
    time_timeout: float = 60.0
    patience: float = 60.0
    builder_module: str = BUILDER

    def __post_init__(self) -> None:
        self._open = ExitStack()
        self._pool: Builders | None = None
        self._devices: list[RemoteDevice] = []

    def __enter__(self) -> RemoteRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees all servers and ends the child processes; the next call starts new ones."""
        for device in self._devices:
            device.close()
        self._devices.clear()
        self._open.close()
        self._pool = None

    @property
    def devices(self) -> int:
        """The present number of servers of the key; waits for the first.

        Raises:
            MeasureError: if no server joins in time.
        """
        self._started()
        return self._servers.require(self.patience).servers

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Yields a record for every shape of every trial, as servers finish. A failure is a record too.

        Raises:
            MeasureError: if no server of the key joins in time, or a server has another processor.
            WorkloadError: if the operator cannot be sent to the processes that measure.
        """
        require_entered(workload)
        pool = self._started()
        self._give_back()
        self._join(self.patience)
        contests, built = built_contests(pool, workload, trials)
        together = min(TOGETHER, ceil(len(contests) / max(1, len(self._devices))))
        waiting = deque(
            Batch(contests[start : start + together]) for start in range(0, len(contests), together)
        )
        yield from self._all_measured(workload, waiting)
        for device in self._devices:
            with suppress(DeviceLostError):
                device.forget()
        for library in built:
            library.path.unlink(missing_ok=True)

    def _all_measured(self, workload: Workload, waiting: deque[Batch]) -> Iterator[Record]:
        finished: SimpleQueue[tuple[RemoteDevice, Batch, DeviceLostError | None]] = SimpleQueue()
        idle, left = list(self._devices), len(waiting)

        def work(device: RemoteDevice, batch: Batch) -> None:
            try:
                device.open(workload, self.hardware)
                play_contests(
                    device, batch.contests, self.timing, timing_target(self.hardware.kind).CACHE_STATES
                )
            except DeviceLostError as error:
                finished.put((device, batch, error))
            else:
                finished.put((device, batch, None))

        while left:
            while idle and waiting:
                Thread(target=work, args=(idle.pop(), waiting.popleft()), daemon=True).start()
            try:
                device, batch, error = finished.get(timeout=WATCH_SECONDS)
            except Empty:
                idle += self._join(0.0) if waiting else []
                continue
            sharing = len(self._devices)
            if error is None:
                idle.append(device)
            else:
                self._devices.remove(device)
                device.close()
                if batch.lost < RETRIES:
                    # Shape by shape, so that only rivals that crash every server are recorded as crashed.
                    waiting.extend(Batch([contest], batch.lost + 1) for contest in batch.contests)
                    left += len(batch.contests) - 1
                    idle += self._join(0.0 if self._devices else self.patience)
                    continue
            left -= 1
            yield from _records(batch, device, error, self.timing, sharing)

    def _started(self) -> Builders:
        if self._pool is None:
            lower_target(self.hardware.kind).require_tools()
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietlab-")))
            self._servers = self._open.enter_context(Servers(self.tracker, self.key))
            self._pool = self._open.enter_context(
                Builders(self.hardware, folder, self.builders, self.build_timeout, self.builder_module)
            )
        return self._pool

    def _give_back(self) -> None:
        """Closes a session for each client that waits for a server of this key."""
        for _ in range(self._servers.queue().pending if self._devices else 0):
            if self._devices:
                self._devices.pop().close()

    def _join(self, patience: float) -> list[RemoteDevice]:
        """Opens sessions on all free servers and returns the sessions. Waits for a free server if there is no
        session yet."""
        found = list[RemoteDevice]()
        queue = self._servers.queue() if self._devices else self._servers.require(patience)
        for _ in range(max(queue.free, 0 if self._devices else 1)):
            try:
                device = self._servers.connect(self.time_timeout, patience)
            except NoServerError:
                if self._devices:  # another client was quicker
                    break
                raise
            theirs = device.hardware(self.hardware.kind, self.hardware.cores, measure=False)
            if not theirs.is_same_as(self.hardware):
                device.close()
                raise MeasureError(
                    f"servers of the key {self.key} must have the tuned processor, {self.hardware.name}",
                    f"{device.name} with {theirs.name}",
                    "Give each kind of processor another key.",
                )
            self._devices.append(device)
            found.append(device)
        return found


def _records(
    batch: Batch, device: RemoteDevice, error: DeviceLostError | None, timing: Timing, sharing: int
) -> Iterator[Record]:
    """Yields the records of a batch. ``sharing`` servers work at the same time, so the seconds of checking
    and measuring are divided by ``sharing``."""
    for candidate in (candidate for contest in batch.contests for candidate in contest):
        if error is not None and candidate.record.ok:
            yield replace(candidate.record, status="crashed", reason=str(error), device=device.name)
            continue
        record = candidate.result(timing.cache)
        phases = record.phases
        shared = PhaseSeconds(
            compile=phases.compile, verify=phases.verify / sharing, measure=phases.measure / sharing
        )
        yield replace(record, phases=shared, device=device.name if candidate.player else "")
