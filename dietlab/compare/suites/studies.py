"""Tunes and builds the studies of a bench: those of its tasks, and each layer's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietlab.base.cards import counted
from dietlab.base.errors import DietlabError, DispatchError
from dietlab.base.events import Audience
from dietlab.compare.lineup import libraries_entrant
from dietlab.compare.results.report import study_folder
from dietlab.compare.session import Entrant
from dietlab.compare.study import Study
from dietlab.compare.suites.every_layer import OWN
from dietlab.compare.suites.memory import PeakMemory
from dietlab.compare.suites.suite import own_task
from dietlab.compare.suites.task import Task
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner
from dietlab.tuning import Operator


@dataclass(frozen=True)
class OwnLibraries:
    """The libraries of single layers, the seconds of tuning by layer, and the reasons why layers have no
    library."""

    operators: tuple[Operator, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def entrants(self) -> tuple[Entrant, ...]:
        """The one contender with all libraries; empty without a library."""
        if not self.operators:
            return ()
        seconds = sum(self.seconds.values())
        detail = f"{counted(len(self.operators), 'layer')}, each tuned alone, in {seconds:.0f} s together"
        return (libraries_entrant(OWN, "own tuning", self.operators, detail),)

    @property
    def facts(self) -> dict[str, Any]:
        """Their cost and failures, as facts of the task's tuning."""
        facts = {"own_seconds": dict(self.seconds), "own_failures": dict(self.failures)}
        return {name: value for name, value in facts.items() if value}


def study_of(task: Task, home: Path, hardware: Hardware, tuning: str) -> Study:
    """Returns a task's study in ``home``: an equal study that is there, or a new one. Raises
    :class:`StudyError` if another study is there. ``tuning`` is the effort of tuning."""
    return Study.create(
        home / study_folder(task.name, hardware.cores),
        task.workload,
        hardware,
        task.shapes,
        tuning,
        max_kernels=task.max_kernels,
    )


def built(study: Study, listeners: Audience) -> Operator:
    """Returns the study's operator; tunes, dispatches and builds it first if there is none."""
    try:
        return study.operator()
    except DispatchError:
        with LocalRunner(study.hardware, study.timing) as runner:
            study.tune(runner, listeners.observers)
        study.dispatch()
        return study.build(listeners.observers)


def watched(study: Study, listeners: Audience) -> tuple[Operator, int | None]:
    """Returns two values: the study's operator, and the peak memory of tuning in bytes (None if nothing was
    tuned now)."""
    memory = PeakMemory()
    op = built(study, Audience((memory, *listeners.observers)))
    return op, memory.bytes


def own_libraries(
    task: Task, evaluation: str, hardware: Hardware, out: Path, tuning: str, listeners: Audience
) -> OwnLibraries:
    """Tunes and builds the libraries of single layers in the bench's folder, unless they are there.

    Args:
        evaluation: the bench's effort, which determines the number of layers.
        tuning: the effort of tuning.
    """
    if task.layers is None or OWN not in task.against:
        return OwnLibraries()
    owners = task.layers.owners(evaluation)
    operators, seconds, failures = [], dict[str, float](), dict[str, str]()
    with listeners.stage("own libraries", len(owners), "layer") as progress:
        for layer in owners:
            alone = own_task(task, layer)
            try:
                study = study_of(alone, out, hardware, tuning)
                operators.append(built(study, listeners))
                seconds[str(layer)] = round(study.run().seconds.total, 2)
            except DietlabError as error:
                failures[str(layer)] = str(error)
            progress.advance(str(layer))
    return OwnLibraries(tuple(operators), seconds, failures)
