"""Builds one scheme's library for each request and reads its machine code: ``python -m
dietlab.targets.cuda.machine_code_worker``."""

from __future__ import annotations

from typing import Any

from dietlab.machine import Hardware
from dietlab.measure.build_worker import answer, compiled
from dietlab.measure.timing.process import serve
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.lowering.machine_code import machine_code, told
from dietlab.targets.cuda.lowering.nvcc import compile_cubin


def read(request: dict[str, Any]) -> dict[str, Any]:
    """Builds a library; tells of its machine code, too."""
    artifact = compiled(request)
    # The compiler's cache has the cubin from a moment ago.
    cubin = compile_cubin(artifact.source, gpu_of(Hardware.from_json(request["hardware"])).arch)
    return {**answer(artifact), "machine_code": told(machine_code(cubin))}


if __name__ == "__main__":
    serve(read)
