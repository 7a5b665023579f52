"""Targets are found by name; a third one in one file goes through the whole loop."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import null_target
import pytest
from click.testing import CliRunner
from conftest import ROOT

from dietlab.base.errors import HardwareError
from dietlab.base.registry import entry_points
from dietlab.cli.main import main
from dietlab.compare.lineup import contenders_for
from dietlab.compare.results import Report
from dietlab.compare.study import Study
from dietlab.compare.target import BOUNDS, EvaluationTarget
from dietlab.cost import CostModel, fit_cost_model
from dietlab.cost.adaptation import best_shape
from dietlab.cost.target import CostTarget
from dietlab.lower.program import source_of
from dietlab.lower.target import LowerTarget
from dietlab.machine import Hardware
from dietlab.machine.target import TARGETS, HardwareTarget, Part, part
from dietlab.measure import LocalRunner, SyntheticRunner
from dietlab.measure.rpc.server import Session
from dietlab.measure.timing.target import TimingTarget
from dietlab.problem import Dense, Shape, ShapeSet
from dietlab.problem.dims import Dim
from dietlab.scheme import Scheme, build_space, edges_of, scheme
from dietlab.scheme.target import SpaceTarget
from dietlab.targets.cpu import machine as cpu_machine
from dietlab.targets.cuda import machine as detect_gpu
from dietlab.targets.cuda.limits import gpu_of
from dietlab.tuning import choose_portfolio, train_dispatcher, tune

DENSE = Dense(T=Dim(1, 24), N=64, K=32)
SHAPES = ShapeSet.extents(DENSE, [1, 5, 24])
PARTS: dict[Part, type] = {
    "machine": HardwareTarget,
    "space": SpaceTarget,
    "lowering": LowerTarget,
    "device": TimingTarget,
    "cost": CostTarget,
    "contenders": EvaluationTarget,
}
OWN_PLACES = ("targets", "lower/cpu", "lower/cuda", "evaluation/gpu")
"""Folders of one target each, where it may be named."""


@pytest.fixture
def null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hardware]:
    """The processor of a target that an installed package brings, here and in child processes."""
    package = tmp_path / "site" / "null_target-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: null-target\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[dietlab.targets]\nnull = null_target\n")
    monkeypatch.syspath_prepend(package.parent)
    path = [str(package.parent), str(ROOT / "tests"), str(ROOT)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    entry_points.cache_clear()
    scheme._parsed.cache_clear()
    yield Hardware.detect("null")
    entry_points.cache_clear()
    scheme._parsed.cache_clear()


# Names


def test_a_target_is_found_by_name(null: Hardware) -> None:
    assert list(TARGETS) == ["cpu", "cuda", "null"]
    assert contenders_for("null") == ("nothing", *BOUNDS)
    assert len(Path(null_target.__file__).read_text().splitlines()) < 100


def test_an_unknown_target_is_an_error_with_a_guess() -> None:
    known = r"the target is one of cpu, cuda; got 'cdua'\. Did you mean 'cuda'\?"
    with pytest.raises(HardwareError, match=known):
        part("cdua", "space")


@pytest.mark.parametrize("name", ["cpu", "cuda", "null"])
@pytest.mark.parametrize("stage", PARTS)
def test_a_target_has_every_part(name: str, stage: Part, null: Hardware) -> None:
    protocol, found = PARTS[stage], part(name, stage)
    verbs = {verb for verb in vars(protocol) if not verb.startswith("_")}
    assert not [verb for verb in sorted(verbs) if not hasattr(found, verb)]


def test_nothing_of_another_target_is_loaded() -> None:
    script = (
        "import sys, dietlab as dl\n"
        "zen4 = dl.Hardware.preset('zen4-1core')\n"
        "dl.build_space(dl.Dense(8, 64, 32), zen4)\n"
        "print(*(name for name in sys.modules if name.startswith('dietlab.targets.')))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True).split()
    assert "dietlab.targets.cpu.space" in loaded and not [name for name in loaded if "cuda" in name]


def _named(tree: ast.AST) -> Iterator[int]:
    """Yields the lines that compare with a target's name, or hold a table by such names."""
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            asked = list(node.keys)
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        inner = [child for expr in asked if expr is not None for child in ast.walk(expr)]
        if any(isinstance(child, ast.Constant) and child.value in ("cpu", "cuda") for child in inner):
            yield node.lineno  # type: ignore[attr-defined]


def test_no_stage_tells_targets_apart() -> None:
    package = ROOT / "dietlab"
    own = [package / place for place in OWN_PLACES]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(package.rglob("*.py"))
        if not any(place in path.parents for place in own)
        for line in _named(ast.parse(path.read_text()))
    ]
    assert not found
    assert not [str(path) for path in package.rglob("*.py") if "null_target" in path.read_text()]


@pytest.mark.parametrize(
    "line", ["if kind == 'cuda': ...", "kind in ('cpu', 'x')", "{'cpu': 1}[kind]", "'cuda' != kind"]
)
def test_telling_targets_apart_is_found(line: str) -> None:
    assert list(_named(ast.parse(line)))
    assert not list(_named(ast.parse("detect('cuda'); kind: str = 'cpu'")))


# The loop


def test_a_processor_of_a_third_target_is_described(null: Hardware) -> None:
    again = Hardware.from_json(null.to_json())
    assert again == null and again.kind == "null" and null.to_json()["kind"] == "null"
    assert again.threads == 1 and null.measured() is null and "1 core" in str(null.card.summary)
    with pytest.raises(HardwareError, match="the stage needs a GPU; got a null processor"):
        gpu_of(null)
    with pytest.raises(HardwareError, match="fields"):
        Hardware.from_json({**null.to_json(), "limits": {"lanes": 3}})


def test_its_space_has_limits_and_keys(null: Hardware) -> None:
    space = build_space(DENSE, null, edges_of("composed", DENSE, null))
    assert max(scheme.rows for scheme in space) == 8 and len(space) == 24
    assert [(r.reason, r.count) for r in space.rejected] == [("rows of a tile", 12)]
    assert edges_of("paper", DENSE, null) == ("padded",)
    assert all(Scheme.from_key(scheme.key) == scheme for scheme in space)
    assert source_of(DENSE, null, space.schemes[0]) == "nothing"


def test_its_cost_model_is_fitted_and_kept(null: Hardware, tmp_path: Path) -> None:
    space = build_space(DENSE, null)
    run = tune(space, SHAPES, SyntheticRunner(null), "smoke")
    assert run.records and all(0.9e-6 < (r.seconds or 0) < 1.1e-6 for r in run.records)
    model = fit_cost_model(DENSE, null, run.records)
    model.save(tmp_path / "model.json")
    loaded = CostModel.load(tmp_path / "model.json")
    assert loaded.cost == model.cost
    assert (loaded.seconds(space.schemes, SHAPES.shapes) == model.seconds(space.schemes, SHAPES.shapes)).all()
    assert best_shape(space.schemes[0], SHAPES.shapes, model.cost) in SHAPES.shapes
    dispatcher = train_dispatcher(choose_portfolio(run, SHAPES, max_kernels=2))
    # Its plans may have another edge than those of the space; what is compiled is the same.
    assert dispatcher.hardware == null and set(dispatcher.micro_kernels) <= set(space.micro_kernels)


@pytest.fixture
def study(null: Hardware, tmp_path: Path) -> Study:
    """A study that was tuned in child processes."""
    made = Study.create(tmp_path / "study", DENSE, null, SHAPES, "smoke", max_kernels=2)
    with LocalRunner(null, builders=1, timer_module="null_target") as runner:
        run = made.tune(runner)
    assert run.records and {r.status for r in run.records} == {"ok"}
    assert {r.seconds for r in run.records} == {null_target.SECONDS}
    return made


def test_a_third_target_is_tuned_built_and_evaluated(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stage asks another processor than the study's: the CPU and the GPU cannot be detected."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("another target's processor was detected")

    for module, name in ((cpu_machine, "detect"), (detect_gpu, "detect_gpu")):
        monkeypatch.setattr(module, name, never)
    built = CliRunner().invoke(main, ["build", str(study.folder), "--quiet"], catch_exceptions=False)
    assert built.exit_code == 0 and "library.so" in built.output
    op = study.operator()
    assert op.manifest["hardware"]["kind"] == "null" and op.manifest["lowering"] == {}
    assert Scheme.from_key(op.scheme(5)).kernel in study.space().micro_kernels
    command = ["evaluate", str(study.folder), "--against", "nothing,largest-shape,oracle", "--quiet"]
    assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
    report = study.report()
    assert isinstance(report, Report) and {info.absent for info in report.contenders} == {""}
    rows = {row.contender: row for row in report.rows if row.shape == Shape.of(T=5)}
    assert {"dietlab", "nothing", "largest-shape", "oracle"} <= set(rows)
    assert all(row.correct and row.seconds_median == null_target.SECONDS for row in rows.values())
    assert rows["nothing"].speedup == 1.0 and rows["dietlab"].regret == 0.0


# Whose processor is asked


def test_a_server_describes_the_processor_of_the_target_that_is_asked_for(
    null: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    a100 = Hardware.preset("a100")
    monkeypatch.setattr(part("cuda", "machine"), "detect", lambda **_: a100)
    question = {"op": "hardware", "cores": 1, "measure": True}
    for target, wanted in (("cuda", a100), ("null", null)):
        assert Hardware.from_json(dict(Session("here").answer({**question, "target": target}))) == wanted
