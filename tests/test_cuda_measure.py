"""Measuring for a GPU on a machine without one: clear errors, and records of what the compiler said."""

from __future__ import annotations

import ctypes
import json
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_samples import DENSE, typed
from hypothesis import given
from hypothesis import strategies as st
from schemes import cuda_scheme

from dietlab.base.errors import HardwareError, MeasureError, MissingDependencyError
from dietlab.machine import Hardware
from dietlab.measure import (
    LocalRunner,
    Record,
    RecordStore,
    ReplayRunner,
    Timing,
    Trial,
    read_records,
    write_compressed,
)
from dietlab.problem import BatchMatmul, Dense, Dim, Shape
from dietlab.scheme import Scheme
from dietlab.targets.cuda import driver as cuda_driver
from dietlab.targets.cuda import machine as detect_gpu
from dietlab.targets.cuda.compiler_report import frame_compiled
from dietlab.targets.cuda.driver import CudaDriver, GraphRecorder, require_gpu
from dietlab.targets.cuda.lowering import nvcc

H100 = Hardware.preset("h100")
KERNEL = cuda_scheme(32, 32, 16, 8, 8, stages=3, edge="even")
SHAPES = (Shape.of(T=5), Shape.of(T=48))
TRIALS = [Trial(KERNEL, SHAPES)]
USED = {"registers": 96, "spill_bytes": 8, "shared_bytes": 30_720, "blocks_per_sm": 5}


pytestmark = pytest.mark.usefixtures("workers_are_importable", "no_child_is_left")


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_gpu, "LIBRARY", "libcuda-that-is-nowhere.so.1")


# What is missing


@pytest.mark.usefixtures("no_driver")
def test_no_gpu_is_one_error_before_anything_is_built() -> None:
    with LocalRunner(H100, builder_module="workers.nothing_of_that_name") as runner:
        with pytest.raises(MeasureError) as caught:
            list(runner.measure(DENSE, TRIALS))
        assert runner._folder is None
    message = str(caught.value)
    assert message.startswith(
        "candidates for NVIDIA H100 SXM can only be measured on a GPU; got no driver (libcuda-that"
    )
    assert message.endswith("Tune where there is one, or replay records.")


def test_a_library_that_stands_in_for_the_driver_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As building without a driver leaves one in the process (see dietlab.targets.cuda.lowering.driver)."""
    source, library = tmp_path / "stand_in.c", tmp_path / "libcuda.so.1"
    source.write_text("int dietlab_stands_in_for_it;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setattr(detect_gpu, "LIBRARY", str(library))
    monkeypatch.setattr(cuda_driver, "LIBRARY", str(library))
    with pytest.raises(HardwareError, match=r"got no driver \(.*libcuda\.so\.1 has no cuInit\)"):
        Hardware.detect("cuda")
    with pytest.raises(MeasureError, match="can only be measured on a GPU; got no driver"):
        require_gpu(H100)
    with pytest.raises(MeasureError, match=r"clock needs NVIDIA's driver; got .*has no cuEventCreate"):
        CudaDriver()


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        ("h100", "h100", True),
        ("h200", "h100", True),
        ("rtx3090", "a100", True),
        ("a100", "rtx3090", False),
        ("a100", "h100", False),
        ("h100", "a100", False),
        ("t4", "a100", False),
    ],
)
def test_the_gpu_must_run_what_is_compiled(
    found: str, wanted: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "detect_gpu", lambda: Hardware.preset(found))
    if fits:
        assert require_gpu(Hardware.preset(wanted)) == Hardware.preset(found)
        return
    arches = [Hardware.preset(name).limits.arch for name in (wanted, found)]
    with pytest.raises(MeasureError, match=rf"must run code for {arches[0]}; got .* with {arches[1]}\. Tune"):
        require_gpu(Hardware.preset(wanted))


def test_code_of_one_architecture_runs_on_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cubin of sm_80 runs on 8.6, one of sm_90a on no 9.1, if there ever is one."""
    later = replace(H100, limits=replace(H100.limits, compute_capability="9.1"))
    monkeypatch.setattr(cuda_driver, "detect_gpu", lambda: later)
    with pytest.raises(MeasureError, match=r"must run code for sm_90a; got .* with sm_91\. Tune"):
        require_gpu(H100)


def test_no_cuda_compiler_is_one_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "FINDERS", ())
    monkeypatch.setattr(cuda_driver, "detect_gpu", lambda: H100)
    with (
        LocalRunner(H100) as runner,
        pytest.raises(
            MissingDependencyError, match=r"a CUDA compiler must be installed; .*pip install nvidia-"
        ),
    ):
        list(runner.measure(DENSE, TRIALS))


# Records


def record(rows: int, used: dict[str, int]) -> Record:
    return Record(
        KERNEL, Shape.of(T=rows), "ok", seconds=1e-6 * rows, code_hash=f"{rows:016x}", resources=used
    )


@given(st.dictionaries(st.sampled_from(sorted(USED)), st.integers(0, 1 << 18)))
def test_resources_survive_json(used: dict[str, int]) -> None:
    made = record(5, used)
    value = json.loads(json.dumps(made.to_json()))
    assert Record.from_json(value) == made and ("resources" in value) == bool(used)
    assert hash(made) == hash(replace(made, resources={}))


def test_resources_survive_a_store_a_compressed_file_and_a_replay(tmp_path: Path) -> None:
    header = {"workload": DENSE.to_json(), "hardware": H100.to_json()}
    made = [record(5, USED), record(48, {}), record(49, {**USED, "registers": 255})]
    store = RecordStore(tmp_path / "records.jsonl", header)
    for one in made:
        store.append(one)
    assert RecordStore(tmp_path / "records.jsonl", header).records == made
    write_compressed(tmp_path / "records.jsonl.gz", header, made)
    assert read_records(tmp_path / "records.jsonl.gz").records == tuple(made)
    for name in ("records.jsonl", "records.jsonl.gz"):
        runner = ReplayRunner.load(tmp_path / name)
        found = list(runner.measure(DENSE, [Trial(KERNEL, tuple(r.shape for r in made))]))
        assert found == made and [r.resources for r in found] == [r.resources for r in made]
        assert runner.schemes == (KERNEL,)


# Building for real, timing for show


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_records_have_what_the_compiler_used() -> None:
    works = (
        Dense(T=Dim(1, 64), N=96, K=64),
        BatchMatmul(T=Dim(1, 64), B=2, D=32, form="nn"),
        typed(Dense(T=Dim(1, 64), N=96, K=64), "bfloat16"),
    )
    halves = cuda_scheme(32, 32, 32, 2, 2, unit="mma", edge="even")
    with LocalRunner(H100, Timing(3, 0.001), builders=1, timer_module="workers.gpu_timer") as runner:
        for work in works:
            kernel = KERNEL if work.dtype == "float32" else halves
            found = list(runner.measure(work, [Trial(kernel, SHAPES)]))
            fine = [(kernel, shape, "ok", "") for shape in SHAPES]
            assert [(r.scheme, r.shape, r.status, r.reason) for r in found] == fine
            for made in found:
                # Blocks of 1, 1.5 and 2 us a row: the two quickest count.
                assert made.seconds == pytest.approx(1.25e-6 * made.shape["T"])
                assert made.spread == pytest.approx(0.2)
                assert set(made.resources) == set(USED)
                assert 16 <= made.resources["registers"] <= 255 and made.resources["spill_bytes"] == 0
                assert 0 < made.resources["shared_bytes"] <= H100.limits.smem_per_block_bytes
                assert 1 <= made.resources["blocks_per_sm"] <= H100.limits.blocks_per_sm
                assert made.code_bytes > 0 and made.phases.compile > 0
                assert Record.from_json(json.loads(json.dumps(made.to_json()))).resources == made.resources


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_no_group_of_warps_is_refused_for_what_serves_other_arrays() -> None:
    """A library of halves has a kernel for arrays that begin anywhere, which copies single elements."""
    kernels = [Scheme.from_key(key) for key in ("128x256x64.g2x1.s4", "128x128x64.g2x1.s4.b2.even")]
    table = frame_compiled(typed(DENSE, "float16"), H100, kernels)
    assert list(table["status"]) == ["ok", "ok"] and not table["spill_bytes"].any(), table


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_a_micro_kernel_that_no_compiler_takes_is_a_record() -> None:
    stranger = cuda_scheme(32, 32, 32, 2, 2, unit="mma")
    work = typed(Dense(T=Dim(1, 64), N=96, K=64), "float16")
    with LocalRunner(Hardware.preset("t4"), builders=1, timer_module="workers.gpu_timer") as runner:
        (made,) = runner.measure(work, [Trial(stranger, SHAPES[:1])])
    assert made.status == "build_failed" and made.reason and not made.resources


# CUDA graphs


class RefusingDriver:
    """A driver that notes what it is asked for, and refuses one function."""

    def __init__(self, refused: str) -> None:
        self.refused, self.asked = refused, list[str]()

    def __call__(self, name: str, *arguments: object) -> None:
        self.asked.append(name)
        if name == self.refused:
            raise MeasureError(f"the driver's {name} succeeds", "operation not permitted")

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        self(name, *arguments)
        return ctypes.c_void_p(7)


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        ("cuStreamBeginCapture_v2", []),
        ("cuStreamEndCapture", []),
        ("cuGraphInstantiateWithFlags", ["cuGraphDestroy"]),
    ],
)
def test_calls_that_cannot_be_recorded_leave_no_capture_and_no_graph(refused: str, left: list[str]) -> None:
    driver, made = RefusingDriver(refused), []
    recorder = GraphRecorder(driver, lambda stream: nullcontext(made.append(stream)))  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match=refused):
        recorder.recorded([lambda: None])
    after = driver.asked[driver.asked.index(refused) + 1 :]
    assert after == left and made in ([], [7])


def test_a_call_that_fails_ends_the_capture() -> None:
    driver = RefusingDriver("")
    recorder = GraphRecorder(driver, lambda stream: nullcontext())  # type: ignore[arg-type]

    def broken() -> None:
        raise MeasureError("a launch succeeds", "invalid argument")

    with pytest.raises(MeasureError, match="a launch succeeds"):
        recorder.recorded([broken])
    assert driver.asked[-1] == "cuStreamEndCapture"


def test_a_graph_is_replayed_and_goes_with_its_last_user() -> None:
    driver = RefusingDriver("")
    replay = GraphRecorder(driver, lambda stream: nullcontext()).recorded([])  # type: ignore[arg-type]
    replay()
    assert driver.asked[-2:] == ["cuGraphDestroy", "cuGraphLaunch"]
    del replay
    assert driver.asked[-1] == "cuGraphExecDestroy"
