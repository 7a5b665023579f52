"""The work of the steps: each measures one experiment of the paper, and reads its records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dietlab.base.errors import StudyError
from dietlab.base.events import Audience
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.journal import Turn, read_journal, resumed
from dietlab.compare.study import EVALUATION, Study
from dietlab.compare.suites.deadline import Deadline
from dietlab.compare.suites.run import JOURNAL, TUNING_EFFORT, run_bench
from dietlab.compare.suites.studies import built, study_of
from dietlab.compare.suites.suite import Task
from dietlab.lab.ablation import run_ablation
from dietlab.lab.models import evaluate_model
from dietlab.lab.models.run import CACHE
from dietlab.lab.reproduce import findings
from dietlab.lab.reproduce.amounts import Amounts, Calls
from dietlab.lab.reproduce.paper import TREATMENTS
from dietlab.machine import Hardware
from dietlab.problem import Shape
from dietlab.scheme import Scheme
from dietlab.tuning import TuningRun

BENCH, RESULTS = "bench", "results"
"""Folders of a reproduction: the bench with all studies, and the records as ``data/results`` names them."""

HERE = "here"
"""The machine in the names of records."""

CACHES = (findings.FROM_MEMORY,)


@dataclass(frozen=True)
class Settings:
    """The settings of a step: the amounts, the processor, who listens, and when it ends."""

    amounts: Amounts
    hardware: Hardware
    listeners: Audience
    deadline: Deadline

    @property
    def tuning(self) -> str:
        """The effort of tuning."""
        return TUNING_EFFORT[self.amounts.effort]


# --- what is measured -------------------------------------------------------------------------------


def bench(tasks: slice, folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Measures some of the paper's operators, which share a bench; returns their table.

    Raises:
        StudyError: if one of them failed.
    """
    amounts, cores = settings.amounts, settings.hardware.cores
    target = _record(folder, "paper")
    for task in amounts.suite.tasks[tasks]:
        with _kept(folder / BENCH, target):
            table = run_bench(
                amounts.suite,
                folder / BENCH,
                threads=(cores,),
                caches=CACHES,
                effort=amounts.effort,
                ansor_trials=amounts.ansor_trials,
                only=task.name,
                observers=settings.listeners.observers,
                deadline=settings.deadline,
                every_length=amounts.effort == "full",
            )
        if settings.deadline.left is not None:
            break
        failure = table.report(task.name, cores).failure
        if failure:
            raise StudyError("every operator is measured", f"{task.name}: {failure}", "Try again.")
    return (target,)


def ablations(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Takes the scheme apart that serves most short lengths of the dense layer."""
    study, target = _study(folder, settings.amounts.dense, settings), _record(folder, "ablation")
    with _kept(study.folder / "ablation", target):
        run_ablation(
            study.folder,
            caches=CACHES,
            effort=settings.amounts.effort,
            lengths=settings.amounts.ablated,
            observers=settings.listeners.observers,
        )
    return (target,)


def local_padding(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Compares treatments of the edge of one scheme for each operator."""
    target = _record(folder, "local-padding")
    reports: tuple[Report, ...] = ()
    for case in settings.amounts.edges:
        study = _study(folder, case.task, settings)
        table = run_ablation(
            study.folder,
            caches=CACHES,
            effort=settings.amounts.effort,
            scheme=sticking_out(study.run(), case.extent).key,
            workload=case.workload,
            lengths=case.lengths,
            only=[name for name in TREATMENTS.values() if name != "both"],
            out=folder / "edges" / case.name,
            observers=settings.listeners.observers,
        )
        reports += table.reports
        replace(table, reports=reports, about={**table.about, "suite": "local padding"}).save(target)
    return (target,)


def sticking_out(run: TuningRun, rows: int) -> Scheme:
    """Returns the fastest measured scheme whose tiles do not divide ``rows``, as in the paper; if there is
    none, the fastest of all. It can be built with every treatment of the edge."""
    shape = Shape.of(T=rows)
    schemes = [
        scheme for scheme in run.schemes if {"padded", "partitioned", "checked"} <= {*scheme.kernel.edges}
    ]
    seconds = run.seconds_table(schemes, [shape])[:, 0]
    ranked = [schemes[int(number)] for number in seconds.argsort()]
    return next((scheme for scheme in ranked if rows % scheme.rows), ranked[0])


def models(which: Literal["sentences", "served"], folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Tunes one library for all dense layers of the paper's model and times it, or models that nobody tuned
    for in a server, with that; returns a report for each model and batch."""
    amounts = settings.amounts
    study = _study(folder, amounts.layers, settings)
    every = amounts.sentences if which == "sentences" else amounts.served
    return tuple(_model(folder, study, calls, settings) for calls in every)


def _model(folder: Path, study: Study, calls: Calls, settings: Settings) -> Path:
    model, lengths, also = calls.model, calls.shapes, calls.also
    cores, against = settings.hardware.cores, settings.amounts.against
    name = f"{model.name.partition('-')[0]}-b{model.batch}"
    target = folder / RESULTS / f"{HERE}-{name}-{cores}core.report.json.gz"
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    about = {"model": model.to_json(), "lengths": lengths.to_json(), "against": against}
    journal = resumed(home / EVALUATION, **about, effort=calls.timing)
    turns = [Turn("", cores, CACHE, shape) for shape in (*lengths, *also)]
    if not (target.exists() and all(turn in journal.rows for turn in turns)):
        report = evaluate_model(
            model,
            [study],
            lengths,
            against,
            skip_absent=True,
            also=also,
            effort=calls.timing,
            shares=True,
            folder=folder / BENCH,  # one file of a model for ONNX Runtime serves every batch
            observers=settings.listeners.observers,
            journal=journal,
        )
        report.save(target)
    return target


def _study(folder: Path, task: Task, settings: Settings) -> Study:
    """Returns a task's study, tuned and built first where that is still to do."""
    study = study_of(task, folder / BENCH, settings.hardware, settings.tuning)
    built(study, settings.listeners)
    return study


def _record(folder: Path, kind: str) -> Path:
    """Returns the path of a table, as :func:`dietlab.lab.reproduce.findings.tables` looks for it."""
    return folder / RESULTS / f"{HERE}-{kind}.csv.gz"


@contextmanager
def _kept(folder: Path, target: Path) -> Iterator[None]:
    """Writes what the journal in a folder has to ``target`` at the end, also if it was stopped."""
    try:
        yield
    finally:
        if (folder / JOURNAL).exists():
            read_journal(folder / JOURNAL).table.save(target)


# --- what was measured ------------------------------------------------------------------------------


def operators(operator: str, results: Path) -> ResultTable:
    """Returns the studies of one kind of operator among the paper's."""
    table = recorded("paper", results)
    kept = (report for report in table.reports if report.operator.operator.startswith(operator))
    return replace(table, reports=tuple(kept))


def recorded(kind: str, results: Path) -> ResultTable:
    """Returns a table of this machine; an empty one if it was not measured."""
    path = results / f"{HERE}-{kind}.csv.gz"
    return ResultTable.load(path) if path.exists() else ResultTable(())


def recorded_models(kinds: Sequence[str], results: Path) -> ResultTable:
    """Returns the reports of some kinds of whole models of this machine as a table."""
    named = (
        replace(report, name=f"{report.workload['operator']}, batch {report.workload['batch']}")
        for _, report in findings.models(results, *kinds)
    )
    return ResultTable(tuple(named))
