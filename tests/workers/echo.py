"""Answers what it was asked, with its process number and whether it can import PyTorch; prints noise to
standard output."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Event
from typing import Any

from dietlab.measure.timing.process import serve
from dietlab.measure.timing.worker import show_torch


def echo(request: dict[str, Any]) -> dict[str, Any]:
    print("noise that must not become an answer", flush=True)
    if request.get("hang"):
        Event().wait()
    if request.get("exit"):
        os._exit(7)
    if request.get("show"):
        show_torch()
    about = {"pid": os.getpid(), "variable": os.environ.get("DIETLAB_TEST"), "torch": finds_torch()}
    return {"heard": request, **about}


def finds_torch() -> bool:
    with suppress(ImportError):
        import torch  # noqa: F401

        return True
    return False


if __name__ == "__main__":
    serve(echo)
