"""What others bring: known by name wherever a name is asked for, taken to worker processes, never imported
because a file names it, and checked where it comes in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT, cli, python
from test_how_tos import page_named

from dietlab.base import registry
from dietlab.base.carried import carried, enter
from dietlab.base.errors import (
    DietlabError,
    HardwareError,
    MeasureError,
    ModelError,
    RecordError,
    SpaceError,
    StudyError,
    WorkloadError,
)
from dietlab.base.events import audience
from dietlab.base.registry import Registry, entry_points, import_named
from dietlab.cli import main
from dietlab.compare.lineup import contenders_for
from dietlab.compare.study import Study
from dietlab.cost import COST_MODELS, Analytic, Survey, judge
from dietlab.cost.predictor import Checked
from dietlab.lab.strategies.comparison import Surveyed, compare_strategies, rivals, synthetic_survey
from dietlab.machine import Hardware
from dietlab.machine.target import TARGETS, part
from dietlab.measure import LocalRunner, Record, RecordFile, RecordStore, SyntheticRunner, Trial, read_records
from dietlab.measure.record_files import merge_records
from dietlab.measure.rpc.server import Session
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.process import ENTERED, WorkerProcess, WorkerRefused
from dietlab.problem import (
    OPERATORS,
    Axis,
    Dense,
    Dim,
    OperatorKind,
    Shape,
    ShapeSet,
    Workload,
    make_workload,
    require_entered,
    require_workload,
    workload_from_json,
    workload_to_json,
)
from dietlab.scheme import Scheme, Space, build_space
from dietlab.targets.cpu.contenders import VENDORS
from dietlab.targets.cpu.contenders.worker import make_contender
from dietlab.tuning import EFFORTS, STRATEGIES, SearchState, survey, tune
from dietlab.tuning.survey import records_header

HARDWARE = Hardware.preset("zen4-1core")
DENSE = Dense(T=Dim(1, 16), N=64, K=32)
SHAPES = ShapeSet.extents(DENSE, [1, 5, 16])
RUNNER = SyntheticRunner(HARDWARE)
EFFORT = replace(EFFORTS["smoke"], decisions=0)
DIMS: dict[str, Dim | int] = {"T": Dim(1, 16), "N": 96, "K": 40}

BESIDE = '''
from pathlib import Path

Path(__file__).with_suffix(".imported").touch()

class Chance:
    """Whatever is left, by chance."""
    def propose(self, state, count, random):
        return state.filled((), count, random)

class Bound:
    """The analytic bound."""
    def __init__(self, cache="hot"):
        self.cache = cache
    def fit(self, space, records):
        from dietlab.cost import Analytic
        return Analytic.of(space, self.cache)

CHANCE = Chance()
NUMBER = 3

def made():
    return Chance()

class Idle:
    """A contender that computes nothing."""
    def __init__(self, threads):
        pass
    def version(self):
        return "1"
    def kind(self, workload):
        return "plain"
    def prepare(self, workload, constants, shape):
        return self
    def bind(self, operands, out):
        return int
'''


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Forgets what a test entered, trusted, imported, or put on the path."""
    entered = {one.group: dict(one.entered) for one in Registry.all}
    trusted, path, modules = set(registry._TRUSTED), list(sys.path), set(sys.modules)
    yield
    registry.replace_entered(entered)
    registry._TRUSTED.clear()
    registry._TRUSTED.update(trusted)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("beside", "product", "broken"):
            del sys.modules[name]
    entry_points.cache_clear()


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a module of somebody else's; the module leaves a mark when it is imported."""
    (tmp_path / "beside.py").write_text(BESIDE, encoding="utf-8")
    (tmp_path / "product.py").write_text(page_named("operator").files["product.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def imported(folder: Path) -> bool:
    return (folder / "beside.imported").exists()


def installed(folder: Path, points: str) -> None:
    """Makes entry points known as an installation does."""
    about = folder / "beside-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: beside\nVersion: 1\n")
    (about / "entry_points.txt").write_text(points)
    entry_points.cache_clear()


@pytest.fixture(scope="module")
def space() -> Space:
    whole = build_space(DENSE, HARDWARE)
    return whole.restricted_to(Random(1).sample(whole.schemes, 40))


@pytest.fixture(scope="module")
def surveyed(space: Space) -> Surveyed:
    return synthetic_survey(space, SHAPES.shapes)


# Names


def test_every_kind_has_one_registry_with_a_group_of_entry_points() -> None:
    assert part("cuda", "contenders").VENDORS.group == "dietlab.vendors.cuda"  # imports it
    assert [one.group for one in Registry.all] == [
        "dietlab.targets",
        "dietlab.operators",
        "dietlab.cost_models",
        "dietlab.strategies",
        "dietlab.vendors",
        "dietlab.vendors.cuda",
    ]
    assert [*TARGETS] == ["cpu", "cuda"] and [*OPERATORS][:3] == [
        "dense",
        "batch-matmul-nt",
        "batch-matmul-nn",
    ]


def test_a_name_is_taken_wherever_one_is_given(beside: Path, space: Space, surveyed: Surveyed) -> None:
    run = tune(space, SHAPES, RUNNER, EFFORT, "beside:Chance", predictor="beside:Bound")
    assert run.trials == EFFORT.trials and isinstance(run.predictor, Analytic)
    names = ["beside:Chance", "beside:CHANCE", "beside:made", "random"]
    found = compare_strategies(surveyed, names, range(1), EFFORT)
    courses = {course.strategy: course.quality for course in found.courses}
    assert list(courses) == names and len(set(courses.values())) == 1  # all are the same search
    STRATEGIES["chance"] = STRATEGIES["beside:Chance"]
    assert compare_strategies(surveyed, ["chance"], range(1), EFFORT).courses[0].quality == courses["random"]
    assert {"chance", "beside:Chance", "draft ahead"} <= set(rivals())
    file = RecordFile(records_header(DENSE, HARDWARE, "hot"), survey(space, SHAPES.shapes, RUNNER))
    judged = judge([Survey.of(file)], ["beside:Bound", "analytic"], ["kernels"], [20], seeds=1)
    mine, own = ({**one.metrics, "fit_seconds": 0} for one in judged)
    assert mine == own
    assert contenders_for("cpu", ["beside:Idle"])[-4] == "beside:Idle"


def test_an_installed_package_adds_names(beside: Path, space: Space) -> None:
    installed(
        beside,
        "[dietlab.strategies]\nchance = beside:Chance\ndraft = beside:Chance\nlost = nowhere:Lost\n"
        "[dietlab.operators]\nproduct = product:Product\n",
    )
    assert not imported(beside) and [*STRATEGIES][-2:] == ["chance", "lost"]
    assert type(STRATEGIES["draft"]()).__module__ == "dietlab.tuning.strategies.marginal"
    assert tune(space, SHAPES, RUNNER, EFFORT, "chance").trials == EFFORT.trials
    work = make_workload("product", DIMS)
    assert workload_from_json(workload_to_json(work)) == work
    with pytest.raises(
        SpaceError, match=r"a strategy 'lost' must be loadable from nowhere:Lost; got ModuleNot"
    ):
        tune(space, SHAPES, RUNNER, EFFORT, "lost")
    done = CliRunner().invoke(main, ["doctor"])
    assert "ok   a strategy of others, chance: entry point beside:Chance" in done.output
    assert "-    a strategy of others, lost: a strategy 'lost' must be loadable" in done.output
    assert "ok   the operator of others, product" in done.output


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("random", list, r"must differ from dietlab's own; got 'random'\. Choose another"),
        ("a,b", list, "must consist of letters, digits and any of"),
        ("", list, "must consist of letters, digits and any of"),
        ("mine", list, r"the strategy mine must be a class or an object with propose; got the class list"),
        ("mine", None, r"with propose; got None"),
        ("mine", "random", r"with propose; got 'random'"),
    ],
)
def test_what_cannot_be_entered_is_an_error(name: str, value: object, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        STRATEGIES[name] = value
    assert "mine" not in STRATEGIES and not STRATEGIES.entered


def test_other_kinds_that_cannot_be_entered_are_errors() -> None:
    with pytest.raises(MeasureError, match=r"must differ from dietlab's own; got 'oracle'"):
        VENDORS["oracle"] = list
    with pytest.raises(MeasureError, match="the contender mine must be entered as a class with prepare"):
        VENDORS["mine"] = make_contender("openblas", 1, {})
    with pytest.raises(
        ModelError, match=r"must be a class or an object with fit, or a Registered; got a value of"
    ):
        COST_MODELS["mine"] = object()
    with pytest.raises(WorkloadError, match=r"entered as its class; got a value of class Dense"):
        OPERATORS["mine"] = DENSE
    with pytest.raises(
        WorkloadError, match=r"must have from_json, flops, .*got the class Hardware without flops"
    ):
        OPERATORS["mine"] = Hardware
    with pytest.raises(HardwareError, match="the target mine must be a package"):
        TARGETS["mine"] = object()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "nowhere:Chance",
            r"module 'nowhere' of a strategy must be importable; got ModuleNotFoundError.*PATH",
        ),
        ("broken:Chance", r"the module 'broken' of a strategy must be importable; got ZeroDivisionError"),
        ("beside:Chanse", r"beside.py must define a strategy; got 'Chanse'\. Did you mean 'Chance'\?"),
        ("beside:NUMBER", r"the strategy beside:NUMBER must be a class or an object with propose; got 3"),
        ("beside:Bound", r"the strategy beside:Bound must be .* with propose; got the class Bound"),
        ("chanse", r"a strategy is one of draft, .*; got 'chanse'\. For your own, write MODULE:NAME"),
        ("rondom", r"Did you mean 'random'\?"),
        (3, r"a strategy must be an object with propose; got 3"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(beside: Path, space: Space, name: Any, told: str) -> None:
    (beside / "broken.py").write_text("1 / 0\n")
    with pytest.raises(SpaceError, match=told):
        tune(space, SHAPES, RUNNER, EFFORT, name)


def test_the_command_line_takes_a_module_of_the_current_folder(beside: Path) -> None:
    start = "import sys; sys.path.remove(''); from dietlab.cli import main; main(prog_name='dietlab')"
    asked = partial(python, "-c", start, cwd=beside)
    smallest = ("--effort", "smoke", "--seeds", "1", "--quiet")
    done = asked("compare", "quickstart", "--strategies", "beside:Chance,random", *smallest)
    assert "| beside:Chance " in done.stdout
    refused = asked("replay", "quickstart", "--effort", "smoke", "--strategy", "beside:Chanse", exits=2)
    assert "must define a strategy" in refused.stderr and "Trace" not in refused.stderr


# Files


def study_in(folder: Path, **changed: str) -> Path:
    """Returns a study's folder, with other names in its manifest than it was made with."""
    Study.create(folder, DENSE, HARDWARE, SHAPES, "smoke")
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changed}))
    return folder


@pytest.mark.parametrize("field", ["strategy", "cost_model"])
def test_a_study_imports_nothing_that_it_names(beside: Path, tmp_path: Path, field: str) -> None:
    names = {"strategy": "beside:Chance", "cost_model": "beside:Bound"}
    study = Study.open(study_in(tmp_path / "study", **{field: names[field]}))
    with pytest.raises(DietlabError, match=r"got 'beside:.*reading a file imports nothing.*--import beside"):
        study.tune(RUNNER)
    assert not imported(beside) and "beside" not in sys.modules
    import_named("beside")
    assert study.tune(RUNNER).trials >= EFFORT.trials


def test_a_file_names_nothing_but_what_a_module_that_was_imported_defines(
    beside: Path, tmp_path: Path
) -> None:
    import_named("beside")
    assert STRATEGIES.found("beside:Chance")
    for name in ("beside:made", "beside:Path", "beside:NUMBER", "beside:Path.cwd", "os:abort", "json:loads"):
        with pytest.raises(SpaceError, match="a strategy is one of"):
            STRATEGIES.found(name)


@pytest.mark.parametrize("value", ["beside:Product", "os:system", 3, None, ["dense"], {}])
def test_a_workload_that_a_file_has_imports_nothing(beside: Path, value: object) -> None:
    with pytest.raises(WorkloadError, match=f"the operator is one of {', '.join(OPERATORS)}; got"):
        workload_from_json({"operator": value, "class": "beside:Product", "T": 1})
    with pytest.raises(HardwareError, match="the target is one of cpu, cuda; got"):
        Hardware.from_json({**HARDWARE.to_json(), "kind": value})
    assert not imported(beside)


def test_a_study_of_an_operator_is_opened_by_who_names_it(beside: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    work = make_workload("product:Product", DIMS)
    study = Study.create(folder, work, HARDWARE, ShapeSet.extents(work, [1, 16]), "smoke", max_kernels=1)
    study.tune(RUNNER)
    study.dispatch()
    read_records(folder / "records.jsonl")
    saved = {"operator": "product", **DIMS, "T": [1, 16], "dtype": "float32", "class": "product:Product"}
    assert json.loads((folder / "manifest.json").read_text())["workload"] == saved
    registry.replace_entered({})  # as in a process that knows nothing of it
    told = r"got 'product'.*\. It is product:Product, .*`dietlab --import product:Product \.\.\.` does"
    for read in (Study.open, lambda path: read_records(path / "records.jsonl").workload):
        with pytest.raises(WorkloadError, match=told):
            read(folder)
    assert "--import product:Product" in cli("dispatch", folder, exits=2).stderr
    done = cli("--import", "product:Product", "dispatch", folder)
    assert "next: dietlab --import product:Product build" in done.stdout
    assert "missing K, N, T. For example --dim T=1:128 --dim" in cli("space", "product", exits=2).stderr
    assert Study.open(folder).workload == work
    # What was measured needs no strategy.
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "strategy": "beside:Unknown"}))
    assert Study.open(folder).run().records and not imported(beside)


def test_what_is_imported_is_of_a_kind_that_has_names(beside: Path) -> None:
    for name, one in {"Chance": STRATEGIES, "Bound": COST_MODELS, "Idle": VENDORS}.items():
        import_named(f"beside:{name}")
        assert f"beside:{name}" in one.entered
    for name in ("NUMBER", "made", "Path"):
        with pytest.raises(DietlabError, match=r"an import must be .*, or a module that enters one; got"):
            import_named(f"beside:{name}")


def test_a_study_keeps_names(tmp_path: Path) -> None:
    made: dict[str, Any] = {"strategy": STRATEGIES["random"](), "cost_model": Analytic}
    for what, value in made.items():
        told = rf"the name of a study's {what.replace('_', ' ')} must be of class str; got"
        with pytest.raises(StudyError, match=told):
            Study.create(tmp_path / "study", DENSE, HARDWARE, SHAPES, **{what: value})
    with pytest.raises(SpaceError, match="a strategy is one of"):
        Study.create(tmp_path / "study", DENSE, HARDWARE, SHAPES, strategy="chanse")
    assert not (tmp_path / "study").exists()


def test_files_of_an_operator_are_alike_wherever_its_class_is(beside: Path, tmp_path: Path) -> None:
    header = records_header(make_workload("product:Product", DIMS), HARDWARE, "hot")
    moved = {**header, "workload": {**header["workload"], "class": "__main__:Product"}}
    RecordStore(tmp_path / "records.jsonl", header)
    assert RecordStore(tmp_path / "records.jsonl", moved).records == []
    assert merge_records([RecordFile(header, ()), RecordFile(moved, ())]).records == ()
    other = {**header, "workload": {**header["workload"], "N": 97}}
    with pytest.raises(RecordError, match="must have the study's workload"):
        RecordStore(tmp_path / "records.jsonl", other)


# Other processes


TOLD = "workers.told"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(ROOT / "tests"))))
    with WorkerProcess(TOLD) as process:
        yield process


def test_a_process_imports_what_was_entered_from_the_folders_of_this_one(
    beside: Path, worker: WorkerProcess
) -> None:
    dense = worker.ask({"workload": DENSE.to_json()}, 60)
    assert dense["module"] == "dietlab.problem.dense"
    work = make_workload("product:Product", DIMS)  # after the process was started
    VENDORS["idle"] = sys.modules.setdefault("beside", __import__("beside")).Idle
    (beside / "beside.imported").unlink()
    answer = worker.ask({"workload": work.to_json(), "ask": ["product", "beside"]}, 60)
    assert answer["workload"] == str(work) and answer["module"] == "product"
    assert answer["imported"] == ["product"] and not imported(beside)  # only what was asked for
    del OPERATORS["product"], OPERATORS["product:Product"]
    with pytest.raises(WorkerRefused, match="the operator is one of dense"):
        worker.ask({"workload": work.to_json()}, 60)


SCRIPT = f"""

import dietlab as dl
from dietlab.measure.timing.process import WorkerProcess
from dietlab.problem import OPERATORS
OPERATORS['product'] = Product
work = dl.make_workload('product', {{'T': dl.Dim(1, 16), 'N': 96, 'K': 40}})
with WorkerProcess({TOLD!r}) as worker:
    print(worker.ask({{'workload': work.to_json()}}, 60))
class Product(Product):
    def __str__(self):
        return 'another'
    def unlike(self):
        return work
OPERATORS['product'] = Product  # a cell that ran again
with WorkerProcess({TOLD!r}) as worker:
    print(worker.ask({{'workload': work.to_json()}}, 60)['workload'])
"""


def test_a_process_gets_a_copy_of_what_a_script_defines(beside: Path) -> None:
    (beside / "script.py").write_text(page_named("operator").files["product.py"] + SCRIPT, encoding="utf-8")
    first, second = python(beside / "script.py", path=(ROOT, ROOT / "tests")).stdout.splitlines()
    assert "'workload': 'product T=1..16 N=96 K=40', 'axes': 3, 'module': '__main__'" in first
    assert second == "another"


def test_what_cannot_be_taken_along_is_an_error_before_anything_is_built(beside: Path) -> None:
    work = make_workload("product:Product", DIMS)
    lock = Lock()
    kind = type(work)

    @dataclass(frozen=True)
    class Held(kind):  # type: ignore[misc, valid-type]
        operator = "held"

        def locked(self) -> object:
            return lock

    OPERATORS["held"] = Held
    held = Held(**DIMS)
    with pytest.raises(DietlabError, match=r"the operator 'held' must be fit to send to other.*lock.*module"):
        next(LocalRunner(HARDWARE).measure(held, []))
    assert "failed" in carried()["entered"]["dietlab.operators"]["held"]


def test_an_operator_that_was_not_entered_is_an_error_before_anything_is_built(beside: Path) -> None:
    import product  # type: ignore[import-not-found]

    work = product.Product(**DIMS)
    with pytest.raises(
        WorkloadError, match=r"must be known by its name; got 'product'.*OPERATORS\['product'\]"
    ):
        next(LocalRunner(HARDWARE).measure(work, []))
    assert tune(build_space(work, HARDWARE), ShapeSet.extents(work, [1, 16]), RUNNER, EFFORT).trials == 8


def test_a_process_of_another_python_is_told_apart() -> None:
    enter({"python": "2.7", "path": [], "entered": {"dietlab.operators": {"old": {"pickled": "gA=="}}}})
    with pytest.raises(WorkloadError, match=r"sent to processes of the same Python version, 2\.7; got"):
        OPERATORS["old"]


def test_a_server_passes_on_what_its_client_entered(
    beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work = make_workload("product:Product", DIMS)
    told = dict(carried())
    registry.replace_entered({})  # the server knows nothing of it
    session = Session("here")
    question = {"workload": work.to_json(), "hardware": HARDWARE.to_json(), "seconds": 60}
    assert session.answer({"op": "open", **question, ENTERED: told}) == {}
    assert session._seat is not None and session._seat._request[ENTERED] == told
    assert "product" not in OPERATORS


# What others returned


@dataclass(frozen=True)
class Proposing:
    """A strategy that returns what it was told to."""

    answer: Callable[[SearchState], object]

    def propose(self, state: SearchState, count: int, random: Random) -> Any:
        return self.answer(state)


def outside() -> Scheme:
    """A scheme of another processor's space."""
    return build_space(Dense(T=4, N=16, K=16), Hardware.preset("haswell-1core")).schemes[0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            lambda state: None,
            r"what propose of Proposing returns must be a list; got None; is a return missing",
        ),
        (lambda state: [], r"Proposing must propose a scheme as long as some are left; got none, of 40"),
        (lambda state: "8x32", r"must be a list; got '8x32'"),
        (lambda state: {state.untried[0]: 1}, r"must be a list; got a value of class dict"),
        (lambda state: 3, r"must be a list; got 3"),
        (
            lambda state: ["8x32"],
            r"returns must be a list of schemes; got '8x32'\. Return some of state.untried",
        ),
        (
            lambda state: [state.untried[0].kernel],
            r"must be a list of schemes; got a value of class CpuMicro",
        ),
        (lambda state: [outside()], r"Proposing must propose schemes of the space; got "),
        (lambda state: [state.untried[0]] * 2, r"Proposing must propose each scheme once; got .* twice"),
        (lambda state: state.untried, r"at most 8 schemes; got 40"),
        (
            lambda state: state.space.schemes[:1],
            r"must propose schemes that were not tried; got .*state.untried has",
        ),
    ],
)
def test_what_a_strategy_proposes_is_checked(
    space: Space, answer: Callable[[SearchState], object], told: str
) -> None:
    with pytest.raises(SpaceError, match=told):
        tune(space, SHAPES, RUNNER, EFFORT, Proposing(answer))


def test_a_strategy_may_propose_one_by_one(space: Space) -> None:
    run = tune(space, SHAPES, RUNNER, EFFORT, Proposing(lambda state: iter(state.untried[:1])))
    measured = tuple(dict.fromkeys(record.scheme for record in run.records))
    assert measured == space.schemes[: EFFORT.trials]


def test_an_argument_in_place_of_an_object_is_an_error(space: Space) -> None:

    for wrong, error, told in (
        ({"strategy": Proposing}, SpaceError, r"got the class Proposing\. Make one: Proposing\(\.\.\.\)"),
        ({"predictor": Fitting}, ModelError, r"an object with fit; got the class Fitting\. Make one"),
        ({"predictor": None}, ModelError, "a cost model must be an object with fit; got None"),
        ({"runner": SyntheticRunner}, MeasureError, r"object with measure; got the class SyntheticRunner"),
        ({"observers": Heard()}, DietlabError, r"what observes must be a list; got a value of class Heard"),
        ({"observers": [Heard]}, DietlabError, r"must be an object with on_event; got the class Heard"),
    ):
        with pytest.raises(error, match=told):
            tune(**{"space": space, "shapes": SHAPES, "runner": RUNNER, "effort": EFFORT, **wrong})
    assert audience(None).observers == () and len(audience([Heard()]).observers) == 1


class Heard:
    def on_event(self, event: object) -> None: ...


@dataclass(frozen=True)
class Fitting:
    """A predictor whose fit gives what it was told to."""

    seconds_of: Callable[[int, int], object] = lambda rows, cols: np.ones((rows, cols))
    doubt_of: Callable[[int, int], object] = lambda rows, cols: np.zeros((rows, cols))
    nothing: bool = False

    def fit(self, space: Space, records: Sequence[Record]) -> Any:
        return None if self.nothing else self

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Any:
        return self.seconds_of(len(schemes), len(shapes))

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Any:
        return self.doubt_of(len(schemes), len(shapes))


def of_size(value: float) -> Callable[[int, int], object]:
    """Returns a function that makes an array of one value."""
    return lambda rows, cols: np.full((rows, cols), value)


@pytest.mark.parametrize(
    ("predictor", "told"),
    [
        (
            Fitting(nothing=True),
            r"what fit of Fitting returns must be an object with seconds and doubt; got None",
        ),
        (Fitting(lambda *size: None), r"of Fitting returns must be an array \[schemes, shapes\].*got None"),
        (Fitting(lambda *size: 1.0), r"got the size \[\] for \["),
        (Fitting(lambda rows, cols: np.ones(rows)), r"got the size \[\d+\] for \[\d+, \d+\]"),
        (Fitting(lambda rows, cols: np.ones((cols + 1, rows))), r"got the size \["),
        (Fitting(lambda rows, cols: np.ones((rows, 1 + cols))), r"got the size \["),
        (Fitting(of_size(np.nan)), r"numbers above 0; got nan \(\d+ of \d+ numbers"),
        (Fitting(of_size(0)), r"numbers above 0; got 0 \(\d+ of \d+ numbers"),
        (Fitting(of_size(-1)), r"numbers above 0; got -1 \(\d+ of \d+ numbers"),
        (Fitting(of_size(np.inf)), r"numbers above 0; got inf \(\d+ of \d+ numbers"),
        (Fitting(lambda rows, cols: [["fast"] * cols] * rows), r"numbers above 0; got a value of class list"),
        (
            Fitting(doubt_of=of_size(-1.0)),
            r"doubt of Fitting returns must be .* of numbers of 0 or more; got -1",
        ),
    ],
)
def test_what_a_cost_model_gives_is_checked(space: Space, predictor: Fitting, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        tune(space, SHAPES, RUNNER, EFFORTS["smoke"], "draft", predictor=predictor)


def test_a_cost_model_that_is_right_is_taken_as_it_is(space: Space) -> None:
    mine = Fitting(lambda rows, cols: [[2] * cols] * rows)
    run = tune(space, SHAPES, RUNNER, EFFORT, "random", predictor=mine)
    assert isinstance(run.predictor, Checked) and run.predictor.fitted is mine
    table = run.seconds_table(run.schemes, SHAPES.shapes)
    assert table.dtype == np.float64 and (table == 2.0).all()


@dataclass(frozen=True)
class Measuring:
    """A runner that answers what it was told to."""

    answer: Callable[[list[Record]], object]

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Any:
        return self.answer(list(RUNNER.measure(workload, trials)))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda records: None, r"what measure of Measuring returns must be an iterable of records; got None"),
        (lambda records: [], r"also of a failure; got none of \d+, such as .* on T="),
        (lambda records: records[:-1], r"also of a failure; got none of 1, such as"),
        (lambda records: [records[0], *records], r"one record for each scheme and shape of the trials; got "),
        (lambda records: [replace(r, shape=Shape.of(T=3)) for r in records], r"of the trials; got .* on T=3"),
        (
            lambda records: [r.seconds for r in records],
            r"what measure of Measuring returns must be records; got",
        ),
    ],
)
def test_what_a_runner_measures_is_checked(
    space: Space, answer: Callable[[list[Record]], object], told: str
) -> None:
    store = RecordStore()
    with pytest.raises(MeasureError, match=told):
        tune(space, SHAPES, Measuring(answer), EFFORT, store=store)
    assert all(isinstance(record, Record) for record in store.records)
    with pytest.raises(MeasureError, match=told):
        survey(space, SHAPES.shapes, Measuring(answer))


@dataclass
class Vending:
    """A vendor whose verbs return what they were told to."""

    threads: int = 1
    kind_is: object = "plain"
    version_is: object = "1"
    prepares: object = None

    def version(self) -> Any:
        return self.version_is

    def kind(self, workload: Workload) -> Any:
        return self.kind_is

    def prepare(self, workload: Workload, constants: object, shape: Shape) -> Any:
        return self.prepares


@dataclass
class Layer:
    call: object

    def bind(self, operands: object, out: object) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"kind_is": None},
            r"what kind of Vending returns must be 'plain' or 'prepacked'; got None; is a return",
        ),
        ({"kind_is": "packed"}, r"must be 'plain' or 'prepacked'; got 'packed'"),
        ({"version_is": 2}, r"what version of Vending returns must be a text; got 2"),
        ({}, r"what prepare of Vending returns must be an object with bind; got None; is a return missing"),
        ({"prepares": Layer}, r"must be an object with bind; got the class Layer\. Make one"),
        (
            {"prepares": Layer(None)},
            r"what bind of Layer returns, which Vending prepared, must be a call without",
        ),
    ],
)
def test_what_a_vendor_returns_is_checked(fields: dict[str, Any], told: str) -> None:
    VENDORS["vending"] = lambda threads: Vending(threads, **fields)
    vendor = make_contender("vending", 1, {})

    def used() -> None:
        vendor.version()
        vendor.kind(DENSE)
        vendor.prepare(DENSE, {}, Shape.of(T=1)).bind({}, np.zeros((1, 64), np.float32), None)

    with pytest.raises(MeasureError, match=told):
        used()


def test_a_vendor_that_is_none_is_an_error() -> None:
    VENDORS["vending"] = lambda threads: None
    told = "the contender vending must be an object with version, kind and prepare; got"
    with pytest.raises(MeasureError, match=told):
        make_contender("vending", 1, {})


# Operators that contradict themselves


def altered(**fields: Any) -> Any:
    """Returns a dense operator some of whose parts say something else."""
    return verb(**{name: property(lambda self, value=value: value) for name, value in fields.items()})


def verb(**fields: Any) -> Any:
    """Returns a dense operator with some verbs of another class."""
    made = Dense(T=Dim(1, 16), N=64, K=32)
    object.__setattr__(made, "__class__", type("Altered", (Dense,), fields))
    return made


AXES = DENSE.axes


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ("dense", r"an operator must be an object with flops, bytes, .* and to_json; got 'dense'"),
        (Dense, r"got the class Dense\. Make one: Dense\(\.\.\.\)"),
        (altered(operator=3), r"the operator Altered must have a text as its operator; got 3"),
        (altered(dtype="float64"), r"a dtype is one of"),
        (
            altered(weights="stationary"),
            r"must have weights that are one of packed, transposed, direct; got 'stationary'",
        ),
        (
            altered(weights="transposed", constants=("w",)),
            r"must have packed weights where w is constant, .*; got transposed, with the",
        ),
        (altered(epilogue=None), r"must have an Epilogue; got None"),
        (altered(axes=("T", "N", "K")), r"must have axes, each an Axis; got 'T'"),
        (altered(axes=AXES[:2]), r"must have an axis of each role: rows, cols and depth.*; got cols, rows"),
        (altered(axes=(*AXES, Axis("M", 2, "rows"))), r"got cols, depth, rows, rows"),
        (altered(dims={}), r"must have dims with the ranges of its axes, T 1\.\.16; got none"),
        (altered(dims={"M": Dim(1, 16)}), r"the ranges of its axes, T 1\.\.16; got M 1\.\.16"),
        (altered(dims={"T": Dim(1, 8)}), r"the ranges of its axes, T 1\.\.16; got T 1\.\.8"),
        (
            altered(signature={"x": ("T", 32), "out": ("T", 64)}),
            r"must have the signature x .*w \[64, 32\], out",
        ),
        (altered(signature={"x": ("T", 32), "w": (32, 64), "out": ("T", 64)}), r"got x .*w \[32, 64\]"),
        (
            altered(constants=("w", "bias")),
            r"must have constants that are operands of its signature; got bias",
        ),
        (
            verb(output_shape=lambda self, shape: (64, 1)),
            r"must have an output of \[1, 64\] at T=1; got \[64, 1\]",
        ),
        (verb(flops=lambda self, shape: None), r"a whole number above 0 as .* at T=1; got None"),
        (verb(bytes=lambda self, shape: 0), r"a whole number above 0 as .* at T=1; got 0"),
        (verb(__hash__=None), r"must have a hash, as of a frozen dataclass; got unhashable"),
    ],
)
def test_parts_of_an_operator_that_contradict_each_other_are_an_error(work: Any, told: str) -> None:
    with pytest.raises(WorkloadError, match=told):
        build_space(work, HARDWARE)


def test_own_operators_say_the_same_everywhere() -> None:
    for name in OPERATORS.own:
        for low in (1, 4):
            known = OPERATORS[name].dims
            dims: dict[str, Dim | int] = dict.fromkeys(known, Dim(low, 8))
            work = make_workload(name, dims, **({"padding": 1} if "IC" in known else {}))
            require_workload(work)
            require_entered(work)


def with_inputs(change: Callable[[Any], Any]) -> Any:
    def inputs(self: Dense, shape: Shape, seed: int = 0) -> Any:
        return {name: change(array) for name, array in Dense.inputs(self, shape).items()}

    return verb(inputs=inputs)


def with_reference(change: Callable[[Any], Any]) -> Any:
    return verb(reference=lambda self, inputs: change(Dense.reference(self, inputs)))


X_AND_W = r"x float32\[1, 32\], w float32\[64, 32\]; got"


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (verb(inputs=lambda self, shape, seed=0: None), rf"inputs of Altered at T=1 must be {X_AND_W} None"),
        (verb(inputs=lambda self, shape, seed=0: {}), r"inputs of Altered at T=1 must be .*; got none"),
        (with_inputs(lambda array: array.T), rf"must be {X_AND_W} x float32\[32, 1\]"),
        (with_inputs(np.float64), r"must be x float32\[1, 32\], .*; got x float64\[1, 32\], w float64"),
        (with_reference(lambda y: None), r"reference of Altered at T=5 returns finite .*got None"),
        (with_reference(lambda y: y[0]), r"returns finite float64\[5, 64\]; got float64\[64\]"),
        (with_reference(np.float32), r"returns finite float64\[5, 64\]; got float32\[5, 64\]"),
        (with_reference(lambda y: y * np.nan), r"float64\[5, 64\]; got 320 numbers that are not finite"),
    ],
)
def test_operands_and_right_results_are_checked(work: Any, told: str) -> None:
    with pytest.raises(WorkloadError, match=told):
        Problem.make(work, Shape.of(T=5))


def test_an_operator_that_is_read_back_as_another_is_an_error(beside: Path) -> None:
    import product

    class Renamed(product.Product):  # type: ignore[misc]
        operator = "renamed"

    class Dense(product.Product):  # type: ignore[misc]
        operator = "dense"

    OPERATORS["other"] = Renamed
    with pytest.raises(WorkloadError, match=r"must be known by its name; got 'renamed'"):
        make_workload("other", DIMS)
    OPERATORS["mine"] = Dense
    with pytest.raises(
        WorkloadError, match=r"reading the JSON value of .* must return an equal operator; got dense"
    ):
        make_workload("mine", DIMS)
    OPERATORS["product"] = OperatorKind(product.Product, lambda value: None, ("T", "N", "K"), "")  # type: ignore[arg-type, return-value]
    with pytest.raises(WorkloadError, match=r"must return an equal operator; got None for product"):
        make_workload("product", DIMS)
