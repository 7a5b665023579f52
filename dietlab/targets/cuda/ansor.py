"""Per-shape tuning on a GPU: sketch rules for CUDA, cubins, and the timer that times our own candidates.

Programs are compiled without a GPU, with the same compiler and flags as dietlab's kernels, and exported as
``run(x, w, [bias], [residual], out)``. The worker that checks and times dietlab's candidates
(:mod:`dietlab.measure.candidate_worker`) also checks and times these: operands rotate through more than L2,
and a wrong result is a failed trial. ``python -m dietlab.targets.cuda.ansor`` compiles one for each request.

=========  ===================  =====================================================================
dtype      rules                what they do
=========  ===================  =====================================================================
float32    ``cuda``             multi-level tiling with virtual threads, cooperative fetch to shared
                                memory, vectorised; multiply-adds
float16    ``cuda-tensorcore``  the same on tensor cores (``wmma``), edges padded to their fragments
=========  ===================  =====================================================================

A quarter of the trials for float16 fails, since TVM 0.27 has no code for vectors of odd length. There are no
rules for bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietlab.base.errors import BuildError, MeasureError
from dietlab.compare.ansor import hooks as ansor_hooks
from dietlab.compare.ansor.builders import builders, serve_builds
from dietlab.compare.ansor.program import static_program
from dietlab.lower.compiler import last_line, require_linker, tvm_module
from dietlab.machine import Hardware
from dietlab.machine.system import usable_cores
from dietlab.measure.local import TIMER, candidates_seat
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.seat import Seat
from dietlab.measure.timing.turns import Player
from dietlab.problem import Shape, Workload
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.lowering.compiler import JIT, target_of, without_spills
from dietlab.targets.cuda.lowering.cubin import Cubin
from dietlab.targets.cuda.lowering.driver import module_maker
from dietlab.targets.cuda.lowering.nvcc import compile_cubin
from dietlab.tuning import EFFORTS


@dataclass(frozen=True)
class Rules:
    """Sketch rules, postprocessors and mutators of MetaSchedule.

    Args:
        name: MetaSchedule's name of the rules.
        intrinsics: the modules of ``tvm.s_tir.tensor_intrin`` that the rules look up.
        options: the options of TVM's passes that are on while programs are compiled.
    """

    name: str
    intrinsics: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


RULES = {
    "float32": Rules("cuda"),
    # TVM 0.27 cannot lower reads of halves' shared memory that float32 sums use again.
    "float16": Rules("cuda-tensorcore", ("cuda",), ("tirx.disable_storage_rewrite",)),
}
"""The rules by type of the operands."""
TIMING = EFFORTS["quick"].timing
"""The timing of candidates: that of dietlab's candidates with effort ``quick``."""
RUN_SECONDS = 60.0
"""The longest that checking and timing one candidate may take, in seconds."""
STATIC_SMEM_BYTES = 48 << 10
"""The most bytes of shared memory that a block declares statically, as the rules' programs do (CUDA C
Programming Guide, technical specifications)."""

Assemble = Callable[[str, str], Cubin]
"""Makes a cubin of CUDA C++ and the name of an architecture."""


@dataclass(frozen=True)
class GpuPlatform:
    """A :class:`~dietlab.compare.ansor.worker.Platform` of one GPU.

    Args:
        threads: the number of threads that search, and of processes that compile.
        timer: the process that checks and times candidates (:func:`timer_for`).
        assemble: a function that makes the cubin of a program that is saved.
    """

    workload: Workload
    hardware: Hardware
    shape: Shape
    program: Any
    target: Any
    rules: str
    threads: int
    builders: WorkerPool
    timer: Seat
    assemble: Assemble = compile_cubin

    @classmethod
    def open(
        cls,
        workload: Workload,
        hardware: Hardware,
        shape: Shape,
        timer: Seat,
        pool: WorkerPool | None = None,
        assemble: Assemble = compile_cubin,
    ) -> GpuPlatform:
        """Makes the program.

        Args:
            pool: the processes that compile (default: as many as processors).
        """
        rules = RULES[workload.dtype]
        ansor_hooks.quicken_tvm(rules.intrinsics)
        threads = usable_cores()
        return cls(
            workload,
            hardware,
            shape,
            static_program(workload, shape),
            schedule_target(hardware),
            rules.name,
            threads,
            pool or builders("dietlab.targets.cuda.ansor", threads),
            timer,
            assemble,
        )

    def seconds(self, candidate: Any, library: Path) -> float:
        """Returns the seconds of a call: the mean over a block of calls, the least of all blocks.

        Raises:
            MeasureError: if the program does not run, or its result is wrong.
        """
        player = self._checked(library)
        for _ in range(TIMING.blocks):
            player.take(TIMING.cache, TIMING.block_seconds)
        if not player.correct:
            raise player.error or MeasureError("a candidate must compute the workload", player.reason)
        return min(player.seconds(TIMING.cache))

    def save(self, schedule: Any, path: Path) -> dict[str, Any]:
        """Compiles the program once more (its cubin is in the compiler's cache) and checks what it computes.

        Raises:
            BuildError: if the program is wrong.
        """
        link(cuda_module(schedule.mod, self.target, self.assemble), path)
        player = self._checked(path)
        if not player.correct:
            raise BuildError(f"the program tuned for {self.shape} must compute it", player.reason)
        return {"rules": self.rules, "max_error": player.max_error, "tolerance": player.tolerance}

    def _checked(self, library: Path) -> Player:
        player = Player(self.timer, self.shape, str(library))
        player.check()
        return player


def timer_for(workload: Workload, hardware: Hardware, module: str = TIMER) -> Seat:
    """Returns the process that checks and times a GPU's candidates."""
    return candidates_seat(workload.to_json(), hardware, RUN_SECONDS, module)


def schedule_target(hardware: Hardware) -> Any:
    """Returns TVM's target for one GPU as the sketch rules read it."""
    gpu = gpu_of(hardware)
    return target_of(
        hardware,
        max_shared_memory_per_block=min(gpu.smem_per_block_bytes, STATIC_SMEM_BYTES),
        registers_per_block=gpu.registers_per_block,
    )


def cuda_module(program: Any, target: Any, assemble: Assemble = compile_cubin) -> Any:
    """Returns TVM's module of a scheduled ``main``, which becomes ``run``: host code, and kernels as a cubin.

    The callback with which TVM's pipeline compiles CUDA C++ is replaced in this process.

    Raises:
        BuildError: if TVM or the CUDA compiler fails.
    """
    import tvm_ffi

    tvm = tvm_module()
    module_maker()  # without TVM's CUDA part the library would hold the source

    def compiled(source: Any) -> bytes:
        return without_spills(str(source), str(target.arch), assemble)[1].data

    tvm_ffi.register_global_func(JIT, compiled, override=True)
    main = program["main"]
    options = dict.fromkeys(RULES[str(main.params[0].ty.dtype)].options, True)
    try:
        with tvm.transform.PassContext(config=options):
            run = tvm.IRModule({"run": main.with_attr("global_symbol", "run")})
            return tvm.compile(run, target=target).mod
    except Exception as error:  # TVM raises several exception types
        raise BuildError("the program must compile", last_line(error)) from error


def link(module: Any, path: Path) -> None:
    """Writes the module as a shared library.

    Raises:
        BuildError: if there is no linker, or it fails.
    """
    linker = require_linker()
    try:
        module.export_library(str(path), cc=linker, options=["-Wl,--strip-all"])
    except Exception as error:
        raise BuildError("the library must link", last_line(error)) from error


if __name__ == "__main__":
    serve_builds(lambda program, target, path: link(cuda_module(program, target), path))
