"""Measures on other machines, through TVM's RPC tracker and servers: builds here, timing there.

All free servers of a key are used at the same time. The rivals on a shape stay together on one machine, where
they take turns, so that their ratios hold whatever that machine's speed is.
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
"""How often rivals whose server was lost are measured again, elsewhere."""


@dataclass
class Batch:
    """The rivals on some shapes that one server times in turns; ``lost`` counts the servers that it lost."""

    contests: list[list[Candidate]]
    lost: int = 0


@dataclass
class RemoteRunner:
    """Builds here, and times on all servers of a key that are free, whenever they join.

    A server that dies or hangs costs what it was measuring, which is measured once more elsewhere and then
    recorded as crashed. While other clients wait for the key, servers are given back between two calls.

    Args:
        hardware: of the servers: each must have this processor.
        tracker: host and port of TVM's RPC tracker.
        key: that the servers were started with.
        timing: the protocol of measuring.
        builders: parallel builds here.
        build_timeout, time_timeout: seconds for one library.
        patience: seconds to wait for a server while there is none.
        builder_module: the module that runs in the processes that build.
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
        """Gives all servers back and ends the child processes; the next call starts new ones."""
        for device in self._devices:
            device.close()
        self._devices.clear()
        self._open.close()
        self._pool = None

    @property
    def devices(self) -> int:
        """The number of servers of the key now; waits for the first.

        Raises:
            MeasureError: if there is none in time.
        """
        self._started()
        return self._servers.require(self.patience).servers

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Returns one record for every shape of every trial, as servers finish them; failures are records
        too.

        Raises:
            MeasureError: if no server of the key is there in time, or one is of another processor.
            WorkloadError: if the processes that measure cannot be told the operator.
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
                    # One by one, so that rivals that end every server are recorded alone.
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
        """Closes as many sessions as other clients wait for servers of this key."""
        for _ in range(self._servers.queue().pending if self._devices else 0):
            if self._devices:
                self._devices.pop().close()

    def _join(self, patience: float) -> list[RemoteDevice]:
        """Opens sessions on the servers that are free; where there is none at all, waits for one.

        Returns:
            The new ones.
        """
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
                    f"servers of the key {self.key} have the processor tuned for, {self.hardware.name}",
                    f"{device.name} with {theirs.name}",
                    "Give each kind of processor another key.",
                )
            self._devices.append(device)
            found.append(device)
        return found


def _records(
    batch: Batch, device: RemoteDevice, error: DeviceLostError | None, timing: Timing, sharing: int
) -> Iterator[Record]:
    """Yields the records of a batch. Servers work at the same time, so that each record is charged its share
    of the wall-clock time."""
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
