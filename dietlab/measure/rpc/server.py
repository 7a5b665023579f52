"""Serves this machine for measurements by others, through TVM's RPC (``dietlab serve``).

A server registers with a tracker under a key. A client gets a server of a key from the tracker and sends it
libraries and requests; each session is a new process in a new folder. Candidates run in a child of the
session, as in :mod:`dietlab.measure.local`, so that a crash or a hang ends neither session nor server.

TVM's RPC has no authentication: anyone who reaches the port of a server or tracker can run any code on the
machine. By default, servers and trackers listen on the loopback only; use other addresses only in a network
that you trust.
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
from dietlab.measure.rpc.tracker import Address, address_text, listed, public_address
from dietlab.measure.timing.process import ENTERED, WorkerCrashed, WorkerRefused, WorkerTimeout
from dietlab.measure.timing.seat import Seat

LOOPBACK = "127.0.0.1"
"""The default address, which only this machine reaches."""
TRACKER_PORT = 9190
"""The first port that a tracker tries, TVM's default."""
SERVER_PORT = 9090
"""The first port that a server tries, TVM's default."""
PORTS = 100
"""The number of ports to try, from the first on."""

ASK = "dietlab.ask"
"""The name of the function that a session serves. The function maps a request in JSON to an answer in
JSON."""

FAILURES: dict[str, type[MeasureError]] = {
    "timeout": WorkerTimeout,
    "crashed": WorkerCrashed,
    "refused": WorkerRefused,
}
"""The errors for a candidate's failures, by their names in answers."""


class Session:
    """Answers the requests of one client::

        {"op": "hello"} -> {"name"}
        {"op": "hardware", "cores": 1, "measure": true} -> the processor as JSON
        {"op": "open", "workload": {..}, "hardware": {..}, "seconds": 60, "entered": {..}} -> {}
        {"op": "check" or "time", ..} -> as :mod:`dietlab.measure.timing.bench`; ``plan`` names a sent library

    The answer for a candidate that fails is ``{"failed": "timeout", "told": [invariant, value, remedy]}``.
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
                raise MeasureError("a workload must be opened first", question["op"])
            return self._seat.ask({**question, "plan": str(Path.cwd() / question["plan"])})
        except MeasureError as error:
            kinds = [name for name, kind in FAILURES.items() if isinstance(error, kind)]
            parts = [error.invariant, str(error.value), error.remedy]
            return {"failed": kinds[0] if kinds else "refused", "told": parts}

    def _open(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._seat is not None:
            self._seat.close()
        hardware = Hardware.from_json(question["hardware"])
        # The client's entered objects are unpickled in the seat's process only, which runs its libraries too.
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
    """Registers :data:`ASK` in this process and its forked processes."""
    import tvm_ffi

    session = Session(name)

    def ask(question: str) -> str:
        try:
            return json.dumps(session.answer(json.loads(question)))
        except DietlabError as error:
            return json.dumps({"error": str(error)})

    tvm_ffi.register_global_func(ASK, ask, override=True)


def listens() -> bool:
    """Returns whether TVM's server in this process still accepts clients. The server's accepting thread ends
    for good, though the process lives on, if the tracker is away for a minute or a session ends badly."""
    from tvm.rpc.server import PopenRPCServerState

    state = PopenRPCServerState.current
    return state is not None and bool(state.thread.is_alive())


@dataclass
class Served:
    """A server that registers with a tracker, and registers again whenever the tracker has lost it. The
    arguments have the meaning that they have in :func:`serving`."""

    key: str
    host: str
    tracker: Address
    name: str
    server: Any = field(init=False, default=None)
    _reported: str = field(init=False, default="")

    def start(self) -> None:
        """Starts TVM's server, after ending one that runs."""
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
        """Checks whether the tracker still lists this server, and restarts the server if it cannot join again
        by itself. Returns a text about the change since the last check; empty if nothing changed."""
        if not self._listens():
            self.start()
        before, self._reported = self._reported, self._state()
        if before == self._reported:
            return ""
        return self._reported or f"Listed at {address_text(self.tracker)} again."

    def _listens(self) -> bool:
        try:
            self.server.proc.send(listens)
            return bool(self.server.proc.recv())
        except (OSError, RuntimeError):
            return False

    def _state(self) -> str:
        """Returns a text about the fault; empty while the tracker lists this server."""
        at = address_text(self.tracker)
        try:
            found = listed(self.tracker).servers
        except (OSError, MeasureError):
            return f"No tracker answers at {at}: clients cannot find this server. It joins once one answers."
        if (self.key, (self.host, self.server.port)) in found:
            return ""
        return f"The tracker {at} does not list this server: it joins again, after any present session."


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
        key: the name under which a tracker lists machines of one kind.
        tracker: the address of a running tracker (None: one is started on ``host``).
        host: the address to listen on.
        tracker_port: the first port to try if a tracker is started.
        processors: the processors that measurements may use (default: all that this process may use).
        name: this machine's name in records (default: the host's name and this process's number).

    Raises:
        MissingDependencyError: if the package that a tracker needs is not installed.
        MeasureError: if other machines cannot reach this one at ``host``.
    """
    address = public_address(host, tracker[0] if tracker else None)
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
    """Starts a tracker that runs until the stack is closed. Returns the tracker's port."""
    try:
        from tvm.rpc.tracker import Tracker
    except ImportError as error:
        raise MissingDependencyError(
            "TVM's tracker needs the package tornado", error, "pip install 'dietlab[rpc]'"
        ) from None
    tracker = Tracker(host, port, port + PORTS, silent=True)
    stack.callback(tracker.terminate)
    found: int = tracker.port
    return found
