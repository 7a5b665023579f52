"""The paper's experiments as steps: each step measures one experiment, and reads its records again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.base.events import Audience
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.journal import Turn, read_journal, resumed
from dietlab.compare.study import EVALUATION, Study
from dietlab.compare.suites.deadline import Deadline
from dietlab.compare.suites.run import JOURNAL, TUNING_EFFORT, run_bench
from dietlab.compare.suites.studies import built, study_of
from dietlab.compare.suites.task import Task
from dietlab.lab.ablation import run_ablation
from dietlab.lab.models import evaluate_model
from dietlab.lab.models.run import CACHE
from dietlab.lab.reproduce import findings
from dietlab.lab.reproduce.paper import TREATMENTS, Amounts, Calls
from dietlab.machine import Hardware
from dietlab.problem import Shape
from dietlab.scheme import Scheme
from dietlab.tuning import TuningRun

if TYPE_CHECKING:
    import plotly.graph_objects as go

BENCH, RESULTS = "bench", "results"
"""The names of a reproduction's folders: the bench with all studies, and the records as ``data/results``
names them."""

HERE = "here"
"""The name of this machine in the names of records."""

CACHES = (findings.FROM_MEMORY,)


@dataclass(frozen=True)
class Settings:
    """The settings of a step: the amounts, the processor, the observers, and the deadline."""

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
    """Measures some of the paper's operators, which share a bench; returns their table."""
    amounts, cores = settings.amounts, settings.hardware.cores
    target = _record(folder / RESULTS, "paper")
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
            raise StudyError("every operator must be measured", f"{task.name}: {failure}", "Try again.")
    return (target,)


def ablations(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Ablates the scheme that serves most short lengths of the dense layer."""
    study = _study(folder, settings.amounts.suite.tasks[0], settings)
    target = _record(folder / RESULTS, "ablation")
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
    target = _record(folder / RESULTS, "local-padding")
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
    """Returns the fastest measured scheme that can be built with every treatment of the edge and whose tiles
    do not divide ``rows``; if there is none, the fastest of all."""
    shape = Shape.of(T=rows)
    treated = {"padded", "partitioned", "checked"}
    schemes = [scheme for scheme in run.schemes if treated <= {*scheme.kernel.edges}]
    seconds = run.seconds_table(schemes, [shape])[:, 0]
    ranked = [schemes[int(number)] for number in seconds.argsort()]
    return next((scheme for scheme in ranked if rows % scheme.rows), ranked[0])


def models(which: Literal["sentences", "served"], folder: Path, settings: Settings) -> tuple[Path, ...]:
    """Times the paper's model, or models in a server. All use one library, tuned for the dense layers of the
    paper's model. Returns a report for each model and batch."""
    study = _study(folder, settings.amounts.layers, settings)
    every: tuple[Calls, ...] = getattr(settings.amounts, which)
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
    """Returns a task's study, which is tuned and built first if it is not yet."""
    study = study_of(task, folder / BENCH, settings.hardware, settings.tuning)
    built(study, settings.listeners)
    return study


def _record(results: Path, kind: str) -> Path:
    """Returns the path of a table, as :func:`findings.tables` looks for it."""
    return results / f"{HERE}-{kind}.csv.gz"


@contextmanager
def _kept(folder: Path, target: Path) -> Iterator[None]:
    """Saves the table of a folder's journal to ``target`` when the context ends, also after an
    interruption."""
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
    path = _record(results, kind)
    return ResultTable.load(path) if path.exists() else ResultTable(())


def recorded_models(kinds: Sequence[str], results: Path) -> ResultTable:
    """Returns the reports of some kinds of whole models of this machine as a table."""
    named = (
        replace(report, name=f"{report.workload['operator']}, batch {report.workload['batch']}")
        for _, report in findings.models(results, *kinds)
    )
    return ResultTable(tuple(named))


# --- the steps --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One experiment of the paper, whose claims name it.

    Args:
        shows: a sentence on the part of the paper that the step shows.
        seconds: the estimated time by effort, if the steps before it are done.
        run: a function that measures in a folder, resumes an interrupted run, and returns the files of its
            records.
        table: a function that returns the records for the page, out of the folder of records.
        beside: a function that yields figures of the reported and the table's values, with headings
            (default: none, where public material reports no values).
        needs: the modules that must be installed, each with the extra that installs it.
    """

    name: str
    shows: str
    seconds: Mapping[str, float]
    run: Callable[[Path, Settings], tuple[Path, ...]]
    table: Callable[[Path], ResultTable]
    beside: Callable[[ResultTable], Iterable[tuple[str, go.Figure]]] = lambda table: ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def require(self) -> None:
        """Checks that the modules that the step needs are installed."""
        absent = {module: extra for module, extra in self.needs.items() if find_spec(module) is None}
        if absent:
            extras = ",".join(dict.fromkeys(absent.values()))
            rule = f"the step {self.name} needs {' and '.join(self.needs)}"
            raise MissingDependencyError(rule, f"no {', '.join(absent)}", f"pip install 'dietlab[{extras}]'.")


MODELS = {"torch": "torch", "transformers": "models"}

STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        Step(
            "dense",
            "Figure 10 and the tuning times: a dense layer 768 -> 2304 against vendors, one schedule for all "
            "lengths, and Ansor's method, which tunes each length.",
            {"smoke": 15, "quick": 480, "full": 2400},
            partial(bench, slice(1)),
            partial(operators, "dense"),
            findings.dense_figures,
        ),
        Step(
            "batched",
            "Section 5.4: both batched products of attention, NT and NN, against vendors and one schedule.",
            {"smoke": 15, "quick": 360, "full": 600},
            partial(bench, slice(1, None)),
            partial(operators, "batch-matmul"),
        ),
        Step(
            "local-padding",
            "Local padding at the edge against bound checks and loop partitioning, on the operators of its "
            "authors' tests; ours composes exact tiles.",
            {"smoke": 5, "quick": 60, "full": 90},
            local_padding,
            partial(recorded, "local-padding"),
            findings.padding_figures,
        ),
        Step(
            "ablations",
            "Each idea of a micro-kernel by itself: the dense layer's, without it.",
            {"smoke": 15, "quick": 180, "full": 360},
            ablations,
            partial(recorded, "ablation"),
        ),
        Step(
            "bert",
            "Figure 8: BERT-base from end to end, its dense layers from one library.",
            {"smoke": 45, "quick": 600, "full": 2100},
            partial(models, "sentences"),
            partial(recorded_models, ("bert",)),
            findings.bert_figures,
            MODELS,
        ),
        Step(
            "served",
            "Beyond the paper: a decoder and a mixture of experts that nobody tuned for, with the library of "
            "BERT, in a server that batches continuously; and the padding of other servers.",
            {"smoke": 45, "quick": 600, "full": 2200},
            partial(models, "served"),
            partial(recorded_models, ("decoder", "experts")),
            findings.served_figures,
            MODELS,
        ),
    )
}
"""The steps by name, in the order in which they run; one line more is one step more."""
