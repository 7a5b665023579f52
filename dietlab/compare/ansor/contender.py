"""Ansor's method as TVM ships it today: one static tuning for each shape.

MetaSchedule (sketch rules, evolutionary search, XGBoost) tunes static shapes only. What it tunes for differs
by the processor:

- On a CPU weights are constant, so the fair form lets the search choose their layout too
  (``layout_free_buffers``): each library holds ``main``, the tuned program, and ``pack``, which lays
  the weights out for it, once and outside of the timed call (:mod:`~dietlab.targets.cpu.ansor`).
- On a GPU each library holds ``run``, which takes all operands as they are
  (:mod:`~dietlab.targets.cuda.ansor`).

A folder of results holds ``<shape>.so`` and ``<shape>.json`` for each shape; the JSON is written
last, so a shape is either complete or absent, and a second call resumes interrupted tuning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from dietlab.base.cards import counted
from dietlab.base.errors import MeasureError, MissingDependencyError, RecordError
from dietlab.base.events import Audience, Observer, TrialMeasured, audience
from dietlab.base.files import read_json, reading, write_json
from dietlab.compare.target import evaluation_target
from dietlab.compare.vendor import contender_env
from dietlab.machine import Hardware
from dietlab.measure.local import TIMER
from dietlab.measure.timing.contender import NotTunedError
from dietlab.measure.timing.process import WorkerProcess
from dietlab.measure.timing.threads import host_threads
from dietlab.problem import Shape, Workload
from dietlab.tuning.manifest import installed

SCHEMA_VERSION = 1
WORKER = "dietlab.compare.ansor.worker"
"""The module of the process that tunes."""

OPEN_SECONDS = 300.0
"""The longest that it may take to generate the design space, or to save the best program, in seconds."""

BATCH_SECONDS = 900.0
"""The longest that one batch of candidates may take, in seconds."""

VERSIONED = ("apache-tvm", "apache-tvm-ffi", "xgboost", "xgboost-cpu")
"""The packages that influence what the search finds."""

NEEDED = {"tvm": "apache-tvm", "xgboost": "xgboost-cpu", "psutil": "psutil", "cloudpickle": "cloudpickle"}
"""For each module that MetaSchedule's tuner imports, the package that provides it. TVM's wheel does not
require the other three."""


@dataclass(frozen=True)
class AnsorResult:
    """One tuned shape.

    Args:
        trials, failures: the number of measured candidates, and the number of those that failed.
        seconds: the wall-clock time of tuning, including the start of the processes.
        gflops: GFLOP/s of the best program, as tuning measured it: with hot caches on a CPU, with rotating
            operands on a GPU.
    """

    shape: Shape
    trials: int
    failures: int
    seconds: float
    gflops: float
    library: Path


def cost_of(results: Sequence[AnsorResult]) -> dict[str, Any]:
    """Returns the cost of tunings, in the form of a report's ``tuning``: the seconds and the trials by shape,
    and the total number of failures."""
    return {
        "ansor_seconds": {str(r.shape): round(r.seconds, 2) for r in results},
        "ansor_trials": {str(r.shape): r.trials for r in results},
        "ansor_failures": sum(r.failures for r in results),
    }


def detail_of(results: Sequence[AnsorResult]) -> str:
    """Returns a sentence on tunings, for a table of contenders."""
    counts = sorted(result.trials for result in results)
    spent = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    tuned, seconds = counted(len(results), "shape"), sum(result.seconds for result in results)
    return f"{spent} trials a shape, {tuned} tuned in {seconds:.0f} s (about 1000 trials a shape are usual)"


def tune_static(
    workload: Workload,
    hardware: Hardware,
    shape: Shape,
    folder: str | Path,
    trials: int = 64,
    seconds: float | None = None,
    *,
    seed: int = 0,
    observers: Iterable[Observer] | None = None,
    timer: str | None = None,
) -> AnsorResult:
    """Tunes one shape, or loads it if ``folder`` holds it with the same settings.

    Args:
        trials: the largest number of candidates to measure; about 1000 a shape are usual for Ansor.
        seconds: the wall-clock time of tuning, which stops after the batch that exceeds this time.
        observers: receivers of an event for each batch, in a stage with ``trials`` units of work.
        timer: the module of the worker that verifies and times candidates for a GPU (default: the worker of
            our own candidates, which needs the GPU).

    Raises:
        NoFormError: if the processor's sketch rules do not support the workload.
        MeasureError: if this machine lacks the GPU, the worker fails, or no candidate could be timed.
        MissingDependencyError: if apache-tvm, a package of its tuner, or a GPU's CUDA compiler is absent.
    """
    target = evaluation_target(hardware.kind)
    target.require_form(workload)
    path = _library_path(Path(folder), shape)
    settings = _settings(workload, hardware, shape, trials, seed)
    saved = _read(path.with_suffix(".json"))
    if saved is not None and path.is_file() and _without_figures(saved["settings"]) == settings:
        return _result(shape, path, saved)
    if trials < 1:
        raise MeasureError("tuning needs at least one trial", trials)
    require_packages()
    tools = target.ansor_tools(hardware, timer)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").unlink(missing_ok=True)
    opening = {**settings, "timer": timer or TIMER}
    with WorkerProcess(WORKER, contender_env(host_threads(hardware))) as worker:
        found = _search(worker, opening, seconds, audience(observers), workload.flops(shape))
        found |= worker.ask({"op": "save", "path": str(path)}, OPEN_SECONDS)
    versions = {**installed(*VERSIONED), **tools}
    found |= {"schema_version": SCHEMA_VERSION, "settings": settings, "versions": versions}
    found["gflops"] = workload.flops(shape) / found["best_seconds"] / 1e9
    write_json(path.with_suffix(".json"), found)
    return _result(shape, path, found)


def _search(
    worker: WorkerProcess, opening: Mapping[str, Any], seconds: float | None, listeners: Audience, flops: int
) -> dict[str, Any]:
    """Runs batches until the trials or the seconds are spent, and returns the last answer."""
    started = monotonic()
    shape = str(Shape.from_json(opening["shape"]))
    state: dict[str, Any] = {"trials": 0, "failures": 0, "best_seconds": None, "finished": False}
    with listeners.stage(f"ansor {shape}", opening["trials"], "trial") as step:
        worker.ask({"op": "open", **opening}, OPEN_SECONDS)
        while not state["finished"] and (seconds is None or monotonic() - started < seconds):
            state = worker.ask({"op": "batch"}, BATCH_SECONDS)
            best = state["best_seconds"]
            gflops = flops / best / 1e9 if best else 0.0
            if state["trials"] > step.done:
                step.advance(f"{gflops:.1f} GFLOP/s", state["trials"] - step.done)
                status = "ok" if best else "failed"
                listeners.send(TrialMeasured("ansor", shape, gflops, status, state["trials"]))
    return {**state, "seconds": monotonic() - started}


def _library_path(folder: Path, shape: Shape) -> Path:
    return folder / f"{str(shape) or 'static'}.so"


def _settings(workload: Workload, hardware: Hardware, shape: Shape, trials: int, seed: int) -> dict[str, Any]:
    """Returns the settings that equal tunings share."""
    return _without_figures(
        {
            "workload": workload.to_json(),
            "hardware": hardware.to_json(),
            "shape": shape.to_json(),
            "trials": trials,
            "seed": seed,
        }
    )


def _without_figures(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings without measured figures of the hardware, which differ from one measurement to the
    next."""
    figures = dict.fromkeys(("peak_gflops", "dram_gbps", "l3_gbps", "l3_mib"))
    return {**settings, "hardware": {**settings["hardware"], **figures, "source": "tuning"}}


def _result(shape: Shape, path: Path, saved: Mapping[str, Any]) -> AnsorResult:
    trials, failures = int(saved["trials"]), int(saved["failures"])
    return AnsorResult(shape, trials, failures, float(saved["seconds"]), float(saved["gflops"]), path)


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    with reading(RecordError, "a result of tuning must be readable JSON", path, "Delete it."):
        value: dict[str, Any] = read_json(path)
    return value if value.get("schema_version") == SCHEMA_VERSION else None


def require_packages() -> None:
    """Raises :class:`MissingDependencyError` unless the packages that MetaSchedule needs are installed."""
    absent = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if absent:
        raise MissingDependencyError(
            "per-shape auto-scheduling needs apache-tvm, xgboost, psutil and cloudpickle",
            f"no {', '.join(absent)}",
            f"pip install {' '.join(absent)}",
        )


def tuned_library(folder: str | Path, shape: Shape) -> tuple[Path, Mapping[str, Any]]:
    """Returns the library that was tuned for ``shape`` and the contents of its JSON, or raises
    :class:`NotTunedError`."""
    path = _library_path(Path(folder), shape)
    saved = _read(path.with_suffix(".json"))
    if saved is None or not path.is_file():
        raise NotTunedError(
            "a shape must have been tuned",
            f"no library for {shape} in {folder}",
            "Tune it with tune_static(), or leave it out for this contender.",
        )
    return path, saved
