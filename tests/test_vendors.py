"""Vendors are right, alone in their process, and say what to do when they are absent."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import process_time, thread_time
from typing import Any, get_args

import numpy as np
import pytest

from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.base.registry import Registry
from dietlab.cli.doctor import examine
from dietlab.cli.quickstart import QUICKSTART_AGAINST
from dietlab.compare.contenders import COMPUTES, Vendor
from dietlab.compare.lineup import own_vendors
from dietlab.compare.suites.suite import suite_named
from dietlab.compare.vendor import CONVOLUTIONS, Kind, NoFormError, contender_env
from dietlab.machine import Hardware
from dietlab.measure import CACHE_STATES
from dietlab.measure.timing.bench import Service
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.process import WorkerProcess, WorkerRefused
from dietlab.problem import OPERATORS, BatchMatmul, Dense, Dim, Shape, Workload
from dietlab.targets.cpu.contenders import DEFAULTS as DEFAULT_CONTENDERS
from dietlab.targets.cpu.contenders import VENDORS, openblas, zendnn
from dietlab.targets.cpu.contenders.onnx_runtime import OnnxNode, message, model, operator_model
from dietlab.targets.cpu.contenders.pytorch import OneDnnPacked, open_torch
from dietlab.targets.cpu.contenders.worker import make_contender, opened
from dietlab.targets.cuda.contenders import VENDORS as GPU_VENDORS

WORKER = "dietlab.targets.cpu.contenders.worker"
ROWS = (1, 5, 17, 31)
CACHE_BYTES = {"l2_bytes": 1 << 14, "l3_bytes": 1 << 20}
T = Dim(1, 32)

DENSE = (Dense(T, 70, 45), Dense(T, 70, 45, bias=True))
VARIABLE = (
    Dense(T, 70, 45, constant=False),
    Dense(T, 70, 45, bias=True, residual=True, constant=False),
    BatchMatmul(T, 7, 13, "nt"),
    BatchMatmul(T, 7, 13, "nn"),
    BatchMatmul(T, 1, 64, "nt"),
    BatchMatmul(T, 1, 1, "nn"),
)
EPILOGUES = tuple(
    Dense(T, 70, 45, bias=bias, activation=activation, residual=residual)
    for bias, activation, residual in (
        (False, "none", True),
        (True, "none", True),
        (False, "relu", False),
        (True, "relu", True),
        (True, "gelu_tanh", False),
        (False, "gelu_tanh", True),
        (True, "gelu_erf", False),
        (True, "gelu_erf", True),
    )
)
WITHOUT_GELU = ("openblas", "mkl", "mkl-packed")
PACKING = {"mkl-packed", "onednn-packed", "zendnn-packed", "onnxruntime", "openvino"}


def opening(contender: str, workload: Workload = DENSE[0], threads: int = 1) -> dict[str, object]:
    return {
        "op": "open",
        "contender": contender,
        "workload": workload.to_json(),
        "threads": threads,
        "options": CACHE_BYTES,
    }


@pytest.fixture(params=sorted(own_vendors("cpu", "dense")))
def vendor(request: pytest.FixtureRequest) -> Iterator[tuple[str, WorkerProcess]]:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        answer = worker.ask(opening(request.param), 120)
        if "absent" in answer:
            pytest.skip(answer["absent"])
        assert answer["version"]
        yield request.param, worker


def kind_of(name: str, workload: Workload) -> str | None:
    """What the vendor should say it is; None if it has no such form."""
    if not workload.constants:
        return None if name in ("mkl-packed", "onednn-packed", "zendnn-packed") else "plain"
    if name in WITHOUT_GELU and workload.epilogue.activation.startswith("gelu"):
        return None
    return "prepacked" if name in PACKING else "plain"


def test_vendor_is_right_in_every_form_it_has(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    for workload in (*DENSE, *EPILOGUES, *VARIABLE):
        opened, kind = worker.ask(opening(name, workload), 60), kind_of(name, workload)
        assert opened.get("kind") == kind, workload
        assert (kind is None) == ("Compare with" in opened.get("absent", "")), workload
        for rows in ROWS if kind else ():
            answer = worker.ask({"op": "check", "shape": {"T": rows}, "seed": rows}, 60)
            assert answer["correct"], (str(workload), rows, answer)
            assert answer["max_error"] <= answer["tolerance"]


def test_vendor_is_timed_in_every_cache_state(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    for workload in (DENSE[1], VARIABLE[2]):
        if "absent" in worker.ask(opening(name, workload), 60):
            continue
        for cache in CACHE_STATES:
            timed = worker.ask({"op": "time", "shape": {"T": 5}, "cache": cache, "min_seconds": 0.001}, 60)
            assert 0 < timed["seconds"] < 0.1 and timed["calls"] >= 1
            assert (timed["copies"] > 1) == (cache == "rotating")
            assert (timed["retaken"], timed["kept"], timed["probe"]) == (0, False, None)
        assert worker.ask({"op": "check", "shape": {"T": 5}}, 60)["correct"]


@pytest.mark.parametrize("name", ["openblas", "onnxruntime", "openvino", "zendnn", "zendnn-packed"])
def test_two_threads_compute_the_same(name: str) -> None:
    with WorkerProcess(WORKER, contender_env(2)) as worker:
        for workload in (w for w in (DENSE[0], VARIABLE[2]) if kind_of(name, w)):
            if "absent" in (opened := worker.ask(opening(name, workload, threads=2), 60)):
                pytest.skip(opened["absent"])
            assert worker.ask({"op": "check", "shape": {"T": 17}}, 60)["correct"]
            timed = worker.ask({"op": "time", "shape": {"T": 17}, "cache": "interleaved"}, 60)
            assert timed["seconds"] > 0 and timed["calls"] >= 1  # fewer calls if other programs have a core


def test_threads_of_onnxruntime_are_chosen_once() -> None:
    pytest.importorskip("onnxruntime")
    with WorkerProcess(WORKER, contender_env(2)) as worker:
        worker.ask(opening("onnxruntime", threads=2), 60)
        with pytest.raises(WorkerRefused, match="must have 2 threads; got 3"):
            worker.ask(opening("onnxruntime", threads=3), 60)


# Models for ONNX Runtime


def test_message_is_a_protocol_buffer() -> None:
    # Protocol buffers' own example: field 1 holds 150, field 2 the string "testing".
    assert message((1, 150)) == bytes.fromhex("089601")
    assert message((2, "testing")) == bytes.fromhex("120774657374696e67")
    assert message((3, message((1, 150)))) == bytes.fromhex("1a03089601")
    assert message((16, 0)) == bytes.fromhex("800100")


def test_model_is_read_as_it_was_meant() -> None:
    runtime = pytest.importorskip("onnxruntime")
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    nodes = [
        OnnxNode("Gemm", ("x", "w"), "step", {"transB": 1}),
        OnnxNode("Gelu", ("step",), "y", {"approximate": "tanh"}),
    ]
    made = model(nodes, {"w": weights}, {"x": ("T", 2)}, {"y": ("T", 3)})
    session = runtime.InferenceSession(made, providers=["CPUExecutionProvider"])
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("x", ["T", 2], "tensor(float)")
    assert (result.name, result.shape) == ("y", ["T", 3])
    (y,) = session.run(None, {"x": np.ones((4, 2), np.float32)})
    product = weights.sum(axis=1)
    gelu = product / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
    np.testing.assert_allclose(y, np.tile(gelu, (4, 1)), rtol=1e-5, atol=1e-6)


def test_constant_weights_are_in_the_model_and_others_are_not() -> None:
    shape = Shape.of(T=3)
    inputs = DENSE[0].inputs(shape)
    assert inputs["w"].tobytes() in operator_model(DENSE[0], {"w": inputs["w"]}, shape)
    assert len(operator_model(VARIABLE[0], {}, shape)) < 200


# Libraries that are absent, or have no such form


def test_absent_mkl_has_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", not_found)
    for name in ("mkl", "mkl-packed"):
        with pytest.raises(MissingDependencyError, match="not installed") as raised:
            VENDORS[name](1)
        assert "pip install mkl" in raised.value.remedy


@pytest.mark.parametrize(
    ("name", "package"),
    [("torch", "torch"), ("onednn-packed", "torch"), *((name, name) for name in ("onnxruntime", "openvino"))],
)
def test_absent_package_has_a_reason_and_a_remedy(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as raised:
        VENDORS[name](1)
    assert f"pip install {package}" in raised.value.remedy


@pytest.mark.parametrize("name", ["zendnn", "zendnn-packed"])
def test_absent_zentorch_has_a_reason_and_a_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(zendnn, "processor_vendor", lambda: "AuthenticAMD")
    monkeypatch.setitem(sys.modules, "zentorch", None)
    with pytest.raises(MissingDependencyError) as raised:
        VENDORS[name](1)
    assert "pip install 'dietlab[zendnn]'" in raised.value.remedy


@pytest.mark.parametrize(("maker", "said"), [("GenuineIntel", "GenuineIntel"), ("", "names no maker")])
def test_zendnn_is_not_compared_on_another_makers_processor(
    maker: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zendnn, "processor_vendor", lambda: maker)
    for name in ("zendnn", "zendnn-packed"):
        assert said in Service(opened)(opening(name))["absent"]


@pytest.mark.parametrize("known", [VENDORS, GPU_VENDORS], ids=["cpu", "cuda"])
def test_every_vendor_says_what_it_computes(known: Registry[Any]) -> None:
    for name, made in known.own.items():
        assert made.name == name and made.computes and {*made.computes} <= {*COMPUTES, *CONVOLUTIONS}  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Convolution(Dense):
    """An operator that dietlab may have some day."""

    operator = "conv3d"  # type: ignore[assignment]


@dataclass(frozen=True)
class Direct(Dense):
    """An operator of others whose weights have rows along the depth."""

    operator = "product"  # type: ignore[assignment]
    weights, constants = "direct", ("w",)  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["openblas", "torch", "onednn-packed", "onnxruntime", "openvino"])
def test_what_a_vendor_does_not_compute_has_a_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        vendor = make_contender(name, 1, {})
    except MissingDependencyError as error:
        pytest.skip(str(error))
    monkeypatch.setitem(OPERATORS.own, "conv3d", OPERATORS.own["dense"])  # type: ignore[index]
    with pytest.raises(
        NoFormError, match=rf"{name} can only compute dense.*; got .*Compare with one that computes it"
    ):
        vendor.kind(Convolution(T, 70, 45))
    if name in ("torch", "onednn-packed"):
        with pytest.raises(NoFormError, match=rf"{name} can only compute dense"):
            vendor.kind(Direct(T, 70, 45))
    else:
        assert vendor.kind(Direct(T, 70, 45))


class Unsaid:
    """A vendor that does not say what it computes."""

    version = staticmethod(lambda: "1")
    kind = staticmethod(lambda workload: "plain")
    prepare = staticmethod(lambda workload, constants, shape: None)


def test_a_vendor_that_does_not_say_computes_the_operators_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Vendor(Unsaid(), get_args(Kind))
    assert [vendor.kind(work) for work in (DENSE[0], *VARIABLE, Direct(T, 70, 45))] == ["plain"] * 8
    monkeypatch.setitem(OPERATORS.own, "conv3d", OPERATORS.own["dense"])  # type: ignore[index]
    with pytest.raises(
        NoFormError, match=r"Unsaid can only compute dense or batch-matmul or matmul; got dense"
    ):
        vendor.kind(Convolution(T, 70, 45))


def test_zendnn_takes_part_wherever_cpus_are_compared() -> None:
    for name in ("bert-cpu", "llm-cpu"):
        for task in suite_named(name).tasks:
            packed = "zendnn-packed" in task.against
            assert "zendnn" in task.against and packed == bool(task.workload.constants)
    assert {"zendnn", "zendnn-packed"} <= set(DEFAULT_CONTENDERS)
    assert "zendnn-packed" in QUICKSTART_AGAINST
    assert "zentorch" in {finding.what for finding in examine()}


def test_pytorch_loads_no_extension_that_is_installed_beside_it(tmp_path: Path) -> None:
    """PyTorch imports what registers as its backend, unless told not to."""
    pytest.importorskip("torch")
    loaded = tmp_path / "loaded"
    (tmp_path / "spoiler.py").write_text(f"def load():\n    open({str(loaded)!r}, 'w')\n", encoding="utf-8")
    metadata = tmp_path / "spoiler-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: spoiler\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nspoiler = spoiler:load\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with WorkerProcess(WORKER, {**contender_env(1), "PYTHONPATH": path}) as worker:
        assert "PyTorch" in worker.ask(opening("torch"), 60)["version"]
    assert not loaded.exists()


def test_numpy_with_another_blas_is_no_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openblas, "numpy_blas", lambda: {"name": "accelerate"})
    with pytest.raises(MissingDependencyError, match="accelerate") as raised:
        VENDORS["openblas"](1)
    assert "pip install numpy" in raised.value.remedy


def test_absent_contender_is_an_answer_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = Service(opened)(opening("torch"))
    assert "torch" in answer["absent"]


def test_form_that_a_library_lacks_names_those_that_have_it() -> None:
    with pytest.raises(NoFormError, match=r"got gelu_erf. Compare with torch"):
        VENDORS["openblas"](1).kind(EPILOGUES[-1])


def test_unknown_contender_names_the_known_ones() -> None:
    with WorkerProcess(WORKER) as worker, pytest.raises(WorkerRefused, match="onnxruntime"):
        worker.ask(opening("eigen"), 60)


@pytest.mark.parametrize("name", ["openblas", "openvino"])
def test_vendor_of_float32_has_no_form_of_other_types(name: str) -> None:
    if name == "openvino" and find_spec(name) is None:
        pytest.skip("openvino is not installed")
    work = Dense(T=Dim(1, 8), N=8, K=8, dtype="int8")
    answer = Service(opened)(opening(name, work))
    assert f"{name} can only compute float32; got int8" in answer["absent"]


LOW = (
    Dense(T, 70, 45, dtype="int8"),
    Dense(T, 70, 45, True, "int8", activation="relu", residual=True),
    Dense(T, 70, 45, True, "int8", activation="gelu_erf"),
    Dense(T, 70, 45, True, "int8", out_dtype="int8"),
    Dense(T, 70, 45, True, "bfloat16"),
    Dense(T, 70, 45, True, "bfloat16", residual=True),
    Dense(T, 70, 45, True, "bfloat16", activation="relu", residual=True),
)
LOW_FORMS = {"onednn-packed": (*LOW[:4], *LOW[4:6]), "onnxruntime": LOW[:3], "torch": LOW[4:5]}


@pytest.mark.parametrize("name", LOW_FORMS)
def test_low_precision_of_vendors_is_right_or_has_a_reason(name: str) -> None:
    forms = LOW_FORMS[name]
    pytest.importorskip("onnxruntime" if name == "onnxruntime" else "torch")
    if name == "onednn-packed" and Hardware.detect(measure=False).limits.vector_bytes < 64:
        forms = LOW[:4]  # oneDNN multiplies bfloat16 from AVX-512 on
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        for workload in LOW:
            opened = worker.ask(opening(name, workload), 60)
            assert ("absent" in opened) == (workload not in forms), opened
            for rows in (1, 17) if "absent" not in opened else ():
                answer = worker.ask({"op": "check", "shape": {"T": rows}, "seed": rows}, 60)
                assert answer["correct"], (str(workload), rows, answer)


# Float32 stays float32, and packed weights serve what they were packed for


@pytest.mark.parametrize("name", ["torch", "onednn-packed", "openvino"])
def test_a_setting_of_the_environment_makes_no_contender_compute_in_bfloat16(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does on a processor with instructions for it."""
    for variable in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"):
        monkeypatch.setenv(variable, "BF16")
    package = "openvino" if name == "openvino" else "torch"
    if find_spec(package) is None:  # an import would read the variables here
        pytest.skip(f"{package} is not installed")
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        worker.ask(opening(name), 120)
        verdict = worker.ask({"op": "check", "shape": {"T": 16}}, 120)
    assert verdict["correct"] and verdict["max_error"] < 1e-4, "bfloat16 is off by 1e-2"


@pytest.mark.parametrize("how", ["float32_matmul_precision", "oneDNN's"])
def test_a_precision_that_pytorch_was_told_is_set_back(how: str) -> None:
    torch = pytest.importorskip("torch")
    if how == "oneDNN's":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    else:
        torch.set_float32_matmul_precision("medium")
    x, w = (torch.rand(64, 512, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    open_torch(1)
    assert torch.get_float32_matmul_precision() == "highest", "without an error of two ways mixed"
    packed = torch.ops.mkldnn._reorder_linear_weight(w, 64)
    right = x.double() @ w.double().T
    for found in (x @ w.T, torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")):
        assert (found.double() - right).abs().max() < 1e-5 * right.abs().max(), "bfloat16 is off by 1e-3"


def test_openvino_computes_any_length_in_float32_by_the_thread_that_calls() -> None:
    if find_spec("openvino") is None:  # an import would find what reports conversions to its makers
        pytest.skip("openvino is not installed")
    work = Dense(Dim(1, 256), 512, 512, bias=True)
    given = [Problem.make(work, Shape.of(T=rows)) for rows in (1, 256, 17)]
    layer = VENDORS["openvino"](1).prepare(work, given[0].constants, Shape.of(T=1))
    told = layer.compiled.get_property  # type: ignore[attr-defined]
    names = ("INFERENCE_PRECISION_HINT", "INFERENCE_NUM_THREADS", "NUM_STREAMS", "ENABLE_CPU_PINNING")
    assert [told(name) for name in names[1:]] == [1, 1, False] and "float32" in str(told(names[0]))
    nodes = layer.compiled.get_runtime_model().get_ops()  # type: ignore[attr-defined]
    assert not any("bf16" in node.get_rt_info()["primitiveType"].astype(str) for node in nodes)
    for problem in given:
        out = np.full(problem.out_shape, np.nan, np.float32)
        call = layer.bind(problem.variables, out)
        for again in range(2):
            out.fill(np.nan)
            call()
            assert problem.verdict(out).correct, (problem.shape, again)
    ratios = []
    for _ in range(5):  # threads of NumPy may still spin at first
        every, mine = process_time(), thread_time()
        while thread_time() - mine < 0.03:
            call()
        ratios.append((process_time() - every) / (thread_time() - mine))
    assert min(ratios) < 1.2, "another thread works, which the clock of one core does not see"


def test_weights_packed_for_one_row_serve_no_other_number() -> None:
    """oneDNN packs nothing for one row."""
    pytest.importorskip("torch")
    vendor, work = OneDnnPacked(1), DENSE[0]
    for packed, called in ((1, 2), (5, 1), (5, 6)):
        given = {rows: Problem.make(work, Shape.of(T=rows)) for rows in (packed, called)}
        layer = vendor.prepare(work, given[packed].constants, Shape.of(T=packed))
        with pytest.raises(MeasureError, match=rf"can only serve calls of {packed} rows, .*; got {called}\."):
            layer.bind(given[called].variables, np.empty(given[called].out_shape, np.float32))
