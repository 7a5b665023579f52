"""Compiles one program for each request: ``python -m dietlab.evaluation.ansor_build_worker``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from dietlab.evaluation.ansor_gpu import cuda_module, link
from dietlab.timing.process import serve


def build(request: dict[str, Any]) -> dict[str, Any]:
    program, target = tvm.ir.load_json(request["program"]), tvm.ir.load_json(request["target"])
    link(cuda_module(program, target), Path(request["path"]))
    return {}


if __name__ == "__main__":
    serve(build)
