"""Answers as a GPU's timer would, without one: every library is right, and takes a microsecond a row, then
1.5 and 2."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dietlab.measure.timing.process import serve
from workers.answers import OPENED, RIGHT, timed

ASKED = Counter[str]()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "open":
        return OPENED
    if request["op"] == "check":
        return RIGHT
    assert request["cache"] == "hot"
    key = f"{request['plan']} {request['shape']}"
    ASKED[key] += 1
    return timed(0.5e-6 * request["shape"]["T"] * (1 + ASKED[key]))


if __name__ == "__main__":
    serve(answer)
