"""Builds for real, except that tiles of some heights crash, hang or do not compile."""

from __future__ import annotations

import os
from threading import Event
from typing import Any

from dietlab.base.errors import BuildError
from dietlab.measure.build_worker import build
from dietlab.measure.timing.process import serve
from dietlab.scheme import Scheme


def moody(request: dict[str, Any]) -> dict[str, Any]:
    rows = Scheme.from_key(request["scheme"]).rows
    if rows == 2:
        os.abort()
    if rows == 3:
        Event().wait()
    if rows == 5:
        raise BuildError("the program must compile", "five rows")
    return build(request)


if __name__ == "__main__":
    serve(moody)
