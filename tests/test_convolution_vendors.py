"""Contenders that compute convolutions: right in every form they have, and what they do to memory."""

from __future__ import annotations

import json
import mmap
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import cli
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import DispatchError, MeasureError, MissingDependencyError, WorkloadError
from dietlab.compare.contenders import forms_of
from dietlab.compare.lineup import default_contenders, own_vendors
from dietlab.compare.sizes import HEADER, different_shapes, operator_of, size_costs, size_listing
from dietlab.compare.study import Study
from dietlab.compare.vendor import CONVOLUTIONS, NoFormError, contender_env
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.measure import CACHE_STATES, SyntheticRunner
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.process import WorkerProcess
from dietlab.problem import Conv1d, Conv2d, Dense, Dim, Shape, ShapeSet
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders import DEFAULTS, VENDORS, require_form
from dietlab.targets.cpu.contenders.onnx_convolution import ChannelsSecond
from dietlab.targets.cpu.contenders.pytorch import OneDnnPacked, open_torch
from dietlab.targets.cpu.contenders.sizes import MARKS, WARM, at_sizes
from dietlab.targets.cpu.contenders.worker import make_contender
from dietlab.targets.cpu.device import Host

torch = pytest.importorskip("torch")

WORKER = "dietlab.targets.cpu.contenders.worker"
CACHE_BYTES = {"l2_bytes": 1 << 14, "l3_bytes": 1 << 20}
SIDE = Dim(5, 40)
LAYER = Conv2d(N=1, H=SIDE, W=SIDE, IC=12, OC=24, padding=1)
SEQUENCE = Conv1d(N=2, L=Dim(9, 60), IC=6, OC=10, kernel=5, padding=2, stride=2, bias=True)
FORMS: tuple[Convolution, ...] = (
    LAYER,
    replace(LAYER, N=Dim(1, 3), stride=2, bias=True),
    replace(LAYER, kernel=(3, 5), dilation=(2, 1), activation="relu", bias=True),
    replace(LAYER, padding=((0, 1), (2, 1)), kernel=(2, 4), residual=True),
    replace(LAYER, kernel=1, padding=0, activation="gelu_erf", residual=True),
    replace(LAYER, kernel=1, padding=0, stride=2),
    replace(LAYER, bias=True, activation="relu", residual="before"),
    replace(LAYER, kernel=1, padding=0, activation="gelu_tanh", residual="before"),
    replace(LAYER, IC=3, kernel=7, padding=3, stride=2, activation="gelu_tanh"),
    replace(LAYER, IC=Dim(4, 20), OC=Dim(8, 40), bias=True),
    SEQUENCE,
    replace(SEQUENCE, padding=((4, 0),), stride=1, dilation=3, kernel=2, residual=True, activation="relu"),
)
GROUPED = (
    replace(LAYER, groups=3),
    replace(LAYER, OC=12, groups=12, bias=True, residual=True),
    replace(LAYER, groups=12, stride=2, padding=((1, 2), (0, 1))),
    replace(SEQUENCE, IC=10, groups=10, activation="relu"),
)
COMPUTING = own_vendors("cpu", "conv2d")


def opening(contender: str, work: Convolution, threads: int = 1) -> dict[str, object]:
    return {
        "op": "open",
        "contender": contender,
        "workload": work.to_json(),
        "threads": threads,
        "options": CACHE_BYTES,
    }


def shapes_of(work: Convolution) -> list[Shape]:
    """Returns the ends of the ranges, and sizes between them."""
    return [
        Shape.of(**{name: min(dim.high, dim.low + step) for name, dim in work.dims.items()})
        for step in (0, 7, 12, 100)
    ]


@pytest.fixture(params=COMPUTING)
def vendor(request: pytest.FixtureRequest) -> Iterator[tuple[str, WorkerProcess]]:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        answer = worker.ask(opening(request.param, LAYER), 120)
        if "absent" in answer:
            pytest.skip(answer["absent"])
        yield request.param, worker


def test_a_vendor_is_right_at_every_size(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    for work in (*FORMS, *GROUPED):
        opened = worker.ask(opening(name, work), 60)
        lacks = work.groups > 1 or work.epilogue.before
        assert ("absent" in opened) == (name == "im2col" and lacks), opened
        for seed, shape in enumerate(shapes_of(work)) if "absent" not in opened else ():
            answer = worker.ask({"op": "check", "shape": shape.to_json(), "seed": seed}, 60)
            assert answer["correct"], (str(work), shape, answer)
            assert answer["max_error"] <= answer["tolerance"]


def test_a_vendor_is_timed_in_every_cache_state(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    worker.ask(opening(name, FORMS[1]), 60)
    for cache in CACHE_STATES:
        for shape in shapes_of(FORMS[1])[:2]:
            request = {"shape": shape.to_json(), "cache": cache, "min_seconds": 0.001}
            timed = worker.ask({"op": "time", **request}, 60)
            assert 0 < timed["seconds"] < 1 and (timed["copies"] > 1) == (cache == "rotating")
            assert worker.ask({"op": "check", **request}, 60)["correct"]


def test_the_first_call_at_a_size_is_known_where_it_is_comparable(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    worker.ask(opening(name, LAYER), 60)
    known, new = (shape.to_json() for shape in shapes_of(LAYER)[1:3])
    assert worker.ask({"op": "check", "shape": known}, 60)["first_seconds"] is None
    worker.ask({"op": "time", "shape": known, "cache": "hot", "min_seconds": 0.001}, 60)
    assert worker.ask({"op": "check", "shape": new}, 60)["first_seconds"] > 0
    assert worker.ask({"op": "check", "shape": new}, 60)["first_seconds"] is None


@pytest.mark.parametrize("name", COMPUTING)
def test_two_threads_compute_the_same(name: str) -> None:
    with WorkerProcess(WORKER, contender_env(2)) as worker:
        if "absent" in (opened := worker.ask(opening(name, FORMS[3], threads=2), 120)):
            pytest.skip(opened["absent"])
        assert worker.ask({"op": "check", "shape": {"H": 17, "W": 23}}, 60)["correct"]


@pytest.mark.parametrize("name", ["onednn-packed", "onednn-any-size", "torch"])
def test_bfloat16_is_right_or_has_a_reason(name: str) -> None:
    many = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        for changes in ({}, {"residual": True}, {"bias": True, "activation": "relu", "residual": True}):
            work = replace(LAYER, dtype="bfloat16", **changes)
            opened = worker.ask(opening(name, work), 60)
            there = not changes if name == "torch" else many and len(changes) < 3
            assert ("absent" not in opened) == there, opened
            if there:
                assert worker.ask({"op": "check", "shape": {"H": 9, "W": 14}}, 60)["correct"]


INT8 = tuple(replace(work, dtype="int8") for work in (*FORMS, *GROUPED))


@pytest.mark.parametrize("out_dtype", ["float32", "int8"])
def test_int8_of_onednn_is_right_at_every_size_or_has_a_reason(out_dtype: str) -> None:
    """With zeros on one side only, too, which are the zero point of unsigned inputs."""
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        for work in INT8:
            if out_dtype == "int8":
                if work.activation.startswith("gelu"):
                    continue  # no such operator
                work = replace(work, out_dtype=out_dtype)
            opened = worker.ask(opening("onednn-packed", work), 60)
            assert ("absent" in opened) == (out_dtype == "int8" and bool(work.residual)), opened
            for seed, shape in enumerate(shapes_of(work)) if "absent" not in opened else ():
                answer = worker.ask({"op": "check", "shape": shape.to_json(), "seed": seed}, 60)
                assert answer["correct"], (str(work), shape, answer)


@pytest.mark.parametrize("name", sorted({*COMPUTING} - {"onednn-packed"}))
def test_other_vendors_say_why_they_compute_no_int8(name: str) -> None:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        answer = worker.ask(opening(name, INT8[0]), 120)
    assert "can only compute float32" in answer["absent"] or "must be" in answer["absent"]


def test_tuning_a_size_computes_no_scaled_sums() -> None:
    for work in (INT8[0], Dense(T=SIDE, N=8, K=8, dtype="int8")):
        with pytest.raises(NoFormError, match=r"operands whose sums have no scales.*onednn-packed"):
            require_form(work)


def problem_of(work: Convolution, step: int) -> Problem:
    return Problem.make(work, shapes_of(work)[step])


def test_packed_weights_serve_no_other_size() -> None:
    vendor, known, other = OneDnnPacked(1), problem_of(LAYER, 1), problem_of(LAYER, 2)
    layer = vendor.prepare(LAYER, known.constants, known.shape)
    assert layer.bind(known.variables, np.empty(known.out_shape, np.float32))
    with pytest.raises(
        MeasureError, match=r"can only serve images \[1, 12, 12, 12\].*compare with onednn-any"
    ):
        layer.bind(other.variables, np.empty(other.out_shape, np.float32))


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "xnnpack"])
def test_a_bound_call_keeps_its_images_when_others_are_bound(name: str) -> None:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        if "absent" in (opened := worker.ask(opening(name, LAYER), 120)):
            pytest.skip(opened["absent"])
        first, second = (shape.to_json() for shape in shapes_of(LAYER)[:2])
        for shape in (first, second, first, second):
            assert worker.ask({"op": "check", "shape": shape}, 60)["correct"]


def xnnpack() -> Any:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    return VENDORS["xnnpack"](1)


def test_xnnpack_takes_any_padding_at_any_size_with_weights_that_are_packed_once() -> None:
    vendor, problems = xnnpack(), [problem_of(replace(LAYER, padding=p), 1) for p in (0, 1, ((0, 2), (1, 0)))]
    for problem in problems:
        layer = vendor.prepare(problem.workload, problem.constants, problem.shape)
        for step in (0, 2, 1):
            other = problem_of(problem.workload, step)
            out = aligned_empty(other.out_shape)
            out.fill(np.nan)
            layer.bind(other.variables, out)()
            assert other.verdict(out, intact=True).correct


def test_xnnpack_takes_part_only_if_it_computes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor, known = xnnpack(), problem_of(LAYER, 1)
    builtin = SimpleNamespace(XNNPACK=vendor._runtime.CpuKernelMode.BUILTIN)
    monkeypatch.setattr(vendor._runtime, "CpuKernelMode", builtin)
    with pytest.raises(MeasureError, match=r"XNNPACK must compute each operator.*Leave xnnpack out"):
        vendor.prepare(LAYER, known.constants, known.shape)


def test_xnnpack_writes_to_no_copy_of_the_output() -> None:
    vendor, known = xnnpack(), problem_of(LAYER, 1)
    layer = vendor.prepare(LAYER, known.constants, known.shape)
    out = aligned_empty((1 + int(np.prod(known.out_shape)),))[1:].reshape(known.out_shape)
    with pytest.raises(MeasureError, match="must begin at a multiple of 64 bytes; got 4"):
        layer.bind(known.variables, out)


def test_an_absent_litert_has_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.compiled_model", None)
    with pytest.raises(MissingDependencyError) as raised:
        VENDORS["xnnpack"](1)
    assert "pip install ai-edge-litert" in raised.value.remedy


class Resizing:
    """A call that is slow after a call at another size, unless it was made ready."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def ready(self) -> None:
        self.done.append("ready")

    def __call__(self) -> None:
        self.done.append("call")


@pytest.mark.parametrize(("cache", "copies"), [("hot", 1), ("interleaved", 1), ("rotating", 3)])
def test_what_a_call_of_another_size_resizes_is_made_ready_before_a_block(cache: str, copies: int) -> None:
    device, done = Host(1, 1 << 14, 1 << 20), list[str]()
    block = device.block([Resizing(done) for _ in range(copies)], cache, 1e-3, None, 2e-4)
    assert not done
    block.run()
    first = done.index("call")
    assert first == min(copies, block.calls) and "ready" not in done[first:]


def test_a_call_that_writes_nothing_is_noticed() -> None:
    """An array that was read is filled with NaN, so that the next call must write it."""
    array = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    written = ChannelsSecond(array).contiguous()
    assert written.shape == (1, 3, 4, 2) and np.isnan(array).all()


def test_im2col_computes_one_group() -> None:
    vendor = VENDORS["im2col"](1)
    assert vendor.kind(LAYER) == "prepacked"
    with pytest.raises(NoFormError, match=r"must have one group.*Compare with onednn-packed"):
        vendor.kind(GROUPED[0])


def test_convolutions_in_bfloat16_are_set_back_to_float32() -> None:
    setting = getattr(torch.backends.mkldnn, "conv", None)
    if setting is None:
        pytest.skip("PyTorch before 2.9 has no such setting")
    setting.fp32_precision = "bf16"
    open_torch(1)
    assert setting.fp32_precision == "ieee"


@pytest.mark.parametrize(
    ("size", "kernel", "options", "own"),
    [
        ((1, 5, 64, 64), 3, {}, True),
        ((1, 5, 65, 64), 3, {}, False),
        ((2, 5, 64, 32), 3, {}, False),
        ((1, 5, 64, 64), 5, {}, False),
        ((1, 8, 9, 9), 3, {"groups": 8}, False),
        ((15, 64, 56, 56), 1, {}, True),
        ((16, 64, 56, 56), 1, {}, False),
        ((1, 64, 56, 56), 1, {"stride": 2}, False),
        ((1, 64, 56, 56), 1, {"threads": 2}, False),
    ],
)
def test_pytorch_s_own_kernel_is_chosen_where_the_page_says(
    size: tuple[int, ...], kernel: int, options: dict[str, int], own: bool
) -> None:
    """docs/study.md says where the contender torch changes the kernel."""
    groups, stride = options.get("groups", 1), [options.get("stride", 1)] * 2
    x, w = torch.empty(size), torch.empty(8, size[1] // groups, kernel, kernel)
    before = torch.get_num_threads()
    torch.set_num_threads(options.get("threads", 1))
    try:
        chosen = torch._C._select_conv_backend(x, w, None, stride, [1, 1], [1, 1], False, [0, 0], groups)
    finally:
        torch.set_num_threads(before)
    assert str(chosen).endswith("Mkldnn") is not own


# --- which contenders take part -------------------------------------------------------------------


@dataclass(frozen=True)
class Blurred(Conv2d):
    """An operator of others that reads images."""

    operator = "blurred"


def test_what_reads_images_is_no_product() -> None:
    assert forms_of(LAYER) == ("conv2d",)
    assert forms_of(Blurred(N=1, H=SIDE, W=9, IC=4, OC=4)) == ("blurred",)
    with pytest.raises(NoFormError, match="openblas can only compute dense or batch-matmul or matmul"):
        make_contender("openblas", 1, {}).kind(LAYER)


def test_contenders_of_convolutions_take_part_in_their_evaluations_only() -> None:
    assert default_contenders("cpu", Dense(T=SIDE, N=8, K=8)) == tuple(DEFAULTS)
    own = {"torch", "onednn-any-size", "xnnpack", "im2col"}
    for work in (LAYER, SEQUENCE):
        assert set(default_contenders("cpu", work)) == {*DEFAULTS, *own}
        assert {*own, "onednn-packed", "onnxruntime", "openvino"} == set(own_vendors("cpu", work.operator))
    assert not own & set(DEFAULTS) and CONVOLUTIONS == ("conv1d", "conv2d")


# --- many sizes ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 3))
def test_sizes_differ_and_are_of_the_operator(count: int, height: int, width: int, seed: int) -> None:
    work = replace(LAYER, H=Dim(4, 3 + height), W=Dim(4, 3 + width))
    shapes = different_shapes(work, count, seed)
    assert len(shapes) == len(set(shapes)) == min(count, height * width)
    assert all(shape[name] in dim for shape in shapes for name, dim in work.dims.items())
    assert shapes == different_shapes(work, count, seed)


def test_sizes_need_a_range() -> None:
    with pytest.raises(WorkloadError, match="need a dynamic dimension"):
        different_shapes(replace(LAYER, H=9, W=9), 10)


def pages(count: int) -> mmap.mmap:
    """Returns new memory of the process, of which each page was written: not memory that it freed before."""
    kept = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(count))
    return kept


class Hoarder:
    """A contender that keeps a megabyte for each size, and is slow where it did not meet the size before."""

    any_shape = True
    kept: dict[Any, Any]

    def __init__(self) -> None:
        self.kept = {}

    def kind(self, workload: Any) -> str:
        return "prepacked"

    def prepare(self, workload: Any, constants: Any, shape: Shape) -> Hoarder:
        assert constants["w"].shape == (24, 12, 3, 3)
        return self

    def bind(self, operands: Any, out: Any) -> Any:
        size = operands["x"].shape
        return lambda: self.kept.setdefault(size, pages(1 << 20)) if size not in self.kept else None


def test_memory_and_first_calls_of_many_sizes_are_found() -> None:
    shapes = different_shapes(LAYER, 200)
    found = at_sizes(Hoarder(), LAYER, shapes)  # type: ignore[arg-type]
    assert len(found["grown"]) == MARKS and len(found["first"]) == len(found["second"]) == 200 - WARM
    assert found["grown"] == sorted(found["grown"])
    assert (200 - WARM - 20) << 20 < found["grown"][-1] < (200 - WARM + 40) << 20
    assert np.median(np.divide(found["first"], found["second"])) > 2


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    pytest.importorskip("tvm")
    hardware = Hardware.detect(measure=False).with_cores(1)
    shapes = ShapeSet.of({Shape.of(H=h, W=w): 1.0 for h, w in ((5, 7), (14, 20), (28, 28), (40, 33))})
    study = Study.create(
        tmp_path_factory.mktemp("sizes") / "study", LAYER, hardware, shapes, "smoke", max_kernels=4
    )
    study.tune(SyntheticRunner(hardware))
    study.dispatch()
    study.build()
    return study


def test_our_memory_does_not_grow_with_the_sizes(study: Study) -> None:
    (ours,) = size_costs(study.operator(), 300, ())
    assert (ours.contender, ours.sizes, ours.absent) == ("dietlab", 300, "")
    assert ours.grown[-1] < 1 << 20 < ours.memory and ours.first > 0.5
    (row,) = size_listing([ours]).rows
    assert len(row) == len(HEADER) and row[:2] == ("dietlab", "300")


def test_a_study_of_a_models_layers_has_a_library_to_call(study: Study, tmp_path: Path) -> None:
    """What optimize() builds lies beside the study's own library, one for each epilogue."""
    libraries = pytest.importorskip("dietlab.torch.libraries")
    copied = Study.open(shutil.copytree(study.folder, tmp_path / "study"))
    assert operator_of(copied).workload == LAYER
    shutil.rmtree(copied.folder / "library")
    with pytest.raises(DispatchError, match="dietlab build STUDY"):
        operator_of(copied)
    for epilogue in ({"bias": True, "activation": "relu"}, {"bias": True}):
        libraries.library_of(copied, **epilogue)
    assert operator_of(copied).workload == replace(LAYER, bias=True)
    found = json.loads(cli("sizes", copied.folder, "--count", "9", "--against", "torch", "--json").stdout)
    assert [cost["sizes"] for cost in found] == [9, 9]
    (copied.folder / "dispatcher.json").write_text(
        json.dumps({**copied.dispatcher().to_json(), "expected_slowdown": 2.0})
    )
    with pytest.raises(DispatchError, match="dietlab build STUDY"):  # they are of an earlier dispatcher
        operator_of(copied)


def test_contenders_at_many_sizes_are_vendors_and_known(study: Study) -> None:
    operator = study.operator()
    with pytest.raises(MeasureError, match="must be vendors; got oracle"):
        size_costs(operator, 9, ("oracle",))
    costs = size_costs(operator, 9, ("openblas",))
    assert "can only compute" in costs[1].absent and [cost.sizes for cost in costs] == [9, 0]


def test_the_command_prints_both_columns(study: Study) -> None:
    folder = str(study.folder)
    text = cli("sizes", folder, "--count", "20", "--against", "onednn-any-size,openblas").stdout
    assert "first over second" in text and "dietlab " in text and "onednn-any-size " in text
    assert "absent\n  openblas: openblas can only compute dense" in text
    found = json.loads(cli("sizes", folder, "--count", "9", "--against", "torch", "--json").stdout)
    assert [(cost["contender"], cost["sizes"]) for cost in found] == [("dietlab", 9), ("torch", 9)]
    assert all(len(cost["grown"]) == MARKS for cost in found)


def test_an_evaluation_of_a_convolution_has_rows_beside_ours(study: Study, tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    names = "onednn-packed,onednn-any-size,torch,im2col"
    options = ("--effort", "smoke", "--shapes", "H=9,21;W=16", "--against", names, "--json", str(written))
    text = cli("evaluate", str(study.folder), *options).stdout
    assert "first call at a shape over later ones" in text and "onednn-any-size" in text
    rows = json.loads(written.read_text())["rows"]
    assert {row["contender"] for row in rows} == {"dietlab", *names.split(",")}
    assert all(row["correct"] for row in rows) and len(rows) == 2 * 5
