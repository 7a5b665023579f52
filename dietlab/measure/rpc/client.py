"""The client of servers of TVM's RPC: sessions that check and time candidates, and the list of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from dietlab.base.carried import carried
from dietlab.base.errors import DietlabError, MeasureError
from dietlab.machine import Hardware
from dietlab.measure.rpc.server import FAILURES
from dietlab.measure.rpc.tracker import address_text
from dietlab.measure.timing.disturbance import Pace
from dietlab.measure.timing.process import ENTERED, WorkerCrashed, WorkerProcess, WorkerRefused, WorkerTimeout
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Workload

CLIENT = "dietlab.measure.rpc.worker"

NETWORK_SECONDS = 15.0
"""The longest that a server may take to start a worker and receive libraries, in seconds, in addition to the
measurement. After that time the server counts as lost."""

WATCH_SECONDS = 1.0
"""The time between two checks of the tracker for new servers, in seconds."""


class DeviceLostError(DietlabError):
    """A server does not answer, or answers garbage; no candidate is at fault."""


class NoServerError(MeasureError):
    """No server of a key is free in time."""


class RemoteDevice:
    """A session on a server, which answers requests about candidates like a local process.

    Args:
        client: the process with the connection.
        name: the server's name.
        seconds: the longest time of a measurement.
    """

    def __init__(self, client: WorkerProcess, name: str, seconds: float) -> None:
        self._client, self._seconds = client, seconds
        self._sent: set[str] = set()
        self._workload: Workload | None = None
        self._starting = 0.0
        self.pace = Pace()
        self.name = name

    def hardware(self, target: str, cores: int, *, measure: bool) -> Hardware:
        """Returns the server's processor for a target (``cpu`` or ``cuda``), with ``cores`` of its cores."""
        question = {"op": "hardware", "target": target, "cores": cores, "measure": measure}
        return Hardware.from_json(self._answer(question, self._seconds + NETWORK_SECONDS))

    def open(self, workload: Workload, hardware: Hardware) -> None:
        """Prepares the server for a workload's candidates, unless it is prepared already."""
        if workload == self._workload:
            return
        question = {
            "op": "open",
            "workload": workload.to_json(),
            "hardware": hardware.to_json(),
            "seconds": self._seconds,
            ENTERED: {**carried(), "path": []},  # folders exist on this machine only
        }
        self._answer(question, NETWORK_SECONDS)
        self._workload, self._starting = workload, timing_target(hardware.kind).START_SECONDS

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer about a candidate; the first request sends its library.

        Raises:
            MeasureError: if the candidate crashes, hangs or refuses.
            DeviceLostError: if the server does not answer.
        """
        path = Path(request["plan"])
        if path.name not in self._sent:
            self._request({"op": "send", "path": str(path)}, NETWORK_SECONDS)
            self._sent.add(path.name)
        most = self._starting + self._seconds + NETWORK_SECONDS
        answer = self._answer({**request, "plan": path.name}, most)
        self._starting = 0.0
        if "failed" in answer:
            raise FAILURES[answer["failed"]](*answer["told"])
        return answer

    def forget(self) -> None:
        """Removes the libraries that were sent."""
        sent, self._sent = sorted(self._sent), set()
        if sent:
            self._request({"op": "remove", "names": sent}, NETWORK_SECONDS)

    def close(self) -> None:
        """Ends the session and so frees the server."""
        self._client.close()

    def _answer(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return self._request({"op": "ask", "question": question}, seconds)

    def _request(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        try:
            return self._client.ask(request, seconds)
        except (WorkerTimeout, WorkerCrashed, WorkerRefused) as error:
            raise DeviceLostError(f"the server {self.name} must answer", error) from error


class Servers:
    """The servers of a key at a tracker. Host and port name the tracker."""

    def __init__(self, tracker: tuple[str, int], key: str) -> None:
        self.key, self.address = key, address_text(tracker)
        self._tracker = tracker
        self._watcher = WorkerProcess(CLIENT)

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watcher.close()

    def queue(self) -> Queue:
        """Returns the present numbers of servers and clients.

        Raises:
            MeasureError: if no tracker answers.
        """
        try:
            answer = self._watcher.ask({"op": "summary", "tracker": self._tracker}, NETWORK_SECONDS)
        except MeasureError as error:
            raise MeasureError(
                f"a tracker of TVM's RPC must answer at {self.address}",
                error.value,
                f"Start one, with a server: dietlab serve --key {self.key}.",
            ) from None
        waiting = answer["queues"].get(self.key, {})
        return Queue(
            answer["servers"].get(self.key, 0),
            waiting.get("free", 0),
            waiting.get("pending", 0),
            tuple(sorted(answer["servers"])),
        )

    def require(self, patience: float) -> Queue:
        """Waits for a server, free or not.

        Raises:
            NoServerError: if no server joins in time.
        """
        until, queue = monotonic() + patience, self.queue()
        while not queue.servers:
            if monotonic() >= until:
                raise NoServerError(
                    f"a server of the key {self.key} must have joined the tracker {self.address}",
                    f"those of {', '.join(queue.keys)}" if queue.keys else "none of any key",
                    self._remedy,
                )
            sleep(WATCH_SECONDS)
            queue = self.queue()
        return queue

    def connect(self, seconds: float, patience: float) -> RemoteDevice:
        """Returns a session on a free server. Waits at most ``patience`` seconds for a free server;
        ``seconds`` is the longest time of a measurement.

        Raises:
            NoServerError: if no server is free in time.
            MeasureError: if the server is not dietlab's, or does not listen at the address in the tracker.
        """
        client = WorkerProcess(CLIENT)
        try:
            request = {"op": "connect", "tracker": self._tracker, "key": self.key}
            answer = client.ask(request, patience + NETWORK_SECONDS)
            if "unreached" in answer:
                client.close()
                raise MeasureError(
                    f"a server of key {self.key} must answer at the address in the tracker {self.address}",
                    f"{answer['unreached']}: {answer['why']}",
                    "Start it with an address that this machine reaches: dietlab serve --host ADDRESS.",
                )
            name = answer["name"]
        except WorkerTimeout:
            client.close()
            raise NoServerError(
                f"a server of the key {self.key} must be free and answer within {patience:g} s",
                "none",
                self._remedy,
            ) from None
        except (WorkerCrashed, WorkerRefused, KeyError) as error:
            client.close()
            raise MeasureError(
                f"servers of the key {self.key} must have been started by dietlab serve",
                getattr(error, "value", error),
                "Stop the others, or give them another key.",
            ) from None
        return RemoteDevice(client, name, seconds)

    @property
    def _remedy(self) -> str:
        return f"Start one: dietlab serve --key {self.key} --tracker {self.address}."


@dataclass(frozen=True)
class Queue:
    """The numbers of ``servers`` of a key, of ``free`` ones and of waiting clients (``pending``), and the
    ``keys`` of all servers of the tracker."""

    servers: int
    free: int
    pending: int
    keys: tuple[str, ...]


def remote_hardware(
    tracker: tuple[str, int], key: str, cores: int, target: str = "cpu", patience: float = 60.0
) -> Hardware:
    """Returns the processor of a key's servers, with the peaks of ``cores`` measured there. ``patience`` is
    the longest time to wait for a free server, and for its measurement, in seconds.

    Raises:
        MeasureError: if there is no server in time.
    """
    with Servers(tracker, key) as servers:
        servers.require(patience)
        device = servers.connect(patience, patience)
    try:
        return device.hardware(target, cores, measure=True)
    except DeviceLostError as error:
        raise MeasureError("a server must be able to measure its peaks", error) from None
    finally:
        device.close()
