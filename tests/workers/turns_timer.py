"""A machine that gets slower from question to question."""

from __future__ import annotations

from itertools import count
from typing import Any

from dietlab.measure.timing.process import serve

_questions = count(1)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "open":
        return {"version": "", "kind": "library", "unprobed": ""}
    if request["op"] == "check":
        return {"max_error": 0.0, "tolerance": 1.0, "correct": True, "reason": ""}
    return {"seconds": 1e-3 * next(_questions), "retaken": 0, "kept": False, "probe": None}


if __name__ == "__main__":
    serve(answer)
