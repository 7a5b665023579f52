"""Builds a scheme's library for each request: ``python -m dietlab.measure.build_worker``.

A library that was built before, for any study, comes from the store (:mod:`dietlab.lower.store`) without TVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietlab.lower.artifact import Artifact
from dietlab.lower.program import compile_plans
from dietlab.lower.store import STORE, fingerprint
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware
from dietlab.measure.timing.process import serve
from dietlab.problem import Shape, workload_from_json
from dietlab.scheme import Leaf, Scheme


def compiled(request: dict[str, Any]) -> Artifact:
    """Compiles the library of a request."""
    return compile_plans(
        workload_from_json(request["workload"]),
        Hardware.from_json(request["hardware"]),
        [Scheme.from_key(request["scheme"])],
        Leaf(0),
        Path(request["path"]),
        only=[[Shape.from_json(shape) for shape in request["shapes"]]],
    )


def answer(artifact: Artifact) -> dict[str, Any]:
    """Returns the answer to a request."""
    return {
        "code_bytes": artifact.code_bytes,
        "code_hash": artifact.code_hash,
        "resources": dict(artifact.resources),
    }


def request_key(request: dict[str, Any]) -> str | None:
    """Returns the key of a request's library in the store. Returns None if the library depends on a user's
    operator or target, whose code is outside dietlab."""
    kind = Hardware.from_json(request["hardware"]).kind
    own = type(workload_from_json(request["workload"])).__module__.startswith("dietlab.")
    made_by = fingerprint(kind) if own else None
    if made_by is None:
        return None
    program = {name: value for name, value in request.items() if name != "path"}
    return f"{json.dumps(program, sort_keys=True)} {made_by} {lower_target(kind).require_tools()}"


def build(request: dict[str, Any]) -> Mapping[str, Any]:
    """Writes the library of a request, compiled now or before, and returns the answer."""
    return STORE.write(Path(request["path"]), request_key(request), lambda: answer(compiled(request)))


if __name__ == "__main__":
    serve(build)
