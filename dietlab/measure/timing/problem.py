"""The problem that contenders solve: the operands of one shape and the reference results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from dietlab.base.files import replacing
from dietlab.lower.runtime import aligned_empty
from dietlab.problem import (
    FloatArray,
    Shape,
    Workload,
    axes_of,
    name_of_role,
    precision_of,
    require_inputs,
    require_reference,
    tolerance,
)

MOST_FLOPS = 4e9
"""The most flops of a complete float64 reference, which then takes seconds. For more flops, only some rows of
the output are compared."""

KEPT = 2
"""The most problems in a folder that contenders share: contenders run one shape after the other."""

OPERAND = "operand-"
"""The prefix of operands' names in the file of a problem."""

_KEPT_ELSEWHERE: WeakValueDictionary[tuple[Workload, Shape, int, str], FloatArray] = WeakValueDictionary()
"""Constant operands that some problem still uses, by workload, shape, seed and name."""


@dataclass(frozen=True)
class Verdict:
    """The error of a result, the tolerance, and the reason why it is wrong (empty if it is correct)."""

    max_error: float
    tolerance: float
    reason: str

    @property
    def correct(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Problem:
    """Operands of one shape in the host's memory, aligned to cache lines, and reference results.

    Up to :data:`MOST_FLOPS` all rows are compared. For more flops, the first and the last rows, where tiles
    begin and end, and some rows between them are compared.

    Args:
        operands: the operands by name, in the order of a call.
        rows: the rows of the output to compare.
        reference: the results of these rows, in float64.
    """

    workload: Workload
    shape: Shape
    operands: dict[str, FloatArray]
    rows: npt.NDArray[np.int64]
    reference: npt.NDArray[np.float64]
    tolerance: float

    @classmethod
    def make(cls, workload: Workload, shape: Shape, seed: int = 0) -> Problem:
        rows = name_of_role(workload, "rows")
        least = Shape.of(**{**shape.to_json(), **({rows: 1} if rows in workload.dims else {})})
        constants = _constants(workload, least, seed)
        operands = {
            name: constants[name][0] if name in constants else aligned(value)
            for name, value in _drawn(workload, shape, seed).items()
        }
        exact: dict[str, Any] = {**operands, **{name: wide for name, (_, wide) in constants.items()}}
        chosen = _chosen_rows(workload, shape, seed)
        if len(chosen) < workload.output_shape(shape)[-2]:
            exact |= {name: exact[name][..., chosen, :] for name in ("x", "residual") if name in exact}
        right = require_reference(workload, shape, len(chosen), workload.reference(exact))
        return cls(workload, shape, operands, chosen, right, tolerance(workload, exact))

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.workload.output_shape(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the output's elements."""
        return precision_of(self.workload, "out").numpy

    @property
    def constants(self) -> dict[str, FloatArray]:
        return {name: self.operands[name] for name in self.workload.constants}

    @property
    def variables(self) -> dict[str, FloatArray]:
        return {name: v for name, v in self.operands.items() if name not in self.workload.constants}

    @cached_property  # the caches of a bench use it again and again
    def bytes(self) -> int:
        """The number of bytes of all operands and the output."""
        out = math.prod(self.out_shape) * self.dtype.itemsize
        return sum(array.nbytes for array in self.operands.values()) + out

    @cached_property
    def constant_bytes(self) -> int:
        return sum(array.nbytes for array in self.constants.values())

    def verdict(self, out: FloatArray, *, intact: bool = True) -> Verdict:
        """Judges an output that was filled with NaN before: every element must be written, the compared rows
        must be correct, and the guards must be ``intact``. Integers have no NaN; an unwritten integer is
        almost surely wrong."""
        known = out if len(self.rows) == self.out_shape[-2] else out[..., self.rows, :]
        off = known.astype(np.float64)
        off -= self.reference
        error = float(np.abs(off, out=off).max(initial=0.0))
        if math.isfinite(error) and known is not out and np.isnan(out.astype(np.float32)).any():
            error = math.nan
        if math.isnan(error):
            fault = "some results were never written, or are not numbers"
        elif not error <= self.tolerance:
            fault = f"an error of {error:.2e} is above {self.tolerance:.2e}"
        else:
            fault = "" if intact else "memory around the output was overwritten"
        return Verdict(error if math.isfinite(error) else math.inf, self.tolerance, fault)


def _chosen_rows(workload: Workload, shape: Shape, seed: int) -> npt.NDArray[np.int64]:
    """Returns the rows to compare: all of a convolution, whose rows are no rows of its input."""
    total = workload.output_shape(shape)[-2]
    known = max(1, int(total * MOST_FLOPS / max(1, workload.flops(shape))))
    if known >= total or len(axes_of(workload, "rows")) > 1:
        return np.arange(total, dtype=np.int64)
    ends = np.r_[np.arange(known // 4), np.arange(total - known // 4, total)]
    between = np.random.default_rng(seed).choice(total, known // 2, replace=False)
    return np.unique(np.r_[0, ends, between]).astype(np.int64)


@lru_cache(maxsize=1)
def _constants(workload: Workload, shape: Shape, seed: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Returns the constant operands twice: in their own type and in float64. Shapes share these large arrays,
    which are the same for any number of rows."""
    inputs = _drawn(workload, shape, seed)
    found = {}
    for name in workload.constants:
        # Reuses the array of other lengths of this layer, even if another layer was used in between.
        key = workload, shape, seed, name
        array = _KEPT_ELSEWHERE.setdefault(key, aligned(inputs[name]))
        found[name] = array, inputs[name].astype(np.float64)
    return found


def _drawn(workload: Workload, shape: Shape, seed: int) -> Mapping[str, FloatArray]:
    drawn = workload.inputs(shape, seed)
    require_inputs(workload, shape, drawn)
    return drawn


def aligned(array: FloatArray) -> FloatArray:
    """Returns a copy aligned to cache lines."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def shared_problem(folder: Path | None, workload: Workload, shape: Shape, seed: int = 0) -> Problem:
    """Returns a shape's problem. If processes share a ``folder``, the first process makes the problem, and
    the others read it. For a large layer, making the problem takes seconds."""
    if folder is None:
        return Problem.make(workload, shape, seed)
    digest = sha256(json.dumps(workload.to_json()).encode()).hexdigest()[:16]
    path = folder / f"{seed}-{shape}-{digest}.npz"
    if path.is_file():
        return _read(path, workload, shape)
    problem = Problem.make(workload, shape, seed)
    with suppress(OSError):  # on a full disk each process makes its own
        _write(path, problem)
    return problem


def _write(path: Path, problem: Problem) -> None:
    """Writes the problem's file whole or not at all, and removes older files."""
    # NumPy's files know its own types only.
    operands = {OPERAND + name: array.view(f"u{array.itemsize}") for name, array in problem.operands.items()}
    others = sorted(path.parent.glob("*.npz"), key=lambda old: old.stat().st_mtime_ns, reverse=True)
    for old in others[KEPT - 1 :]:
        old.unlink()
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            rows=problem.rows,
            reference=problem.reference,
            tolerance=np.float64(problem.tolerance),
            **operands,  # type: ignore[arg-type]
        )


def _read(path: Path, workload: Workload, shape: Shape) -> Problem:
    with np.load(path) as kept:
        names = [name.removeprefix(OPERAND) for name in kept.files if OPERAND in name]
        bits = {name: kept[OPERAND + name] for name in names}
        operands = {name: aligned(bits[name].view(precision_of(workload, name).numpy)) for name in names}
        return Problem(workload, shape, operands, kept["rows"], kept["reference"], float(kept["tolerance"]))
