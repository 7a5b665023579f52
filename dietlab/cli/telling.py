"""Texts that a command prints in addition to its result: progress, text between two stages, the next
command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from dietlab.base.cards import counted
from dietlab.base.events import Observer
from dietlab.base.registry import Registry
from dietlab.machine import Hardware
from dietlab.problem import Workload
from dietlab.view.progress_bar import ProgressBar

TUNING = ("search", "decide")
BUILDING = ("build",)
NEXT = {
    "tune": "dietlab build {}",
    "dispatch": "dietlab build {}",
    "build": "dietlab evaluate {}",
    "evaluate": "dietlab ablate {}",
    "survey": "dietlab replay {}",
    "bench": "dietlab bench --out {} --pack results.csv.gz",
    "quickstart": "dietlab evaluate {} --shapes every",
}
"""The command to run after each command; ``{}`` is the study's folder or the survey's file."""

quiet_option = click.option("--quiet", is_flag=True, help="Print the result and errors only.")


def evaluating(against: Iterable[str]) -> tuple[str, ...]:
    """Returns the stages of an evaluation; per-shape tuning is one if it is among the contenders."""
    return ("prepare", *(["ansor"] if "ansor" in against else []), "open", "evaluate")


def tuned_for(workload: Workload, hardware: Hardware) -> str:
    """Returns the first line of a command that measures: operator, processor, and how much of it."""
    return f"{workload} on {hardware.name}, {counted(hardware.cores, hardware.limits.unit)}"


class Telling:
    """The progress of a command, ``with Telling("tune", TUNING, quiet) as telling: ...``.

    Args:
        stages: the command's stages, in their order, or with their shares of its time.
        quiet: whether to print nothing but the result.

    Attributes:
        observers: the observers to which the stages send their events.
    """

    def __init__(
        self, command: str, stages: Iterable[str] | Mapping[str, float], quiet: bool = False
    ) -> None:
        self._command, self._quiet = command, quiet
        self._bar = ProgressBar(command, stages)
        self.observers: tuple[Observer, ...] = () if quiet else (self._bar,)

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Prints a text between two stages."""
        if not self._quiet:
            self._bar.clear()
            click.echo(text)

    def suggest(self, made: str | Path) -> None:
        """Prints the next command, as the last line of the result. It imports what this one imported: files
        of the study name it."""
        context = click.get_current_context(silent=True)
        given = context.find_root().params.get("modules", ()) if context else ()
        entered = (name for registry in Registry.all for name in registry.entered if ":" in name)
        imports = "".join(f" --import {name}" for name in dict.fromkeys((*given, *entered)))
        command = NEXT[self._command].format(shlex.quote(str(made)))
        self.say(f"next: {command.replace('dietlab', 'dietlab' + imports, 1)}")
