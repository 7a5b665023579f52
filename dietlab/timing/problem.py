"""One shape's operands, an output that shows what was not or wrongly written, and the right result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lower.runtime import aligned_empty
from dietlab.shapes import Shape
from dietlab.timing.rotation import copies_beyond
from dietlab.workloads import FloatArray, Workload, axis_of, tolerance

GUARD = 64
"""Elements before and after the output that must stay as they are; a multiple of a cache line."""

GUARD_VALUE = np.float32(-54321.0)
"""No result of standard normal operands comes near it, so a write beyond the output shows."""


@dataclass(frozen=True)
class Verdict:
    """The error of a result, the tolerance, and the reason why it is wrong (empty: it is right)."""

    max_error: float
    tolerance: float
    reason: str

    @property
    def correct(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Problem:
    """Operands and output of one shape, all of them on cache lines.

    Args:
        operands: by name, in the order of a call.
        buffer: the output with :data:`GUARD` elements around it.
    """

    workload: Workload
    shape: Shape
    operands: dict[str, FloatArray]
    buffer: FloatArray
    reference: npt.NDArray[np.float64]
    tolerance: float

    @classmethod
    def make(cls, workload: Workload, shape: Shape, seed: int = 0) -> Problem:
        rows = axis_of(workload, "rows")
        least = Shape.of(**{**shape.to_json(), **({rows.name: 1} if rows.name in workload.dims else {})})
        constants = _constants(workload, least, seed)
        operands = {
            name: constants[name][0] if name in constants else aligned(value)
            for name, value in workload.inputs(shape, seed).items()
        }
        exact = {**operands, **{name: wide for name, (_, wide) in constants.items()}}
        buffer = aligned_empty((math.prod(workload.output_shape(shape)) + 2 * GUARD,))
        reference = workload.reference(exact)
        return cls(workload, shape, operands, buffer, reference, tolerance(workload, exact))

    @property
    def out(self) -> FloatArray:
        return self.buffer[GUARD:-GUARD].reshape(self.reference.shape)

    @property
    def arrays(self) -> list[FloatArray]:
        """Operands and output, in the order of a call."""
        return [*self.operands.values(), self.out]

    @property
    def constants(self) -> dict[str, FloatArray]:
        return {name: self.operands[name] for name in self.workload.constants}

    @property
    def variables(self) -> dict[str, FloatArray]:
        return {name: v for name, v in self.operands.items() if name not in self.workload.constants}

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.operands.values()) + self.buffer.nbytes

    @property
    def copy_bytes(self) -> int:
        """Bytes of what rotates: the constant operands (a model has many layers, whose inputs and outputs
        stay in cache); if nothing is constant, all operands and the output."""
        constant = sum(array.nbytes for array in self.constants.values())
        return constant or self.bytes - 2 * GUARD * self.buffer.itemsize

    def poison(self) -> None:
        """Writes not-a-number where results belong, and the guard's value around them."""
        self.buffer[:] = GUARD_VALUE
        self.out.fill(np.nan)

    def verdict(self) -> Verdict:
        """Judges what was written since :meth:`poison`."""
        off = self.out - self.reference
        error = float(np.abs(off, out=off).max(initial=0.0))
        return Verdict(error if math.isfinite(error) else math.inf, self.tolerance, self._fault(error))

    def _fault(self, error: float) -> str:
        if math.isnan(error):
            return "some results were never written, or are not numbers"
        if not error <= self.tolerance:
            return f"an error of {error:.2e} is above {self.tolerance:.2e}"
        guards = (self.buffer[:GUARD], self.buffer[-GUARD:])
        if not all((guard == GUARD_VALUE).all() for guard in guards):
            return "memory around the output was overwritten"
        return ""


@lru_cache(maxsize=1)
def _constants(workload: Workload, shape: Shape, seed: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Returns constant operands, which are the same for any rows, as they are and in float64: large arrays,
    of which each shape would make its own."""
    inputs = workload.inputs(shape, seed)
    return {name: (aligned(inputs[name]), inputs[name].astype(np.float64)) for name in workload.constants}


def aligned(array: Any) -> FloatArray:
    """Returns a copy that begins on a cache line."""
    copy = aligned_empty(array.shape)
    copy[...] = array
    return copy


def rotating_copies(problem: Problem, last_level_bytes: int) -> int:
    """Returns the number of copies of the rotating operands in a rotating block, up to a limit."""
    return copies_beyond(problem.copy_bytes, last_level_bytes, packed=bool(problem.workload.constants))
