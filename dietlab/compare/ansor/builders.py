"""Compiles MetaSchedule's candidates in parallel, in processes that stay.

TVM's own builder starts its processes anew for each batch, and each imports TVM for 3 CPU-seconds: longer
than compiling takes.
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
"""Most seconds of one build; a longer one counts as failed."""


@cache
def builders(module: str, processes: int) -> WorkerPool:
    """Returns this process's builders, the same for all shapes. Each runs ``module``, which calls
    :func:`serve_builds`, and starts with its first request."""
    return WorkerPool(module, processes)


def built(target: Any, worker: WorkerProcess, program: Any) -> Path | MeasureError:
    """Returns a program's library, alone in its folder, or the error that the build ended with."""
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
    """Answers requests of :func:`built` as long as the process lives. ``compiled`` writes the library of a
    program and a target to a path."""
    import tvm

    def build(request: dict[str, Any]) -> dict[str, Any]:
        program, target = (tvm.ir.load_json(request[name]) for name in ("program", "target"))
        compiled(program, target, Path(request["path"]))
        return {}

    serve(build)
