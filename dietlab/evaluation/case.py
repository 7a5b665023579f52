"""One shape's operands and outputs, on cache lines for everyone alike, in as many copies as needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dietlab.evaluation.contenders import Prepared
from dietlab.evaluation.vendors import Call, Operands, deliver
from dietlab.lower.runtime import aligned_empty
from dietlab.shapes import Shape
from dietlab.workloads import FloatArray, Workload, tolerance

GUARD_ROWS = 3
GUARD_VALUE = np.float32(-54321.0)
"""No result of standard normal operands comes near it, so a write beyond ``out`` shows."""
MOST_BYTES = 1 << 30
"""Copies of a shape take at most so much memory, whatever the size of the last-level cache."""
MOST_PACKED, MOST_PLAIN = 64, 1024
"""Copies at most: packed weights are dear to make, arrays are not."""

Prepare = Callable[[Operands], Prepared]


@dataclass(frozen=True)
class Copy:
    """What one call of a rotation works on: a prepared contender, its operands and its output."""

    prepared: Prepared
    operands: Operands
    out: FloatArray


@dataclass
class Case:
    """Operands of one shape, copies of what rotates, and calls bound to them.

    What rotates are the constant operands (a model has many layers, whose inputs and outputs stay in
    cache); if nothing is constant, all operands and the output.
    """

    workload: Workload
    operands: dict[str, FloatArray]
    buffer: FloatArray
    output_shape: tuple[int, ...]
    copies: list[Copy] = field(default_factory=list)
    calls: dict[tuple[int, int | None], list[Call]] = field(default_factory=dict)
    calls_per_block: dict[tuple[str, int | None, float], int] = field(default_factory=dict)

    @classmethod
    def make(cls, workload: Workload, shape: Shape, seed: int) -> Case:
        operands = {name: _aligned(v) for name, v in workload.inputs(shape, seed).items()}
        output = workload.output_shape(shape)
        return cls(workload, operands, aligned_empty((math.prod(output) + GUARD_ROWS * output[-1],)), output)

    @property
    def out(self) -> FloatArray:
        return self.buffer[: math.prod(self.output_shape)].reshape(self.output_shape)

    @property
    def _guard(self) -> FloatArray:
        return self.buffer[math.prod(self.output_shape) :]

    @property
    def constants(self) -> dict[str, FloatArray]:
        return {name: self.operands[name] for name in self.workload.constants}

    @property
    def variables(self) -> dict[str, FloatArray]:
        return {name: v for name, v in self.operands.items() if name not in self.workload.constants}

    @property
    def copy_bytes(self) -> int:
        """Bytes of what one step of a rotation brings with it."""
        if self.workload.constants:
            return _bytes(self.constants)
        return _bytes(self.operands) + self.out.nbytes

    @property
    def bytes(self) -> int:
        """What the case occupies, copies included."""
        return _bytes(self.operands) + self.buffer.nbytes + max(0, len(self.copies) - 1) * self.copy_bytes

    def copies_beyond(self, cache_bytes: float) -> int:
        """How many copies cover that many bytes (2 at least), within reason."""
        most = MOST_PACKED if self.workload.constants else MOST_PLAIN
        needed = math.ceil(cache_bytes / self.copy_bytes) + 1
        return max(2, min(most, MOST_BYTES // self.copy_bytes, needed))

    def bound(self, copies: int, plan: int | None, prepare: Prepare) -> list[Call]:
        """Calls on that many copies; ``prepare`` makes a contender ready with constant operands."""
        if (copies, plan) not in self.calls:
            while len(self.copies) < copies:
                self.copies.append(self._another(prepare))
            some = self.copies[:copies]
            self.calls[copies, plan] = [c.prepared.bind(c.operands, c.out, plan) for c in some]
        return self.calls[copies, plan]

    def _another(self, prepare: Prepare) -> Copy:
        if not self.copies:
            return Copy(prepare(self.constants), self.variables, self.out)
        if self.workload.constants:
            # Plain vendors read the weights they are given, so that each needs a copy of its own.
            return Copy(prepare(_copied(self.constants)), self.variables, self.out)
        return Copy(self.copies[0].prepared, _copied(self.variables), _aligned(self.out))

    def check(self, call: Call) -> tuple[float, float, str]:
        """Largest error against the float64 reference, tolerance, and what is wrong (or nothing).

        Results are not-a-number beforehand, and the rows after them hold the guard's value.
        """
        self.out.fill(np.nan)
        self._guard.fill(GUARD_VALUE)
        deliver(call(), self.out)
        error = float(np.abs(self.out - self.workload.reference(self.operands)).max(initial=0.0))
        allowed = tolerance(self.workload, self.operands)
        reason = _fault(error, allowed, bool((self._guard == GUARD_VALUE).all()))
        return error if math.isfinite(error) else math.inf, allowed, reason


def _fault(error: float, allowed: float, guarded: bool) -> str:
    if math.isnan(error):
        return "some results were never written, or are not numbers"
    if not error <= allowed:
        return f"an error of {error:.2e} is above {allowed:.2e}"
    return "" if guarded else "rows after the output were overwritten"


def _bytes(arrays: Mapping[str, FloatArray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _copied(arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: _aligned(array) for name, array in arrays.items()}


def _aligned(array: FloatArray) -> FloatArray:
    copy = aligned_empty(array.shape)
    copy[...] = array
    return copy
