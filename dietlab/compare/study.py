"""A study: one folder that every stage reads from and writes to, and resumes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity, bytes_text, counted
from dietlab.base.errors import StudyError
from dietlab.base.events import Observer, PhaseSeconds, audience
from dietlab.base.files import locked, make_folder, read_json, reading, write_json
from dietlab.compare.evaluate import evaluate
from dietlab.compare.results.journal import resumed
from dietlab.compare.results.report import Report
from dietlab.compare.study_manifest import MANIFEST, RECORDS, Manifest
from dietlab.cost import COST_MODEL, Prior, predictor_named, with_prior
from dietlab.machine import Hardware
from dietlab.measure import Budget, Measures, RecordStore, read_records
from dietlab.measure.store import require_origin
from dietlab.problem import ShapeSet, Workload, require_entered
from dietlab.scheme import Cover, Space, build_space, edges_of
from dietlab.tuning import (
    Dispatcher,
    Effort,
    Operator,
    PhaseTimer,
    TuningRun,
    build,
    choose_portfolio,
    effort_named,
    load,
    train_dispatcher,
    tune,
    usual_kernels,
    with_records,
)
from dietlab.tuning.manifest import LIBRARY_NAME
from dietlab.tuning.rounds import Answering
from dietlab.tuning.settings import Settings, explaining, refitted
from dietlab.tuning.strategies.registry import strategy_named
from dietlab.tuning.survey import records_header

MODEL, PRIOR = "model.json", "prior.json"
LIBRARY = f"library/{LIBRARY_NAME}"
EPILOGUES = "epilogues"
"""The folder of libraries with other epilogues than the study's, as the layers of a model have them."""

FACTS, DISPATCHER, EVALUATION, REPORT = "tuning.json", "dispatcher.json", "evaluation.jsonl", "report.json"


@dataclass(frozen=True, repr=False)
class Study(Carded, Settings):
    """A folder with ``manifest.json``, ``records.jsonl``, the model, the dispatcher, the library and the
    report. Each stage leaves its result in the folder and returns it.

    :meth:`create` explains ``folder``, ``workload``, ``hardware``, ``shapes`` and the settings.
    """

    folder: Path
    workload: Workload
    hardware: Hardware
    shapes: ShapeSet

    @classmethod
    def create(
        cls,
        folder: str | Path,
        workload: Workload,
        hardware: Hardware,
        shapes: ShapeSet,
        effort: str = "quick",
        strategy: str = "draft",
        seed: int = 0,
        cover: Cover = "composed",
        max_kernels: int | None = None,
        cost_model: str = COST_MODEL,
        prior: Prior | None = None,
        measure: bool = False,
    ) -> Study:
        """Creates a study, or opens the one in ``folder`` if it is equal.

        Args:
            folder: a folder that is empty or new, or that of an equal study.
            workload: the operator.
            hardware: the processor that it is tuned on.
            shapes: the weighted shapes to tune for.
            effort: a preset's name; only this may differ from an equal study's.
            strategy: the name of the search strategy, which proposes schemes (``MODULE:NAME`` for your own).
            seed: the seed of the proposals and of the model.
            cover: how row tiles cover a shape: ``"composed"`` of several heights, or as in the ``"paper"``.
            max_kernels: the largest number of micro-kernels in the library (default: that of an equal study
                in ``folder``, else :func:`usual_kernels`).
            cost_model: the name of the cost model, which predicts times (``MODULE:NAME`` for your own).
            prior: a prior fitted on other records; the folder keeps it.
            measure: whether to measure a new study's processor, after all arguments were checked.

        Raises:
            ModelError: for an unknown cost model, or a prior that it cannot start from.
            SpaceError: for an unknown strategy, or if no scheme fits the processor.
            StudyError: if the folder holds another study or other files, or an object is given for a name.
            WorkloadError: if a file cannot hold the operator.
        """
        path = Path(folder)
        require_entered(workload)
        study = cls(
            path,
            workload,
            hardware,
            shapes,
            effort=effort,
            strategy=strategy,
            cover=cover,
            max_kernels=max_kernels or usual_kernels(workload),
            cost_model=cost_model,
            seed=seed,
        )
        strategy_named(strategy)
        known = cls.open(path) if (path / MANIFEST).exists() else None
        if known and not max_kernels:
            study = replace(study, max_kernels=known.max_kernels)
        with_prior(predictor_named(cost_model), prior)
        if prior:
            prior.require_kind(hardware)
        if known:
            return known._same_as(study, prior)
        study.space()
        make_folder(path)
        with study.locked():
            if (path / MANIFEST).exists():  # another process made it meanwhile
                return cls.open(path)._same_as(study, prior)
            if measure:
                study = replace(study, hardware=hardware.measured())
            if prior:
                prior.save(path / PRIOR)
            study._manifest.write(path)
        return study

    @classmethod
    def open(cls, folder: str | Path) -> Study:
        """Opens the study in ``folder``.

        Raises:
            StudyError: if there is none, or it is of another schema.
        """
        found = Manifest.read(Path(folder))
        return cls(Path(folder), found.workload, found.hardware, found.shapes, **found.settings)

    @property
    def _manifest(self) -> Manifest:
        return Manifest(self.workload, self.hardware, self.shapes, self.settings)

    def _same_as(self, other: Study, prior: Prior | None) -> Study:
        """Returns this study with the other's effort, if both are equal and ``prior`` is None or its own."""
        if prior not in (None, self.prior):
            rule = f"a prior must be left out, or be the one that the study in {self.folder} began with"
            raise StudyError(rule, prior, "Use another folder.")
        self._manifest.require_same(other._manifest, self.folder)
        return replace(self, effort=other.effort)

    @property
    def card(self) -> Card:
        """Its card in a notebook: its settings; and files, shapes and processor to unfold."""
        facts = (
            counted(len(self.shapes), "shape"),
            Quantity(self.effort, "effort"),
            Quantity(self.strategy, "strategy"),
            Quantity(self.cover, "cover"),
            counted(self.max_kernels, "micro-kernel"),
        )
        sections = (
            Fold("Stages", self._stages, unfolded=True),
            Fold("Shapes", self.shapes.table),
            Fold("Processor", self.hardware.table),
        )
        return Card("Study", f"{self.folder}: {self.workload} on {self.hardware.name}", facts, sections)

    def _stages(self) -> Listing:
        """Returns the file of each stage, with its size if it is there."""
        files = {"tune": RECORDS, "dispatch": DISPATCHER, "build": LIBRARY, "evaluate": REPORT}
        paths = {name: self.folder / name for name in files.values()}
        sizes = {n: bytes_text(p.stat().st_size) if p.exists() else "not yet" for n, p in paths.items()}
        return Listing(("stage", "file", "size"), [*files.items()], lambda pair: (*pair, sizes[pair[1]]))

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other processes that tune or evaluate out of the folder."""
        return locked(self.folder, "one tuning or evaluation at a time works on a study")

    @property
    def header(self) -> dict[str, Any]:
        """The first line of the study's records."""
        return records_header(self.workload, self.hardware, self.cache)

    def space(self) -> Space:
        """Builds the space that the study searches."""
        return build_space(self.workload, self.hardware, edges_of(self.cover, self.workload, self.hardware))

    def tune(
        self,
        runner: Measures,
        observers: Iterable[Observer] = (),
        ahead: bool | None = None,
        budget: Budget | None = None,
    ) -> TuningRun:
        """Runs stages 2 and 3 within a budget, or resumes an earlier call.

        Args:
            runner: the runner that measures candidates.
            observers: receivers of each event as it happens.
            ahead: whether to propose a round while the one before is measured (default: if the runner has
                several devices). Resumed tuning keeps the first call's setting.
            budget: when to stop (default: never).
        """
        with self.locked():
            store = RecordStore(self.folder / RECORDS, self.header)
            known = len(store.records)
            began = self._facts().get("ahead", False if known else ahead)
            ahead = Answering(runner).devices > 1 if began is None else began
            self._keep_facts(ahead=ahead)
            run = tune(
                self.space(),
                self.shapes,
                runner,
                observers=observers,
                store=store,
                prior=self.prior,
                ahead=ahead,
                budget=budget,
                **self.resolved(),
            )
            write_json(self.folder / MODEL, explaining(self, run).to_json(), None, StudyError)
            # A call that measured nothing must not replace the times of one that did.
            if len(run.records) > known or not self._facts()["seconds"]:
                self._keep_facts(seconds=run.seconds.to_json(), held_out_metrics=dict(run.held_out_metrics))
        return run

    def run(self) -> TuningRun:
        """Returns the tuning run of the study's records.

        Raises:
            StudyError: if nothing was measured yet.
            RecordError: if the records are of programs of another lowering.
        """
        if not (self.folder / RECORDS).exists():
            raise StudyError(
                "a study must have been tuned", f"no {RECORDS} in {self.folder}", "Run `dietlab tune` first."
            )
        file = read_records(self.folder / RECORDS)
        require_origin(self.folder / RECORDS, file, self.header)
        facts = self._facts()
        # The time of choosing the portfolio, after tuning, is part of the cost.
        seconds = with_records(PhaseSeconds.from_json(facts["seconds"]), file.records)
        seconds = seconds.plus(search=facts.get("choosing_seconds", 0.0))
        space, kept, found = self.space(), self.folder / MODEL, file.records
        predictor = refitted(self, space, found, self.prior, kept)
        return TuningRun(space, self.shapes, found, predictor, seconds, facts["held_out_metrics"])

    @property
    def prior(self) -> Prior | None:
        """The prior that the study started from, fitted on other records; None without one."""
        return Prior.load(self.folder / PRIOR) if (self.folder / PRIOR).exists() else None

    def _keep_facts(self, **found: Any) -> None:
        """Stores facts that the records lack, such as the seconds that tuning and choosing took, and the
        model's quality."""
        write_json(self.folder / FACTS, {**self._facts(), **found}, None, StudyError)

    def _facts(self) -> dict[str, Any]:
        return read_facts(self.folder)

    def dispatch(self, max_kernels: int | None = None) -> Dispatcher:
        """Runs stage 4: chooses the portfolio and trains the tree.

        Args:
            max_kernels: the largest number of micro-kernels (default: the number that the study was tuned
                for).
        """
        clock = PhaseTimer()
        most = max_kernels or self.max_kernels
        dispatcher = train_dispatcher(choose_portfolio(self.run(), self.shapes, most))
        self._keep_facts(choosing_seconds=round(clock.seconds.search, 3), max_kernels=most)
        write_json(self.folder / DISPATCHER, dispatcher.to_json(), error=StudyError)
        return dispatcher

    def dispatcher(self) -> Dispatcher:
        """Returns the study's dispatcher; trains it if there is none.

        Raises:
            StudyError: if the folder's dispatcher is of another operator or processor.
        """
        path = self.folder / DISPATCHER
        if not path.exists():
            return self.dispatch()
        found = Dispatcher.load(path)
        for what in ("workload", "hardware"):
            if getattr(found, what) != getattr(self, what):
                rule = f"a study's dispatcher must be of the {what} in its {MANIFEST}"
                again = (
                    f"Put the study's own {MANIFEST} back, or train again: `dietlab dispatch {self.folder}`."
                )
                raise StudyError(rule, f"{path}, which is of another", again)
        return found

    def build(self, observers: Iterable[Observer] = ()) -> Operator:
        """Compiles the dispatcher into ``library/``."""
        with audience(observers).stage("build", 1, "library") as progress:
            op = build(self.dispatcher(), self.folder)
            progress.advance()
        return op

    def operator(self) -> Operator:
        """Loads the study's library.

        Raises:
            DispatchError: if there is none.
            StudyError: if another dispatcher was trained after the library was built.
        """
        op = load(self.folder)
        trained = self.folder / DISPATCHER
        if trained.exists() and op.dispatcher != Dispatcher.load(trained):
            raise StudyError(
                "the library must hold the study's latest dispatcher",
                f"{trained}, which was trained after the library was built",
                f"`dietlab build {self.folder}` builds it.",
            )
        return op

    def evaluate(
        self,
        shapes: ShapeSet,
        against: Sequence[str] | None = None,
        caches: Sequence[str] = ("rotating",),
        effort: str | Effort | None = None,
        observers: Iterable[Observer] = (),
        skip_absent: bool | None = None,
    ) -> Report:
        """Runs stage 5 (:func:`~dietlab.evaluate`); shapes that tuning did not measure are held out. An equal
        evaluation of the same library that was stopped is resumed."""
        run, op, effort = self.run(), self.operator(), effort_named(effort or self.effort)
        seen = {record.shape for record in run.records}
        with self.locked():
            journal = resumed(
                self.folder / EVALUATION,
                library=sha256(op.path.read_bytes()).hexdigest(),
                shapes=shapes.to_json(),
                against=None if against is None else list(against),
                caches=list(caches),
                effort=asdict(effort),
            )
            report = evaluate(
                op,
                shapes.hold_out_all_but(seen),
                against,
                skip_absent=skip_absent,
                caches=caches,
                effort=effort,
                tuned=run,
                folder=self.folder,
                observers=observers,
                journal=journal,
            )
            (self.folder / EVALUATION).unlink()
        return report

    def report(self) -> Report:
        """Reads the report of the last evaluation (:class:`RecordError` without one)."""
        return Report.load(self.folder / REPORT)


def read_facts(folder: Path) -> dict[str, Any]:
    """Returns the facts that tuning and choosing left in a study's folder; without the file, only the fields
    that every reader needs.

    Raises:
        StudyError: if the file is damaged.
    """
    path, facts = folder / FACTS, dict[str, Any](seconds={}, held_out_metrics={})
    remedy = "Remove the file: `dietlab tune` writes it again, without the times of earlier calls."
    with reading(StudyError, "the facts that tuning wrote must be whole", path, remedy):
        if path.exists():
            facts = {**facts, **read_json(path)}
        PhaseSeconds.from_json(facts["seconds"])
        PhaseSeconds.from_json({"search": facts.get("choosing_seconds", 0.0)})
        return {**facts, "held_out_metrics": dict(facts["held_out_metrics"])}
