"""Compiles MetaSchedule's candidates for a GPU in parallel, in processes that stay.

TVM's own builder starts its processes anew for each batch, and each imports TVM for 3 CPU-seconds: longer
than compiling takes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.process import WorkerProcess

WORKER = "dietlab.targets.cuda.ansor_build_worker"
BUILD_SECONDS = 150.0


class CubinBuilders:
    """A builder for MetaSchedule that turns each program into a library in a separate folder, or into the
    reason why it failed.

    Args:
        processes: parallel builds; each starts when it is first needed.
    """

    def __init__(self, processes: int) -> None:
        self._workers = WorkerPool(WORKER, processes)

    def build(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns MetaSchedule's results, in the order of its inputs."""
        return list(self._workers.each(_built, inputs))


def _built(worker: WorkerProcess, given: Any) -> Any:
    """Returns one program's library, or why there is none."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    path = Path(tempfile.mkdtemp(prefix="dietlab-ansor-")) / "candidate.so"
    request = {
        "program": tvm.ir.save_json(given.mod),
        "target": tvm.ir.save_json(given.target),
        "path": str(path),
    }
    try:
        worker.ask(request, BUILD_SECONDS)
    except MeasureError as error:
        shutil.rmtree(path.parent, ignore_errors=True)
        return ms.builder.BuilderResult(None, str(error))
    return ms.builder.BuilderResult(str(path), None)


@cache
def cubin_builders(processes: int) -> CubinBuilders:
    """Returns this process's builders, which serve all shapes that it tunes."""
    return CubinBuilders(processes)
