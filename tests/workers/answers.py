"""What a timer of libraries answers when all goes well."""

from __future__ import annotations

from typing import Any

OPENED = {"version": "", "kind": "library", "unprobed": ""}
RIGHT = {"max_error": 0.0, "tolerance": 1.0, "correct": True, "reason": ""}


def timed(seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "retaken": 0, "kept": False, "probe": None}
