"""Compiles candidates without measuring them: what a GPU's micro-kernels really use, without a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.events import Observer, audience
from dietlab.hardware import Hardware
from dietlab.measure.builders import Builders, Built
from dietlab.measure.record import Trial
from dietlab.space import CudaMicroKernel, Scheme, thread_registers
from dietlab.workloads import Workload, largest_shape

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "status",
    "reason",
    "threads",
    "estimated_registers",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "blocks_per_sm",
    "code_bytes",
    "compile_seconds",
)


def frame_compiled(
    workload: Workload,
    hardware: Hardware,
    schemes: Sequence[Scheme],
    observers: Iterable[Observer] = (),
    workers: int | None = None,
) -> pd.DataFrame:
    """Returns one row a scheme, with its parameters: what its kernel uses of a multiprocessor, or why
    it was refused.

    Registers are a thread's, shared bytes a block's (what its launch asks for included), code bytes all of
    the library's kernels. Nothing is run: a preset of any GPU will do.
    """
    import pandas as pd

    trials = [Trial(scheme, (largest_shape(workload),)) for scheme in schemes]
    listeners = audience(observers)
    rows: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory(prefix="dietlab-") as folder,
        Builders(hardware, Path(folder), workers, timeout=300.0) as builders,
        listeners.stage("compile", len(trials), "micro-kernel") as progress,
    ):
        for built in _each(builders, workload, trials):
            rows.append(_row(built))
            progress.advance(built.scheme.key, by=1)
    return pd.DataFrame(rows, columns=None if rows else ["scheme", *COLUMNS])


def _each(builders: Builders, workload: Workload, trials: Sequence[Trial]) -> Iterator[Built]:
    for built in builders.build(workload, trials):
        built.path.unlink(missing_ok=True)
        yield built


def _row(built: Built) -> dict[str, object]:
    resources = built.answer.get("resources") or {}
    status, reason = built.failure or ("ok", "")
    kernel = built.scheme.kernel
    estimated = thread_registers(kernel) if isinstance(kernel, CudaMicroKernel) else None
    threads = kernel.threads if isinstance(kernel, CudaMicroKernel) else None
    used = (resources.get(name) for name in ("registers", "spill_bytes", "shared_bytes", "blocks_per_sm"))
    values = [
        status,
        reason,
        threads,
        estimated,
        *used,
        built.answer.get("code_bytes"),
        round(built.seconds, 3),
    ]
    return {**built.scheme.columns, **dict(zip(COLUMNS, values, strict=True))}
