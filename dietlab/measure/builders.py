"""Compiles candidates in parallel child processes: a crash or hang of the compiler becomes a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from dietlab.base.errors import BuildError
from dietlab.base.files import remedy_of, write_failure
from dietlab.machine import Hardware
from dietlab.measure.pool import WorkerPool
from dietlab.measure.record import Status, Trial
from dietlab.measure.timing.process import WorkerCrashed, WorkerProcess, WorkerRefused, WorkerTimeout
from dietlab.problem import Workload
from dietlab.scheme import Scheme

BUILDER = "dietlab.measure.build_worker"
"""The module that building processes run."""


@dataclass(frozen=True)
class Built:
    """A library, or the reason why there is none; ``seconds`` is the wall-clock time of building."""

    scheme: Scheme
    path: Path
    answer: dict[str, Any]
    failure: tuple[Status, str] | None
    seconds: float


class Libraries(Protocol):
    """A source of candidates' libraries."""

    def built(self, workload: Workload, trials: Sequence[Trial]) -> list[Built]:
        """Returns a library for each trial, in their order. Builds overlap, so the ``seconds`` of a library
        are its share of the wall-clock time."""


class Builders:
    """A pool of compiling processes that write libraries, and temporary files, to one folder.

    Args:
        workers: the number of parallel builds (default: the number of processors that this process may use).
        timeout: the limit for building one library, in seconds.
        begins: a function that is called before each build. If it raises an error, no further build begins.
    """

    def __init__(
        self,
        hardware: Hardware,
        folder: Path,
        workers: int | None = None,
        timeout: float = 60.0,
        module: str = BUILDER,
        begins: Callable[[], object] = lambda: None,
    ) -> None:
        self._begins = begins
        self._hardware, self._folder, self._timeout = hardware, folder, timeout
        self._workers = WorkerPool(module, workers, scratch=folder)
        self._numbers = count()

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def build(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Built]:
        """Yields a library for each trial, in the order of trials, as soon as it is built.

        Raises:
            BuildError: if libraries cannot be written. No scheme is at fault then.
        """
        return self._workers.each(partial(self._one, workload), trials)

    def built(self, workload: Workload, trials: Sequence[Trial]) -> list[Built]:
        """Returns all libraries at once. The ``seconds`` of a library are its share of the wall-clock
        time."""
        started = perf_counter()
        found = list(self.build(workload, trials))
        wall, busy = perf_counter() - started, sum(built.seconds for built in found) or 1.0
        return [replace(built, seconds=wall * built.seconds / busy) for built in found]

    def _one(self, workload: Workload, worker: WorkerProcess, trial: Trial) -> Built:
        self._begins()
        scheme = trial.scheme
        # Every name is new: for a known path the dynamic loader returns the library that it loaded before.
        path = self._folder / f"{scheme.key}-{next(self._numbers)}.so"
        request = {
            "workload": workload.to_json(),
            "hardware": self._hardware.as_programmed().to_json(),
            "scheme": scheme.key,
            "path": str(path),
            "shapes": [shape.to_json() for shape in trial.shapes],
        }
        started = perf_counter()
        answer: dict[str, Any] = {}
        failure: tuple[Status, str] | None = None
        try:
            answer = worker.ask(request, self._timeout)
        except WorkerTimeout as error:
            failure = ("timeout", f"build: {error}")
        except (WorkerCrashed, WorkerRefused) as error:
            if write_failure(str(error)):
                # No record is made: it would keep the scheme from being tried again.
                raise BuildError(
                    "libraries must be writable", f"{path}: {error}", remedy_of(str(error))
                ) from error
            failure = ("build_failed", str(error))
        return Built(scheme, path, answer, failure or refusal(answer), perf_counter() - started)


def refusal(answer: dict[str, Any]) -> tuple[Status, str] | None:
    """Returns the reason why a built library is not measured: the compiler reports that it does not fit a
    GPU's multiprocessor, or spills registers. Returns None if it is measured."""
    resources = answer.get("resources") or {}
    if resources.get("blocks_per_sm", 1) < 1:
        used = (
            f"{resources['registers']} registers a thread, {resources['shared_bytes']} bytes of shared memory"
        )
        return "refused", f"a block does not fit a multiprocessor: {used}"
    if resources.get("spill_bytes", 0) > 0:
        return "refused", f"{resources['spill_bytes']} bytes of registers are spilled"
    return None
