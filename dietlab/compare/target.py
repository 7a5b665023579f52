"""The part of a target that evaluates: contenders, and per-shape tuning."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.problem import Shape, Workload


class WorkerModule(NamedTuple):
    """The module that a contender's process runs, and the longest that an answer may take, in seconds."""

    name: str
    seconds: float


BOUNDS = ("ansor", "largest-shape", "oracle")
"""Contenders that are built or tuned for the evaluation, on every target."""


class EvaluationTarget(Protocol):
    """The contenders of a target, and TVM's tuner for it."""

    @property
    def VENDORS(self) -> Collection[str]:
        """The names of vendors; a registry if others can enter some."""

    @property
    def DEFAULTS(self) -> Collection[str]:
        """The default contenders of an evaluation."""

    @property
    def WORKER(self) -> WorkerModule:
        """The module that the process of each contender runs."""

    def facts(self) -> dict[str, str]:
        """Returns facts about this machine that a report states with its figures, such as a driver's
        version."""

    def require_form(self, workload: Workload) -> None:
        """Checks that per-shape tuning has a program and sketch rules for the workload.

        Raises:
            NoFormError: if it has none.
        """

    def ansor_tools(self, hardware: Hardware, timer: str | None) -> dict[str, str]:
        """Returns the versions of compilers that influence what per-shape tuning finds.

        Args:
            timer: the module that times candidates (None: the module for our candidates, which needs the
                processor).

        Raises:
            MeasureError, MissingDependencyError: if the processor or a compiler is not here.
        """

    def ansor_platform(self, workload: Workload, hardware: Hardware, shape: Shape, timer: str) -> Any:
        """Returns the :class:`~dietlab.compare.ansor.worker.Platform` of one shape."""


def evaluation_target(name: str) -> EvaluationTarget:
    """Returns the part of a target that evaluates."""
    found: EvaluationTarget = part(name, "contenders")
    return found
