"""Runs the steps of a reproduction in a folder, goes on where it was stopped, and keeps their outcomes; shows
them as one self-contained HTML page, as text, and its figures as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from dietlab.base.errors import DietlabError, MissingDependencyError, StudyError, require_names
from dietlab.base.events import Audience, Event, Observer, Stage
from dietlab.base.files import locked, read_json, reading, write_json, write_whole
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.lab.reproduce.findings import claims_table
from dietlab.lab.reproduce.paper import amounts_named, read_claims
from dietlab.lab.reproduce.steps import RESULTS, STEPS, Settings, Step
from dietlab.machine import Hardware
from dietlab.tuning import versions
from dietlab.view.figures.results import plot_speedup
from dietlab.view.pages.bench_text import Table, contender_table, markdown, notes_of, study_table, who_table
from dietlab.view.pages.page import figure_markup, render_page
from dietlab.view.progress import duration

if TYPE_CHECKING:
    import plotly.graph_objects as go

FACTS = "reproduce.json"
SCHEMA_VERSION = 1
UNIT = "estimated second"
"""The name of the unit of a step's progress: a second of its estimate."""

State = Literal["not run", "done", "stopped", "failed", "absent"]


@dataclass(frozen=True)
class Outcome:
    """The state of a step, its seconds in all sittings, its files, and the reason why it is not done."""

    state: State
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A folder with the paper's experiments on one processor, with as many cores as operators use. It has the
    packages' versions, the time at which it was begun (ISO 8601), and the outcomes by the steps' names.
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
        """Returns the reproduction in a folder."""
        path = Path(folder) / FACTS
        remedy = "`dietlab reproduce --out FOLDER` begins one."
        with reading(StudyError, f"a reproduction must have a readable {FACTS}", path, remedy):
            value = read_json(path)
        schema = value.get("schema_version") if isinstance(value, dict) else None
        if schema != SCHEMA_VERSION:
            raise StudyError(f"a reproduction must have schema {SCHEMA_VERSION}", f"{path}: {schema}", remedy)
        with reading(StudyError, f"{FACTS} of a reproduction must have all its fields", path, remedy):
            for found in value["outcomes"].values():
                found["files"] = tuple(found["files"])
            outcomes = {name: Outcome(**found) for name, found in value["outcomes"].items()}
            value |= {"hardware": Hardware.from_json(value["hardware"]), "outcomes": outcomes}
            return cls(Path(folder), *(value[field.name] for field in fields(cls)[1:]))

    def with_outcome(self, name: str, outcome: Outcome) -> Reproduction:
        """Returns the reproduction with another outcome of a step, and saves it."""
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
        """Returns the steps that are not done: all of them, or those among ``only``."""
        require_names("steps of a reproduction", steps, only)
        done = {
            name
            for name, outcome in self.outcomes.items()
            if outcome.state == "done" and all((self.folder / file).exists() for file in outcome.files)
        }
        return tuple(step for name, step in steps.items() if (not only or name in only) and name not in done)


def begun(folder: str | Path, effort: str = "quick", threads: int = 1) -> Reproduction:
    """Returns the reproduction in a folder; begins one if there is none."""
    amounts_named(effort)
    here = Hardware.detect(measure=False)
    if not 1 <= threads <= here.cores:
        raise StudyError(f"threads must be 1 to {here.cores}, the cores of this machine", threads)
    path = Path(folder)
    if (path / FACTS).exists():
        found = Reproduction.open(path)
        same = (found.effort, found.hardware.cores) == (effort, threads)
        if not same or not found.hardware.is_same_as(here):
            rule = f"the reproduction in {path} must be continued with its effort, threads and processor"
            other = (
                f"It has {found.effort}, {found.hardware.cores}, {found.hardware.name}. Use another --out."
            )
            raise StudyError(rule, f"{effort}, {threads}, {here.name}", other)
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
    """Runs the steps that are not done, one after the other; saved measurements are not repeated. A step
    without a required package becomes ``absent``, and a step with an error becomes ``failed``. Both keep the
    reason, and the other steps still run.
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
    """Runs one step as a stage whose progress follows the clock; saves the outcome however the step ends."""
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
    """An observer that sets a step's progress to the seconds passed, at most one second less than the
    estimate."""

    def __init__(self, stage: Stage, total: int) -> None:
        self._stage, self._total, self._started = stage, total, perf_counter()

    def on_event(self, event: Event) -> None:
        due = min(self._total - 1, int(perf_counter() - self._started))
        if due > self._stage.done:
            self._stage.advance(by=due - self._stage.done)


# --- what readers get -------------------------------------------------------------------------


PAGE, TEXT, FIGURES = "reproduce.html", "claims.md", "figures"
"""The files of a reproduction for readers."""

NOT_RUN = Outcome("not run")
STEP_HEADER = ("step", "state", "took", "estimate", "reason")


def render_reproduction(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> str:
    """Returns the page: all claims, the state of each step, and a section on each step with its claims,
    figures and tables.
    """
    return render_page(
        "reproduce.html.j2",
        f"The paper's experiments on {work.hardware.name}",
        lines=_about(work),
        claims=claims_table(read_claims(), work.results),
        steps=step_table(work, steps),
        sections=[_section(work, step) for step in steps.values()],
    )


def write_reproduction(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> Path:
    """Writes the page, and each of its figures as a picture; returns the page's path."""
    from dietlab.view.static.picture import picture

    target, home = work.folder / PAGE, work.folder / FIGURES
    write_whole(target, render_reproduction(work, steps))
    home.mkdir(exist_ok=True)
    for step in steps.values():
        for number, (_, figure) in enumerate(_figures(work, step)):
            write_whole(home / f"{step.name}-{number}.png", picture(figure))
    return target


def write_claims(work: Reproduction) -> Path:
    """Writes the table of claims as Markdown; returns its path."""
    target, table = work.folder / TEXT, claims_table(read_claims(), work.results)
    write_whole(target, "\n\n".join([*_about(work), markdown(*table)]) + "\n")
    return target


def claims_text(work: Reproduction) -> str:
    """Returns the table of claims for a terminal, without the methods."""
    header, rows = claims_table(read_claims(), work.results)
    method = header.index("method")
    shown = [[*row[:method], *row[method + 1 :]] for row in (header, *rows)]
    return markdown(shown[0], shown[1:])


def step_table(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> Table:
    """Returns a table of the steps: the state, the time taken, the estimate, and the reason why a step is not
    done.
    """
    rows = []
    for name, step in steps.items():
        outcome = work.outcomes.get(name, NOT_RUN)
        took = duration(outcome.seconds) if name in work.outcomes else "-"
        rows.append((name, outcome.state, took, duration(step.seconds[work.effort]), outcome.reason))
    return STEP_HEADER, rows


def _about(work: Reproduction) -> list[str]:
    known = ", ".join(f"{name} {version}" for name, version in work.versions.items())
    used = work.hardware.limits.used(work.hardware.cores)
    return [f"{work.hardware.name}, {used}; effort {work.effort}; begun {work.started}; {known}"]


def _section(work: Reproduction, step: Step) -> dict[str, Any]:
    """Returns the part of the page on one step; ``reason`` says why it is not done."""
    table, outcome = step.table(work.results), work.outcomes.get(step.name, NOT_RUN)
    claims = [claim for claim in read_claims() if claim.experiment == step.name]
    tables = {"speedups": contender_table, "tuning": study_table, "contenders": who_table}
    filled = {heading: content for heading, made in tables.items() if (content := made(table))[1]}
    return {
        "name": step.name,
        "shows": step.shows,
        "reason": "" if outcome.state == "done" else ": ".join(filter(None, (outcome.state, outcome.reason))),
        "claims": claims_table(claims, work.results),
        "figures": [  # numbered: a name out of the records has no place in a script
            (heading, figure_markup(figure, f"{step.name}-{number}"))
            for number, (heading, figure) in enumerate(_figures(work, step))
        ],
        "tables": [*filled.items()],
        "notes": notes_of(table),
    }


def _figures(work: Reproduction, step: Step) -> Iterator[tuple[str, go.Figure]]:
    """Yields figures: first those with reported values, then dietlab's speedups over every contender."""
    table = step.table(work.results)
    yield from step.beside(table)
    for report in table.reports:
        for cache in report.caches:
            where = f", {cache}" if len(report.caches) > 1 else ""
            heading = f"{report.name}: speedup over each contender{where}"
            figure = plot_speedup(table.report(report.name, report.threads), cache)
            figure.update_layout(title_text=heading)
            yield heading, figure
