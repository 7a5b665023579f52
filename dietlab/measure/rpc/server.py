"""Serves this machine for measurements by others, through TVM's RPC: what ``dietlab serve`` starts.

A server tells a tracker its key. Who tunes asks the tracker for a server of a key and sends it libraries and
questions; each session is another process, in another folder. Candidates run in a child of the
session, as they do here (:mod:`dietlab.measure.local`), so that one that crashes or hangs ends neither the
session nor the server.

TVM's RPC has no authentication: anyone who reaches a server's or a tracker's port can run any code on the
machine. Addresses are those of the loopback unless others are named; name those of a network that you trust.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from dietlab.base.errors import DietlabError, MeasureError, MissingDependencyError
from dietlab.machine import Hardware
from dietlab.measure.local import candidates_seat
from dietlab.measure.rpc.tracker import Address, address_text, listed, told_address
from dietlab.measure.timing.process import ENTERED, WorkerCrashed, WorkerRefused, WorkerTimeout
from dietlab.measure.timing.seat import Seat

LOOPBACK = "127.0.0.1"
TRACKER_PORT, SERVER_PORT = 9190, 9090
"""The first ports that are tried: TVM's own."""
PORTS = 100
"""How many ports are tried, from the first one on."""

ASK = "dietlab.ask"
"""The function that a session serves: a question in JSON to an answer in JSON."""

FAILURES: dict[str, type[MeasureError]] = {
    "timeout": WorkerTimeout,
    "crashed": WorkerCrashed,
    "refused": WorkerRefused,
}
"""What may become of a candidate, by the name that travels."""


class Session:
    """Answers what one client asks about this machine::

        {"op": "hello"} -> {"name"}
        {"op": "hardware", "cores": 1, "measure": true} -> the processor as JSON
        {"op": "open", "workload": {..}, "hardware": {..}, "seconds": 60, "entered": {..}} -> {}
        {"op": "check" or "time", ..} -> as :mod:`dietlab.measure.timing.bench`; ``plan`` names a sent library

    A candidate that fails is told as ``{"failed": "timeout", "told": [invariant, value, remedy]}``.

    Args:
        name: of this machine, in records.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._seat: Seat | None = None

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if question["op"] == "hello":
            return {"name": self._name}
        if question["op"] == "hardware":
            return _hardware(question["target"], question["cores"], question["measure"]).to_json()
        try:
            if question["op"] == "open":
                return self._open(question)
            if self._seat is None:
                raise MeasureError("a workload is opened first", question["op"])
            return self._seat.ask({**question, "plan": str(Path.cwd() / question["plan"])})
        except MeasureError as error:
            kinds = [name for name, kind in FAILURES.items() if isinstance(error, kind)]
            told = [error.invariant, str(error.value), error.remedy]
            return {"failed": kinds[0] if kinds else "refused", "told": told}

    def _open(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._seat is not None:
            self._seat.close()
        hardware = Hardware.from_json(question["hardware"])
        # Only the seat's process makes what the client entered, as it runs the client's libraries.
        self._seat = candidates_seat(
            question["workload"], hardware, question["seconds"], entered=question.get(ENTERED)
        )
        return {}


def _hardware(target: str, cores: int, measure: bool) -> Hardware:
    found = Hardware.detect(target, measure=False)
    if found.limits.on_host:
        found = found.with_cores(min(cores, found.cores))
    return found.measured() if measure else found


def register(name: str) -> None:
    """Makes this process, and those that it forks, answer :data:`ASK`."""
    import tvm_ffi

    session = Session(name)

    def ask(question: str) -> str:
        try:
            return json.dumps(session.answer(json.loads(question)))
        except DietlabError as error:
            return json.dumps({"error": str(error)})

    tvm_ffi.register_global_func(ASK, ask, override=True)


def listens() -> bool:
    """Tells whether TVM's server in this process lets clients in: the thread that does ends for good once the
    tracker was away for a minute, or a session ended badly, and the process lives on."""
    from tvm.rpc.server import PopenRPCServerState

    state = PopenRPCServerState.current
    return state is not None and bool(state.thread.is_alive())


@dataclass
class Served:
    """A server that tells a tracker its key and address, and joins again when it was lost.

    Args:
        key: tells machines of one kind.
        host: the address to listen on, which the tracker is told.
        tracker: the address of the tracker.
        name: of this machine in records.
    """

    key: str
    host: str
    tracker: Address
    name: str
    server: Any = field(init=False, default=None)
    _told: str = field(init=False, default="")

    def start(self) -> None:
        """Starts TVM's server, in the place of one that runs."""
        from tvm import rpc

        self.close()
        self.server = rpc.Server(
            self.host,
            SERVER_PORT,
            SERVER_PORT + PORTS,
            tracker_addr=self.tracker,
            key=self.key,
            custom_addr=self.host,
            silent=True,
            server_init_callback=partial(register, self.name),
        )

    def close(self) -> None:
        """Ends the server."""
        if self.server is not None:
            self.server.terminate()
            self.server = None

    def look(self) -> str:
        """Looks whether the tracker still lists this server, which is started again if it will not join by
        itself; returns in words what changed since the last look, nothing if nothing did."""
        if not self._listens():
            self.start()
        told, self._told = self._told, self._state()
        return "" if told == self._told else self._told or f"Listed at {address_text(self.tracker)} again."

    def _listens(self) -> bool:
        try:
            self.server.proc.send(listens)
            return bool(self.server.proc.recv())
        except (OSError, RuntimeError):
            return False

    def _state(self) -> str:
        """Returns what is wrong; nothing while the tracker lists this server."""
        at = address_text(self.tracker)
        try:
            found = listed(self.tracker).servers
        except (OSError, MeasureError):
            return f"No tracker answers at {at}: nobody finds this server until one does; it joins then."
        if (self.key, (self.host, self.server.port)) in found:
            return ""
        return f"The tracker {at} does not list this server: it joins again, after a session that it has."


@contextmanager
def serving(
    key: str,
    *,
    tracker: Address | None = None,
    host: str = LOOPBACK,
    tracker_port: int = TRACKER_PORT,
    processors: Sequence[int] = (),
    name: str = "",
) -> Iterator[Served]:
    """Serves this machine under a key as long as the context is open.

    Args:
        key: tells machines of one kind.
        tracker: the address of one that runs (None: one is started on ``host``).
        host: the address to listen on.
        tracker_port: the first port that is tried for a tracker that is started.
        processors: that measurements may use (default: all of this process).
        name: of this machine in records (default: the host's name and this process's number).

    Raises:
        MissingDependencyError: if the package that the tracker is made of is absent.
        MeasureError: if others cannot reach ``host`` by that address.
    """
    address = told_address(host, tracker[0] if tracker else None)
    name = name or f"{gethostname()}-{os.getpid()}"
    with ExitStack() as stack:
        if processors:
            stack.callback(partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)))
            os.sched_setaffinity(0, processors)
        if tracker is None:
            tracker = address, start_tracker(stack, address, tracker_port)
        served = Served(key, address, tracker, name)
        stack.callback(served.close)
        served.start()
        yield served


def start_tracker(stack: ExitStack, host: str = LOOPBACK, port: int = TRACKER_PORT) -> int:
    """Starts a tracker until the stack is closed; returns its port."""
    try:
        from tvm.rpc.tracker import Tracker
    except ImportError as error:
        raise MissingDependencyError(
            "TVM's tracker has its package tornado", error, "pip install 'dietlab[rpc]'"
        ) from None
    tracker = Tracker(host, port, port + PORTS, silent=True)
    stack.callback(tracker.terminate)
    found: int = tracker.port
    return found
