"""One shape's operands of any precision, and the right result of some of its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.shapes import Shape
from dietlab.timing.problem import Verdict
from dietlab.workloads import Workload, tolerance

MOST_FLOPS = 4e9
"""The most flops of a complete float64 reference, which takes seconds; beyond it only some rows are
compared."""


@dataclass(frozen=True)
class SampledProblem:
    """Operands, and rows of the output whose results are known.

    All of them are compared up to :data:`MOST_FLOPS`; of larger outputs the first and the last rows, where
    tiles begin and end, and some between them.
    """

    workload: Workload
    shape: Shape
    operands: dict[str, Any]
    rows: npt.NDArray[np.int64]
    reference: npt.NDArray[np.float64]
    tolerance: float

    @classmethod
    def make(cls, workload: Workload, shape: Shape, seed: int = 0) -> SampledProblem:
        operands = workload.inputs(shape, seed)
        total = workload.output_shape(shape)[-2]
        known = max(1, int(total * MOST_FLOPS / max(1, workload.flops(shape))))
        rows: npt.NDArray[np.int64] = np.arange(total, dtype=np.int64)
        if known < total:
            ends = np.r_[np.arange(known // 4), np.arange(total - known // 4, total)]
            between = np.random.default_rng(seed).choice(total, known // 2, replace=False)
            rows = np.unique(np.r_[ends, between])
        chosen = {
            name: array[..., rows, :] if name in ("x", "residual") else array
            for name, array in operands.items()
        }
        return cls(workload, shape, operands, rows, workload.reference(chosen), tolerance(workload, chosen))

    @property
    def dtype(self) -> Any:
        return self.operands["x"].dtype

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.workload.output_shape(self.shape)

    @property
    def bytes(self) -> int:
        """Of all operands and the output."""
        out = math.prod(self.out_shape) * self.dtype.itemsize
        return int(sum(array.nbytes for array in self.operands.values()) + out)

    def verdict(self, out: Any) -> Verdict:
        """Judges a whole output: nothing unwritten anywhere, and the known rows right."""
        if np.isnan(np.asarray(out, np.float32)).any():
            return Verdict(math.inf, self.tolerance, "some results were never written, or are not numbers")
        found = out[..., self.rows, :].astype(np.float64)
        error = float(np.abs(found - self.reference).max(initial=0.0))
        fault = "" if error <= self.tolerance else f"an error of {error:.2e} is above {self.tolerance:.2e}"
        return Verdict(error if math.isfinite(error) else math.inf, self.tolerance, fault)
