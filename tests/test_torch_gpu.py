"""Linear layers on a GPU: which calls reach a library, what PyTorch keeps, and what the doors say.

There is no GPU here. What stands in for a library is a Python function on tensors of the CPU, whose device
has the index -1; for a GPU's tensors, fake ones; for the GPU, the stub driver of ``cuda_emulation``.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, python
from cuda_samples import emulated, has_driver
from layers_of_torch import synthetic_study

from dietlab.base.errors import DispatchError, StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dense, Dim, ShapeSet

torch = pytest.importorskip("torch")

import tvm_ffi  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from dietlab.torch import Linear, find_libraries, gpu_linear, pack, replace_linears  # noqa: E402
from dietlab.torch.gpu_library import OPENED, DeviceLibrary, arch_of, gpu_library, lacking_on  # noqa: E402
from dietlab.torch.gpu_linear import (  # noqa: E402
    TF32,
    called_directly,
    linear_on_gpu,
    rounds_to_tf32,
    unfit_for_gpu,
)
from dietlab.torch.libraries import require_served  # noqa: E402
from dietlab.torch.places import place_of  # noqa: E402
from dietlab.torch.python_operators import SCHEMAS  # noqa: E402

FOLDER = "/nowhere/epilogues/0/library"
H200, A100 = Hardware.preset("h200"), Hardware.preset("a100")


class StandIn:
    """A library for layers of 32 x 64, on tensors of the CPU; counts its calls and keeps their tensors."""

    def __init__(self, dtype: Any) -> None:
        self.calls = 0
        self.error: Exception | None = None
        explained = lambda given, out, error: DispatchError("operands fit", f"{[*given]}: {error}")  # noqa: E731
        self.run = tvm_ffi.convert(self._run)
        manifest = {"hardware": H200.to_json()}
        operator: Any = SimpleNamespace(explained=explained, path="library.so", manifest=manifest)
        self.library = DeviceLibrary(operator, self.run, dtype, {-1: True})

    def _run(self, *given: Any) -> None:
        x, w, *bias, y = (torch.from_dlpack(tensor) for tensor in given)
        if self.error is not None:
            raise self.error
        if any(tensor.dtype is not self.library.dtype for tensor in (x, w, y)):
            raise TypeError("expected another type")
        if x.dim() != 2 or not w.is_contiguous() or x.shape[1] != w.shape[1]:
            raise ValueError("expected another shape")
        self.calls += 1
        y.copy_(torch.nn.functional.linear(x, w, *bias))


@pytest.fixture(params=["float32", "bfloat16"])
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(getattr(torch, request.param))
    monkeypatch.setitem(OPENED, FOLDER, made.library)
    monkeypatch.setattr(gpu_linear, "_current_device", lambda: -1)
    monkeypatch.setattr(gpu_linear, "_is_capturing", lambda: False)
    gpu_linear._warn_of_tf32.cache_clear()
    return made


def layer_of(stand_in: StandIn, bias: bool = True) -> tuple[Any, Any]:
    """A layer with that library, and its original."""
    torch.manual_seed(0)
    original = torch.nn.Linear(64, 32, bias=bias, dtype=stand_in.library.dtype)
    layer = copy.deepcopy(original)
    layer.__class__ = Linear
    layer.adopt({"none": FOLDER}, None, bias)
    return layer, original


@pytest.mark.parametrize("shape", [(64,), (5, 64), (2, 3, 64), (2, 1, 3, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_call_without_gradients_reaches_the_library_directly(
    stand_in: StandIn, shape: tuple[int, ...], bias: bool
) -> None:
    layer, original = layer_of(stand_in, bias)
    x = torch.randn(shape, dtype=stand_in.library.dtype)
    with torch.no_grad(), torch.profiler.profile() as profiled:
        y = layer(x)
        torch.testing.assert_close(y, original(x))
    assert stand_in.calls == 1 and y.shape == (*shape[:-1], 32)
    assert "dietlab::linear" not in {event.key for event in profiled.key_averages()}
    with torch.inference_mode():
        layer(x)
    assert stand_in.calls == 2


def sliced(x: Any) -> Any:
    """The same numbers at an address that is no multiple of 16."""
    wide = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view_as(x)
    return wide.copy_(x)


PASSED_BY = {
    "nothing to multiply": lambda x: x[:0],
    "an odd address": sliced,
    "another order in memory": lambda x: x.t().contiguous().t(),
    "a negative view": lambda x: torch._neg_view(-x),
    "nested": lambda x: torch.nested.as_nested_tensor([x, x[:2]]),
}


@pytest.mark.parametrize("kind", PASSED_BY)
def test_other_tensors_are_computed_the_same(stand_in: StandIn, kind: str) -> None:
    layer, original = layer_of(stand_in)
    x = PASSED_BY[kind](torch.randn(5, 64, dtype=stand_in.library.dtype))
    with torch.no_grad():
        found, wanted = layer(x), original(x)
    if x.is_nested:
        found, wanted = (tensor.to_padded_tensor(0.0) for tensor in (found, wanted))
    torch.testing.assert_close(found, wanted)
    assert not stand_in.calls
    if not x.is_nested:
        kernel = linear_on_gpu(x, layer.weight.detach(), layer.bias.detach(), "none", FOLDER)
        torch.testing.assert_close(kernel, wanted)
        assert stand_in.calls == (kind == "another order in memory"), "copied once, then multiplied"


def test_pytorch_raises_its_own_errors(stand_in: StandIn) -> None:
    layer, original = layer_of(stand_in)
    dtype = stand_in.library.dtype
    others = torch.randn(5, 60, dtype=dtype), torch.ones((), dtype=dtype)
    for wrong in (torch.randn(5, 64, dtype=torch.float64), *others):
        with torch.no_grad(), pytest.raises(RuntimeError) as theirs:
            original(wrong)
        with torch.no_grad(), pytest.raises(RuntimeError) as ours:
            layer(wrong)
        assert str(ours.value) == str(theirs.value)
    assert not stand_in.calls


def test_what_watches_or_transforms_calls_sees_the_operator(stand_in: StandIn) -> None:
    layer, _ = layer_of(stand_in)
    x = torch.randn(5, 64, dtype=stand_in.library.dtype)
    layer.requires_grad_(False)

    def direct() -> Any:
        return called_directly(stand_in.library, x, layer.weight, layer.bias)

    assert direct() is not None
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        assert direct() is None
    with torch.device("cpu"):
        assert direct() is None
    torch.set_autocast_enabled("cuda", True)
    try:
        assert direct() is None
    finally:
        torch.set_autocast_enabled("cuda", False)
    with torch.autograd.forward_ad.dual_level():
        assert direct() is None
    torch.func.vmap(lambda row: row * (direct() is not None))(x)
    assert stand_in.calls == 1
    x.requires_grad_()
    assert direct() is None
    with torch.no_grad():
        assert direct() is not None
    assert torch.func.grad(lambda x: layer(x).sum())(x.detach()).shape == x.shape
    traced = torch.fx.experimental.proxy_tensor.make_fx(layer)(x.detach())
    assert torch.ops.dietlab.linear.default in {node.target for node in traced.graph.nodes}


def test_gradients_are_pytorchs(stand_in: StandIn) -> None:
    layer, original = layer_of(stand_in)
    x = torch.randn(5, 64, dtype=stand_in.library.dtype)
    layer(x).square().sum().backward()
    original(x).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, original.weight.grad, rtol=2e-2, atol=1e-1)
    torch.testing.assert_close(layer.bias.grad, original.bias.grad, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("state", ["other device", "capturing", "first call"])
def test_unusual_calls_are_left_to_the_operator(
    stand_in: StandIn, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM leaves a call's device the thread's current one, and loads modules at a first call."""
    if state == "other device":
        monkeypatch.setattr(gpu_linear, "_current_device", lambda: 1)
    elif state == "capturing":
        monkeypatch.setattr(gpu_linear, "_is_capturing", lambda: True)
    else:
        stand_in.library.devices.clear()
    modes: list[int] = []

    def exchange(name: str, reference: Any) -> None:
        mode = reference._obj
        modes.append(mode.value)
        mode.value = 2 - mode.value

    monkeypatch.setattr("dietlab.targets.cuda.driver.CudaDriver", lambda: exchange)
    layer, _ = layer_of(stand_in)
    x = torch.randn(5, 64, dtype=stand_in.library.dtype)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    assert called_directly(stand_in.library, x, weight, bias) is None and not stand_in.calls
    if state == "first call":
        with pytest.warns(UserWarning, match="does not run: cuda:-1 .*PyTorch computes the layer"):
            linear_on_gpu(x, weight, bias, "none", FOLDER)
        assert not stand_in.calls and stand_in.library.devices == {-1: False}
        return
    linear_on_gpu(x, weight, bias, "none", FOLDER)
    assert stand_in.calls == 1
    assert modes == ([2, 0] if state == "capturing" else []), "relaxed for the call, then as before"


def test_errors_of_the_library_and_of_the_gpu_are_explained(stand_in: StandIn) -> None:
    layer, _ = layer_of(stand_in)
    x = torch.randn(5, 64, dtype=stand_in.library.dtype)
    stand_in.error = RuntimeError("CUDALaunch Error: CUDA_ERROR_OUT_OF_MEMORY\n grid=(1,1,1)")
    with (
        torch.no_grad(),
        pytest.raises(DispatchError, match=r"must load and run .*OUT_OF_MEMORY\. Free memory"),
    ):
        layer(x)
    stand_in.error = ValueError("a GPU's grid covers 7 rows at most")
    with pytest.raises(DispatchError, match=r"\['x', 'w', 'bias'\]: .*covers 7 rows at most"):
        linear_on_gpu(x, layer.weight.detach(), layer.bias.detach(), "none", FOLDER)


PRECISIONS = {
    "fp32_precision": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "of everything": "torch.backends.fp32_precision = 'tf32'",
    "of cuDNN": "torch.backends.cudnn.fp32_precision = 'tf32'",
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "high": "torch.set_float32_matmul_precision('high')",
    "medium": "torch.set_float32_matmul_precision('medium')",
}


@pytest.mark.parametrize("how", PRECISIONS)
def test_tf32_is_seen_however_it_was_allowed(how: str) -> None:
    program = f"import torch, dietlab.torch.gpu_linear as g\nbefore = g.rounds_to_tf32()\n{PRECISIONS[how]}\n"
    program += "print(before, g.rounds_to_tf32())\n"
    program += "torch.backends.cuda.matmul.fp32_precision = 'ieee'\nprint(g.rounds_to_tf32())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["False", "True", "False"], done.stderr


def test_with_tf32_allowed_pytorch_computes_float32_and_says_so_once(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_linear, "rounds_to_tf32", lambda: True)
    layer, original = layer_of(stand_in)
    x = torch.randn(5, 64, dtype=stand_in.library.dtype)
    single = stand_in.library.dtype is torch.float32
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with torch.no_grad():
            torch.testing.assert_close(layer(x), original(x))
        for _ in range(2):
            linear_on_gpu(x, layer.weight.detach(), layer.bias.detach(), "none", FOLDER)
    assert stand_in.calls == (0 if single else 3)
    assert [TF32 in str(warning.message) for warning in told] == ([True] if single else [])


# Fake tensors of a GPU that is not there


def test_an_exported_layer_is_one_operator_of_any_length() -> None:
    with FakeTensorMode():
        layer = torch.nn.Sequential(torch.nn.Linear(64, 32, device="meta"))
        for name, shape in {"weight": (32, 64), "bias": (32,)}.items():
            made = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
            setattr(layer[0], name, torch.nn.Parameter(made))
        layer[0].__class__ = Linear
        layer[0].adopt({"none": FOLDER}, None, True)
        x = torch.empty(2, 5, 64, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            y = layer(x)
            assert (y.shape, y.device.type, y.dtype) == ((2, 5, 32), "cuda", torch.bfloat16)
            lengths = {"input": {1: torch.export.Dim("T", max=64)}}
            exported = torch.export.export(layer, (x,), dynamic_shapes=lengths)
    found = [node for node in exported.graph.nodes if node.op == "call_function"]
    assert [str(node.target) for node in found] == ["dietlab.linear.default"]
    out = found[0].meta["val"]
    assert out.device.type == "cuda" and isinstance(out.shape[1], torch.SymInt) and out.shape[2] == 32


def test_a_compiled_layer_is_one_operator(stand_in: StandIn) -> None:
    layer, original = layer_of(stand_in)
    graphs: list[Any] = []

    def look(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=look, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (5, 7, 11):
            x = torch.randn(rows, 64, dtype=stand_in.library.dtype)
            torch.testing.assert_close(compiled(x), original(x))
    (graph,) = graphs
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [
        torch.ops.dietlab.linear.default
    ]


def test_unfit_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hardware, "detect", lambda *_, device, **__: (H200, A100)[device])
    assert "float32 on cpu, not float32 on a GPU" in unfit_for_gpu(torch.empty(8, 4), "float32", H200)
    with FakeTensorMode(), torch.device("cuda"):
        assert not unfit_for_gpu(torch.empty(8, 4), "float32", H200)
        assert "not bfloat16 on a GPU" in unfit_for_gpu(torch.empty(8, 4), "bfloat16", H200)
        assert "do not lie as [N, K]" in unfit_for_gpu(torch.empty(4, 8).t(), "float32", H200)
        elsewhere = torch.empty(8, 4, device="cuda:1")
        other = unfit_for_gpu(elsewhere, "float32", H200)
        assert other == f"cuda:1 is a {A100.name} with sm_80, and its kernels are for sm_90a"
        monkeypatch.setattr(gpu_linear, "rounds_to_tf32", lambda: True)
        assert unfit_for_gpu(torch.empty(8, 4), "float32", H200) == TF32
        assert not unfit_for_gpu(torch.empty(8, 4, dtype=torch.float16), "float16", H200)


def test_an_odd_address_of_weights_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(gpu_linear, "lacking_on", lambda *_: "")
    monkeypatch.setattr(gpu_linear, "_is_fake", lambda tensor: False)
    weights = sliced(torch.empty(8, 4)).as_subclass(OnGpu)
    assert "no multiple of 16 bytes" in unfit_for_gpu(weights, "float32", H200)
    assert not unfit_for_gpu(torch.empty(8, 4).as_subclass(OnGpu), "float32", H200)


# Studies


@pytest.fixture(scope="module")
def gpu_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    work = Dense(T=Dim(1, 64), N=32, K=64)
    folder = tmp_path_factory.mktemp("gpu") / "study"
    study = Study.create(folder, work, H200, ShapeSet.extents(work, [1, 64]), "smoke")
    study.tune(SyntheticRunner(H200))
    return study


@pytest.mark.skipif(has_driver(), reason="the error is that of a machine without a GPU")
def test_a_gpus_study_needs_a_gpu(gpu_study: Study) -> None:
    with pytest.raises(StudyError, match=r"needs a GPU that runs code for sm_90a.*none.*--target cuda"):
        replace_linears(torch.nn.Linear(64, 32), gpu_study)


def test_a_gpu_of_another_architecture_is_refused_and_another_card_named(
    gpu_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [A100]
    monkeypatch.setattr("dietlab.targets.cuda.machine.detect_gpus", lambda: found)
    with pytest.raises(StudyError, match=r"runs code for sm_90a.*with sm_80"):
        require_served(gpu_study, Dense, "linear layers", on_gpu=True)
    found[:] = [A100, Hardware.preset("h100")]
    with pytest.warns(UserWarning, match="was tuned for NVIDIA H200.*, and this is NVIDIA H100"):
        require_served(gpu_study, Dense, "linear layers", on_gpu=True)
    found[:] = [H200]
    assert require_served(gpu_study, Dense, "linear layers", on_gpu=True) is gpu_study.workload
    with pytest.raises(StudyError, match=r"experts need a study of a CPU.*PyTorch computes them on a GPU"):
        require_served(gpu_study, Dense, "layers of experts")
    with pytest.raises(StudyError, match="need a study of BatchMatmul"):
        require_served(gpu_study, BatchMatmul, "products of attention")


def test_weights_on_the_cpu_stay_pytorchs(gpu_study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietlab.targets.cuda.machine.detect_gpus", lambda: [H200])
    model = torch.nn.Sequential(torch.nn.Linear(64, 32))
    with pytest.warns(
        UserWarning, match=r"0 stays PyTorch's: its weights are torch.float32 on cpu, not float32"
    ):
        replace_linears(model, gpu_study)
    assert type(model[0]) is torch.nn.Linear


def test_the_architecture_is_that_of_the_code() -> None:
    hardware = H200.to_json()
    assert arch_of({"hardware": hardware}) == "sm_90a"
    recorded = {"machine": "x86_64", "instructions": [], "arch": "sm_90"}
    assert arch_of({"hardware": hardware, "requires": recorded}) == "sm_90"
    assert has_driver() or "cannot be described" in lacking_on(0, "sm_90")


def test_packing_a_model_on_a_gpu_packs_nothing(stand_in: StandIn) -> None:
    layer, _ = layer_of(stand_in)
    model = torch.nn.Sequential(layer)
    with pytest.warns(UserWarning, match="kept the original weights: a GPU reads them as they lie"):
        pack(model, originals=False)


def test_a_library_that_is_missing_is_told_and_found_where_its_study_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "before" / "epilogues" / "abc" / "library")
    with pytest.warns(UserWarning, match=r"must be loadable.*find_libraries\(FOLDER\)"):
        assert gpu_library(folder) is None
    assert folder in OPENED
    place = tmp_path / "after" / "epilogues" / "abc" / "library"
    place.mkdir(parents=True)
    (place / "library.so").touch()
    assert place_of(folder) == Path(folder)
    monkeypatch.setenv("DIETLAB_LIBRARIES", f"/none:{tmp_path}")
    assert place_of(folder) == place
    monkeypatch.setenv("DIETLAB_LIBRARIES", str(tmp_path / "after"))
    assert place_of(folder) == place
    monkeypatch.delenv("DIETLAB_LIBRARIES")
    find_libraries(tmp_path / "after")
    assert place_of(folder) == place and folder not in OPENED, "the next call looks again"


# The script of a visit

BERT = ROOT / "scripts" / "gpu_bert.py"
SMALL = "--device=cpu", "--hidden=64", "--heads=2", "--layers=1", "--batch=2", "--repeats=1"


@pytest.mark.usefixtures("one_thread")
def test_bert_is_measured_and_goes_on_where_it_was_stopped(here: Hardware, tmp_path: Path) -> None:
    """On the CPU, by a study of it: what is measured on a GPU, but for CUDA graphs."""
    study = synthetic_study(here, tmp_path / "study").folder
    python(BERT, study, "--prepare", "--hidden=64", "--heads=2")
    for lengths, rows in (("1,5", 8), ("1,5,7", 12)):
        python(BERT, study, *SMALL, "--lengths", lengths, "--out", tmp_path)
        found = [json.loads(line) for line in (tmp_path / "bert.jsonl").read_text().splitlines()]
        assert len(found) == rows
    assert {row["contender"] for row in found} == {
        "torch-eager", "torch-compile", "dietlab-eager", "dietlab-compile"
    }  # fmt: skip
    asked = [study, *SMALL, "--lengths", "1", "--out", tmp_path]
    for wrong, said in (
        ("--contenders=torch", "they are torch-eager, torch-compile, "),
        ("--layers=2", "Name another --out."),
        ("--hidden=128", "none has N = 512, K = 128"),
    ):
        assert said in python(BERT, *asked, wrong, exits=2).stderr
    assert all(len(row["seconds"]) == 1 and row["seconds"][0] > 0 and row["error"] < 1e-4 for row in found)


# Without a compiler

WITHOUT_COMPILER = """
import copy, torch, dietlab, dietlab.torch
from dietlab.base.errors import MissingDependencyError
operator = torch.ops.dietlab.linear
x, w, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 3, 4), (5, 4), (5,)))
for activation in ("none", "relu", "gelu_erf", "gelu_tanh"):
    for bias in (b, None):
        given = [x, w] if bias is None else [x, w, bias]
        call = lambda x, w, *bias: operator(x, w, *(bias or [None]), activation, "")
        assert torch.autograd.gradcheck(call, given)
found = torch.library.opcheck(operator.default, (x, w, b, "relu", ""))
assert set(found.values()) == {"SUCCESS"}, found
of_x = lambda x: operator(x, w.detach(), None, "relu", "")
x = x.detach()
assert torch.func.jvp(of_x, (x,), (x,))[1].abs().sum() > 0
assert torch.func.grad(lambda x: of_x(x).sum())(x).shape == x.shape
assert torch.vmap(of_x)(x).shape == (2, 3, 5)
with torch.autocast("cpu", torch.bfloat16):
    assert operator(x.float(), w.float(), None, "none", "").dtype is torch.bfloat16
model = torch.nn.Sequential(torch.nn.Linear(4, 5)).train().eval()
assert dietlab.torch.pack(model) == 0
try:
    dietlab.torch.optimize(model)
except MissingDependencyError as error:
    print(error)
"""


def test_without_a_compiler_the_operators_are_pythons(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CXX": "/none",
        "TORCH_EXTENSIONS_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", WITHOUT_COMPILER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a C++ compiler compiles dietlab's operators for PyTorch")


@pytest.mark.parametrize("name", SCHEMAS)
def test_pythons_operators_have_the_schemas_and_tags_of_cpp(name: str) -> None:
    operator = getattr(torch.ops.dietlab, name).default
    assert str(operator._schema) == f"dietlab::{name}{SCHEMAS[name]}"


# The whole way, on the stub driver


@emulated
def test_a_model_runs_by_a_gpus_libraries_on_the_stub_driver(tmp_path: Path) -> None:
    """Both types, every length, and a captured graph whose first call loads a module."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cuda_emulation.torch_worker", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT / "tests"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["layers"] == ["Linear", "ReLU", "Linear"]
    assert found["told"] == ["the study was tuned for NVIDIA H100 SXM, and this is stub device"]
    for dtype, most in (("float32", 1e-5), ("bfloat16", 2e-2)):
        assert [case["launches"] for case in found[dtype]] == [2] * 4, "one a layer, with its activation"
        assert all(case["error"] <= most for case in found[dtype]), found[dtype]
    assert "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in found["unrelaxed"]["failure"], "as a driver refuses"
    assert found["captured"]["failure"] == "" and found["captured"]["launches"] == 2
    assert found["captured"]["error"] <= 2e-2
    assert not rounds_to_tf32()
