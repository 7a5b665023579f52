"""The part of a target that evaluates: who takes part, and per-shape tuning."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.problem import Shape, Workload


class WorkerModule(NamedTuple):
    """The module that a contender's process runs, and the seconds until one that does not answer is given
    up."""

    name: str
    seconds: float


BOUNDS = ("ansor", "largest-shape", "oracle")
"""Contenders that are made for the evaluation, on every target."""


class EvaluationTarget(Protocol):
    """The contenders of a target, and TVM's tuner for it."""

    @property
    def VENDORS(self) -> Collection[str]:
        """The names of contenders that are not made of our library; a registry if others can enter some."""

    @property
    def DEFAULTS(self) -> Collection[str]:
        """The contenders of an evaluation that names none."""

    @property
    def WORKER(self) -> WorkerModule:
        """The module that the process of each contender runs."""

    def facts(self) -> dict[str, str]:
        """Returns what stands beside figures of this machine, such as a driver's version."""

    def require_form(self, workload: Workload) -> None:
        """Checks that there are a program and sketch rules for per-shape tuning.

        Raises:
            NoFormError: if there are none.
        """

    def ansor_tools(self, hardware: Hardware, timer: str | None) -> dict[str, str]:
        """Returns the versions of compilers that decide what per-shape tuning finds.

        Args:
            timer: the module that times candidates (None: that of our own, which needs the processor).

        Raises:
            MeasureError, MissingDependencyError: if the processor or a compiler is not here.
        """

    def ansor_platform(self, workload: Workload, hardware: Hardware, shape: Shape, timer: str) -> Any:
        """Returns the :class:`~dietlab.compare.ansor.worker.Platform` of one shape."""


def evaluation_target(name: str) -> EvaluationTarget:
    """Returns the part of a target that evaluates."""
    found: EvaluationTarget = part(name, "contenders")
    return found
