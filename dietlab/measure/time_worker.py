"""Verifies and times one library on one shape: ``python -m dietlab.measure.time_worker``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import tvm_ffi

from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.measure.problem import Problem, aligned, rotating_copies
from dietlab.measure.process import serve
from dietlab.measure.threads import keep_apart
from dietlab.measure.timing import Timing, time_blocks
from dietlab.shapes import Shape
from dietlab.workloads import FloatArray, workload_from_json


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """``{"max_error", "tolerance", "reason", "blocks", "verify_seconds", "measure_seconds"}``."""
    started = perf_counter()
    timing = Timing(**request["timing"])
    problem = _problem(json.dumps(request["workload"]), Shape.from_json(request["shape"]))
    shape = request["packed_shape"]
    library = _library(request["library"], request["cores"], shape and tuple(shape))
    problem.poison()
    library.calls(problem, 1)[0]()
    verdict = problem.verdict()
    if request["cores"] > 1:  # the first call started the pool
        keep_apart()
    verified = perf_counter()
    blocks: list[float] = []
    if verdict.correct:
        copies = 1
        if timing.cache == "rotating":
            copies = rotating_copies(problem, request["last_level_bytes"])
        blocks = time_blocks(library.calls(problem, copies), timing, request["cores"])
    return {
        "max_error": verdict.max_error, "tolerance": verdict.tolerance, "reason": verdict.reason,
        "blocks": blocks, "verify_seconds": verified - started,
        "measure_seconds": perf_counter() - verified,
    }  # fmt: skip


@lru_cache(maxsize=32)
def _problem(workload: str, shape: Shape) -> Problem:
    return Problem.make(workload_from_json(json.loads(workload)), shape)


@lru_cache(maxsize=1)
def _library(path: str, cores: int, packed_shape: tuple[int, ...] | None) -> _Library:
    return _Library(load_library(Path(path), cores=cores), packed_shape)


class _Library:
    """A candidate's library, and its constant operands packed by its own entry."""

    def __init__(self, module: Any, packed_shape: tuple[int, ...] | None) -> None:
        self._module = module
        self._packed_shape = packed_shape
        self._packed: list[FloatArray] = []

    def calls(self, problem: Problem, copies: int) -> list[Callable[[], object]]:
        """The call, once for each copy of what rotates; the first one writes the problem's output."""
        if self._packed_shape is None:
            first = [*problem.operands.values(), problem.out]
            copied = [[aligned(array) for array in first] for _ in range(copies - 1)]
            return [self._bound(arrays) for arrays in (first, *copied)]
        if not self._packed:
            packed = aligned_empty(self._packed_shape)
            self._module.pack(*problem.constants.values(), packed)
            self._packed = [packed]
        self._packed += [aligned(self._packed[0]) for _ in range(copies - len(self._packed))]
        x, *others = problem.variables.values()
        return [self._bound([x, weights, *others, problem.out]) for weights in self._packed[:copies]]

    def _bound(self, arrays: Sequence[FloatArray]) -> Callable[[], object]:
        return partial(self._module.run, *(tvm_ffi.from_dlpack(array) for array in arrays))


if __name__ == "__main__":
    serve(measure)
