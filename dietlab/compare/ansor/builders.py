"""Compiles MetaSchedule's candidates in parallel, in long-lived processes.

TVM's own builder starts new processes for each batch. Each process imports TVM, which takes 3 CPU-seconds:
longer than compiling.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.process import WorkerProcess, serve

BUILD_SECONDS = 150.0
"""The longest that one build may take, in seconds. A longer one counts as failed."""


@cache
def builders(module: str, processes: int) -> WorkerPool:
    """Returns the pool of build processes, which all shapes share. Each process runs ``module``, which calls
    :func:`serve_builds`, and starts at its first request."""
    return WorkerPool(module, processes)


def built(target: Any, worker: WorkerProcess, program: Any) -> Path | MeasureError:
    """Returns the path of a program's library, the only file of a new folder, or the error of the build."""
    import tvm

    path = Path(tempfile.mkdtemp(prefix="dietlab-ansor-")) / "candidate.so"
    request = {"program": tvm.ir.save_json(program), "target": tvm.ir.save_json(target), "path": str(path)}
    try:
        worker.ask(request, BUILD_SECONDS)
    except MeasureError as error:
        shutil.rmtree(path.parent, ignore_errors=True)
        return error
    return path


def serve_builds(compiled: Callable[[Any, Any, Path], None]) -> None:
    """Answers requests of :func:`built` as long as the process lives. ``compiled(program, target, path)``
    writes a library."""
    import tvm

    def build(request: dict[str, Any]) -> dict[str, Any]:
        program, target = (tvm.ir.load_json(request[name]) for name in ("program", "target"))
        compiled(program, target, Path(request["path"]))
        return {}

    serve(build)
