"""Answers as a GPU's timer would, without one: it looks at each cubin and says what it is told.

The folder ``ANSOR_STAND_IN`` holds ``plan.json``, an answer for each question (microseconds, ``wrong``,
``fault`` or ``crash``; the last one again and again), and gets ``log.jsonl``, a line for each
candidate that is to be checked.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from dietlab.measure.timing.process import serve
from dietlab.targets.cuda.lowering.cubin import read_cubin
from workers.answers import OPENED, timed

FOLDER = Path(os.environ["ANSOR_STAND_IN"])
ELF, CUDA = b"\x7fELF\x02\x01", 190
TOLD: list[float] = []
CACHES: list[str] = []


def cubin_in(library: bytes) -> bytes:
    """The first cubin inside of a library, with whatever comes behind it."""
    at = library.find(ELF, 1)
    while at > 0 and struct.unpack_from("<H", library, at + 18)[0] != CUDA:
        at = library.find(ELF, at + 1)
    return library[at:] if at > 0 else b""


def architecture_of(cubin: bytes) -> int:
    """75 for ``sm_75``: from version 8 of the ABI on it is the second byte of the header's flags."""
    flags: int = struct.unpack_from("<I", cubin, 48)[0]
    return (flags >> 8 if cubin[8] >= 8 else flags) & 0xFF


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "open":
        return OPENED
    if request["op"] == "time":
        CACHES.append(request["cache"])
        return timed(1e-6 * TOLD[-1] * (1 + len(CACHES) % 2))
    return check(request)


def check(request: dict[str, Any]) -> dict[str, Any]:
    plan, log = json.loads((FOLDER / "plan.json").read_text()), FOLDER / "log.jsonl"
    asked = len(log.read_text().splitlines()) if log.is_file() else 0
    told = plan[min(asked, len(plan) - 1)]
    data = cubin_in(Path(request["plan"]).read_bytes())
    cubin = read_cubin(data, "sm_90") if data else None
    line = {
        "pid": os.getpid(),
        "caches": sorted(set(CACHES)),
        "told": told,
        "sm": architecture_of(data) if data else None,
        "code": cubin.code_hash if cubin else None,
        "kernels": sorted(cubin.kernels) if cubin else [],
    }
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")
    if told == "crash":
        os.abort()
    if told == "fault":
        raise SystemExit("the device answers no more: an illegal memory access")
    if told == "wrong":
        reason = "an error of 2.50e+00 is above 1.00e-05"
        return {"max_error": 2.5, "tolerance": 1e-5, "correct": False, "reason": reason}
    TOLD.append(told)
    return {"max_error": 1e-6, "tolerance": 1e-5, "correct": True, "reason": ""}


if __name__ == "__main__":
    serve(answer)
