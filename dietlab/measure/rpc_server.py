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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from dietlab.errors import DietlabError, MeasureError, MissingDependencyError
from dietlab.hardware import Hardware
from dietlab.measure.local import candidates_seat
from dietlab.timing.process import ENTERED, WorkerCrashed, WorkerRefused, WorkerTimeout
from dietlab.timing.seat import Seat
from dietlab.timing.target import timing_target

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
        {"op": "check" or "time", ..} -> as :mod:`dietlab.timing.bench`; ``plan`` names a sent library

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
        options, _ = timing_target(hardware.kind).options(hardware, Path.cwd())
        # Only the seat's process makes what the client entered, as it runs the client's libraries.
        self._seat = candidates_seat(
            question["workload"], hardware, options, question["seconds"], entered=question.get(ENTERED)
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


@contextmanager
def serving(
    key: str,
    *,
    tracker: tuple[str, int] | None = None,
    host: str = LOOPBACK,
    tracker_port: int = TRACKER_PORT,
    processors: Sequence[int] = (),
    name: str = "",
) -> Any:
    """Serves this machine under a key as long as the context is open; yields the tracker's address, the
    server's port, and its name.

    Args:
        key: tells machines of one kind.
        tracker: the address of one that runs (None: one is started on ``host``).
        host: the address to listen on.
        tracker_port: the first port that is tried for a tracker that is started.
        processors: that measurements may use (default: all of this process).
        name: of this machine in records (default: the host's name and this process's number).

    Raises:
        MissingDependencyError: if the package that the tracker is made of is absent.
    """
    name = name or f"{gethostname()}-{os.getpid()}"
    with ExitStack() as stack:
        if processors:
            stack.callback(partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)))
            os.sched_setaffinity(0, processors)
        if tracker is None:
            tracker = host, start_tracker(stack, host, tracker_port)
        from tvm import rpc

        server = rpc.Server(
            host,
            SERVER_PORT,
            SERVER_PORT + PORTS,
            tracker_addr=tracker,
            key=key,
            silent=True,
            server_init_callback=partial(register, name),
        )
        stack.callback(server.terminate)
        yield tracker, server.port, name


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
