"""Per-shape tuning on a CPU: the layout of weights is searched too, and candidates are timed with hot caches.

A tuned library exports ``main`` and ``pack``, which lays ``w[N, K]`` out for it; see
:class:`~dietlab.compare.ansor.contender.AnsorOperator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.base.errors import BuildError, MeasureError
from dietlab.compare.ansor import hooks as ansor_hooks
from dietlab.compare.ansor.contender import AnsorOperator
from dietlab.compare.ansor.program import static_program
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.measure.timing.problem import aligned
from dietlab.problem import Shape, Workload, extents, tolerance
from dietlab.targets.cpu.lowering.llvm import target_of

BUILD_SECONDS = 60.0
RUN_SECONDS = 30.0


@dataclass(frozen=True)
class CpuPlatform:
    """A :class:`~dietlab.compare.ansor.worker.Platform` of some cores of this machine."""

    workload: Workload
    shape: Shape
    program: Any
    target: Any
    builder: Any
    runner: Any
    threads: int
    rules: str = "from-target"

    @classmethod
    def open(cls, workload: Workload, hardware: Hardware, shape: Shape) -> CpuPlatform:
        """Makes the program and starts the pools."""
        ansor_hooks.quicken_tvm(ansor_hooks.machine_intrinsics())
        program = static_program(workload, shape, free_layout=True)
        pools = _pools(hardware.cores)
        return cls(workload, shape, program, target_of(hardware), *pools, hardware.cores)

    def seconds(self, candidate: Any, library: Path) -> float:
        """Returns the least mean seconds of a call, in 20 ms of blocks.

        Raises:
            MeasureError: if it does not run.
        """
        from tvm.s_tir import meta_schedule as ms

        question = ms.runner.RunnerInput(str(library), "cpu", candidate.args_info)
        (future,) = self.runner.run([question])
        result = future.result()
        if result.error_msg is not None:
            raise MeasureError("a candidate runs", result.error_msg)
        return min(float(seconds) for seconds in result.run_secs)

    def save(self, schedule: Any, path: Path) -> dict[str, Any]:
        """Compiles the program with its packing function and checks what they compute.

        Raises:
            BuildError: if the program is wrong.
        """
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        main = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)["main"]
        layout = weight_layout(schedule)
        size = extents(self.workload, self.shape)
        pack, packed_shape = packing_program(size["cols"], size["depth"], layout)
        library = tvm.compile(tvm.IRModule({"main": main, "pack": pack}), target=self.target)
        library.export_library(str(path))
        return {
            "packed_shape": packed_shape,
            "weights": "K-major" if layout is None else "rewritten",
            "layout": None if layout is None else str(layout),
            **self._check(AnsorOperator(path, packed_shape)),
        }

    def _check(self, operator: AnsorOperator) -> dict[str, float]:
        inputs = {name: aligned(value) for name, value in self.workload.inputs(self.shape).items()}
        reference = self.workload.reference(inputs)
        out = aligned_empty(reference.shape)
        out.fill(np.nan)
        operator.pack(inputs["w"], inputs.get("bias")).bind(inputs["x"], out)()
        error, allowed = float(np.abs(out - reference).max()), tolerance(self.workload, inputs)
        if not error <= allowed:
            raise BuildError(f"the program tuned for {self.shape} errs by at most {allowed:.1e}", error)
        return {"max_error": error, "tolerance": allowed}


def _pools(cores: int) -> tuple[Any, Any]:
    """Processes that build (as many as cores) and one that times candidates, 20 ms each."""
    from tvm.s_tir import meta_schedule as ms

    clock = ansor_hooks.thread_seconds if cores == 1 else ansor_hooks.wall_seconds
    builder = ms.builder.LocalBuilder(
        max_workers=cores, timeout_sec=BUILD_SECONDS, f_build=ansor_hooks.build_candidate
    )
    runner = ms.runner.LocalRunner(
        timeout_sec=RUN_SECONDS,
        f_run_evaluator=clock,
        evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=30, min_repeat_ms=20),
    )
    return builder, runner


def weight_layout(schedule: Any) -> Any:
    """Returns the IndexMap from ``[K, N]`` to the layout that RewriteLayout chose; None if it kept it."""
    maps = [
        instruction.inputs[1]
        for instruction in schedule.trace.insts
        if str(instruction.kind.name) == "TransformLayout"
    ]
    return maps[-1] if maps else None


def packing_program(cols: int, depth: int, layout: Any) -> tuple[Any, list[int]]:
    """Returns a program that lays ``w[N, K]`` out as the tuned one reads it, and the shape it gives.

    Each packed element is gathered through the layout's inverse::

        packed[p0, p1, ..] = w[n, k]  where  (k, n) = layout.inverse(p0, p1, ..)
    """
    from tvm import te

    w = te.placeholder((cols, depth), name="w")
    if layout is None:
        packed = te.compute((depth, cols), lambda k, n: w[n, k], name="packed")
    else:
        inverse = layout.inverse([depth, cols])
        shape = layout.map_shape([depth, cols])

        def gather(*position: Any) -> Any:
            k, n = inverse.map_indices(list(position))
            return w[n, k]

        packed = te.compute(shape, gather, name="packed")
    function = te.create_prim_func([w, packed]).with_attr("global_symbol", "pack")
    return function, [int(extent) for extent in packed.shape]
