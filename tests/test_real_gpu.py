"""On a real GPU, wherever these tests find one: kernels of each unit are right, and timed beside cuBLAS."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from test_gpu_rehearsal import load_first_light

from dietlab.base.errors import HardwareError
from dietlab.compare.study import Study
from dietlab.compare.suites import suite_named
from dietlab.compare.suites.kit import measure, pack
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, read_records
from dietlab.measure.builders import Builders
from dietlab.measure.record import Trial
from dietlab.problem import Dense, Dim, ShapeSet
from dietlab.targets.cuda.lowering.nvcc import compilers
from dietlab.tuning import effort_named

FIRST_LIGHT = load_first_light()
SECONDS = 120.0
"""The longest that checking one kernel may take."""


def missing() -> str:
    """Why the tests cannot run here; empty if they can."""
    try:
        Hardware.detect("cuda", measure=False)
    except HardwareError as error:
        return f"these tests need a GPU: {error.value}"
    return "" if next(compilers(), None) else "these tests need a CUDA compiler, as nvidia-cuda-nvcc"


MISSING = missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(autouse=True)
def children_find_dietlab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def gpu() -> Hardware:
    return Hardware.detect("cuda", measure=False)


@pytest.mark.parametrize("case", FIRST_LIGHT.CASES, ids=lambda case: case.name)
def test_a_kernel_of_each_kind_is_right(
    case: FIRST_LIGHT.Case,
    gpu: Hardware,
    tmp_path: Path,  # type: ignore[name-defined]
) -> None:
    try:
        scheme = case.scheme(gpu)
    except LookupError as error:
        pytest.skip(str(error))
    shapes = FIRST_LIGHT.shapes_of(case.workload)
    with Builders(gpu, tmp_path, workers=1, timeout=SECONDS) as builders:
        (built,) = builders.build(case.workload, [Trial(scheme, shapes)])
    assert built.failure is None, built.failure
    status, found = FIRST_LIGHT.judged(case, built, (), SECONDS)
    assert status == "ok", found


def test_a_library_is_tuned_and_timed_beside_cublas(gpu: Hardware, tmp_path: Path) -> None:
    """Who is faster is no matter of a test."""
    torch = pytest.importorskip("torch", reason="cuBLAS is called through PyTorch")
    if not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} sees no GPU")
    workload = Dense(T=Dim(1, 64), N=256, K=128)
    shapes = ShapeSet.extents(workload, [1, 17, 64])
    study = Study.create(tmp_path / "study", workload, gpu, shapes, "smoke")
    with LocalRunner(gpu, effort_named("smoke").timing) as runner:
        study.tune(runner)
    study.dispatch()
    study.build()
    report = study.evaluate(shapes, ("cublas",), ("hot", "rotating"))
    assert {row.contender for row in report.rows} == {"dietlab", "cublas"}
    assert all(row.correct and row.seconds_median for row in report.rows)


def test_ready_libraries_are_measured(gpu: Hardware, tmp_path: Path) -> None:
    pack(suite_named("smoke-gpu"), gpu, tmp_path / "kit", candidates=2, effort="smoke")
    assert measure(tmp_path / "kit", tmp_path / "out") == 0
    (found,) = (tmp_path / "out").glob("*/records.jsonl")
    records = read_records(found).records
    assert records and all(record.ok or record.status == "refused" for record in records)
