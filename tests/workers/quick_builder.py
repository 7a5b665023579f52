"""Builds libraries that nobody can load: files with the scheme's key. Every fourth spills registers."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from dietlab.measure.timing.process import serve

_numbers = count(1)


def build(request: dict[str, Any]) -> dict[str, Any]:
    key, spilled = request["scheme"], 8 * (next(_numbers) % 4 == 0)
    Path(request["path"]).write_text(key)
    used = {"registers": 40, "spill_bytes": spilled, "shared_bytes": 0, "blocks_per_sm": 1}
    return {"code_bytes": len(key), "code_hash": key, "resources": used}


if __name__ == "__main__":
    serve(build)
