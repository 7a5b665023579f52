"""Verifies and times one library on one shape: ``python -m dietlab.measure.time_worker``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.measure.process import serve
from dietlab.measure.timing import Timing, time_blocks
from dietlab.shapes import Shape
from dietlab.workloads import FloatArray, tolerance, workload_from_json

GUARD_ROWS = 2


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """``{"max_error", "tolerance", "blocks", "verify_seconds", "measure_seconds"}``."""
    started = perf_counter()
    workload, shape = json.dumps(request["workload"]), Shape.from_json(request["shape"])
    inputs, reference, allowed = _problem(workload, shape)
    library, packed = _packed(request["library"], request["cores"], workload, tuple(request["packed_shape"]))
    x, out = aligned_empty(inputs["x"].shape), _poisoned(reference.shape)
    x[:] = inputs["x"]
    library.run(x, packed, out[: len(reference)])
    error = _error(out, reference)
    verified = perf_counter()
    blocks: list[float] = []
    if error <= allowed:
        timing = Timing(**request["timing"])
        import tvm_ffi

        arrays = [tvm_ffi.from_dlpack(array) for array in (x, packed, out[: len(reference)])]
        blocks = time_blocks(lambda: library.run(*arrays), timing, request["cores"])
    return {
        "max_error": error, "tolerance": allowed, "blocks": blocks,
        "verify_seconds": verified - started, "measure_seconds": perf_counter() - verified,
    }  # fmt: skip


@lru_cache(maxsize=32)
def _problem(workload: str, shape: Shape) -> tuple[dict[str, FloatArray], npt.NDArray[np.float64], float]:
    work = workload_from_json(json.loads(workload))
    inputs = work.inputs(shape)
    return inputs, work.reference(inputs), tolerance(work, inputs)


@lru_cache(maxsize=1)
def _packed(path: str, cores: int, workload: str, shape: tuple[int, ...]) -> tuple[Any, FloatArray]:
    """The library and weights packed by its own entry."""
    work = workload_from_json(json.loads(workload))
    library = load_library(Path(path), cores)
    smallest = Shape.of(**{name: dim.low for name, dim in work.dims.items()})
    inputs, packed = work.inputs(smallest), aligned_empty(shape)
    constants = [inputs[name] for name in ("w", "bias") if name in inputs]
    library.pack(*constants, packed)
    return library, packed


def _poisoned(shape: tuple[int, ...]) -> FloatArray:
    """An output full of NaN, with rows after it that must stay so."""
    out = aligned_empty((shape[0] + GUARD_ROWS, *shape[1:]))
    out[:] = np.nan
    return out


def _error(out: FloatArray, reference: npt.NDArray[np.float64]) -> float:
    """The largest absolute error; infinite if an element is missing or a guard row was written."""
    if not np.isnan(out[len(reference) :]).all() or np.isnan(out[: len(reference)]).any():
        return float("inf")
    return float(np.abs(out[: len(reference)] - reference).max(initial=0.0))


if __name__ == "__main__":
    serve(measure)
