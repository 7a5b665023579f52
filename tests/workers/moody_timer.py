"""Times for real, except that some row counts crash, hang, refuse or compute something else."""

from __future__ import annotations

import os
from threading import Event
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.measure.candidate_worker import opened
from dietlab.measure.timing.bench import Service
from dietlab.measure.timing.process import serve

SERVICE = Service(opened)


def moody(request: dict[str, Any]) -> dict[str, Any]:
    rows = request["shape"]["T"] if request["op"] != "open" else None
    if rows == 2:
        os.abort()
    if rows == 3:
        Event().wait()
    if rows == 4:
        raise MeasureError("this worker measures T=4", rows)
    if rows == 5:
        reason = "an error of 2.50e+00 is above 5.00e-01"
        return {"max_error": 2.5, "tolerance": 0.5, "correct": False, "reason": reason}
    if rows == 6:
        raise ZeroDivisionError("a surprise")
    return SERVICE(request)


if __name__ == "__main__":
    serve(moody)
