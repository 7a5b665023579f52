"""A machine that gets slower from question to question; T=2 crashes in its second turn."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

from dietlab.timing.process import serve

_questions = count(1)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    if request["turn"] and request["shape"]["T"] == 2:
        os.abort()
    number = next(_questions)
    assert request["timing"]["blocks"] == 1
    return {
        "max_error": 0.0,
        "tolerance": 1.0,
        "reason": "",
        "blocks": [1e-3 * number],
        "cached_blocks": [1e-6 * number],
        "verify_seconds": 0.1,
        "measure_seconds": 0.2,
    }


if __name__ == "__main__":
    serve(measure)
