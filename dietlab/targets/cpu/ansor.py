"""Per-shape tuning on a CPU. It searches the layout of weights too, and times candidates with hot caches.

A tuned library exports ``main`` and ``pack``, which lays the weights out for it: see :class:`TunedProgram`.
``python -m dietlab.targets.cpu.ansor`` compiles one candidate for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.base.errors import BuildError, MeasureError
from dietlab.compare.ansor import hooks as ansor_hooks
from dietlab.compare.ansor.builders import builders, serve_builds
from dietlab.compare.ansor.program import k_major, static_program
from dietlab.lower.compiler import tvm_module
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.contender import Array, Call, Operands, Prepared, WithConstants
from dietlab.measure.timing.problem import aligned
from dietlab.measure.timing.protocol import clock_for
from dietlab.problem import Shape, Workload, tolerance
from dietlab.problem.dimensions import operand_sizes
from dietlab.targets.cpu.lowering import target_of

RUN_SECONDS = 30.0
"""The longest that a candidate may take in the timing process, in seconds."""


@dataclass(frozen=True)
class CpuPlatform:
    """A :class:`~dietlab.compare.ansor.worker.Platform` of some cores of this machine."""

    workload: Workload
    shape: Shape
    program: Any
    target: Any
    builders: WorkerPool
    runner: Any
    threads: int
    rules: str = "from-target"

    @classmethod
    def open(cls, workload: Workload, hardware: Hardware, shape: Shape) -> CpuPlatform:
        """Makes the program, and prepares one timing process and one build process per core."""
        ansor_hooks.quicken_tvm(ansor_hooks.machine_intrinsics())
        from tvm.s_tir import meta_schedule as ms  # only after that

        program, cores = static_program(workload, shape, free_layout=True), hardware.cores
        pool = builders("dietlab.targets.cpu.ansor", cores)
        runner = ms.runner.LocalRunner(
            timeout_sec=RUN_SECONDS,
            f_run_evaluator=partial(ansor_hooks.least_seconds, clock_for(cores)),
            evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=30, min_repeat_ms=20),
        )
        return cls(workload, shape, program, target_of(hardware), pool, runner, cores)

    def seconds(self, candidate: Any, library: Path) -> float:
        """Returns the seconds of a call, the least mean of blocks of 20 ms; raises :class:`MeasureError` if
        the candidate does not run."""
        from tvm.s_tir import meta_schedule as ms

        question = ms.runner.RunnerInput(str(library), "cpu", candidate.args_info)
        (future,) = self.runner.run([question])
        result = future.result()
        if result.error_msg is not None:
            raise MeasureError("a candidate must run", result.error_msg)
        return min(float(seconds) for seconds in result.run_secs)

    def save(self, schedule: Any, path: Path) -> dict[str, Any]:
        """Compiles the program with its packing function; raises :class:`BuildError` if it is wrong."""
        layout = weight_layout(schedule)
        pack, packed_shape = packing_program(operand_sizes(self.workload, self.shape)["w"], layout)
        compile_program(schedule.mod, self.target, path, pack=pack)
        return {
            "packed_shape": packed_shape,
            "weights": "K-major" if layout is None else "rewritten",
            "layout": None if layout is None else str(layout),
            **self._check(TunedProgram(path, packed_shape)),
        }

    def _check(self, program: TunedProgram) -> dict[str, float]:
        inputs = {name: aligned(value) for name, value in self.workload.inputs(self.shape).items()}
        reference = self.workload.reference(inputs)
        out = aligned_empty(reference.shape)
        out.fill(np.nan)
        program.pack(inputs["w"], inputs.get("bias")).bind(inputs, out)()
        error, allowed = float(np.abs(out - reference).max()), tolerance(self.workload, inputs)
        if not error <= allowed:
            raise BuildError(f"the program tuned for {self.shape} must err by at most {allowed:.1e}", error)
        return {"max_error": error, "tolerance": allowed}


def compile_program(program: Any, target: Any, path: Path, **others: Any) -> None:
    """Compiles a scheduled ``main`` and the functions ``others`` into a library. Unlike TVM's builder it does
    not import the intrinsics, which it does not need."""
    tvm = tvm_module()
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    main = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(program)["main"]
    tvm.compile(tvm.IRModule({"main": main, **others}), target=target).export_library(str(path))


class TunedProgram:
    """The program of one shape: :meth:`pack` constant weights, then bind calls."""

    def __init__(self, path: Path, packed_shape: Iterable[int]) -> None:
        # The program may use threads and scratch of TVM's runtime, so TVM is loaded first.
        tvm_module()
        import tvm_ffi

        self._module = tvm_ffi.load_module(str(path.resolve()))
        self._packed_shape = tuple(packed_shape)

    def pack(self, w: Array, bias: Array | None = None) -> Prepared:
        """Returns the program with the weights in the layout that the search chose."""
        import tvm_ffi

        packed = tvm_ffi.from_dlpack(aligned_empty(self._packed_shape))
        self._module["pack"](tvm_ffi.from_dlpack(aligned(w)), packed)
        constants = [packed] if bias is None else [packed, tvm_ffi.from_dlpack(aligned(bias))]
        return WithConstants(partial(self._bound, constants))

    def _bound(self, constants: list[Any], operands: Operands, out: Array) -> Call:
        import tvm_ffi

        arrays = operands["x"], out
        if any(array.ctypes.data % 64 for array in arrays):
            raise MeasureError("x and out must begin at multiples of 64 bytes", None, "Use aligned_empty().")
        (source, result), main = map(tvm_ffi.from_dlpack, arrays), self._module["main"]
        return lambda: main(source, *constants, result)


def load_tuned(path: Path, saved: Mapping[str, Any]) -> Callable[[Workload, Operands], Prepared]:
    """Returns the function that prepares a tuned program."""
    program = TunedProgram(path, saved["packed_shape"])
    return lambda workload, constants: program.pack(**constants)


def weight_layout(schedule: Any) -> Any:
    """Returns the IndexMap from K-major weights (:func:`~dietlab.compare.ansor.program.k_major`) to the
    layout that RewriteLayout chose; None if they stay K-major."""
    maps = [
        instruction.inputs[1]
        for instruction in schedule.trace.insts
        if str(instruction.kind.name) == "TransformLayout"
    ]
    return maps[-1] if maps else None


def packing_program(size: Sequence[int], layout: Any) -> tuple[Any, list[int]]:
    """Returns two values: a program that lays weights out as the tuned program reads them, and the packed
    shape.

    Each packed element is gathered through the layout's inverse, for a matrix ``w[N, K]``::

        packed[p0, p1, ..] = w[n, k]  where  (k, n) = layout.inverse(p0, p1, ..)

    Args:
        size: the size of the weights as the operator has them.
    """
    from tvm import te

    w, order = te.placeholder(tuple(size), name="w"), k_major(len(size))
    major = [size[axis] for axis in order]

    def element(*position: Any) -> Any:
        return w(*(position[order.index(axis)] for axis in range(len(order))))

    if layout is None:
        packed = te.compute(major, element, name="packed")
    else:
        inverse = layout.inverse(major)
        packed = te.compute(
            layout.map_shape(major),
            lambda *position: element(*inverse.map_indices(list(position))),
            name="packed",
        )
    function = te.create_prim_func([w, packed]).with_attr("global_symbol", "pack")
    return function, [int(extent) for extent in packed.shape]


if __name__ == "__main__":
    serve_builds(compile_program)
