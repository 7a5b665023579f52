"""A bench in two visits to a machine that has a GPU but no compiler.

Before the first visit, :func:`pack` builds the first round of each task's search here. There, :func:`measure`
checks and times these libraries, with TVM's runtime only. Back here, :func:`build_measured` fits the records
and builds each task's operator, which the second visit evaluates like any other bench.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dietlab.base.errors import SpaceError, StudyError
from dietlab.base.events import Observer, Stage, audience
from dietlab.base.files import locked, read_json, reading, write_json
from dietlab.compare.lineup import spread
from dietlab.compare.results.report import study_folder
from dietlab.compare.study import Study
from dietlab.compare.study_manifest import RECORDS
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.compare.suites.run import ONE_AT_A_TIME
from dietlab.compare.suites.studies import study_of
from dietlab.compare.suites.suite import Suite
from dietlab.compare.target import evaluation_target
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, RecordStore, Round, Trial, read_records
from dietlab.measure.ready import ReadyLibraries, pack_libraries
from dietlab.measure.record import SEARCH
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Shape
from dietlab.scheme import Scheme
from dietlab.scheme.target import space_target
from dietlab.tuning import Operator, Tuner, effort_named

KIT = "kit.json"
"""The file that names a kit's tasks, in their order."""

READY = "ready"
"""The folder of a task's libraries, inside its study."""

STAGE = "measure"

RIVALS = 8
"""The number of new libraries that take turns on a shape, together with the fastest so far. A kill loses
these turns: less than a second if a call takes a millisecond."""


def pack(
    suite: Suite,
    hardware: Hardware,
    folder: Path,
    *,
    candidates: int = 64,
    schemes: Sequence[str] = (),
    effort: str = "quick",
    observers: Iterable[Observer] = (),
    workers: int | None = None,
) -> dict[str, ReadyLibraries]:
    """Builds the first round of each task's search, also for the processor of another machine. Completes a
    folder that an earlier call left unfinished.

    Args:
        candidates: the number of schemes for each task.
        schemes: the keys of further schemes, each for the tasks in whose space it is.
        effort: the effort of tuning; it determines how long each library will be timed.
        workers: the number of parallel builds (default: the number of processors that this process may use).

    Returns:
        the libraries by the task's name.

    Raises:
        DietlabError: if the folder holds another kit, the compiler is missing, or a scheme is in no space.
    """
    lower_target(hardware.kind).require_tools()  # else every library would fail for the same reason
    listeners, found = audience(observers), dict[str, ReadyLibraries]()
    total = candidates * len(suite.tasks)
    with locked(folder, ONE_AT_A_TIME), listeners.stage("pack", total, "scheme") as progress:
        studies = {task.name: study_of(task, folder, hardware, effort) for task in suite.tasks}
        rounds = {name: first_round(study, candidates, schemes) for name, study in studies.items()}
        _require_tried(schemes, rounds.values())
        for number, (name, study) in enumerate(studies.items(), 1):
            ready = study.folder / READY
            found[name] = pack_libraries(ready, study.workload, hardware, rounds[name], progress, workers)
            write_json(folder / KIT, {"tasks": {n: r.folder.parent.name for n, r in found.items()}})
            progress.advance(name, by=number * candidates - progress.done)
    return found


def _require_tried(schemes: Sequence[str], rounds: Iterable[Sequence[Trial]]) -> None:
    tried = {trial.scheme.key for trials in rounds for trial in trials}
    if lost := [key for key in schemes if Scheme.from_key(key).key not in tried]:
        remedy = "`dietlab space` shows one; a composed scheme's key ends with .even or .rest."
        raise SpaceError("a scheme must be in the space of one of the tasks", ", ".join(lost), remedy)


def first_round(study: Study, count: int, schemes: Sequence[str] = ()) -> tuple[Trial, ...]:
    """Returns the schemes that a study's search tries first, and those of ``schemes`` in its space, each on
    all shapes to tune for."""
    effort = replace(effort_named(study.effort), trials=count, batch=count)
    space, shapes = study.space(), study.shapes.train.shapes
    proposal = Tuner(space, study.shapes, **{**study.resolved(), "effort": effort}).ask()
    named = [scheme for key in schemes if (scheme := Scheme.from_key(key)) in space]
    tried = dict.fromkeys((*(proposal.new if proposal else ()), *named))
    return tuple(Trial(scheme, shapes) for scheme in tried)


def measure(
    kit: Path, out: Path, *, observers: Iterable[Observer] = (), deadline: Deadline | None = None
) -> int:
    """Measures a kit's libraries on this machine, task by task, and writes a study of each task to ``out``,
    for this machine's processor. Measurements that ``out`` already has are not repeated.

    Returns:
        the number of measurements that the deadline left open; else 0.

    Raises:
        MeasureError: if the processor does not run these libraries, or a requirement of timing is missing.
        StudyError: if ``kit`` is no kit, or ``out`` holds studies of another processor.
    """
    deadline = deadline or Deadline()
    listeners = audience((*observers, deadline))
    with locked(out, ONE_AT_A_TIME):
        sittings = [_sitting(name, packed, out) for name, packed in _packed(kit)]
        total = sum(sitting.pairs for sitting in sittings)
        done = total - sum(sitting.left for sitting in sittings)
        try:
            with listeners.stage(STAGE, total, "measurement", done) as progress:
                for sitting in sittings:
                    sitting.run(progress)
        except OutOfTime:
            return sum(sitting.left for sitting in sittings)
    return 0


def build_measured(folder: Path, observers: Iterable[Observer] = ()) -> dict[str, Operator | str]:
    """Chooses and builds the operator of each study in a folder by its records.

    Returns:
        for each study's name the operator, or the reason why it could not be built.

    Raises:
        StudyError: if the folder holds no study.
        DietlabError: if nothing can be compiled.
    """
    found: dict[str, Operator | str] = {}
    for records in sorted(folder.glob(f"*/{RECORDS}")):
        study = Study.open(records.parent)
        if any(record.ok for record in read_records(records).records):
            study.dispatch()
            found[study.folder.name] = study.build(observers)
        else:
            found[study.folder.name] = "no library was measured"
    if not found:
        raise StudyError("the folder must hold studies that were measured", folder, "Measure a kit first.")
    return found


@dataclass(frozen=True)
class Sitting:
    """The study of one task on this machine. It measures ``schemes`` on all shapes; the schemes that could
    not be built (``failed``) get a record on the first shape only."""

    study: Study
    libraries: ReadyLibraries
    store: RecordStore
    schemes: tuple[Scheme, ...]
    failed: tuple[Scheme, ...]

    @property
    def shapes(self) -> list[Shape]:
        """The shapes in the order of :func:`~dietlab.compare.lineup.spread`."""
        return spread(self.study.shapes.train.shapes)

    @property
    def pairs(self) -> int:
        return len(self.schemes) * len(self.shapes) + len(self.failed)

    @property
    def left(self) -> int:
        return sum(len(self._missing(shape)) for shape in self.shapes)

    def run(self, progress: Stage) -> None:
        """Measures the schemes without a record. On each shape, up to :data:`RIVALS` new libraries and the
        fastest one so far are timed in turns."""
        timing = self.study.timing
        with LocalRunner(self.study.hardware, timing, ready=self.libraries) as runner:
            for shape in self.shapes:
                while missing := self._missing(shape)[:RIVALS]:
                    rivals = [*self._fastest(shape), *missing]
                    asked_by = Round(SEARCH, len({record.asked_by for record in self.store.records}))
                    trials = [Trial(scheme, (shape,)) for scheme in rivals]
                    for record in runner.measure(self.study.workload, trials):
                        self.store.append(replace(record, asked_by=asked_by))
                    best = max(record.gflops(self.study.workload) for record in self.store.records)
                    note = f"{self.study.folder.name}, {shape}, best {best:.0f} GFLOP/s"
                    progress.advance(note, len(missing))

    def _missing(self, shape: Shape) -> list[Scheme]:
        known = {record.scheme for record in self.store.records if record.shape == shape}
        once = self.failed if shape == self.shapes[0] else ()
        return [scheme for scheme in (*self.schemes, *once) if scheme not in known]

    def _fastest(self, shape: Shape) -> list[Scheme]:
        """Returns the fastest scheme so far, if any. Timing it again makes the times of two rounds
        comparable."""
        seconds = {r.scheme: r.seconds for r in self.store.records if r.shape == shape and r.seconds}
        return [min(seconds, key=lambda scheme: seconds[scheme])] if seconds else []


def _packed(kit: Path) -> Iterator[tuple[str, Study]]:
    """Yields the names of a kit's tasks with their studies."""
    with reading(StudyError, f"a kit must have a readable {KIT}", kit / KIT, "`dietlab kit pack` makes one."):
        tasks = read_json(kit / KIT)["tasks"]
        folders = {str(name): kit / Path(folder).name for name, folder in tasks.items()}
    for name, folder in folders.items():
        yield name, Study.open(folder)


def _sitting(name: str, packed: Study, out: Path) -> Sitting:
    """Returns a task's study for this machine's processor, with the schemes to measure."""
    libraries = ReadyLibraries.open(packed.folder / READY)
    timing_target(packed.hardware.kind).require_here(packed.hardware)
    study = replace(packed, hardware=_processor(packed.hardware))
    study.resolved()  # raises if a name in the file is not known here; nothing is imported for it
    study = Study.create(
        out / study_folder(name, study.hardware.cores),
        study.workload,
        study.hardware,
        study.shapes,
        **study.settings,
    )
    # Schemes of the space, found by its limits: listing a GPU's space would take a second or two.
    limits = space_target(study.hardware.kind).limits(study.workload, study.hardware)
    fits = [entry for entry in libraries.entries if all(x.excess(entry.scheme) <= 0 for x in limits)]
    versions = {**study.header["versions"], **evaluation_target(study.hardware.kind).facts()}
    store = RecordStore(study.folder / RECORDS, {**study.header, "versions": versions})
    schemes = tuple(entry.scheme for entry in fits if not entry.failure)
    failed = tuple(entry.scheme for entry in fits if entry.failure)
    return Sitting(study, libraries, store, schemes, failed)


def _processor(wanted: Hardware) -> Hardware:
    """Returns this machine's processor, with as many cores of a CPU as the libraries use."""
    found = Hardware.detect(wanted.kind, measure=False)
    return (found.with_cores(wanted.cores) if found.limits.on_host else found).measured()
