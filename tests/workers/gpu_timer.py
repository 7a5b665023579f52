"""Answers as a GPU's timer would, without one: every library is right, and takes a microsecond a row."""

from __future__ import annotations

from typing import Any

from dietlab.timing.process import serve


def measure(request: dict[str, Any]) -> dict[str, Any]:
    seconds = 1e-6 * request["shape"]["T"]
    return {
        "max_error": 0.0,
        "tolerance": 1.0,
        "reason": "",
        "blocks": [seconds, 1.5 * seconds, 2 * seconds],
        "verify_seconds": 0.1,
        "measure_seconds": 0.2,
    }


if __name__ == "__main__":
    serve(measure)
