"""Compiles one program for each request: ``python -m dietlab.targets.cuda.ansor_build_worker``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from dietlab.measure.timing.process import serve
from dietlab.targets.cuda.ansor import cuda_module, link


def build(request: dict[str, Any]) -> dict[str, Any]:
    program, target = tvm.ir.load_json(request["program"]), tvm.ir.load_json(request["target"])
    link(cuda_module(program, target), Path(request["path"]))
    return {}


if __name__ == "__main__":
    serve(build)
