"""Runs a suite: tunes, builds and evaluates every task, one shape at a time, and resumes after a kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from dietlab.base.errors import DietlabError, StudyError, require_names
from dietlab.base.events import Audience, Observer, Stage, audience
from dietlab.base.files import locked
from dietlab.compare.evaluate import Contest, contest
from dietlab.compare.lineup import spread
from dietlab.compare.overhead import overheads
from dietlab.compare.presence import require_present
from dietlab.compare.results.journal import Journal, Turn
from dietlab.compare.results.report import Report, study_folder
from dietlab.compare.results.row import Row
from dietlab.compare.results.table import ResultTable
from dietlab.compare.study import Study
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.compare.suites.every_layer import OWN
from dietlab.compare.suites.lengths import PAPER_LENGTHS
from dietlab.compare.suites.random_shapes import IMAGES, check_shapes, random_shapes
from dietlab.compare.suites.studies import own_libraries, study_of, watched
from dietlab.compare.suites.suite import Suite
from dietlab.compare.suites.task import Task
from dietlab.compare.suites.validity import Checked, check_lengths
from dietlab.compare.target import evaluation_target
from dietlab.machine import Hardware
from dietlab.machine.target import hardware_target
from dietlab.problem import Conv1d, Conv2d, Shape, ShapeSet, workload_to_json
from dietlab.tuning import Effort, Operator, effort_named, versions

PEAK = "peak_bytes"
"""The key of the peak memory among the facts of a study's tuning."""
JOURNAL, TABLE = "rows.jsonl", "bench.csv"
ONE_AT_A_TIME = "one bench at a time works in a folder"
TUNING_EFFORT = {"smoke": "smoke", "quick": "quick", "full": "quick"}
"""The effort of tuning, by the bench's effort: more lengths and longer timing need no longer tuning."""
RECENT_TURNS = 8
"""The number of latest turns that predict the next one. The next turn begins only if the longest of them
would still fit."""


@dataclass(frozen=True)
class Job:
    """One task on one number of threads, with the turns that are still to be measured."""

    task: Task
    threads: int
    turns: tuple[Turn, ...]

    @property
    def name(self) -> str:
        """The folder of its study."""
        return study_folder(self.task.name, self.threads)


@dataclass(frozen=True)
class Bench:
    """A bench that is running, with its settings; ``tuning`` is the effort of tuning."""

    out: Path
    journal: Journal
    listeners: Audience
    effort: str
    tuning: str
    timing: Effort
    target: str
    deadline: Deadline
    every_length: bool


def run_bench(
    suite: Suite,
    out: str | Path,
    *,
    threads: Sequence[int] = (1,),
    caches: Sequence[str] | None = None,
    effort: str = "quick",
    tuning_effort: str | None = None,
    ansor_trials: int | None = None,
    only: str = "",
    observers: Iterable[Observer] = (),
    deadline: Deadline | None = None,
    every_length: bool = True,
    required: Collection[str] = (),
) -> ResultTable:
    """Returns the whole table of a suite. Turns that ``out`` has are not measured again.

    A task that cannot be tuned, built or opened becomes a study with a ``failure``; the others go on.

    Args:
        suite: the tasks, such as ``SUITES["smoke"]``.
        out: the folder that gets ``rows.jsonl``, ``bench.csv``, ``bench.json`` and one study for each task
            and number of threads.
        threads: the numbers of cores of a CPU to use; a GPU is used as a whole, and counts as one.
        caches: cache states (default: all that the suite's processor has).
        effort: the effort that determines which lengths are evaluated, and how long each is timed.
        tuning_effort: the effort of tuning (default: that of :data:`TUNING_EFFORT`).
        ansor_trials: the number of trials for each shape of the contender ``ansor`` (default: the effort's).
        only: a pattern of task names.
        observers: receivers of each event as it happens.
        deadline: when to stop; its ``left`` is then the number of turns that were not measured.
        every_length: whether a CPU's libraries are also called and checked at every length that is not
            timed, which takes some minutes for a batched product.
        required: the contenders that must be installed; other contenders that are not installed are left out.

    Raises:
        MissingDependencyError: if a required contender is absent from every task.
        StudyError: if ``out`` holds another bench, or another process works on it.
        DietlabError: if a name among the arguments is unknown.
    """
    caches = suite.caches if caches is None else caches
    _require_known(suite, threads, caches)
    folder, tuning = Path(out), tuning_effort or TUNING_EFFORT.get(effort, effort)
    timing = effort_named(effort)
    timing = replace(timing, ansor_trials=ansor_trials or timing.ansor_trials, ansor_seconds=None)
    chosen, deadline = suite.only(only), deadline or Deadline()
    if vendors := [name for name in required if name != OWN]:
        here = Hardware.detect(suite.target, measure=False)
        require_present([task.workload for task in chosen.tasks], here, vendors)
    with locked(folder, ONE_AT_A_TIME):
        journal = Journal(folder / JOURNAL, _about(suite, effort, effort_named(tuning), timing))
        listeners = audience((*observers, deadline))
        bench = Bench(
            folder, journal, listeners, effort, tuning, timing, suite.target, deadline, every_length
        )
        todo = jobs(chosen, threads, caches, effort, journal)
        try:
            _run_jobs(bench, todo)
        except OutOfTime:
            deadline.left = sum(turn not in journal.rows for job in todo for turn in job.turns)
        finally:
            journal.kept.table.save(folder / TABLE)
    return journal.kept.table


def _about(suite: Suite, effort: str, tuning: Effort, timing: Effort) -> dict[str, Any]:
    """Returns the settings and the versions of a bench; for a GPU also its driver and clocks."""
    return {
        "suite": suite.name,
        "effort": effort,
        "tuning_effort": tuning.name,
        "ansor_trials": timing.ansor_trials,
        "against": {task.name: list(task.against) for task in suite.tasks},
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {**versions(), **evaluation_target(suite.target).facts()},
    }


def _require_known(suite: Suite, threads: Sequence[int], caches: Sequence[str]) -> None:
    named = (name for task in suite.tasks for name in task.against)
    require_names("contenders", suite.contenders, named)
    require_names("cache states", suite.caches, caches, at_least=1)
    if not _on_host(suite.target) and tuple(threads) != (1,):
        raise DietlabError("threads must be [1] on a GPU, which is used as a whole", list(threads))


def _on_host(target: str) -> bool:
    """Returns whether a target's cores can be counted, and its libraries called with NumPy's arrays."""
    return hardware_target(target).LIMITS.on_host


def jobs(
    suite: Suite, threads: Sequence[int], caches: Sequence[str], effort: str, journal: Journal
) -> tuple[Job, ...]:
    """Returns each task on each number of threads, with the turns still to measure, in the order of
    :func:`~dietlab.compare.lineup.spread`."""
    return tuple(
        Job(
            task,
            count,
            tuple(
                turn
                for shape in spread(task.evaluated(effort))
                for turn in (Turn(task.name, count, cache, shape) for cache in caches)
                if turn not in journal.rows
            ),
        )
        for task in suite.tasks
        for count in threads
    )


def _run_jobs(bench: Bench, todo: Sequence[Job]) -> None:
    left, done = sum(len(job.turns) for job in todo), len(bench.journal.rows)
    with bench.listeners.stage("bench", done + left, "shape", done) as progress:
        for job in todo:
            if job.turns or _unchecked(bench, job):
                _attempt(bench, job, progress)
                bench.journal.kept.table.save(bench.out / TABLE)


def _unchecked(bench: Bench, job: Job) -> bool:
    """Returns whether a library was measured, but not called at every length."""
    report = bench.journal.studies.get((job.task.name, job.threads))
    wanted = bench.every_length and _on_host(bench.target)
    return wanted and report is not None and not report.failure and not Facts.of(report).checked


def _attempt(bench: Bench, job: Job, progress: Stage) -> None:
    """Measures one job. An error becomes the study's failure; rows that were measured stay."""
    hardware, before = _processor(bench, job.threads), progress.done
    try:
        with bench.listeners.stage(job.name, 1, "study") as studies:
            _measure(bench, job, hardware, progress)
            studies.advance()
    except DietlabError as error:
        bench.journal.add_study(replace(_known(bench, job, hardware), failure=str(error)))
        progress.advance(f"{job.name} failed: {error}", by=len(job.turns) - (progress.done - before))


def _known(bench: Bench, job: Job, hardware: Hardware) -> Report:
    """Returns the report of a job's study from an earlier run, or a new report without facts."""
    begun = Report(workload_to_json(job.task.workload), hardware.to_json(), name=job.task.name)
    return bench.journal.studies.get((job.task.name, job.threads), begun)


@dataclass(frozen=True)
class Facts:
    """Facts about a study that a bench determines once, in any of its runs.

    Args:
        peak_bytes: the peak memory of tuning, over all runs; 0 if unknown.
        checked: the checked calls of its library; None if unchecked.
    """

    peak_bytes: int
    checked: Checked | None

    @classmethod
    def of(cls, report: Report) -> Facts:
        return cls(report.tuning.get(PEAK, 0), Checked.known(report.library))

    @property
    def tuning(self) -> dict[str, Any]:
        return {PEAK: self.peak_bytes} if self.peak_bytes else {}

    @property
    def library(self) -> dict[str, Any]:
        return self.checked.to_json() if self.checked else {}


def _measure(bench: Bench, job: Job, hardware: Hardware, progress: Stage) -> None:
    known = _known(bench, job, hardware)
    facts = Facts.of(known)
    study = study_of(job.task, bench.out, hardware, bench.tuning)
    op, peak = watched(study, bench.listeners)
    if peak is not None:  # kept at once: nobody can measure it later
        facts = replace(facts, peak_bytes=max(peak, facts.peak_bytes))
        known = replace(known, tuning={**known.tuning, **facts.tuning})
        bench.journal.add_study(known)
    if bench.every_length and not facts.checked:
        facts = replace(facts, checked=_checked(study, op, bench.listeners))
    if job.turns:
        _measure_turns(bench, job, study, op, facts, progress)
    else:
        bench.journal.add_study(replace(known, library={**known.library, **facts.library}))


def _measure_turns(bench: Bench, job: Job, study: Study, op: Operator, facts: Facts, progress: Stage) -> None:
    """Opens the contenders of a job, keeps the study's report, then times turn by turn."""
    task, run = job.task, study.run()
    own = own_libraries(task, bench.effort, study.hardware, bench.out, bench.tuning, bench.listeners)
    library = {**op.facts, **facts.library, **overheads(op, study.shapes)}
    with contest(
        op,
        [name for name in task.against if name != OWN],
        ShapeSet.of(dict.fromkeys((turn.shape for turn in job.turns), 1.0)),
        effort=bench.timing,
        tuned=run,
        folder=study.folder,
        listeners=bench.listeners,
        ansor_shapes=_paper_shapes(task),
        more=own.entrants,
    ) as opened:
        bench.journal.add_study(opened.report(library, task.name, {**own.facts, **facts.tuning}))
        seen = {record.shape for record in run.records}
        play(opened, job.turns, seen, bench.journal, progress, bench.deadline)


def _checked(study: Study, op: Operator, listeners: Audience) -> Checked | None:
    """Checks a library at every length, or on random shapes of several dimensions and of images. Returns None
    for a GPU's library: the check calls libraries with NumPy's arrays."""
    if not study.hardware.limits.on_host:
        return None
    work = study.workload
    if isinstance(work, (Conv1d, Conv2d)):
        return check_shapes(op, listeners, random_shapes(work, IMAGES))
    if len(work.dims) > 1:
        return check_shapes(op, listeners)
    return check_lengths(study.dispatcher(), listeners)


def play(
    opened: Contest,
    turns: Iterable[Turn],
    seen: Collection[Shape],
    journal: Journal,
    progress: Stage,
    deadline: Deadline | None = None,
) -> None:
    """Measures turn by turn; each is on disk before the next begins. Shapes are held out unless tuning has
    ``seen`` them."""
    deadline = deadline or Deadline()
    recent: deque[float] = deque(maxlen=RECENT_TURNS)  # in seconds
    for turn in turns:
        deadline.check(max(recent, default=0.0))
        started = perf_counter()
        held_out = turn.shape not in seen
        rows = journal.measured(turn, partial(opened.rows, turn.shape, turn.cache, held_out))
        known = journal.studies.get((turn.workload, turn.threads))
        where = ", ".join([turn.workload, *([known.used] if known else []), turn.cache, str(turn.shape)])
        recent.append(perf_counter() - started)
        progress.advance(f"{where}{_standing(rows)}")


def _paper_shapes(task: Task) -> ShapeSet:
    """Returns the shapes that ``ansor`` is tuned for: the paper's lengths among the task's tuned lengths; all
    tuned lengths if none is the paper's; with layers or images, all tuned shapes."""
    if task.layers is not None or task.images is not None:
        return task.shapes
    tuned = [length for length, _ in task.tuned]
    return ShapeSet.extents(task.workload, [t for t in tuned if t in PAPER_LENGTHS] or tuned)


def _processor(bench: Bench, threads: int) -> Hardware:
    """Returns this machine's GPU, or its CPU with ``threads`` cores. It is measured once, so that all studies
    share one roofline.

    Raises:
        StudyError: if earlier studies were made on another processor.
    """
    here = Hardware.detect(bench.target, measure=False)
    if threads > here.cores:
        raise StudyError("there must be as many cores as threads", threads, f"This machine has {here.cores}.")
    for facts in bench.journal.studies.values():
        known = facts.processor
        if not known.is_same_as(here):
            rule = f"the bench in {bench.out} must be continued on its own processor"
            raise StudyError(rule, here.name, f"Not {known.name}.")
        if facts.threads == threads:
            return known
    return (here.with_cores(threads) if here.limits.on_host else here).measured()


def _standing(rows: Sequence[Row]) -> str:
    speedups = {row.contender: row.speedup for row in rows if row.speedup and row.correct}
    speedups.pop("oracle", None)
    nearest = min(speedups, key=lambda name: speedups[name], default="")
    return f": {speedups[nearest]:.2f}x {nearest}" if nearest else ""
