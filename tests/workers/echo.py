"""Answers what it was asked, with its process number; prints noise to standard output."""

from __future__ import annotations

import os
from threading import Event
from typing import Any

from dietlab.measure.process import serve


def echo(request: dict[str, Any]) -> dict[str, Any]:
    print("noise that must not become an answer", flush=True)
    if request.get("hang"):
        Event().wait()
    if request.get("exit"):
        os._exit(7)
    return {"heard": request, "pid": os.getpid(), "variable": os.environ.get("DIETLAB_TEST")}


if __name__ == "__main__":
    serve(echo)
