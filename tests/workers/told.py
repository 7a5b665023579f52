"""Tells which operator a request is of, where its class is from, and what else was imported for it."""

from __future__ import annotations

import sys
from typing import Any

from dietlab.measure.timing.process import serve
from dietlab.problem import workload_from_json


def told(request: dict[str, Any]) -> dict[str, Any]:
    workload = workload_from_json(request["workload"])
    return {
        "workload": str(workload),
        "axes": len(workload.axes),
        "module": type(workload).__module__,
        "imported": [name for name in request.get("ask", ()) if name in sys.modules],
    }


if __name__ == "__main__":
    serve(told)
