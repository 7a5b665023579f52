"""Kernels for notebooks that are forked off one process which has imported what they all import.

A notebook's first three or four seconds are imports. ``python warm_kernels.py SOCKET`` imports once, then
forks a kernel for each connection; the kernel manager's own process, ``python warm_kernels.py SOCKET
ARGUMENTS``, only waits for it. Each notebook has a process, and with it a namespace, of its own.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import socket
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from select import select
from types import SimpleNamespace
from typing import Any, NoReturn

IMPORTED = (
    "ipykernel.kernelapp",
    "matplotlib.figure",
    "numpy",
    "pandas",
    "tvm",
    "xgboost",
    "dietlab.compare.study",
)
"""What most notebooks import, directly or by names of dietlab; none starts a thread. plotly and ipywidgets
look for a kernel when they are imported, so they are not among them."""


def serve(address: str) -> None:
    """Imports, then forks a kernel for each connection, as long as standard input is open."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # as `make lab` has it
    # pandas asks when it is imported whether it writes to a terminal, whose width then cuts its tables.
    vars(builtins)["get_ipython"] = lambda: SimpleNamespace(kernel=None)
    for name in IMPORTED:
        if find_spec(name.partition(".")[0]):
            import_module(name)
    assert not {"plotly", "ipywidgets"} & set(sys.modules)
    del vars(builtins)["get_ipython"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                run(connection)
            connection.close()


def run(connection: socket.socket) -> NoReturn:
    """Forks the kernel that a connection asks for; both end with each other."""
    asked: dict[str, Any] = json.loads(connection.makefile().readline())
    if kernel := os.fork():
        select([connection, os.pidfd_open(kernel)], [], [])
        os.kill(kernel, signal.SIGKILL)
        os._exit(0)
    connection.close()
    os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[0] = ""
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(asked["arguments"])
    os._exit(0)


def wait(address: str, arguments: list[str]) -> None:
    """Asks for a kernel and waits until it ends."""
    asked = {"folder": str(Path.cwd()), "environment": dict(os.environ), "arguments": arguments}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(asked).encode() + b"\n")
        connection.recv(1)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        wait(sys.argv[1], sys.argv[2:])
