"""Cannot be opened: without what it needs, or on a driver that fails, as ``NEEDY_TIMER`` says."""

from __future__ import annotations

import os
from typing import Any

from dietlab.measure.timing.process import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if os.environ["NEEDY_TIMER"] == "absent":
        return {"absent": "libtvm_runtime_cuda.so finds libcudart.so.13; got nothing"}
    raise RuntimeError("the driver is too old")


if __name__ == "__main__":
    serve(answer)
