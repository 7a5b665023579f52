"""Tunes one static shape with MetaSchedule, a batch for each question, and saves the best program.

``python -m dietlab.evaluation.ansor_worker``; :mod:`dietlab.evaluation.ansor` asks. One process
serves one shape::

    {"op": "open", "workload": .., "hardware": .., "shape": .., "trials": 64, "seed": 0} -> {"task": ..}
    {"op": "batch"}               -> {"trials", "failures", "best_seconds", "finished"}
    {"op": "save", "path": ".so"} -> {"packed_shape", "weights", "layout", "failure_reasons",
                                      "max_error", "tolerance"}

The loop over batches is that of TVM's task scheduler with a single task, turned inside out so
that the caller can watch, stop and time it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.errors import BuildError, MeasureError, WorkloadError
from dietlab.evaluation import ansor_hooks
from dietlab.evaluation.ansor import AnsorOperator
from dietlab.hardware import Hardware
from dietlab.lower.compiler import target_of
from dietlab.lower.runtime import aligned_empty
from dietlab.measure.process import serve
from dietlab.shapes import Shape
from dietlab.workloads import FloatArray, Workload, extents, tolerance, workload_from_json

BATCH = 16
"""Candidates measured between two fits of the cost model; TVM's 64 would be a whole small budget."""
WARMUP_SAMPLES = 32
"""Samples before XGBoost ranks; with TVM's 100 a small budget would be searched at random."""
POPULATION = 512
BUILD_SECONDS = 60.0
RUN_SECONDS = 30.0


@dataclass
class Tuner:
    """The state of one shape's search: the best schedule so far and the counts of trials."""

    workload: Workload
    hardware: Hardware
    shape: Shape
    task: Any
    program: Any
    target: Any
    database: Any
    model: Any
    builder: Any
    runner: Any
    trials: int = 0
    errors: list[str] = field(default_factory=list)
    best_seconds: float | None = None
    best: Any = None

    @classmethod
    def open(cls, workload: Workload, hardware: Hardware, shape: Shape, trials: int, seed: int) -> Tuner:
        """Generates the design space (sketch rules) and starts the pools."""
        ansor_hooks.quicken_tvm()
        from tvm.s_tir import meta_schedule as ms

        target = target_of(hardware)
        program = dense_program(workload, shape)
        database = ms.database.MemoryDatabase()
        model = ms.cost_model.XGBModel(num_warmup_samples=WARMUP_SAMPLES, num_tuning_cores=hardware.cores)
        task = ms.TuneContext(
            program, target=target, space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(population_size=POPULATION),
            rand_state=seed + 1, num_threads=hardware.cores,
        )  # fmt: skip
        task.pre_tuning(trials, min(BATCH, trials), None, database, model)
        builder, runner = _pools(ms, hardware.cores)
        return cls(workload, hardware, shape, task, program, target, database, model, builder, runner)

    def batch(self) -> dict[str, Any]:
        """Builds and times the next candidates and refits the model."""
        candidates = self.task.generate_measure_candidates()
        if candidates:
            results = self._measure(list(candidates))
            self.model.update(self.task, candidates, results)
            self.task.notify_runner_results(candidates, results)
        else:
            self.task.post_tuning()
        return {
            "trials": self.trials, "failures": len(self.errors),
            "best_seconds": self.best_seconds, "finished": not candidates,
        }  # fmt: skip

    def _measure(self, candidates: Sequence[Any]) -> list[Any]:
        from tvm.s_tir import meta_schedule as ms

        workload = self.database.commit_workload(self.program)
        inputs = [ms.builder.BuilderInput(c.sch.mod, self.target) for c in candidates]
        results = []
        for candidate, built in zip(candidates, self.builder.build(inputs), strict=True):
            result = self._run(candidate, built)
            record = ms.database.TuningRecord(
                candidate.sch.trace, workload, result.run_secs, self.target, candidate.args_info
            )
            self.database.commit_tuning_record(record)
            self._note(candidate.sch, result)
            results.append(result)
        return results

    def _run(self, candidate: Any, built: Any) -> Any:
        from tvm.s_tir import meta_schedule as ms

        if built.error_msg is not None:
            return ms.runner.RunnerResult(None, built.error_msg)
        question = ms.runner.RunnerInput(built.artifact_path, "cpu", candidate.args_info)
        (future,) = self.runner.run([question])
        shutil.rmtree(Path(str(built.artifact_path)).parent, ignore_errors=True)
        return future.result()

    def _note(self, schedule: Any, result: Any) -> None:
        self.trials += 1
        if result.error_msg is not None:
            self.errors.append(_last_line(str(result.error_msg)))
            return
        seconds = min(float(s) for s in result.run_secs)
        if self.best_seconds is None or seconds < self.best_seconds:
            self.best_seconds, self.best = seconds, schedule

    def save(self, path: Path) -> dict[str, Any]:
        """Compiles the best program with its packing function and checks what they compute.

        Raises:
            MeasureError: if no candidate could be timed.
            BuildError: if the best program is wrong.
        """
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        if self.best is None:
            raise MeasureError(
                f"a candidate for {self.shape} builds and runs", "; ".join(self.errors[:1]),
                "Give more trials or seconds.",
            )  # fmt: skip
        main = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(self.best.mod)["main"]
        layout = weight_layout(self.best)
        size = extents(self.workload, self.shape)
        pack, packed_shape = packing_program(size["cols"], size["depth"], layout)
        library = tvm.compile(tvm.IRModule({"main": main, "pack": pack}), target=self.target)
        library.export_library(str(path))
        return {
            "packed_shape": packed_shape,
            "weights": "K-major" if layout is None else "rewritten",
            "layout": None if layout is None else str(layout),
            "failure_reasons": dict(Counter(self.errors)),
            **self._check(AnsorOperator(path, packed_shape)),
        }

    def _check(self, operator: AnsorOperator) -> dict[str, float]:
        inputs = {name: _aligned(value) for name, value in self.workload.inputs(self.shape).items()}
        reference = self.workload.reference(inputs)
        out = aligned_empty(reference.shape)
        out.fill(np.nan)
        operator.pack(inputs["w"], inputs.get("bias")).bind(inputs["x"], out)()
        error, allowed = float(np.abs(out - reference).max()), tolerance(self.workload, inputs)
        if not error <= allowed:
            raise BuildError(f"the program tuned for {self.shape} errs by at most {allowed:.1e}", error)
        return {"max_error": error, "tolerance": allowed}


def _last_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "no reason given"


def _aligned(array: FloatArray) -> FloatArray:
    copy = aligned_empty(array.shape)
    copy[...] = array
    return copy


def _pools(ms: Any, cores: int) -> tuple[Any, Any]:
    """Processes that build (as many as cores) and one that times candidates, 20 ms each."""
    clock = ansor_hooks.thread_seconds if cores == 1 else ansor_hooks.wall_seconds
    builder = ms.builder.LocalBuilder(
        max_workers=cores, timeout_sec=BUILD_SECONDS, f_build=ansor_hooks.build_candidate
    )
    runner = ms.runner.LocalRunner(
        timeout_sec=RUN_SECONDS, f_run_evaluator=clock,
        evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=30, min_repeat_ms=20),
    )  # fmt: skip
    return builder, runner


def dense_program(workload: Workload, shape: Shape) -> Any:
    """The layer as TE, with weights ``[K, N]`` whose layout the search may rewrite.

    Vectorisation looks at strides before the layout is rewritten, so the weights start K-major.

    Raises:
        WorkloadError: if the workload is no dense layer.
    """
    import tvm
    from tvm import te

    if workload.operator != "dense":
        raise WorkloadError("per-shape auto-scheduling knows the operator dense", workload.operator)
    size = extents(workload, shape)
    rows, cols, depth = size["rows"], size["cols"], size["depth"]
    x = te.placeholder((rows, depth), name="x")
    w = te.placeholder((depth, cols), name="w")
    k = te.reduce_axis((0, depth), name="k")
    y = te.compute(
        (rows, cols), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y",
        attrs={"layout_free_placeholders": [w]},
    )  # fmt: skip
    operands = [x, w, y]
    if workload.epilogue.bias:
        bias = te.placeholder((cols,), name="bias")
        operands = [x, w, bias, te.compute((rows, cols), lambda i, j: y[i, j] + bias[j], name="z")]
    # create_prim_func turns the attribute into layout_free_buffers = [1] of the function.
    function = te.create_prim_func(operands).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})


def weight_layout(schedule: Any) -> Any:
    """The IndexMap from ``[K, N]`` to the layout that RewriteLayout chose; None if it kept it."""
    maps = [
        instruction.inputs[1]
        for instruction in schedule.trace.insts
        if str(instruction.kind.name) == "TransformLayout"
    ]
    return maps[-1] if maps else None


def packing_program(cols: int, depth: int, layout: Any) -> tuple[Any, list[int]]:
    """A program that lays ``w[N, K]`` out as the tuned one reads it, and the shape it gives.

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


class Service:
    """Answers the questions of :mod:`dietlab.evaluation.ansor`."""

    def __init__(self) -> None:
        self._tuner: Tuner | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            self._tuner = Tuner.open(
                workload_from_json(request["workload"]), Hardware.from_json(request["hardware"]),
                Shape.from_json(request["shape"]), int(request["trials"]), int(request["seed"]),
            )  # fmt: skip
            return {"task": f"{self._tuner.workload} at {self._tuner.shape}"}
        if self._tuner is None:
            raise MeasureError("a shape is opened first", request["op"])
        if request["op"] == "batch":
            return self._tuner.batch()
        return self._tuner.save(Path(request["path"]))


if __name__ == "__main__":
    serve(Service())
