"""On a real GPU, wherever these tests find one: kernels of each unit are right, and timed beside cuBLAS."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from test_gpu_rehearsal import load_first_light

from dietlab.base.errors import HardwareError
from dietlab.compare.study import Study
from dietlab.compare.suites import suite_named
from dietlab.compare.suites.kit import measure, pack
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, SyntheticRunner, read_records
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pytorch_model_runs_by_libraries(gpu: Hardware, tmp_path: Path, dtype: str) -> None:
    """Eager, compiled, in CUDA graphs of three lengths, and with gradients."""
    torch = pytest.importorskip("torch", reason="a model is PyTorch's")
    if not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} sees no GPU")
    from dietlab.torch import Linear, replace_layers

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    works = [Dense(T=Dim(1, 64), N=n, K=k, dtype=dtype) for n, k in ((256, 128), (128, 256))]
    torch.manual_seed(0)
    layers = torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)
    plain = torch.nn.Sequential(*layers).to("cuda", getattr(torch, dtype))
    model = copy.deepcopy(plain)
    studies = list[Study]()
    for number, work in enumerate(works):
        shapes = ShapeSet.extents(work, [1, 64])
        studies.append(Study.create(tmp_path / str(number), work, gpu, shapes, "smoke"))
        studies[-1].tune(SyntheticRunner(gpu))
    replace_layers(model, *studies)
    assert [type(layer) for layer in model] == [Linear, torch.nn.GELU, Linear]
    close = partial(torch.testing.assert_close, rtol=3e-2, atol=3e-2)
    if dtype == "float32":
        close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    device = torch.cuda.current_device()
    with torch.no_grad():
        for rows in (1, 17, 64):
            x = torch.randn(rows, 128, device="cuda", dtype=plain[0].weight.dtype)
            close(model(x), plain(x))
            close(model(x[None]), plain(x[None]))
            close(compiled(x), plain(x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(x)
            x.copy_(torch.randn_like(x))
            graph.replay()
            close(y, plain(x))
    assert torch.cuda.current_device() == device
    names = {event.key for event in _profiled(torch, lambda: model(x)).key_averages()}
    assert any(name.startswith("run_kernel") for name in names), names
    given = torch.randn(17, 128, device="cuda", dtype=plain[0].weight.dtype)
    for one in (model, plain):
        one(given).square().mean().backward()
    close(model[0].weight.grad, plain[0].weight.grad)
    close(model[2].bias.grad, plain[2].bias.grad)


def test_a_first_call_may_be_captured(gpu: Hardware, tmp_path: Path) -> None:
    """TVM loads a module then, which drivers refuse unless the thread relaxes its rule."""
    torch = pytest.importorskip("torch", reason="a model is PyTorch's")
    if not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} sees no GPU")
    from dietlab.torch import replace_linears
    from dietlab.torch.gpu_library import OPENED

    work = Dense(T=Dim(1, 64), N=64, K=64, dtype="bfloat16")
    study = Study.create(tmp_path / "study", work, gpu, ShapeSet.extents(work, [1, 64]), "smoke")
    study.tune(SyntheticRunner(gpu))
    plain = torch.nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
    model = replace_linears(copy.deepcopy(plain), study)
    OPENED.clear()  # another copy of the library, whose module is loaded nowhere
    x, graph = torch.randn(17, 64, device="cuda", dtype=torch.bfloat16), torch.cuda.CUDAGraph()
    with torch.no_grad():
        plain(x)  # cuBLAS makes its workspace
        with torch.cuda.graph(graph):
            y = model(x)
        graph.replay()
        torch.testing.assert_close(y, plain(x), rtol=3e-2, atol=3e-2)


def _profiled(torch: Any, call: Callable[[], object]) -> Any:
    with torch.no_grad(), torch.profiler.profile() as profiled:
        call()
        torch.cuda.synchronize()
    return profiled


def test_ready_libraries_are_measured(gpu: Hardware, tmp_path: Path) -> None:
    pack(suite_named("smoke-gpu").only("dense-tiny"), gpu, tmp_path / "kit", candidates=2, effort="smoke")
    assert measure(tmp_path / "kit", tmp_path / "out") == 0
    (found,) = (tmp_path / "out").glob("*/records.jsonl")
    records = read_records(found).records
    assert records and all(record.ok or record.status == "refused" for record in records)
