"""A session on a server of TVM's RPC: ``python -m dietlab.measure.rpc_worker``.

The session lives in a separate process, since a call to a server that is gone never returns::

    {"op": "summary", "tracker": [host, port]} -> {"servers": {key: number}, "queues": {key: {free, pending}}}
    {"op": "connect", "tracker": [host, port], "key": "lab"} -> {"name"}; waits until a server is free
    {"op": "send", "path": "/tmp/x.so"} -> {}; {"op": "remove", "names": ["x.so"]} -> {}
    {"op": "ask", "question": {..}} -> the server's answer (:class:`~dietlab.measure.rpc_server.Session`)
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietlab.errors import MeasureError
from dietlab.measure.rpc_server import ASK
from dietlab.timing.process import serve

CONNECT_SECONDS = 5.0
"""Seconds until a tracker that nothing listens for is given up."""


class Client:
    """Answers the requests that the module's text lists."""

    def __init__(self) -> None:
        self._session: Any = None
        self._ask: Any = None

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        op = request["op"]
        if op == "summary":
            return _summary(*request["tracker"])
        if op == "connect":
            return self._connect(request)
        if op == "send":
            path = Path(request["path"])
            self._session.upload(str(path), path.name)
        elif op == "remove":
            for name in request["names"]:
                self._session.remove(name)
        else:
            return self._asked(request["question"])
        return {}

    def _connect(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        host, port = request["tracker"]
        self._session = _tracker(host, port).request(request["key"])
        self._ask = self._session.get_function(ASK)
        return self._asked({"op": "hello"})

    def _asked(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        text = str(self._ask(json.dumps(question)))
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise MeasureError("a server answers JSON objects", repr(text[:80]))
        return answer


def _tracker(host: str, port: int) -> Any:
    socket.create_connection((host, port), CONNECT_SECONDS).close()  # TVM tries for a minute
    from tvm import rpc

    return rpc.connect_tracker(host, port)


def _summary(host: str, port: int) -> Mapping[str, Any]:
    found = _tracker(host, port).summary()
    servers = Counter(info["key"].removeprefix("server:") for info in found["server_info"])
    return {"servers": servers, "queues": found["queue_info"]}


if __name__ == "__main__":
    serve(Client())
