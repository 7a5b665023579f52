"""Checks a library at every length, inside and far beyond its tuned range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import lcm
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dietlab.base.events import Audience
from dietlab.problem import FloatArray, Shape, Workload, batched, largest, precision_of, tolerance
from dietlab.tuning import Dispatcher, Operator, build

HIGHEST = 8192
"""Highest length that is checked; a dense layer is called at every length up to it."""

EACH_UP_TO = 1024
"""Length up to which a batched product is called at every length."""

THEN_EVERY = 61
"""Step between longer lengths of a batched product, whose outputs grow with the square of the length."""

SMALL = {"batch": 2, "cols": 5, "depth": 40}
"""Static extents for the check: a whole tile and a rest. The columns come on top of the widest tile."""

POISON = np.float32(-7e30)
"""The value of outputs before a call; no result is near it."""


@dataclass(frozen=True)
class Checked:
    """The number of calls of a library that were checked, and where the result was wrong.

    Args:
        of: what the calls differ in: their length only, or their whole shape.
        wrong: the lengths or shapes with a wrong result.
    """

    of: Literal["lengths", "shapes"]
    checked: int
    wrong: tuple[int | Shape, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the facts of a report: ``lengths_checked`` and ``lengths_wrong``, or ``shapes_checked`` and
        ``shapes_wrong``."""
        wrong = [call.to_json() if isinstance(call, Shape) else call for call in self.wrong]
        return {f"{self.of}_checked": self.checked, f"{self.of}_wrong": wrong}

    @classmethod
    def known(cls, facts: Mapping[str, Any]) -> Checked | None:
        """Returns the value that :meth:`to_json` wrote into a library's facts; None if it was not checked."""
        if "lengths_checked" in facts:
            return cls("lengths", facts["lengths_checked"], tuple(facts["lengths_wrong"]))
        if "shapes_checked" in facts:
            return cls("shapes", facts["shapes_checked"], tuple(map(Shape.from_json, facts["shapes_wrong"])))
        return None


def check_lengths(
    dispatcher: Dispatcher, listeners: Audience, lengths: Iterable[int] | None = None
) -> Checked:
    """Calls a library of the same plans and tree at every length (default: :func:`all_lengths`) and compares
    with a float64 reference.

    Static extents are replaced by small ones: the plan of a length and the cover of its rows do not depend on
    them, and the real extents take some thousand times as many multiply-adds. Weights are packed once.
    """
    small = shrunk(dispatcher)
    chosen = tuple(lengths) if lengths is not None else all_lengths(small.workload)
    with TemporaryDirectory() as folder, listeners.stage("check lengths", len(chosen), "length") as progress:
        op = build(small, Path(folder))
        highest = max(chosen, default=0)
        right = _constant_checker(op, highest) if op.workload.constants else _variable_checker(op)
        wrong = []
        for length in chosen:
            if not right(length):
                wrong.append(length)
            progress.advance(f"{len(wrong)} wrong")
    return Checked("lengths", len(chosen), tuple(wrong))


def all_lengths(workload: Workload) -> tuple[int, ...]:
    """Returns the lengths to check, from 0 to :data:`HIGHEST`: of a dense layer all of them."""
    if not batched(workload):
        return tuple(range(HIGHEST + 1))
    return (*range(EACH_UP_TO + 1), *range(EACH_UP_TO + THEN_EVERY, HIGHEST + 1, THEN_EVERY), HIGHEST)


def shrunk(dispatcher: Dispatcher) -> Dispatcher:
    """Returns the same plans and tree for the operator with small static extents. K-blocking keeps its number
    of blocks, and the depth fills a matrix unit's instructions."""
    workload = dispatcher.workload
    schemes = dispatcher.schemes
    whole = largest(workload, "depth")
    parts = lcm(*(whole // s.kernel.block for s in schemes if s.kernel.block))
    parts = lcm(parts, *(s.kernel.depth_multiple for s in schemes))
    widest = max(scheme.cols for scheme in schemes)
    extents = {**SMALL, "cols": widest + SMALL["cols"], "depth": -(-SMALL["depth"] // parts) * parts}
    static = [axis for axis in workload.axes if isinstance(axis.extent, int)]
    small: Workload = replace(
        workload,  # type: ignore[type-var]  # a protocol; all of its classes are dataclasses
        **{axis.name: extents[axis.role] for axis in static},
    )
    blocks = (s.kernel.block * extents["depth"] // whole for s in schemes)
    shrunk = tuple(s.changed(block=block) for s, block in zip(schemes, blocks, strict=True))
    return replace(dispatcher, workload=small, schemes=shrunk)


def _variable_checker(op: Operator) -> Callable[[int], bool]:
    """Returns ``right(length)`` of an operator whose calls pass all operands."""
    workload = op.workload

    def right(length: int) -> bool:
        inputs = workload.inputs(_shape(workload, length))
        out = _poisoned(workload, length)
        op(*inputs.values(), out=out)
        return close(out, workload.reference(inputs), tolerance(workload, inputs))

    return right


def _constant_checker(op: Operator, highest: int) -> Callable[[int], bool]:
    """Returns ``right(length)``. With constant weights, a row of the output depends on one row of the input,
    so that one reference serves all lengths."""
    workload = op.workload
    inputs = workload.inputs(_shape(workload, highest))
    reference, most = workload.reference(inputs), tolerance(workload, inputs)
    constants = {name: inputs[name] for name in workload.constants}
    scale = {name: constants.pop(name) for name in ("scale",) if name in constants}
    layer = op.pack(*constants.values(), **scale)
    variable = [array for name, array in inputs.items() if name not in workload.constants]

    def right(length: int) -> bool:
        out = _poisoned(workload, length)
        layer(*(array[:length] for array in variable), out=out)
        return close(out, reference[:length], most)

    return right


def _shape(workload: Workload, length: int) -> Shape:
    return Shape.of(**dict.fromkeys(workload.dims, length))


def _poisoned(workload: Workload, length: int) -> FloatArray:
    """Returns an output of values that no call should leave: :data:`POISON`, or the least integer, which is
    rare among results."""
    output = precision_of(workload, "out")
    value = output.ends[0] if output.ends else POISON
    return np.full(workload.output_shape(_shape(workload, length)), value, output.numpy)


def close(out: FloatArray, expected: npt.NDArray[np.float64], most: float) -> bool:
    """Returns whether every output is within ``most`` of the right result; NaN is not."""
    return bool(np.abs(out - expected).max(initial=0.0) <= most)
