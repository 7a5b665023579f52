"""Builds one scheme's library for each request: ``python -m dietlab.measure.build_worker``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dietlab.lower.artifact import Artifact
from dietlab.lower.compiler import kept_in
from dietlab.lower.program import compile_plans
from dietlab.machine import Hardware
from dietlab.measure.timing.process import serve
from dietlab.problem import Shape, workload_from_json
from dietlab.scheme import Leaf, Scheme


def compiled(request: dict[str, Any]) -> Artifact:
    """Compiles the library that a request asks for."""
    kept = request.get("kept")
    with kept_in(kept and Path(kept)):
        return compile_plans(
            workload_from_json(request["workload"]),
            Hardware.from_json(request["hardware"]),
            [Scheme.from_key(request["scheme"])],
            Leaf(0),
            Path(request["path"]),
            only=[[Shape.from_json(shape) for shape in request["shapes"]]],
        )


def answer(artifact: Artifact) -> dict[str, Any]:
    """Returns what is told of a library."""
    return {
        "code_bytes": artifact.code_bytes,
        "code_hash": artifact.code_hash,
        "resources": dict(artifact.resources),
    }


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles what a request asks for, and tells of it."""
    return answer(compiled(request))


if __name__ == "__main__":
    serve(build)
