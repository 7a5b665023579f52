"""Runs the steps of a reproduction in a folder, goes on where it was stopped, and keeps their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Literal

from dietlab.base.errors import DietlabError, MissingDependencyError, StudyError, require_names
from dietlab.base.events import Audience, Event, Observer, Stage
from dietlab.base.files import locked, read_json, reading, write_json
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.lab.reproduce.amounts import amounts_named
from dietlab.lab.reproduce.experiments import RESULTS, Settings
from dietlab.lab.reproduce.steps import STEPS, Step
from dietlab.machine import Hardware
from dietlab.tuning import versions

FACTS = "reproduce.json"
SCHEMA_VERSION = 1
UNIT = "estimated second"
"""The unit of a step's progress: a second of its estimate."""

State = Literal["not run", "done", "stopped", "failed", "absent"]


@dataclass(frozen=True)
class Outcome:
    """The state of a step, the seconds that it took in all sittings, its files, and the reason why it is not
    done."""

    state: State
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A folder with the paper's experiments on one processor.

    Args:
        folder: of everything.
        effort: how much is measured.
        hardware: the processor, with as many cores as operators use.
        versions: of packages, when it was begun.
        started: when that was, ISO 8601.
        outcomes: by the steps' names.
    """

    folder: Path
    effort: str
    hardware: Hardware
    versions: Mapping[str, str]
    started: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        """The folder of its records."""
        return self.folder / RESULTS

    @classmethod
    def open(cls, folder: str | Path) -> Reproduction:
        """Returns the reproduction in a folder.

        Raises:
            StudyError: if there is none, or it is of another schema.
        """
        path = Path(folder) / FACTS
        remedy = "`dietlab reproduce --out FOLDER` begins one."
        with reading(StudyError, f"a reproduction has a readable {FACTS}", path, remedy):
            value = read_json(path)
        schema = value.get("schema_version") if isinstance(value, dict) else None
        if schema != SCHEMA_VERSION:
            raise StudyError(f"a reproduction has schema {SCHEMA_VERSION}", f"{path}: {schema}", remedy)
        with reading(StudyError, f"{FACTS} of a reproduction has all its fields", path, remedy):
            value |= {
                "hardware": Hardware.from_json(value["hardware"]),
                "outcomes": {
                    name: Outcome(**{**found, "files": tuple(found["files"])})
                    for name, found in value["outcomes"].items()
                },
            }
            return cls(Path(folder), *(value[field.name] for field in fields(cls)[1:]))

    def with_outcome(self, name: str, outcome: Outcome) -> Reproduction:
        """Returns it with another outcome of a step, which is on disk then."""
        changed = replace(self, outcomes={**self.outcomes, name: outcome})
        changed.save()
        return changed

    def save(self) -> None:
        """Writes what :meth:`open` reads."""
        value = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        outcomes = {name: asdict(outcome) for name, outcome in self.outcomes.items()}
        value |= {"hardware": self.hardware.to_json(), "outcomes": outcomes}
        write_json(self.folder / FACTS, {"schema_version": SCHEMA_VERSION, **value})

    def left(self, only: Sequence[str] = (), steps: Mapping[str, Step] = STEPS) -> tuple[Step, ...]:
        """Returns the steps that are still to be done, of all or of some.

        Raises:
            DietlabError: if there is no step of such a name.
        """
        require_names("steps of a reproduction", steps, only)
        done = {
            name
            for name, outcome in self.outcomes.items()
            if outcome.state == "done" and all((self.folder / file).exists() for file in outcome.files)
        }
        return tuple(step for name, step in steps.items() if (not only or name in only) and name not in done)


def begun(folder: str | Path, effort: str = "quick", threads: int = 1) -> Reproduction:
    """Returns the reproduction in a folder, which is begun there if there is none.

    Raises:
        StudyError: if the folder has one of another effort, processor or number of cores, or there are fewer
            cores.
        DietlabError: if there is no such effort.
    """
    amounts_named(effort)
    here = Hardware.detect(measure=False)
    if not 1 <= threads <= here.cores:
        raise StudyError(f"threads are 1 to {here.cores}, the cores of this machine", threads)
    path = Path(folder)
    if (path / FACTS).exists():
        found = Reproduction.open(path)
        same = (found.effort, found.hardware.cores) == (effort, threads)
        if not same or not found.hardware.is_same_as(here):
            raise StudyError(
                f"the reproduction in {path} has this effort, number of threads and processor",
                f"{effort}, {threads}, {here.name}",
                f"It has {found.effort}, {found.hardware.cores}, {found.hardware.name}. Use another --out.",
            )
        return found
    (path / RESULTS).mkdir(parents=True, exist_ok=True)
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    made = Reproduction(path, effort, here.with_cores(threads).measured(), versions(), started)
    made.save()
    return made


def reproduce(
    work: Reproduction,
    only: Sequence[str] = (),
    *,
    observers: Iterable[Observer] = (),
    deadline: Deadline | None = None,
    steps: Mapping[str, Step] = STEPS,
) -> Reproduction:
    """Runs the steps that are left, each in turn; what was measured is not measured again.

    A step that lacks a package is absent, one with an error has failed, each with the reason; the others go
    on.

    Args:
        work: from :func:`begun`; the outcomes that count are those on disk.
        only: names of steps (default: all).
        observers: get a stage for each step, in seconds of its estimate, and the events in it.
        deadline: when to stop at the latest.

    Raises:
        StudyError: if another process works in the folder.
        DietlabError: if there is no step of such a name.
    """
    deadline = deadline or Deadline()
    listeners = Audience((*observers, deadline))
    with locked(work.folder, "one reproduction at a time works in a folder"):
        work = Reproduction.open(work.folder)  # another process may have worked on it meanwhile
        for step in work.left(only, steps):
            work = _attempt(work, step, listeners, deadline)
            if work.outcomes[step.name].state == "stopped":
                break
    return work


def _attempt(work: Reproduction, step: Step, listeners: Audience, deadline: Deadline) -> Reproduction:
    """Runs one step as a stage that advances with the time; whatever ends it, its outcome is kept."""
    before, started = work.outcomes.get(step.name, Outcome("not run")).seconds, perf_counter()
    outcome, total = Outcome("stopped", reason="The same command goes on."), round(step.seconds[work.effort])
    try:
        step.require()
        with listeners.stage(step.name, total, UNIT) as stage:
            inside = Audience((*listeners.observers, EstimatedProgress(stage, total)))
            settings = Settings(amounts_named(work.effort), work.hardware, inside, deadline)
            files = step.run(work.folder, settings)
            if deadline.left is None:
                stage.advance(by=total - stage.done)
                outcome = Outcome("done", files=tuple(str(file.relative_to(work.folder)) for file in files))
    except OutOfTime:
        pass
    except MissingDependencyError as error:
        outcome = Outcome("absent", reason=str(error))
    except DietlabError as error:
        outcome = Outcome("failed", reason=str(error))
    finally:
        seconds = round(before + perf_counter() - started, 1)
        work = work.with_outcome(step.name, replace(outcome, seconds=seconds))
    return work


class EstimatedProgress:
    """An observer that advances a step with the time, as often as something happens in it, up to a second
    before its estimate: the step itself knows when it is over."""

    def __init__(self, stage: Stage, total: int) -> None:
        self._stage, self._total, self._started = stage, total, perf_counter()

    def on_event(self, event: Event) -> None:
        due = min(self._total - 1, int(perf_counter() - self._started))
        if due > self._stage.done:
            self._stage.advance(by=due - self._stage.done)
