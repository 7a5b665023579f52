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
"""Seconds until the build of one candidate is given up."""


@cache
def builders(module: str, processes: int) -> WorkerPool:
    """Returns this process's builders, which serve all shapes that it tunes; each starts when it is needed.

    Args:
        module: that each runs, which calls :func:`serve_builds`.
    """
    return WorkerPool(module, processes)


def built(target: Any, worker: WorkerProcess, program: Any) -> Path | MeasureError:
    """Returns a program's library, in a separate folder, or why there is none."""
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
    """Answers requests of :func:`built` for as long as the process lives.

    Args:
        compiled: writes a program for a target as a library.
    """
    import tvm

    def build(request: dict[str, Any]) -> dict[str, Any]:
        program, target = (tvm.ir.load_json(request[name]) for name in ("program", "target"))
        compiled(program, target, Path(request["path"]))
        return {}

    serve(build)
