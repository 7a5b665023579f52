"""One shape's operands and right results, made by the first contender that asks and read by the others.

Making them takes seconds for a large layer: random numbers, and sums in float64.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from dietlab.files import replacing
from dietlab.shapes import Shape
from dietlab.timing.sample import SampledProblem
from dietlab.workloads import Workload, require_dtype

KEPT = 2
"""The most files at a time: contenders run one shape after the other."""
OPERAND = "operand-"


def shared_sample(folder: Path | None, workload: Workload, shape: Shape, seed: int = 0) -> SampledProblem:
    """Returns a shape's sampled problem through a folder that processes of one workload share; None for no
    folder."""
    if folder is None:
        return SampledProblem.make(workload, shape, seed)
    path = folder / f"{seed}-{shape}.npz"
    if path.is_file():
        return _read(path, workload, shape)
    sample = SampledProblem.make(workload, shape, seed)
    with suppress(OSError):  # on a full disk each makes its own
        _write(path, sample)
    return sample


def _write(path: Path, sample: SampledProblem) -> None:
    """Writes the file whole or not at all, and removes older ones."""
    bits = f"u{sample.dtype.itemsize}"  # NumPy's files know no bfloat16
    operands = {OPERAND + name: array.view(bits) for name, array in sample.operands.items()}
    others = sorted(path.parent.glob("*.npz"), key=lambda old: old.stat().st_mtime_ns, reverse=True)
    for old in others[KEPT - 1 :]:
        old.unlink()
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            rows=sample.rows,
            reference=sample.reference,
            tolerance=np.float64(sample.tolerance),
            **operands,
        )


def _read(path: Path, workload: Workload, shape: Shape) -> SampledProblem:
    dtype = require_dtype(workload.dtype).numpy
    with np.load(path) as kept:
        operands = {
            name.removeprefix(OPERAND): kept[name].view(dtype) for name in kept.files if OPERAND in name
        }
        return SampledProblem(
            workload, shape, operands, kept["rows"], kept["reference"], float(kept["tolerance"])
        )
