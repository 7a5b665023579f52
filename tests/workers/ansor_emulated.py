"""Tunes for a GPU on a stub driver whose kernels are emulated: every candidate is really run and compared.

One JSON line in, one out (see :mod:`dietlab.measure.timing.process`): a child process, because the stub
driver lasts for the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cuda_emulation.fake_driver import image, install

from workers.answers import timed

DRIVER = install()

import numpy as np  # noqa: E402
import tvm  # noqa: E402

from dietlab.base.errors import BuildError, MeasureError  # noqa: E402
from dietlab.compare.ansor import worker as ansor_worker  # noqa: E402
from dietlab.lower.runtime import load_library  # noqa: E402
from dietlab.machine import Hardware  # noqa: E402
from dietlab.measure.timing.disturbance import Pace  # noqa: E402
from dietlab.measure.timing.problem import Problem  # noqa: E402
from dietlab.measure.timing.process import serve  # noqa: E402
from dietlab.problem import Shape, Workload, workload_from_json  # noqa: E402
from dietlab.targets.cuda.ansor import GpuPlatform, cuda_module, link  # noqa: E402
from dietlab.targets.cuda.lowering.cubin import Cubin  # noqa: E402


def assemble(source: str, arch: str) -> Cubin:
    """What the stub driver loads instead of a cubin."""
    return Cubin(arch, image(source), {})


class Builders:
    """A pool of builders in this process."""

    def each(self, built: Callable[[Any, Any], Any], programs: list[Any]) -> list[Any]:
        return [built(self, program) for program in programs]

    def ask(self, request: Mapping[str, Any], timeout: float) -> None:
        program, target = (tvm.ir.load_json(request[name]) for name in ("program", "target"))
        try:
            link(cuda_module(program, target, assemble), Path(request["path"]))
        except BuildError as error:
            raise MeasureError("a candidate compiles", error) from None


class Timer:
    """A seat that compares every element; the first library is the fastest."""

    def __init__(self, workload: Workload) -> None:
        self.asked: list[dict[str, Any]] = []
        self.pace = Pace()
        self._workload = workload

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "time":
            return timed(1e-6 * len(self.asked))
        problem = Problem.make(self._workload, Shape.from_json(request["shape"]))
        poison = np.full(problem.out_shape, np.nan, problem.dtype)
        arrays = [tvm.runtime.tensor(a, tvm.cuda(0)) for a in (*problem.operands.values(), poison)]
        DRIVER.forget()
        load_library(Path(request["plan"]), "cuda").run(*arrays)
        if DRIVER.failure():
            raise MeasureError("the emulator runs it", DRIVER.failure())
        verdict = problem.verdict(arrays[-1].numpy())
        facts = {"max_error": verdict.max_error, "tolerance": verdict.tolerance, "reason": verdict.reason}
        launches = [(launch.grid, launch.block) for launch in DRIVER.launches()]
        self.asked.append({**facts, "launches": launches})
        return {**self.asked[-1], "correct": verdict.correct}


def tune(request: dict[str, Any]) -> dict[str, Any]:
    """All batches, and what became of each candidate and of what was saved."""
    workload = workload_from_json(request["workload"])
    timer: Any = Timer(workload)
    pool: Any = Builders()
    hardware, shape = Hardware.preset(request["hardware"]), Shape.from_json(request["shape"])
    platform = GpuPlatform.open(workload, hardware, shape, timer, pool, assemble)
    ansor_worker.BATCH = request["batch"]
    tuner = ansor_worker.Tuner.open(platform, request["trials"], request["seed"])
    state = tuner.batch()
    while not state["finished"]:
        state = tuner.batch()
    with tempfile.TemporaryDirectory() as folder:
        saved = tuner.save(Path(folder) / "saved.so") if tuner.best is not None else {}
    return {**state, "errors": tuner.errors, "asked": timer.asked, "saved": saved}


if __name__ == "__main__":
    serve(tune)
