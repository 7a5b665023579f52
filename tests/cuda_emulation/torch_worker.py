"""A PyTorch model whose layers run by a GPU's libraries, on the stub driver; prints what it found as JSON.

Run by test_torch_gpu.py as ``python -m cuda_emulation.torch_worker FOLDER`` in the folder of the tests: the
stub driver lasts for the process. The tensors are PyTorch's, on the CPU, and their memory is given to the
libraries as the device's.
"""

from __future__ import annotations

import copy
import ctypes
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .fake_driver import image, install

DRIVER = install()

import ml_dtypes  # noqa: E402
import torch  # noqa: E402
import tvm_ffi  # noqa: E402

import dietlab.torch  # noqa: E402
from dietlab.base.errors import DispatchError  # noqa: E402
from dietlab.compare.study import Study  # noqa: E402
from dietlab.machine import Hardware  # noqa: E402
from dietlab.measure import SyntheticRunner  # noqa: E402
from dietlab.problem import Dense, Dim, ShapeSet  # noqa: E402
from dietlab.targets.cuda.driver import CudaDriver  # noqa: E402
from dietlab.targets.cuda.lowering import compiler  # noqa: E402
from dietlab.targets.cuda.lowering.cubin import Cubin  # noqa: E402
from dietlab.torch import gpu_library, gpu_linear, layers, libraries  # noqa: E402

from . import stand_in_torch  # noqa: E402

GLOBAL = 0
"""``CU_STREAM_CAPTURE_MODE_GLOBAL``, as ``torch.cuda.graph`` captures."""

SIZES = (1, 17, 64)


def emulated_kernels() -> None:
    """Lets libraries be built with what the stub driver loads instead of cubins."""

    def assemble(source: str, arch: str) -> Cubin:
        return Cubin(arch, image(source), {})

    compiler.compile_library = partial(compiler.compile_library, assemble=assemble)


def on_device(tensor: Any) -> Any:
    """The memory of a tensor on the CPU, as a tensor of the stub device."""
    tensor = tensor.detach()
    half = tensor.dtype is torch.bfloat16
    array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if half else tensor.numpy()
    return tvm_ffi.from_dlpack(stand_in_torch.Tensor(array))


def serve_the_cpu(capturing: Callable[[], bool]) -> None:
    """Lets libraries for a GPU serve tensors on the CPU, whose device has the index -1."""
    opened = gpu_library._opened

    def open_for_cpu(place: Path) -> Any:
        library: Any = opened(place)
        run = library.run
        return replace(library, run=lambda *given: run(*map(on_device, given)), devices={-1: True})

    gpu_library._opened = open_for_cpu
    libraries.unfit_for_gpu = lambda *_: ""
    layers._linear = gpu_linear.linear_on_gpu  # the operator's kernel for CUDA
    gpu_linear._current_device, gpu_linear._is_capturing = lambda: -1, capturing


def study_of(folder: Path, dtype: str) -> Study:
    work = Dense(T=Dim(1, 64), N=32, K=32, dtype=dtype)
    gpu = Hardware.preset("h100")
    made = Study.create(folder / dtype, work, gpu, ShapeSet.extents(work, list(SIZES)), "smoke")
    made.tune(SyntheticRunner(gpu))
    return made


def replaced(study: Study) -> tuple[Any, Any, list[str]]:
    """A small model, its original, and what replacing said."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    model = model.to(getattr(torch, study.workload.dtype))
    original = copy.deepcopy(model)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dietlab.torch.replace_linears(model, study)
        for layer in (model[0], model[2]):  # as warming up does on a GPU
            for folder in layer.libraries.values():
                gpu_library.gpu_library(folder)
    return model, original, [str(warning.message) for warning in told]


def error(found: Any, wanted: Any) -> float:
    return float((found.double() - wanted.double()).abs().max())


def eager(model: Any, original: Any) -> list[dict[str, Any]]:
    """At each length: the largest error, and the launches of a call."""
    found = []
    with torch.no_grad():
        for rows in SIZES:
            x = torch.randn(rows, 32).to(original[0].weight.dtype)
            DRIVER.forget()
            y = model(x)
            found.append({"rows": rows, "error": error(y, original(x)), "launches": len(DRIVER.launches())})
        x = torch.randn(2, 3, 32).to(original[0].weight.dtype)
        found.append({"rows": (2, 3), "error": error(model(x), original(x)), "launches": 2})
    return found


def captured(model: Any, original: Any) -> dict[str, Any]:
    """Captures a first call, which loads a module, and replays it on other numbers."""
    driver, graph = CudaDriver(), ctypes.c_void_p()
    stream = driver.made("cuStreamCreate", 0)
    x = torch.randn(17, 32).to(original[0].weight.dtype)
    driver("cuStreamBeginCapture_v2", stream, GLOBAL)
    failure = ""
    try:
        with torch.no_grad(), tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), stream.value):
            y = model(x)
    except DispatchError as refused:
        failure = str(refused)
    driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    if failure:
        return {"failure": failure}
    replayed = driver.made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    x.copy_(torch.randn(17, 32))
    DRIVER.forget()
    driver("cuGraphLaunch", replayed, None)
    with torch.no_grad():
        return {"error": error(y, original(x)), "launches": len(DRIVER.launches()), "failure": ""}


def main(folder: Path) -> None:
    emulated_kernels()
    rule = {"capturing": False}
    serve_the_cpu(lambda: rule["capturing"])
    half, single = study_of(folder, "bfloat16"), study_of(folder, "float32")
    found: dict[str, Any] = {}
    model, original, found["told"] = replaced(single)
    found["layers"] = [type(layer).__name__ for layer in model]
    found["float32"] = eager(model, original)
    model, original, _ = replaced(half)
    found["unrelaxed"] = captured(model, original)
    rule["capturing"] = True
    found["captured"] = captured(model, original)
    rule["capturing"] = False
    found["bfloat16"] = eager(model, original)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
