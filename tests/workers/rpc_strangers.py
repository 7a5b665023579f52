"""Servers of TVM's RPC that are none of ours: ``python -m workers.rpc_strangers HOST PORT``.

One for each key: ``foreign`` serves no function of ours, ``garbage`` answers no JSON, ``silent`` never
answers. A line is printed when all are there; they end with standard input.
"""

from __future__ import annotations

import sys
from functools import partial
from threading import Event

from tvm import rpc

from dietlab.measure.rpc.server import ASK


def register(kind: str) -> None:
    import tvm_ffi

    def ask(question: str) -> str:
        if kind == "silent":
            Event().wait()
        return "no JSON {"

    if kind != "foreign":
        tvm_ffi.register_global_func(ASK, ask, override=True)


if __name__ == "__main__":
    tracker = sys.argv[1], int(sys.argv[2])
    servers = [
        rpc.Server(
            "127.0.0.1",
            9290,
            9390,
            tracker_addr=tracker,
            key=kind,
            silent=True,
            server_init_callback=partial(register, kind),
        )
        for kind in ("foreign", "garbage", "silent")
    ]
    print("ready", flush=True)
    sys.stdin.read()
    for server in servers:
        server.terminate()
