"""Builds one micro-kernel's library for each request: ``python -m dietlab.measure.build_worker``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dietlab.hardware import Hardware
from dietlab.lower.compiler import compile_library
from dietlab.lower.geometry import Geometry
from dietlab.lower.library import library_module
from dietlab.measure.process import serve
from dietlab.space import Leaf, MicroKernel
from dietlab.workloads import workload_from_json


def build(request: dict[str, Any]) -> dict[str, Any]:
    workload = workload_from_json(request["workload"])
    hardware = Hardware.from_json(request["hardware"])
    kernel = MicroKernel.from_key(request["micro_kernel"])
    geometry = Geometry.of(workload, hardware, [kernel])
    module = library_module(geometry, [kernel], Leaf(0), only=request["rows"])
    artifact = compile_library(module, hardware, Path(request["path"]))
    return {
        "code_bytes": artifact.code_bytes,
        "code_hash": artifact.code_hash,
        "packed_shape": geometry.packed_shape if workload.constants else None,
    }


if __name__ == "__main__":
    serve(build)
