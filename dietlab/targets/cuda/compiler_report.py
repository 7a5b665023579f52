"""Compiles candidates without measuring them: the resources that a GPU's micro-kernels use, without a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import SpaceError
from dietlab.base.events import Observer, audience
from dietlab.machine import Hardware
from dietlab.measure.build_worker import answer, compiled
from dietlab.measure.builders import BUILDER, Builders, Built
from dietlab.measure.record import Trial
from dietlab.measure.timing.process import serve
from dietlab.problem import Workload, largest_shape
from dietlab.scheme import Scheme
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.lowering.machine_code import figures, machine_code, require_tool
from dietlab.targets.cuda.lowering.nvcc import compile_cubin
from dietlab.targets.cuda.needs import thread_registers
from dietlab.targets.cuda.space import limits

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

MACHINE_CODE = (
    "loop_instructions",
    "multiplying_percent",
    "divisions",
    "stores",
    "two_byte_stores",
    "loads_together",
)
"""The columns of machine code (:func:`dietlab.targets.cuda.lowering.machine_code.figures`)."""

READER = "dietlab.targets.cuda.compiler_report"
"""The name of this module, which as a process builds a library for each request and reads its machine
code."""


def named_scheme(key: str, workload: Workload, hardware: Hardware) -> Scheme:
    """Returns the scheme of a key that keeps the limits of the space.

    Raises:
        SpaceError: if the key is malformed, of another processor or of a unit for other types, or a limit is
            exceeded.
    """
    scheme = Scheme.from_key(key)
    if not isinstance(scheme.kernel, CudaMicroKernel):
        remedy = f"Such a key reads {CudaMicroKernel.example}."
        raise SpaceError("--scheme must name a GPU's micro-kernel", key, remedy)
    types = scheme.kernel.pieces.types
    if workload.dtype not in types:
        rule = f"--scheme must name a micro-kernel whose unit multiplies {workload.dtype}"
        raise SpaceError(
            rule, f"{key} for {' or '.join(types)}", f"Give its type: --dtype {next(iter(types))}."
        )
    for limit in limits(workload, hardware):
        if limit.excess(scheme) > 0:
            count = f", {limit.measure(scheme):,g} {limit.unit} of {limit.most:,g}" if limit.most > 0 else ""
            rule = f"--scheme must name a micro-kernel that fits: {limit.reason}"
            raise SpaceError(rule, f"{key}{count}", "`dietlab space` shows what fits.")
    return scheme


def frame_compiled(
    workload: Workload,
    hardware: Hardware,
    schemes: Sequence[Scheme],
    observers: Iterable[Observer] = (),
    workers: int | None = None,
    *,
    machine_code: bool = False,
) -> pd.DataFrame:
    """Returns a table with one row for each scheme: its parameters and either the resources of its kernel or
    the reason of a failure.

    Registers count for a thread, shared bytes for a block (with those that its launch adds), code bytes for
    all kernels of the library. Nothing runs, so ``hardware`` may be any preset of a GPU.

    Args:
        machine_code: whether the table also has the columns :data:`MACHINE_CODE`.

    Raises:
        MissingDependencyError: if there is no tool that reads machine code.
    """
    import pandas as pd

    if machine_code:
        require_tool()
    more = MACHINE_CODE if machine_code else ()
    trials = [Trial(scheme, (largest_shape(workload),)) for scheme in schemes]
    listeners = audience(observers)
    rows: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory(prefix="dietlab-") as folder,
        Builders(
            hardware, Path(folder), workers, timeout=300.0, module=READER if machine_code else BUILDER
        ) as builders,
        listeners.stage("compile", len(trials), "micro-kernel") as progress,
    ):
        for built in _each(builders, workload, trials):
            rows.append(_row(built, more))
            progress.advance(built.scheme.key, by=1)
    return pd.DataFrame(rows, columns=None if rows else ["scheme", *COLUMNS, *more])


def _each(builders: Builders, workload: Workload, trials: Sequence[Trial]) -> Iterator[Built]:
    for built in builders.build(workload, trials):
        built.path.unlink(missing_ok=True)
        yield built


def _row(built: Built, more: Sequence[str]) -> dict[str, object]:
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
    counted = built.answer.get("machine_code") or {}
    found = dict(zip(COLUMNS, values, strict=True)) | {name: counted.get(name) for name in more}
    return {**built.scheme.columns, **found}


def read(request: dict[str, Any]) -> dict[str, Any]:
    """Builds a library; returns the builder's answer and counts of its machine code."""
    artifact = compiled(request)
    # The compiler's cache has the cubin from a moment ago.
    cubin = compile_cubin(artifact.source, gpu_of(Hardware.from_json(request["hardware"])).arch)
    return {**answer(artifact), "machine_code": figures(machine_code(cubin))}


if __name__ == "__main__":
    serve(read)
