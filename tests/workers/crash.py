"""Ends without an answer, as generated code with a wild pointer does."""

from __future__ import annotations

import os
import sys
from typing import Any

from dietlab.measure.timing.process import serve


def crash(request: dict[str, Any]) -> dict[str, Any]:
    print("about to abort", file=sys.stderr, flush=True)
    os.abort()


if __name__ == "__main__":
    serve(crash)
