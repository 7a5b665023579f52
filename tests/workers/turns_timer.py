"""A machine that gets slower from question to question."""

from __future__ import annotations

from itertools import count
from typing import Any

from dietlab.measure.timing.process import serve
from workers.answers import OPENED, RIGHT, timed

_questions = count(1)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "open":
        return OPENED
    if request["op"] == "check":
        return RIGHT
    return timed(1e-3 * next(_questions))


if __name__ == "__main__":
    serve(answer)
