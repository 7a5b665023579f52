"""Times for real, except that some row counts crash, hang, refuse or compute something else."""

from __future__ import annotations

import os
from threading import Event
from typing import Any

from dietlab.errors import MeasureError
from dietlab.measure.time_worker import measure
from dietlab.timing.process import serve


def moody(request: dict[str, Any]) -> dict[str, Any]:
    rows = request["shape"]["T"]
    if rows == 2:
        os.abort()
    if rows == 3:
        Event().wait()
    if rows == 4:
        raise MeasureError("this worker measures T=4", rows)
    if rows == 5:
        return {
            "max_error": 2.5,
            "tolerance": 0.5,
            "reason": "an error of 2.50e+00 is above 5.00e-01",
            "blocks": [],
            "verify_seconds": 0.1,
            "measure_seconds": 0.0,
        }
    if rows == 6:
        raise ZeroDivisionError("a surprise")
    return measure(request)


if __name__ == "__main__":
    serve(moody)
