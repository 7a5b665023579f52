"""Verifies and times one library on one shape of a GPU: ``python -m dietlab.measure.cuda_time_worker``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dietlab.lower.runtime import load_cuda_runtime, load_library
from dietlab.shapes import Shape
from dietlab.timing.cuda_clock import CudaClock
from dietlab.timing.process import serve
from dietlab.timing.protocol import Timing
from dietlab.timing.rotation import MOST_BYTES, ROTATED_CACHES
from dietlab.timing.sample import SampledProblem
from dietlab.workloads import workload_from_json

MOST_COPIES = 256
"""The most copies of operands in a rotating block, whatever the size of L2."""


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Returns ``{"max_error", "tolerance", "reason", "blocks", "verify_seconds", "measure_seconds"}``."""
    started = perf_counter()
    timing, clock = Timing(**request["timing"]), _clock()
    sample = _sample(json.dumps(request["workload"]), Shape.from_json(request["shape"]))
    library = _library(request["library"])
    arrays = _on_device(sample, 1)[0]
    library.run(*arrays)
    clock.wait()
    verdict = sample.verdict(arrays[-1].numpy())
    verified = perf_counter()
    blocks: list[float] = []
    if verdict.correct:
        copies = 1
        if timing.cache == "rotating":
            copies = rotating_copies(sample, request["last_level_bytes"])
        calls: list[Callable[[], object]] = [
            partial(library.run, *copy) for copy in [arrays, *_on_device(sample, copies - 1)]
        ]
        blocks = clock.blocks(calls, timing)
        clock.wait()
    return {
        "max_error": verdict.max_error,
        "tolerance": verdict.tolerance,
        "reason": verdict.reason,
        "blocks": blocks,
        "verify_seconds": verified - started,
        "measure_seconds": perf_counter() - verified,
    }


def rotating_copies(sample: SampledProblem, last_level_bytes: int) -> int:
    """Returns the number of copies of all operands in a rotating block: more than L2 holds, up to a
    limit."""
    needed = ceil(ROTATED_CACHES * last_level_bytes / sample.bytes) + 1
    return max(2, min(MOST_COPIES, MOST_BYTES // sample.bytes, needed))


def _on_device(sample: SampledProblem, copies: int) -> list[list[Any]]:
    """Operands and a poisoned output, so often."""
    tvm = _tvm()
    device = tvm.cuda(0)
    poison = np.full(sample.out_shape, np.nan, sample.dtype)
    arrays = [*sample.operands.values(), poison]
    return [[tvm.runtime.tensor(array, device) for array in arrays] for _ in range(copies)]


@lru_cache(maxsize=1)
def _tvm() -> Any:
    """Returns TVM with its part for the driver, left out without a word if a library is missing."""
    load_cuda_runtime()
    import tvm

    return tvm


@lru_cache(maxsize=1)
def _clock() -> CudaClock:
    _tvm().cuda(0).sync()  # makes the context that events belong to
    return CudaClock()


@lru_cache(maxsize=16)
def _sample(workload: str, shape: Shape) -> SampledProblem:
    return SampledProblem.make(workload_from_json(json.loads(workload)), shape)


@lru_cache(maxsize=1)
def _library(path: str) -> Any:
    return load_library(Path(path), "cuda")


if __name__ == "__main__":
    serve(measure)
