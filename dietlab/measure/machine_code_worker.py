"""Builds one scheme's library for each request and reads its machine code: ``python -m
dietlab.measure.machine_code_worker``."""

from __future__ import annotations

from typing import Any

from dietlab.hardware import Hardware
from dietlab.lower.cuda.machine_code import machine_code, told
from dietlab.lower.cuda.nvcc import compile_cubin
from dietlab.measure.build_worker import answer, compiled
from dietlab.timing.process import serve


def read(request: dict[str, Any]) -> dict[str, Any]:
    """Builds a library; tells of its machine code, too."""
    artifact = compiled(request)
    # The compiler's cache has the cubin from a moment ago.
    cubin = compile_cubin(artifact.source, Hardware.from_json(request["hardware"]).gpu.arch)
    return {**answer(artifact), "machine_code": told(machine_code(cubin))}


if __name__ == "__main__":
    serve(read)
