"""Verifies and times one library on one shape: ``python -m dietlab.measure.time_worker``.

Libraries that are asked for in turns stay loaded, with their packed weights, and so do the shape's operands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from itertools import count
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

import tvm_ffi

from dietlab.lower.runtime import aligned_empty, load_library, on_each_thread
from dietlab.shapes import Shape
from dietlab.timing.lru_by_bytes import LruByBytes
from dietlab.timing.private_caches import PrivateCaches
from dietlab.timing.problem import Problem, aligned, rotating_copies
from dietlab.timing.process import serve
from dietlab.timing.protocol import TOGETHER, Timing, time_alone, time_blocks
from dietlab.timing.threads import keep_apart
from dietlab.workloads import FloatArray, workload_from_json

KEPT_BYTES = 1 << 29
"""The most bytes of packed weights and their copies that stay in memory, and of other operands and theirs.
With 32 MB of last-level cache, those of seven layers or shapes do."""

KEPT_LIBRARIES = 256
"""The most libraries that stay loaded, the latest ones; another is loaded, and packs, again."""

MOST_ALONE, FEWEST_ALONE = 5, 2
"""The most and fewest calls of a block that are timed alone; a block of fewer calls than the first has
them in every second turn, and one longer than a block should be has one call once: long calls vary less."""

_positions = count()
"""The position of the next call in the round of copies. All programs share it: none finds another's."""


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Returns ``{"reason", "blocks", "cached_blocks", "verify_seconds", "measure_seconds"}`` and, in the
    library's first ``turn`` on this shape (0), in which it is verified, ``{"max_error", "tolerance"}``.
    ``cached_blocks``, of calls on operands in the last-level cache, are taken beside blocks on operands in
    memory in some turns. ``call_seconds``: about how long a call takes, if an earlier turn has shown it."""
    started = perf_counter()
    timing, cores = Timing(**request["timing"]), request["cores"]
    workload, shape = json.dumps(request["workload"]), Shape.from_json(request["shape"])
    problem = _problem(workload, shape)
    private = _private(request["l2_bytes"], cores)  # before this thread is kept off the others' cores
    library = _library(Path(request["library"]), cores, request["packs"])
    answer: dict[str, Any] = {"reason": "", "blocks": [], "cached_blocks": []}
    call_seconds = request.get("call_seconds")
    if request["turn"] == 0:
        problem.poison()
        call = library.calls(problem, [problem.arrays])[0]
        called = perf_counter()
        call()
        first_seconds = perf_counter() - called
        # A short one was mostly a cold start.
        call_seconds = first_seconds if first_seconds > timing.block_seconds else None
        verdict = problem.verdict()
        answer |= {"reason": verdict.reason, "max_error": verdict.max_error, "tolerance": verdict.tolerance}
        if cores > 1:  # the first call started the pool
            keep_apart()
    verified = perf_counter()
    if not answer["reason"]:
        copies = 1
        if timing.cache == "rotating":
            copies = rotating_copies(problem, request["last_level_bytes"])
        calls = library.calls(problem, _copies(workload, shape, copies))
        answer["blocks"] = time_blocks(calls, timing, cores, _positions, call_seconds)
        seconds = min(answer["blocks"])
        size = _calls_alone(seconds, timing, request["turn"])
        if size:
            calls[0]()
            answer["cached_blocks"] = [time_alone(calls[0], private.empty, size, cores)]
    return {**answer, "verify_seconds": verified - started, "measure_seconds": perf_counter() - verified}


def _calls_alone(seconds: float, timing: Timing, turn: int) -> int:
    """Returns the number of calls that are timed with operands in the last-level cache: none of a slow
    program, whose time hardly depends on it."""
    if timing.cache != "rotating" or timing.slow(seconds):
        return 0
    if seconds > timing.block_seconds:
        return 1 if turn == 0 else 0
    size = min(MOST_ALONE, max(FEWEST_ALONE, ceil(timing.block_seconds / seconds)))
    return 0 if size < MOST_ALONE and turn % 2 else size


@lru_cache(maxsize=TOGETHER)
def _problem(workload: str, shape: Shape) -> Problem:
    return Problem.make(workload_from_json(json.loads(workload)), shape)


def _copies(workload: str, shape: Shape, copies: int) -> list[list[FloatArray]]:
    """Returns the shape's operands and its output, so often; the first are the problem's own. Where weights
    are packed, those are copied, and there is one of the others."""
    problem = _problem(workload, shape)
    if problem.constants:
        return [problem.arrays] * copies

    def make() -> list[list[FloatArray]]:
        return [problem.arrays, *([aligned(array) for array in problem.arrays] for _ in range(copies - 1))]

    return _operands.get((workload, shape, copies), make)


@lru_cache(maxsize=1)
def _private(l2_bytes: int, cores: int) -> PrivateCaches:
    return PrivateCaches(l2_bytes, cores, partial(on_each_thread, cores) if cores > 1 else None)


@lru_cache(maxsize=KEPT_LIBRARIES)
def _library(path: Path, cores: int, packs: bool) -> _Library:
    return _Library(load_library(path, cores=cores), packs)


class _Library:
    """A candidate's library. Its own entry packs its constant operands; what comes out is the same for most
    libraries of a workload, and they share the copies of it."""

    def __init__(self, module: Any, packs: bool) -> None:
        self._module = module
        self._packs = packs
        self._contents: dict[tuple[int, ...], bytes] = {}

    def calls(
        self, problem: Problem, copies: Sequence[Sequence[FloatArray]]
    ) -> Sequence[Callable[[], object]]:
        """Returns the call, once for each copy of operands and output; weights are packed once and copied."""
        if not self._packs:
            return _Calls(self._module.run, copies)
        packed = self._shared(problem)
        packed += [aligned(packed[0]) for _ in range(len(copies) - len(packed))]
        x, *others = problem.variables.values()
        arrays = [[x, weights, *others, problem.out] for weights in packed[: len(copies)]]
        return _Calls(self._module.run, arrays)

    def _shared(self, problem: Problem) -> list[FloatArray]:
        """Returns the packed weights and, so far, their copies."""
        layer = problem.operands["w"].shape

        def pack() -> list[FloatArray]:
            packed = aligned_empty((int(self._module.packed_floats(*layer)),))
            packed.fill(0.0)  # where no weight is written, too, they are equal
            self._module.pack(*problem.constants.values(), packed)
            return [packed]

        if layer in self._contents:
            return _packed.get(self._contents[layer], pack)
        first = pack()
        self._contents[layer] = sha256(first[0].data).digest()
        return _packed.get(self._contents[layer], lambda: first)


class _Calls(Sequence[Callable[[], object]]):
    """A function on one set of arrays after the other; they become tensors when they are asked for, since a
    block needs few of many."""

    def __init__(self, function: Callable[..., object], arrays: Sequence[Sequence[FloatArray]]) -> None:
        self._function, self._arrays = function, arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, number: Any) -> Any:
        return partial(self._function, *(tvm_ffi.from_dlpack(array) for array in self._arrays[number]))


_packed: LruByBytes[list[FloatArray]] = LruByBytes(
    KEPT_BYTES, lambda copies: sum(packed.nbytes for packed in copies)
)
"""By what is in them."""

_operands: LruByBytes[list[list[FloatArray]]] = LruByBytes(
    KEPT_BYTES, lambda copies: sum(array.nbytes for arrays in copies for array in arrays)
)
"""Copies of all operands and outputs of shapes, where none is constant."""


if __name__ == "__main__":
    serve(measure)
