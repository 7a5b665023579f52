"""Tunes one static shape with MetaSchedule, a batch for each request, and saves the best program.

``python -m dietlab.compare.ansor.worker`` answers requests of :mod:`dietlab.compare.ansor.contender`, for one
shape at a time::

    {"op": "open", "workload": .., "hardware": .., "shape": .., "trials": 64, "seed": 0, "timer": module}
        -> {"task": ..}
    {"op": "batch"}               -> {"trials", "failures", "best_seconds", "finished"}
    {"op": "save", "path": ".so"} -> {"failure_reasons", "max_error", "tolerance"} and what else the
                                     platform's ``save`` returns

The loop over batches is the loop of TVM's task scheduler with one task, but here the caller runs it, so that
the caller can watch, stop and time the batches. The loop is the same on every processor; a :class:`Platform`
holds the processor's part.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dietlab.base.errors import MeasureError
from dietlab.compare.ansor.builders import built
from dietlab.compare.target import evaluation_target
from dietlab.machine import Hardware
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.process import serve
from dietlab.problem import Shape, workload_from_json

BATCH = 16
"""The number of candidates measured between two fits of the cost model. TVM's default of 64 would be the
whole of a small budget."""

WARMUP_SAMPLES = 32
"""The least number of measured candidates with which XGBoost ranks new ones. With TVM's default of 100 a
small budget would be searched at random."""

POPULATION = 512
"""The largest number of programs in a generation."""

BRED = 8
"""The largest number of programs in a generation for each trial of the budget: three trials need no
population of hundreds."""

FEWEST_FRESH = 50
"""The least number of programs in the first generation that were never measured (TVM's default)."""

DRAWS = 5
"""The number of draws of a population without a new program after which the search gives up (TVM's
default)."""


class Platform(Protocol):
    """A processor's part of the search: the program, its sketch rules, and how candidates are timed."""

    @property
    def program(self) -> Any:
        """The module whose ``main`` is tuned."""

    @property
    def target(self) -> Any: ...

    @property
    def rules(self) -> str:
        """MetaSchedule's name of the sketch rules, postprocessors and mutators."""

    @property
    def threads(self) -> int:
        """The number of threads of the search itself, on this machine's processor."""

    @property
    def builders(self) -> WorkerPool:
        """The processes that compile candidates (:func:`~dietlab.compare.ansor.builders.builders`)."""

    def seconds(self, candidate: Any, library: Path) -> float:
        """Returns the seconds of a call."""

    def save(self, schedule: Any, path: Path) -> dict[str, Any]:
        """Writes the scheduled program as a library that a contender loads. Returns facts about the library,
        at least ``max_error`` and ``tolerance``.

        Raises:
            BuildError: if its result is wrong.
        """


@dataclass
class Tuner:
    """The search of one shape: the best schedule so far, and counts of trials."""

    platform: Platform
    task: Any
    database: Any
    model: Any
    trials: int = 0
    errors: list[str] = field(default_factory=list)
    best_seconds: float | None = None
    best: Any = None

    @classmethod
    def open(cls, platform: Platform, trials: int, seed: int) -> Tuner:
        """Generates the design space by the sketch rules."""
        from tvm.s_tir import meta_schedule as ms

        rules, threads = platform.rules, platform.threads
        population = min(POPULATION, BRED * trials)
        search = ms.search_strategy.EvolutionarySearch(
            population_size=population,
            init_min_unmeasured=min(FEWEST_FRESH, population // 2),
            max_fail_count=DRAWS * POPULATION // population,
        )
        database = ms.database.MemoryDatabase()
        model = ms.cost_model.XGBModel(num_warmup_samples=WARMUP_SAMPLES, num_tuning_cores=threads)
        task = ms.TuneContext(
            platform.program,
            target=platform.target,
            space_generator=ms.space_generator.PostOrderApply(
                sch_rules=rules, postprocs=rules, mutator_probs=rules
            ),
            search_strategy=search,
            rand_state=seed + 1,
            num_threads=threads,
        )
        task.pre_tuning(trials, min(BATCH, trials), None, database, model)
        return cls(platform, task, database, model)

    def batch(self) -> dict[str, Any]:
        """Builds and times the next candidates, then refits the model."""
        candidates = self.task.generate_measure_candidates()
        if candidates:
            results = self._measure(list(candidates))
            self.model.update(self.task, candidates, results)
            self.task.notify_runner_results(candidates, results)
        else:
            self.task.post_tuning()
        return {
            "trials": self.trials,
            "failures": len(self.errors),
            "best_seconds": self.best_seconds,
            "finished": not candidates,
        }

    def _measure(self, candidates: Sequence[Any]) -> list[Any]:
        from tvm.s_tir import meta_schedule as ms

        platform = self.platform
        workload = self.database.commit_workload(platform.program)
        programs = [candidate.sch.mod for candidate in candidates]
        libraries = list(platform.builders.each(partial(built, platform.target), programs))
        results = []
        for candidate, library in zip(candidates, libraries, strict=True):
            result = self._run(candidate, library)
            record = ms.database.TuningRecord(
                candidate.sch.trace, workload, result.run_secs, platform.target, candidate.args_info
            )
            self.database.commit_tuning_record(record)
            results.append(result)
        return results

    def _run(self, candidate: Any, library: Path | MeasureError) -> Any:
        """Counts a trial and returns its result in MetaSchedule's type."""
        from tvm.s_tir import meta_schedule as ms

        self.trials += 1
        if isinstance(library, MeasureError):
            return self._failed(str(library))
        try:
            seconds = self.platform.seconds(candidate, library)
        except MeasureError as error:
            return self._failed(str(error))
        finally:
            shutil.rmtree(library.parent, ignore_errors=True)
        if self.best_seconds is None or seconds < self.best_seconds:
            self.best_seconds, self.best = seconds, candidate.sch
        return ms.runner.RunnerResult([seconds], None)

    def _failed(self, message: str) -> Any:
        from tvm.s_tir import meta_schedule as ms

        self.errors.append(_last_line(message))
        return ms.runner.RunnerResult(None, message)

    def save(self, path: Path) -> dict[str, Any]:
        """Writes the best program as a library, and returns facts about the library."""
        if self.best is None:
            rule = "at least one candidate must build and run"
            raise MeasureError(rule, "; ".join(self.errors[:1]), "Give more trials or seconds.")
        return {"failure_reasons": dict(Counter(self.errors)), **self.platform.save(self.best, path)}


def _last_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "no reason given"


class AnsorService:
    """Answers the requests of :mod:`dietlab.compare.ansor.contender`."""

    def __init__(self) -> None:
        self._tuner: Tuner | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            shape = Shape.from_json(request["shape"])
            hardware = Hardware.from_json(request["hardware"])
            platform: Platform = evaluation_target(hardware.kind).ansor_platform(
                workload_from_json(request["workload"]), hardware, shape, request["timer"]
            )
            self._tuner = Tuner.open(platform, int(request["trials"]), int(request["seed"]))
            return {"task": str(shape)}
        if self._tuner is None:
            raise MeasureError("a shape must be opened first", request["op"])
        if request["op"] == "batch":
            return self._tuner.batch()
        return self._tuner.save(Path(request["path"]))


if __name__ == "__main__":
    serve(AnsorService())
