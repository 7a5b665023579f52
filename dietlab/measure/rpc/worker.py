"""A session on a server of TVM's RPC: ``python -m dietlab.measure.rpc.worker``.

The session is in a separate process, since a call to a lost server never returns::

    {"op": "summary", "tracker": [host, port]} -> {"servers": {key: number}, "queues": {key: {free, pending}}}
    {"op": "connect", "tracker": [host, port], "key": "lab"} -> {"name"}; waits until a server is free, or
        {"unreached": "10.0.0.5:9090", "why": ".."}
    {"op": "send", "path": "/tmp/x.so"} -> {}; {"op": "remove", "names": ["x.so"]} -> {}
    {"op": "ask", "question": {..}} -> the server's answer (:class:`~dietlab.measure.rpc.server.Session`)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.base.files import parse_json
from dietlab.measure.rpc.server import ASK
from dietlab.measure.rpc.tracker import Address, address_text, free_server, is_here, is_loopback, listed
from dietlab.measure.timing.process import serve

TRIES = 3
"""The number of attempts to connect to a server: the server may change the password that the tracker has
handed out."""


class Client:
    """Answers the requests of this module."""

    def __init__(self) -> None:
        self._session: Any = None
        self._ask: Any = None

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        op = request["op"]
        if op == "summary":
            return _summary(tuple(request["tracker"]))
        if op == "connect":
            return self._connect(tuple(request["tracker"]), request["key"])
        if op == "send":
            path = Path(request["path"])
            self._session.upload(str(path), path.name)
        elif op == "remove":
            for name in request["names"]:
                self._session.remove(name)
        else:
            return self._answer(request["question"])
        return {}

    def _connect(self, tracker: Address, key: str) -> Mapping[str, Any]:
        from tvm import rpc

        for _ in range(TRIES):
            (host, port), word = free_server(tracker, key)
            at = address_text((host, port))
            if is_loopback(host) and not is_here(tracker[0]):
                return {"unreached": at, "why": "every machine calls itself so"}
            try:
                self._session = rpc.connect(host, port, word)
            except (OSError, RuntimeError) as error:
                found = {"unreached": at, "why": str(error).strip().rpartition("\n")[2]}
                if "matches key" not in str(error):
                    return found
            else:
                self._ask = self._session.get_function(ASK)
                return self._answer({"op": "hello"})
        return found

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        text = str(self._ask(json.dumps(question)))
        try:
            answer = parse_json(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise MeasureError("a server must answer with JSON objects", repr(text[:80]))
        return answer


def _summary(tracker: Address) -> Mapping[str, Any]:
    found = listed(tracker)
    return {"servers": Counter(key for key, _ in found.servers), "queues": found.queues}


if __name__ == "__main__":
    serve(Client())
