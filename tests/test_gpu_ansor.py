"""Per-shape auto-scheduling for a GPU, without one: real sketch rules and cubins, times from a stand-in,
a stub driver that computes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from cuda_samples import NO_EMULATOR

from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.base.events import audience
from dietlab.compare import lineup
from dietlab.compare.ansor import contender as ansor
from dietlab.compare.ansor.contender import AnsorResult, tune_static, tuned_library
from dietlab.compare.contenders import AnsorContender
from dietlab.compare.target import evaluation_target
from dietlab.compare.vendor import NoFormError
from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.measure.timing.bench import Service
from dietlab.measure.timing.contender import NotTunedError
from dietlab.measure.timing.process import WorkerProcess, WorkerRefused
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.targets.cuda import machine as detect_gpu
from dietlab.targets.cuda.contenders.worker import load_tuned, opened
from dietlab.targets.cuda.lowering import nvcc
from dietlab.tuning import EFFORTS

T4, H100 = Hardware.preset("t4"), Hardware.preset("h100")
T = Dim(1, 64)
DENSE = Dense(T, 48, 32, bias=True)
SHAPE = Shape.of(T=33)
STAND_IN = "workers.ansor_timer"
SECONDS = 300.0

NO_COMPILER = "no CUDA compiler is installed (pip install nvidia-cuda-nvcc nvidia-cuda-cccl)"
compiles = pytest.mark.skipif(next(nvcc.compilers(), None) is None, reason=NO_COMPILER)


class StandIn:
    """The folder through which tests talk to the worker that tells times."""

    def __init__(self, folder: Path) -> None:
        self._plan, self._log = folder / "plan.json", folder / "log.jsonl"

    def will_tell(self, *answers: float | str) -> None:
        self._plan.write_text(json.dumps(answers))
        self._log.unlink(missing_ok=True)

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    folder = tmp_path_factory.mktemp("stand-in")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSOR_STAND_IN", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), str(ROOT)]))
        yield StandIn(folder)


# What cannot be tuned


@pytest.mark.parametrize(
    ("workload", "kind", "known"),
    [
        (DENSE, "cuda", True),
        (replace(DENSE, constant=False, residual=True), "cuda", True),
        (replace(DENSE, dtype="float16"), "cuda", True),
        (replace(DENSE, dtype="bfloat16"), "cuda", False),
        (BatchMatmul(T, 3, 16, "nt"), "cuda", True),
        (BatchMatmul(T, 3, 16, "nn"), "cpu", False),
        (DENSE, "cpu", True),
        (replace(DENSE, activation="relu"), "cpu", True),
        (replace(DENSE, activation="gelu_erf"), "cpu", False),
        (replace(DENSE, residual=True), "cpu", False),
        (replace(DENSE, constant=False), "cpu", False),
    ],
    ids=str,
)
def test_forms(workload: Workload, kind: str, known: bool, tmp_path: Path) -> None:
    if known:
        evaluation_target(kind).require_form(workload)
        return
    with pytest.raises(NoFormError, match="Compare with the"):
        evaluation_target(kind).require_form(workload)
    processor = H100 if kind == "cuda" else Hardware.preset("haswell-1core")
    with pytest.raises(NoFormError):
        tune_static(workload, processor, SHAPE, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_no_gpu_is_one_error_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_gpu, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    with pytest.raises(
        MeasureError, match=r"H100 SXM can only be measured on a GPU; got no driver .*Tune where"
    ):
        tune_static(DENSE, H100, SHAPE, tmp_path / "none", 2)
    assert not (tmp_path / "none").exists()


def test_no_cuda_compiler_is_one_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "FINDERS", ())
    with pytest.raises(
        MissingDependencyError, match=r"a CUDA compiler must be installed.*pip install nvidia-"
    ):
        tune_static(DENSE, H100, SHAPE, tmp_path / "none", 2, timer=STAND_IN)
    assert not (tmp_path / "none").exists()


def test_rules_are_those_of_the_forms_and_declare_no_more_shared_memory_than_a_block_may() -> None:
    pytest.importorskip("tvm")
    from dietlab.targets.cuda.ansor import RULES, schedule_target

    assert tuple(RULES) == part("cuda", "contenders").ANSOR_DTYPES
    for gpu in (T4, H100):
        target = schedule_target(gpu)
        assert int(target.attrs["max_shared_memory_per_block"]) == 48 << 10 < gpu.limits.smem_per_block_bytes
        assert str(target.arch) == gpu.limits.arch and target.host.kind.name == "llvm"


# Tuning, with times that a stand-in tells


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, stand_in: StandIn) -> tuple[AnsorResult, list[Any]]:
    """Three trials: the first is slow, the second wrong, the third fast; and the check of what is saved."""
    stand_in.will_tell(3.0, "wrong", 1.0)
    result = tune_static(DENSE, H100, SHAPE, tmp_path_factory.mktemp("ansor"), 3, timer=STAND_IN)
    return result, stand_in.asked


@compiles
@pytest.mark.cuda_compile
def test_the_fastest_right_program_is_saved(tuned: tuple[AnsorResult, list[Any]]) -> None:
    result, asked = tuned
    assert (result.shape, result.trials, result.failures) == (SHAPE, 3, 1)
    assert result.gflops == pytest.approx(DENSE.flops(SHAPE) / 1e-6 / 1e9) and result.seconds > 0
    assert [question["told"] for question in asked] == [3.0, "wrong", 1.0, 1.0]
    codes = [question["code"] for question in asked]
    assert all(codes) and len(set(codes[:3])) > 1 and codes[3] == codes[2]
    assert [question["caches"] for question in asked] == [[], *[["rotating"]] * 3]
    assert len({question["pid"] for question in asked}) == 1
    assert {question["sm"] for question in asked} == {90}
    assert {question["kernels"][0] for question in asked} == {"run_kernel"}


@compiles
@pytest.mark.cuda_compile
def test_json_says_what_was_tuned(tuned: tuple[AnsorResult, list[Any]]) -> None:
    path, saved = tuned_library(tuned[0].library.parent, SHAPE)
    assert path == tuned[0].library and path.name == "T=33.so"
    assert saved["settings"]["hardware"]["name"] == H100.name and saved["settings"]["shape"] == {"T": 33}
    assert saved["rules"] == "cuda" and saved["max_error"] <= saved["tolerance"]
    assert list(saved["failure_reasons"].values()) == [1]
    assert "2.50e+00 is above" in next(iter(saved["failure_reasons"]))
    assert "cuda_" in saved["versions"]["CUDA compiler"] and "apache-tvm" in saved["versions"]


@compiles
@pytest.mark.cuda_compile
def test_a_tuned_shape_is_loaded_without_a_gpu(
    tuned: tuple[AnsorResult, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("tuned again")

    monkeypatch.setattr(ansor, "WorkerProcess", never)
    folder = tuned[0].library.parent
    assert tune_static(DENSE, replace(H100, peak_gflops=1.0), SHAPE, folder, 3) == tuned[0]
    with pytest.raises(AssertionError, match="tuned again"):
        tune_static(DENSE, H100, SHAPE, folder, 4, timer=STAND_IN)


@pytest.fixture(scope="module")
def worker(stand_in: StandIn) -> Iterator[WorkerProcess]:
    with WorkerProcess(ansor.WORKER) as process:
        yield process


def opening(workload: Workload, hardware: Hardware, trials: int) -> dict[str, Any]:
    of = {"workload": workload.to_json(), "hardware": hardware.to_json(), "shape": SHAPE.to_json()}
    return {"op": "open", **of, "trials": trials, "seed": 0, "timer": STAND_IN}


FUSED_HALVES = replace(DENSE, activation="gelu_tanh", residual=True, dtype="float16")


@compiles
@pytest.mark.cuda_compile
@pytest.mark.parametrize(
    ("workload", "gpu", "sm", "trials"),
    [
        (BatchMatmul(T, 3, 16, "nt"), "t4", 75, 1),
        pytest.param(FUSED_HALVES, "h100", 90, 2, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_candidates_become_cubins(
    worker: WorkerProcess, stand_in: StandIn, workload: Workload, gpu: str, sm: int, trials: int
) -> None:
    stand_in.will_tell(1.0)
    worker.ask(opening(workload, Hardware.preset(gpu), trials), SECONDS)
    state = worker.ask({"op": "batch"}, SECONDS)
    assert (state["trials"], state["finished"]) == (trials, False)
    # TVM 0.27 has no code for odd vectors of halves, of which the tensor cores' rules make some.
    assert state["failures"] == 0 if workload.dtype == "float32" else state["failures"] < trials
    assert len(stand_in.asked) == trials - state["failures"]
    assert all(question["sm"] == sm for question in stand_in.asked)


@compiles
@pytest.mark.thorough
@pytest.mark.cuda_compile
def test_a_timer_that_faults_or_crashes_starts_anew(
    worker: WorkerProcess, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.will_tell("fault", "crash", "wrong")
    worker.ask(opening(DENSE, H100, 3), SECONDS)
    state = worker.ask({"op": "batch"}, SECONDS)
    assert (state["trials"], state["failures"], state["best_seconds"]) == (3, 3, None)
    assert len({question["pid"] for question in stand_in.asked}) == 3
    with pytest.raises(
        WorkerRefused, match=r"at least one candidate must build and run; got .*illegal memory access"
    ):
        worker.ask({"op": "save", "path": str(tmp_path / "none.so")}, SECONDS)


# What is tuned computes the workload


@pytest.fixture(scope="module")
def emulated(stand_in: StandIn) -> Iterator[WorkerProcess]:
    if NO_EMULATOR:
        pytest.skip(NO_EMULATOR)
    with WorkerProcess("workers.ansor_emulated", {"TVM_CUDA_COMPILE_MODE": "nvcc"}) as process:
        yield process


PRODUCTS = [BatchMatmul(T, 2, 20, form) for form in ("nt", "nn")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "workload", [replace(DENSE, activation="gelu_erf", residual=True), *PRODUCTS], ids=str
)
def test_every_candidate_computes_the_workload(emulated: WorkerProcess, workload: Workload) -> None:
    request = {"workload": workload.to_json(), "shape": {"T": 17}, "hardware": "h100", "trials": 1}
    found = emulated.ask({**request, "seed": 0, "batch": 1}, SECONDS)
    assert (found["trials"], found["failures"]) == (1, 0), found["errors"]
    assert len(found["asked"]) == 2, "the candidate, and what is saved"
    for case in found["asked"]:
        assert case["max_error"] <= case["tolerance"] and not case["reason"]
        assert len(case["launches"]) == 1
    assert found["saved"]["max_error"] == found["asked"][0]["max_error"]


# The contender


def contender_of(folder: Path) -> AnsorContender:
    return AnsorContender(str(folder), "cuda", partial(load_tuned, "cpu"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as tuning leaves it, with a program for this machine's processor in a GPU's place."""
    tvm = pytest.importorskip("tvm")
    from dietlab.compare.ansor.program import static_program
    from dietlab.targets.cuda.ansor import link

    folder = tmp_path_factory.mktemp("programs")
    run = static_program(DENSE, SHAPE)["main"].with_attr("global_symbol", "run")
    link(tvm.compile(tvm.IRModule({"run": run}), target="llvm").mod, folder / "T=33.so")
    (folder / "T=33.json").write_text(json.dumps({"schema_version": ansor.SCHEMA_VERSION}))
    return folder


def test_a_tuned_program_plays_with_pytorch_s_tensors(programs: Path) -> None:
    pytest.importorskip("torch", reason="contenders of a GPU are PyTorch's; here its CPU build stands in")
    service = Service(opened)
    options = {"device": "cpu", "l2_bytes": 1 << 14, "library": str(programs)}
    answer = service({"op": "open", "contender": "ansor", "workload": DENSE.to_json(), "options": options})
    assert answer["kind"] == "per-shape tuning" and answer["version"].startswith("MetaSchedule of TVM")
    assert service({"op": "check", "shape": {"T": 33}, "seed": 3})["correct"]
    timed = service({"op": "time", "shape": {"T": 33}, "cache": "rotating", "min_seconds": 1e-4})
    assert timed["seconds"] > 0 and timed["copies"] > 1
    for op in ("check", "time"):
        assert "no library for T=34" in service({"op": op, "shape": {"T": 34}})["absent"]


def test_a_program_is_loaded_once(programs: Path) -> None:
    torch = pytest.importorskip("torch")
    contender = contender_of(programs)
    operands = {name: torch.from_numpy(array) for name, array in DENSE.inputs(SHAPE).items()}
    for _ in range(2):
        contender.prepare(DENSE, operands, SHAPE).bind({}, torch.empty(33, 48))()
    assert list(contender.programs) == [SHAPE]
    with pytest.raises(NotTunedError, match="no library for T=5"):
        contender.prepare(DENSE, operands, Shape.of(T=5))


def test_a_form_that_is_missing_makes_it_absent(tmp_path: Path) -> None:
    work = replace(DENSE, dtype="bfloat16")
    with pytest.raises(NoFormError, match="needs operands of type float32 or float16 on a GPU; got bfloat16"):
        contender_of(tmp_path).kind(work)
    shapes = ShapeSet.extents(work, [5])
    found = lineup.with_ansor(opened_lineup(work), tmp_path, shapes, EFFORTS["smoke"], audience(()))
    (absent,) = found.absent
    assert absent.name == "ansor" and "got bfloat16" in absent.absent
    assert found.entries == () and found.ansor == ()


def test_the_contender_says_how_many_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Shape] = []

    def tuned_at(work: Workload, hardware: Hardware, shape: Shape, *_: Any, **__: Any) -> AnsorResult:
        asked.append(shape)
        return AnsorResult(shape, 3 + len(asked), 0, 30.0, 1.0, tmp_path / "x.so")

    monkeypatch.setattr(lineup, "tune_static", tuned_at)
    shapes = ShapeSet.extents(DENSE, [5, 9])
    found = lineup.with_ansor(opened_lineup(DENSE), tmp_path, shapes, EFFORTS["smoke"], audience(()))
    (entry,) = found.entries
    assert (entry.name, entry.opens, entry.kind) == ("ansor", "ansor", "scheduler")
    assert entry.options == {"library": str(tmp_path)}
    assert "4 to 5 trials a shape, 2 shapes tuned in 60 s" in entry.detail and len(asked) == 2


def opened_lineup(workload: Workload) -> lineup.Lineup:
    dispatcher: Any = SimpleNamespace(workload=workload, hardware=H100)
    return lineup.Lineup(dispatcher, None, ())
