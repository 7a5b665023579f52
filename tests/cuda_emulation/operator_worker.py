"""Builds operators for a GPU and runs them on the stub driver: ``python -m cuda_emulation.operator_worker``.

One JSON line in, one out (see :mod:`dietlab.measure.timing.process`): a child process, because the stub
driver lasts for the process.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .fake_driver import image, install

DRIVER = install()

import numpy as np  # noqa: E402
import tvm  # noqa: E402

from dietlab.lower.contraction import called_dims, sizes_of  # noqa: E402
from dietlab.lower.runtime import load_library  # noqa: E402
from dietlab.machine import Hardware  # noqa: E402
from dietlab.measure.candidates import Candidates  # noqa: E402
from dietlab.measure.timing.bench import Bench  # noqa: E402
from dietlab.measure.timing.process import serve  # noqa: E402
from dietlab.problem import Shape, tolerance, workload_from_json  # noqa: E402
from dietlab.problem.dims import bound  # noqa: E402
from dietlab.scheme import Scheme  # noqa: E402
from dietlab.scheme.tree import tree_from_json  # noqa: E402
from dietlab.targets.cuda.device import TvmArrays, TvmOutput  # noqa: E402
from dietlab.targets.cuda.driver import CudaClock, CudaDriver  # noqa: E402
from dietlab.targets.cuda.gpu import Gpu  # noqa: E402
from dietlab.targets.cuda.lowering.compiler import compile_library  # noqa: E402
from dietlab.targets.cuda.lowering.cubin import Cubin  # noqa: E402
from dietlab.targets.cuda.lowering.geometry import BlockGeometry  # noqa: E402
from dietlab.targets.cuda.lowering.library import library_module  # noqa: E402

from .shifted import Shifted  # noqa: E402

SHIFTED: list[Shifted] = []
"""Owners of what is lent to tensors, for the life of the process."""


def assemble(source: str, arch: str) -> Cubin:
    """What the stub driver loads instead of a cubin."""
    return Cubin(arch, image(source), {})


@lru_cache(maxsize=8)
def built(request: str) -> Any:
    """The library of a request without its sizes."""
    return load_library(compiled(request), "cuda")


@lru_cache(maxsize=8)
def compiled(request: str) -> Path:
    """The file of that library."""
    value = json.loads(request)
    workload, hardware = workload_from_json(value["workload"]), Hardware.preset(value["hardware"])
    hardware = replace(hardware, cores=value["cores"] or hardware.cores)
    plans: Any = [Scheme.from_key(key) for key in value["plans"]]
    module = library_module(
        BlockGeometry.of(workload, hardware),
        plans,
        tree_from_json(value["tree"]),
        every_plan=value["every_plan"],
        only=value["only"],
    )
    path = Path(tempfile.mkdtemp()) / "library.so"
    compile_library(module, hardware, path, assemble=assemble)
    return path


def timed(request: dict[str, Any], sizes: list[int], break_guard: bool) -> dict[str, Any]:
    """What a candidate's bench answers about each size: checked, then timed in every state of the caches, and
    whether the calls that were timed computed."""
    workload = workload_from_json(request["workload"])
    path = str(compiled(json.dumps(request, sort_keys=True)))
    driver = CudaDriver()
    arrays = TvmArrays(driver)
    if break_guard:
        arrays.output = BrokenOutput  # type: ignore[method-assign, assignment]
    gpu = Gpu(arrays, CudaClock(driver), l2_bytes=1 << 16)
    bench = Bench(gpu, Candidates("cuda", 1), workload, keeps=False)
    answers = []
    for size in sizes:
        asked = {"shape": dict.fromkeys(workload.dims, size), "plan": path, "min_seconds": 1e-6}
        answers.append(bench.check(asked))
        case = bench._case(asked)
        for cache in gpu.states:
            output = case.copies[0][0].output
            output.poison()
            answer = bench.time({**asked, "cache": cache})
            answers.append({**answer, "right": case.problem.verdict(output.read()).correct})
    return {"found": answers}


class BrokenOutput(TvmOutput):
    """An output whose last guard is written to before it is looked at."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(TvmArrays(CudaDriver()).put, shape, dtype)

    @property
    def intact(self) -> bool:
        found = self._buffer.numpy()
        found[-1] = 0
        self._buffer.copyfrom(found)
        return super().intact


def run(request: dict[str, Any]) -> dict[str, Any]:
    """For each size: the largest error, what it may be, unwritten elements, and the launches."""
    if "time" in request:
        return timed(request, request.pop("time"), request.pop("break_guard"))
    if "refuse" in request:
        return {"refused": refused(request, request.pop("refuse"))}
    sizes, plan, shift = request.pop("sizes"), request.pop("plan"), request.pop("shift")
    device, stream = tvm.cuda(0), 0
    if request.pop("own_stream"):
        stream = int(device.create_raw_stream())
    library = built(json.dumps(request, sort_keys=True))
    workload = workload_from_json(request["workload"])
    found = []
    for size in sizes:
        shape = Shape.of(**(size if isinstance(size, dict) else dict.fromkeys(workload.dims, size)))
        operands = workload.inputs(shape)
        arrays = [_on_device(operand, shift) for operand in operands.values()]
        out = _on_device(np.full(workload.output_shape(shape), np.nan, operands["x"].dtype), 0)
        DRIVER.forget()
        call = library.run if plan is None else library.run_plan
        device.set_raw_stream(stream)
        call(*arrays, out, *([] if plan is None else [plan]))
        device.set_raw_stream(0)
        result = out.numpy().astype(np.float64)
        error = np.abs(result - workload.reference(operands)).max(initial=0.0)
        found.append(
            {
                "size": size,
                "error": None if np.isnan(error) else float(error),
                "tolerance": tolerance(workload, operands),
                "failure": DRIVER.failure(),
                "launches": [asdict(launch) for launch in DRIVER.launches()],
                "plan": int(library.plan(*_called(workload, shape))),
                "stream": stream,
            }
        )
    return {"found": found}


def _called(workload: Any, shape: Shape) -> list[int]:
    """The extents that the library's functions take."""
    sizes = sizes_of(workload, shape)
    return [sizes[name] for name in called_dims(workload)]


def refused(request: dict[str, Any], size: int | dict[str, int]) -> str:
    """The error of a call of that size, of all dimensions or of each by name. Its tensors have the shapes but
    not the memory."""
    workload = workload_from_json(request["workload"])
    signature, few = workload.signature, tvm.runtime.tensor(np.zeros(64, np.float32), tvm.cuda(0))
    shape = Shape.of(**(size if isinstance(size, dict) else dict.fromkeys(workload.dims, size)))
    shapes = [bound(extents, shape) for extents in signature.values()]
    lent = [Shifted(few, 0, shape, few.numpy().dtype) for shape in shapes]
    SHIFTED.extend(lent)
    DRIVER.forget()
    try:
        built(json.dumps(request, sort_keys=True)).run(*(operand.tensor() for operand in lent))
    except ValueError as error:
        return f"{error}; {len(DRIVER.launches())} launches"
    return ""


def _on_device(array: Any, shift: int) -> Any:
    """A tensor of the stub device that begins ``shift`` bytes behind an aligned address."""
    device = tvm.cuda(0)
    if not shift:
        return tvm.runtime.tensor(array, device)
    elements = shift // array.itemsize
    flat = np.concatenate([np.zeros(elements, array.dtype), array.reshape(-1)])
    SHIFTED.append(Shifted(tvm.runtime.tensor(flat, device), elements, array.shape, array.dtype))
    return SHIFTED[-1].tensor()


if __name__ == "__main__":
    serve(run)
