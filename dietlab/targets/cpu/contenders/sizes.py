"""Calls a contender at many sizes in one process, as a program does whose images or texts vary in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from dietlab.lower.runtime import aligned_empty
from dietlab.measure.timing.contender import Contender, Prepared
from dietlab.measure.timing.disturbance import timed_once
from dietlab.problem import FloatArray, Shape, Workload, precision_of
from dietlab.problem.dimensions import operand_sizes

MARKS = 4
"""The number of times that memory is read: after each quarter of the sizes, so that one sees whether it still
grows."""


WARM = 8
"""The number of sizes, from the smallest to the largest, that are called before memory is first read: a
process's first calls load code and fill the pools of Python and of the C library."""


@dataclass(frozen=True)
class Operands:
    """The operands and the output of any of some shapes, in memory of the largest one: what grows is then the
    contender's. Weights are drawn once."""

    workload: Workload
    memory: Mapping[str, FloatArray]

    @classmethod
    def of(cls, workload: Workload, shapes: Sequence[Shape]) -> Operands:
        """Draws operands that are large enough for each shape."""
        sizes = [operand_sizes(workload, shape) for shape in shapes]
        memory = {}
        for number, name in enumerate(sizes[0]):
            precision, count = precision_of(workload, name), max(prod(size[name]) for size in sizes)
            memory[name] = aligned_empty((count,), precision.numpy)
            memory[name][...] = precision.standard_normal((0, number), (count,))
        return cls(workload, memory)

    def at(self, shape: Shape) -> dict[str, FloatArray]:
        """Returns the operands of a shape and ``out``."""
        sizes = operand_sizes(self.workload, shape)
        return {name: array[: prod(sizes[name])].reshape(sizes[name]) for name, array in self.memory.items()}


def at_sizes(contender: Contender, workload: Workload, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Calls a contender twice at each shape, after some of them (:data:`WARM`).

    What a contender prepares for one shape is dropped after its calls.

    Args:
        shapes: different shapes, in the order of the calls.

    Returns:
        ``before``, the bytes of resident memory before the shapes; ``grown``, by how many bytes it is larger
        after each quarter of them (:data:`MARKS`); ``first`` and ``second``, the seconds of the first call at
        each shape that is new, with what is prepared for that shape alone, and of the second.
    """
    operands = Operands.of(workload, shapes)
    turns = _Calls(contender, operands)
    order, last = sorted(shapes, key=workload.bytes), len(shapes) - 1
    known = {order[last * part // (WARM - 1)] for part in range(WARM)}
    for shape in known:
        turns.seconds(shape)
    before = resident_bytes()
    grown, first, second = list[int](), list[float](), list[float]()
    for part in range(MARKS):
        for shape in shapes[len(shapes) * part // MARKS : len(shapes) * (part + 1) // MARKS]:
            new, again = turns.seconds(shape)
            if shape not in known:
                first.append(new)
                second.append(again)
        grown.append(resident_bytes() - before)
    return {"before": before, "grown": grown, "first": first, "second": second}


class _Calls:
    """The calls of a contender. A layer that serves every shape is prepared once for weights of one size."""

    def __init__(self, contender: Contender, operands: Operands) -> None:
        self._contender, self._operands = contender, operands
        self._shared: dict[tuple[Any, ...], Prepared] = {}
        self._plain = contender.kind(operands.workload) == "plain"

    def seconds(self, shape: Shape) -> tuple[float, float]:
        """Returns the seconds of the first and of the second call at a shape."""
        given = self._operands.at(shape)
        out = given.pop("out")
        layer, prepared = self._layer(shape, {name: given.pop(name) for name in self._constants})
        call = layer.bind(given, out)
        _, first = timed_once(call)
        _, second = timed_once(call)
        return first + prepared, second

    @property
    def _constants(self) -> tuple[str, ...]:
        return self._operands.workload.constants

    def _layer(self, shape: Shape, constants: dict[str, FloatArray]) -> tuple[Prepared, float]:
        """Returns a layer for a shape, and the seconds that count as those of its first call."""
        workload, key = self._operands.workload, tuple(array.shape for array in constants.values())
        if key in self._shared:
            return self._shared[key], 0.0
        started = perf_counter()
        layer = self._contender.prepare(workload, constants, shape)
        seconds = perf_counter() - started
        if getattr(self._contender, "any_shape", False):
            self._shared[key] = layer
            return layer, 0.0
        return layer, 0.0 if self._plain else seconds


def resident_bytes() -> int:
    """Returns the resident memory of this process that no file holds (``RssAnon`` of proc(5)), without the
    code of libraries, which the system loads page by page; all resident memory on a system without it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if "RssAnon:" in line)
    except (OSError, StopIteration):
        return int(psutil.Process().memory_info().rss)
