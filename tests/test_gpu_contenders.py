"""Contenders of a GPU: the worker's protocol with a CPU in its place, the clock on a pretended GPU, cuBLASLt
on a library that computes in NumPy."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from schemes import cpu_scheme

from dietlab.base.errors import DispatchError, MeasureError, MissingDependencyError
from dietlab.compare.evaluate import contest
from dietlab.compare.lineup import contenders_for
from dietlab.compare.session import Entrant, TimingSession
from dietlab.compare.target import BOUNDS
from dietlab.compare.vendor import Call, NoFormError
from dietlab.machine import Hardware
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.contender import WithConstants
from dietlab.measure.timing.device import GUARD_BYTES, TimedBlock
from dietlab.measure.timing.problem import KEPT, Problem, shared_problem
from dietlab.measure.timing.process import WorkerProcess, WorkerRefused
from dietlab.measure.timing.protocol import GPU_CACHE_STATES
from dietlab.measure.timing.rotation import MOST_PLAIN, copies_beyond
from dietlab.problem import BatchMatmul, Conv1d, Conv2d, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cpu.contenders import CONTENDERS, VENDORS
from dietlab.targets.cuda import contenders
from dietlab.targets.cuda.contenders import VENDORS as GPU_VENDORS
from dietlab.targets.cuda.contenders import WORKER, tensors
from dietlab.targets.cuda.contenders.cublaslt import (
    EPILOGUES,
    REQUESTED,
    CublasLt,
    HeuristicResult,
    Product,
    TunedCublasLt,
)
from dietlab.targets.cuda.contenders.pytorch import MODE, Compiled, Cudnn, EagerCublas
from dietlab.targets.cuda.contenders.tensors import (
    EventClock,
    GpuSetting,
    TorchArrays,
    TorchOutput,
    cycle_probe,
    to_device,
    to_host,
)
from dietlab.targets.cuda.contenders.worker import make_contender, opened
from dietlab.targets.cuda.gpu import HOST_SHARE, Gpu, HostClock
from dietlab.tuning import EFFORTS, Dispatcher, build

torch = pytest.importorskip("torch", reason="contenders of a GPU are PyTorch's; here its CPU build stands in")

T = Dim(1, 64)
DENSE = Dense(T, 70, 45)
HALVES = (Dense(T, 70, 45, dtype="float16"), Dense(T, 70, 45, dtype="bfloat16"))
BATCHED = (BatchMatmul(T, 3, 13, "nt"), BatchMatmul(T, 3, 13, "nn"), BatchMatmul(T, 2, 16, "nt", "bfloat16"))
EPILOGUES_OF_DENSE = (
    Dense(T, 70, 45, bias=True),
    Dense(T, 70, 45, residual=True),
    Dense(T, 70, 45, bias=True, activation="relu"),
    Dense(T, 70, 45, bias=True, residual=True),
    Dense(T, 70, 45, activation="gelu_tanh", residual=True),
    Dense(T, 70, 45, bias=True, activation="gelu_erf"),
)
ON_CPU = {"device": "cpu", "l2_bytes": 1 << 14}


def pretended_gpu(**changed: Any) -> Gpu:
    """The CPU in a GPU's place."""
    return Gpu(TorchArrays(torch, "cpu"), HostClock(), 1 << 14, **changed)


def setting(device: str = "cpu", gpu: Gpu | None = None) -> GpuSetting:
    return GpuSetting(torch, device, gpu or pretended_gpu())


def bench(contender: Any, workload: Workload = DENSE, **changed: Any) -> Bench:
    return Bench(pretended_gpu(**changed), contender, workload)


def opening(contender: str, workload: Workload = DENSE, **options: Any) -> dict[str, Any]:
    asked = {"op": "open", "contender": contender, "workload": workload.to_json(), "threads": 1}
    return {**asked, "options": {**ON_CPU, **options}}


# Names


def test_names_agree_everywhere() -> None:
    assert [made.name for made in GPU_VENDORS.own.values()] == [*GPU_VENDORS]  # type: ignore[attr-defined]
    assert contenders_for("cpu") == CONTENDERS and contenders_for("cuda") == (*GPU_VENDORS, *BOUNDS)
    assert not set(GPU_VENDORS) & set(VENDORS)


def test_a_gpu_s_library_meets_contenders_of_a_gpu_only() -> None:
    kernel = Scheme.from_key("32x32x16.t8x8.s2")
    dispatcher = Dispatcher(DENSE, Hardware.preset("h100"), (kernel,), Leaf(0))
    op: Any = SimpleNamespace(manifest=dispatcher.to_json(), dispatcher=dispatcher, path=Path("library.so"))
    shapes = ShapeSet.extents(DENSE, [5])
    told = r"on NVIDIA H100 SXM are cublas, .*oracle; got openblas, mkl"
    rivals = ("cublas", "openblas", "mkl")
    with pytest.raises(DispatchError, match=told), contest(op, rivals, shapes, effort=EFFORTS["smoke"]):
        pass


# The worker


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(WORKER.name) as process:
        yield process


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
@pytest.mark.parametrize("workload", [DENSE, *HALVES, *BATCHED, *EPILOGUES_OF_DENSE], ids=str)
def test_worker_checks_what_is_computed(worker: WorkerProcess, workload: Workload, name: str) -> None:
    answer = worker.ask(opening(name, workload), 60)
    assert answer["kind"] == "plain" and answer["version"].startswith("PyTorch")
    assert "a CPU stands in" in answer["unprobed"]
    for rows in (1, 5, 31, 64):
        answer = worker.ask({"op": "check", "shape": {"T": rows}, "seed": rows}, 60)
        assert answer["correct"], (str(workload), rows, answer)
        assert answer["max_error"] <= answer["tolerance"]


IMAGES = Conv2d(N=Dim(1, 2), H=Dim(5, 12), W=Dim(5, 12), IC=8, OC=12, kernel=3, padding=1)
CONVOLUTIONS = (
    replace(IMAGES, dtype="bfloat16"),
    replace(IMAGES, bias=True, activation="relu", residual="before"),
    replace(IMAGES, stride=2, padding=((0, 1), (1, 1)), bias=True, activation="gelu_erf"),
    Conv1d(N=1, L=Dim(5, 30), IC=8, OC=12, kernel=3, padding=1, bias=True),
)


@pytest.mark.parametrize("name", ["cudnn", "cudnn-tuned"])
@pytest.mark.parametrize("workload", CONVOLUTIONS, ids=str)
def test_worker_checks_convolutions(worker: WorkerProcess, workload: Workload, name: str) -> None:
    answer = worker.ask(opening(name, workload), 60)
    assert answer["kind"] == ("plain" if name == "cudnn" else "tuned") and "cuDNN" in answer["version"]
    for size in (5, 11):
        shape = {dim: min(size, extent.high) for dim, extent in workload.dims.items()}
        answer = worker.ask({"op": "check", "shape": shape, "seed": size}, 60)
        assert answer["correct"], (str(workload), shape, answer)
        timed = worker.ask({"op": "time", "shape": shape, "cache": "hot", "min_seconds": 0.001}, 60)
        assert timed["seconds"] > 0


def test_cudnn_s_rounded_steps_are_no_contender_of_one_rounding() -> None:
    told = pytest.raises(NoFormError, match="convolution must have no epilogue")
    with told:
        Cudnn(setting()).kind(replace(IMAGES, dtype="float16", activation="relu"))


@pytest.mark.parametrize("workload", [DENSE, HALVES[1], BATCHED[0]], ids=str)
def test_worker_times_in_both_cache_states(worker: WorkerProcess, workload: Workload) -> None:
    worker.ask(opening("cublas", workload), 60)
    for cache in GPU_CACHE_STATES:
        request = {"op": "time", "shape": {"T": 5}, "cache": cache, "min_seconds": 0.001}
        timed = worker.ask(request, 60)
        assert 0 < timed["seconds"] < 0.1 and timed["calls"] >= 1
        assert (timed["copies"] > 1) == (cache == "rotating")
        assert (timed["retaken"], timed["kept"], timed["probe"]) == (0, False, None)
        assert (timed["graph"], timed["host_share"]) == (False, 0.0)


def test_worker_refuses_what_it_does_not_know(worker: WorkerProcess) -> None:
    worker.ask(opening("cublas"), 60)
    with pytest.raises(WorkerRefused, match="must be one of hot, rotating; got 'interleaved'"):
        worker.ask({"op": "time", "shape": {"T": 5}, "cache": "interleaved"}, 60)
    with pytest.raises(WorkerRefused, match=r"is one of cublas, .*triton, library, ansor; got 'eigen'"):
        worker.ask(opening("eigen"), 60)
    with WorkerProcess(WORKER.name) as fresh, pytest.raises(WorkerRefused, match="opened first"):
        fresh.ask({"op": "check", "shape": {"T": 5}}, 60)


@pytest.mark.parametrize("name", ["cublaslt-tuned", "triton"])
def test_contenders_that_need_a_gpu_say_so(name: str) -> None:
    absent = Service(opened)(opening(name))["absent"]
    assert "cpu" in absent and ("GPU" in absent)


def test_absence_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        absent = Service(opened)(opening("cublas", device="cuda"))["absent"]
        assert "PyTorch must see a GPU" in absent and torch.__version__ in absent
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install torch" in Service(opened)(opening("cublas"))["absent"]


def test_a_library_of_ours_plays_with_pytorch_s_tensors(here: Hardware, tmp_path: Path) -> None:
    plans = (cpu_scheme(4, 16), cpu_scheme(2, 32))
    build(Dispatcher(DENSE, here, plans, Leaf(0)), tmp_path, every_plan=True)
    service = Service(opened)
    answer = service(opening("library", library=str(tmp_path)))
    assert answer["kind"] == "library" and answer["version"] == "1 micro-kernel"
    for plan in ({}, {"plan": 1}):
        assert service({"op": "check", "shape": {"T": 7}, **plan})["correct"]
        assert service({"op": "time", "shape": {"T": 7}, "cache": "rotating", **plan})["seconds"] > 0


class Lying:
    """A contender whose calls write what ``fault`` says."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault

    def kind(self, workload: Workload) -> str:
        return "plain"

    def version(self) -> str:
        return "0"

    def prepare(self, workload: Workload, constants: Any, shape: Shape) -> WithConstants:
        return WithConstants(self._bound, constants)

    def _bound(self, operands: Any, out: Any) -> Call:
        def call() -> Any:
            if self._fault == "lost":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            result = operands["x"] @ operands["w"].T
            if self._fault == "fresh":
                return result
            out.copy_(result)
            if self._fault == "gap":
                out[-1, -1] = math.nan
            elif self._fault == "wrong":
                out[0, 0] += 1
            elif self._fault == "beyond":
                torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel()).zero_()
            return out

        return call


@pytest.mark.parametrize("workload", [DENSE, *HALVES], ids=str)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("", ""), ("fresh", ""), ("gap", "never written"), ("wrong", "is above"), ("beyond", "overwritten")],
)
def test_check_notices(fault: str, reason: str, workload: Workload) -> None:
    answer = bench(Lying(fault), workload).check({"shape": {"T": 5}})
    assert answer["correct"] is (not reason) and reason in answer["reason"]


def test_a_lost_device_ends_the_process_and_any_other_error_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(opened)
    monkeypatch.setattr("dietlab.targets.cuda.contenders.worker.make_contender", lambda *_: Lying("lost"))
    service(opening("cublas"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        service({"op": "check", "shape": {"T": 5}})

    def dead(self: HostClock) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(HostClock, "wait", dead)
    with pytest.raises(SystemExit, match="answers no more: CUDA error: an illegal"):
        service({"op": "check", "shape": {"T": 5}})


def test_a_clock_that_falls_during_a_block_is_noticed() -> None:
    cycles = iter([1.0, 2.0, 1.0, 1.0])
    timer = bench(Lying(), DENSE, probe=lambda: next(cycles))
    timed = timer.time({"shape": {"T": 5}, "min_seconds": 1e-4, "usual_probe": 0.1})
    assert (timed["retaken"], timed["kept"], timed["probe"]) == (1, False, 1.0)


def test_copies_cover_l2_within_reason() -> None:
    assert copies_beyond(1 << 20, 0, packed=False) == 2
    assert copies_beyond(1 << 20, 50 << 20, packed=False) == 101
    assert copies_beyond(1 << 10, 50 << 20, packed=False) == MOST_PLAIN
    assert copies_beyond(1 << 33, 50 << 20, packed=False) == 2


# Tensors


@pytest.mark.parametrize("workload", [DENSE, *HALVES], ids=str)
def test_arrays_survive_the_way_there_and_back(workload: Workload) -> None:
    for array in workload.inputs(Shape.of(T=3)).values():
        tensor = to_device(torch, array, "cpu")
        assert str(tensor.dtype) == f"torch.{workload.dtype}"
        back = to_host(torch, tensor, array.dtype)
        assert back.dtype == array.dtype and (back == array).all()
        tensor.zero_()
        assert array.any(), "a copy"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_output_is_guarded_and_aligned(dtype: str) -> None:
    out = TorchOutput(torch, (3, 5), np.dtype(dtype), "cpu")
    out.poison()
    assert out.intact and out.array.isnan().all()
    assert out.array.data_ptr() - out.buffer.data_ptr() == GUARD_BYTES
    out.array.zero_()
    assert out.intact
    out.buffer[-1] = 0
    assert not out.intact


# Problems that processes share


@pytest.mark.parametrize("workload", [DENSE, HALVES[1], BATCHED[2]], ids=str)
def test_problems_are_made_once(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shared_problem(tmp_path, workload, Shape.of(T=9), 3)
    monkeypatch.setattr(Problem, "make", None)
    read = shared_problem(tmp_path, workload, Shape.of(T=9), 3)
    assert list(read.operands) == list(made.operands) and read.dtype == made.dtype
    assert all((read.operands[name] == array).all() for name, array in made.operands.items())
    assert (read.rows == made.rows).all() and (read.reference == made.reference).all()
    assert (read.shape, read.tolerance, read.bytes) == (made.shape, made.tolerance, made.bytes)


def test_few_problems_are_kept(tmp_path: Path) -> None:
    for rows in range(1, 6):
        shared_problem(tmp_path, DENSE, Shape.of(T=rows))
        assert len(list(tmp_path.iterdir())) <= KEPT
    assert list(tmp_path.glob("0-T=5-*.npz"))
    other = shared_problem(tmp_path, HALVES[0], Shape.of(T=5))
    assert other.dtype != shared_problem(tmp_path, DENSE, Shape.of(T=5)).dtype, "each workload has its own"
    assert shared_problem(None, DENSE, Shape.of(T=2)).out_shape == (2, 70)


# The clock, on a GPU that is a counter


class Stream(str):
    """What PyTorch tells of a stream."""

    device, cuda_stream = "cuda:0", 0


class PretendedGpu:
    """A GPU and a host whose clocks are counters: calls take ``host`` seconds to queue and ``device`` seconds
    to run; with ``capturable`` false nothing can be recorded."""

    def __init__(self, host: float, device: float, capturable: bool = True) -> None:
        self.host, self.device, self.capturable = host, device, capturable
        self.now = self.free = 0.0
        self.recorded: list[int] | None = None
        self.log: list[int] = []
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = max(gpu.now, gpu.free)

            def synchronize(self) -> None:
                gpu.now = max(gpu.now, self.at)

            def elapsed_time(self, other: Event) -> float:
                return 1e3 * (other.at - self.at)

        class CUDAGraph:
            def replay(self) -> None:
                gpu.now += 5e-6
                gpu.work(len(gpu.recorded or ()))

        self.streams = [Stream("default")]
        self.cuda = SimpleNamespace(
            graph=self.capture,
            Event=Event,
            CUDAGraph=CUDAGraph,
            synchronize=lambda: None,
            set_stream=self.streams.append,
            current_stream=lambda: self.streams[-1],
        )

    def work(self, calls: int) -> None:
        self.free = max(self.now, self.free) + calls * self.device

    def call(self, copy: int) -> None:
        if self.recorded is not None and self._recording:
            self.recorded.append(copy)
            return
        self.log.append(copy)
        self.now += self.host
        self.work(1)

    _recording = False

    @contextmanager
    def capture(self, graph: Any) -> Iterator[None]:
        if not self.capturable:
            self.streams.append(Stream("of the recording"))
            raise ValueError("this library waits for the GPU in its calls")
        self.recorded, self._recording = [], True
        yield
        self._recording = False


def pretended(
    monkeypatch: pytest.MonkeyPatch, gpu: PretendedGpu, copies: int = 1, seconds: float = 0.004
) -> TimedBlock:
    monkeypatch.setattr(tensors, "perf_counter", lambda: gpu.now)
    calls = [partial(gpu.call, copy) for copy in range(copies)]
    return Gpu(TorchArrays(gpu, "cuda"), EventClock(gpu), 1 << 20).block(calls, "hot", seconds, gpu, None)


def test_long_calls_are_queued_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    block = pretended(monkeypatch, PretendedGpu(host=10e-6, device=200e-6))
    assert not block.graph and block.calls in (20, 21)
    assert block.host_share < 0.1
    assert block.run() == pytest.approx(200e-6, rel=0.02)


@pytest.mark.parametrize("copies", [1, 3, 300])
def test_calls_that_the_host_queues_too_slowly_are_replayed(
    copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = PretendedGpu(host=10e-6, device=3e-6)
    block = pretended(monkeypatch, gpu, copies)
    assert block.graph and block.host_share < 0.1
    assert gpu.recorded is not None and block.calls % len(gpu.recorded) == 0
    assert gpu.recorded == list(range(copies)) * (len(gpu.recorded) // copies), "whole rotations"
    assert block.run() == pytest.approx(3e-6, rel=0.02)


def test_short_calls_are_replayed_whoever_queues_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretended(monkeypatch, PretendedGpu(host=1e-6, device=20e-6)).graph


def test_what_cannot_be_recorded_is_queued_and_says_what_the_host_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = PretendedGpu(host=10e-6, device=3e-6, capturable=False)
    block = pretended(monkeypatch, gpu)
    assert gpu.cuda.current_stream() == "default"
    assert not block.graph and block.host_share > HOST_SHARE
    assert block.run() == pytest.approx(10e-6, rel=0.1), "the host's time, as it is"


def test_rotations_go_on_where_the_last_block_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = PretendedGpu(host=1e-6, device=1e-3)
    block = pretended(monkeypatch, gpu, copies=7)
    block.run()
    block.run()
    assert gpu.log == [number % 7 for number in range(len(gpu.log))]


def test_cycles_of_the_clock() -> None:
    def missing() -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    def read(rate: Callable[[], int]) -> Any:
        return cycle_probe(SimpleNamespace(cuda=SimpleNamespace(clock_rate=rate)))

    probe, why = read(lambda: 2000)
    assert not why and probe() == pytest.approx(0.5e-9)
    assert read(missing)[0] is None and "nvidia-ml-py" in read(missing)[1]
    assert read(lambda: 0)[0] is None


# cuBLASLt


class ComputingLt:
    """cuBLASLt's C interface on host memory, in float32; algorithm 1 refuses to run."""

    SECONDS = (3.0, 0.5, 2.0, 1.0)

    def __init__(self) -> None:
        self.objects: list[dict[Any, Any]] = [{}]
        self.ran: list[int] = []

    def cublasLtGetVersion(self) -> int:
        return 130000

    def _new(self, handle: Any, **facts: Any) -> int:
        self.objects.append(facts)
        handle._obj.value = len(self.objects) - 1
        return 0

    def _of(self, handle: Any) -> dict[Any, Any]:
        return self.objects[handle.value]

    def _set(self, handle: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj)
        self._of(handle)[attribute] = value._obj.value
        return 0

    def cublasLtCreate(self, handle: Any) -> int:
        return self._new(handle)

    def cublasLtMatmulDescCreate(self, handle: Any, compute: int, scale: int) -> int:
        assert (compute, scale) == (68, 0)
        return self._new(handle)

    def cublasLtMatmulPreferenceCreate(self, handle: Any) -> int:
        return self._new(handle)

    def cublasLtMatrixLayoutCreate(self, handle: Any, kind: int, rows: Any, cols: Any, lead: Any) -> int:
        assert lead.value == rows.value
        return self._new(handle, kind=kind, rows=rows.value, cols=cols.value)

    def __getattr__(self, name: str) -> Any:
        if name.endswith("SetAttribute"):
            return self._set
        raise AttributeError(name)

    def cublasLtMatmulAlgoGetHeuristic(self, *given: Any) -> int:
        *_, preference, wanted, found, count = given
        assert self._of(preference) == {1: 32 << 20, 3: 2} and wanted == REQUESTED
        for number in range(len(self.SECONDS) + 1):
            found[number].algorithm.data[0] = number
            found[number].state = int(number == len(self.SECONDS))
        count._obj.value = len(self.SECONDS) + 1
        return 0

    def cublasLtMatmul(self, *given: Any) -> int:
        _, description, _, a, a_form, b, b_form, beta, c, c_form, d, d_form, algorithm, *_ = given
        number = algorithm._obj.data[0]
        self.ran.append(number)
        if number == 1:
            return 15
        left, right = self._read(a, a_form), self._read(b, b_form)
        result = (left.swapaxes(1, 2) if self._of(description)[3] else left) @ right
        result = result + beta._obj.value * self._read(c, c_form) if beta._obj.value else result
        epilogue = self._of(description)[7]
        if epilogue in (4, 6):
            bias = (ctypes.c_float * result.shape[1]).from_address(self._of(description)[8])
            result = result + np.array(bias, np.float32)[:, None]
        result = np.maximum(result, 0) if epilogue in (2, 6) else result
        self._memory(d, d_form)[...] = result.swapaxes(1, 2)
        return 0

    def _memory(self, address: Any, form: Any) -> Any:
        """Row-major transposes of the column-major matrices that lie there."""
        facts = self._of(form)
        batch, size = facts.get(5, 1), facts["rows"] * facts["cols"]
        assert facts.get(6, size) == size
        memory = (ctypes.c_float * (batch * size)).from_address(address.value)
        return np.frombuffer(memory, np.float32).reshape(batch, facts["cols"], facts["rows"])

    def _read(self, address: Any, form: Any) -> Any:
        return self._memory(address, form).swapaxes(1, 2)


class ChoosingGpu(Gpu):
    """Times algorithms by :attr:`ComputingLt.SECONDS`."""

    def __init__(self, library: ComputingLt) -> None:
        self._library = library

    def block(self, calls: Sequence[Call], *_: object) -> TimedBlock:
        calls[0]()
        number = self._library.ran[-1]
        return TimedBlock(lambda: self._library.SECONDS[number], 1)


@pytest.fixture
def library() -> ComputingLt:
    return ComputingLt()


@pytest.fixture
def tuned(library: ComputingLt) -> TunedCublasLt:
    lt = CublasLt(library, lambda: 0, torch.empty(8))
    return TunedCublasLt(setting("cuda", ChoosingGpu(library)), lt)


def test_structures_are_as_long_as_in_c() -> None:
    assert ctypes.sizeof(HeuristicResult) == 96 and HeuristicResult.state.offset == 72


FUSED = (Dense(T, 70, 45, bias=True, residual=True, constant=False), *EPILOGUES_OF_DENSE[1:3])


@pytest.mark.parametrize("workload", [DENSE, *BATCHED[:2], *FUSED], ids=str)
def test_cublaslt_computes_with_its_fastest_algorithm(
    workload: Workload, library: ComputingLt, tuned: TunedCublasLt
) -> None:
    assert tuned.kind(workload) == "tuned" and "cuBLASLt 130000" in tuned.version()
    timer = bench(tuned, workload)
    for rows in (1, 7, 64):
        library.ran.clear()
        answer = timer.check({"shape": {"T": rows}})
        assert answer["correct"], answer
        assert library.ran == [0, 1, 2, 3, 3], "each once, then the fastest that runs"
    library.ran.clear()
    assert timer.time({"shape": {"T": 7}, "cache": "rotating", "min_seconds": 1e-4})["seconds"] > 0
    assert set(library.ran) == {3}, "a shape is tuned once"


def test_cublaslt_says_what_it_lacks(tuned: TunedCublasLt, monkeypatch: pytest.MonkeyPatch) -> None:
    for workload in (Dense(T, 7, 5, activation="gelu_erf"), Dense(T, 7, 5, activation="relu", residual=True)):
        with pytest.raises(NoFormError, match=r"must have the epilogue; got .*Compare with torch-compile"):
            tuned.kind(workload)
    assert all(tuned.kind(Dense(T, 7, 5, bias=b, activation=a)) == "tuned" for b, a in EPILOGUES)
    for failing, status, told in (
        ("cublasLtMatmul", 15, "an algorithm that runs; got 4"),
        ("cublasLtMatmulDescCreate", 7, "cublasLtMatmulDescCreate must succeed; got cublasStatus_t 7"),
    ):
        monkeypatch.setattr(ComputingLt, failing, lambda *_, status=status: status)
        with pytest.raises(MeasureError, match=told):
            bench(tuned, DENSE).check({"shape": {"T": 5}})


def test_a_product_is_turned_over_for_columns_first() -> None:
    shape = Shape.of(T=9)
    operands = {name: torch.from_numpy(array) for name, array in DENSE.inputs(shape).items()}
    product = Product.of(DENSE, operands, torch.empty(9, 70))
    assert product == Product(70, 9, 45, 1, True, "float32")
    assert product.sizes == ((45, 70), (45, 9), (70, 9))


# PyTorch's eager and compiled layers


def test_halves_are_not_rounded_twice_unnoticed() -> None:
    eager = EagerCublas(setting())
    for changed in ({"activation": "gelu_tanh"}, {"bias": True, "residual": True}):
        options: dict[str, Any] = {"dtype": "bfloat16", **changed}
        with pytest.raises(NoFormError, match="need no further operator"):
            eager.kind(Dense(T, 70, 45, **options))
    fused = Dense(T, 70, 45, dtype="bfloat16", residual=True)
    assert eager.kind(fused) == "plain"
    assert bench(eager, fused).check({"shape": {"T": 31}})["correct"]


@pytest.mark.parametrize("workload", [DENSE, *BATCHED[:2], *EPILOGUES_OF_DENSE], ids=str)
def test_one_program_is_compiled_for_all_lengths(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    seen: list[int] = []

    def compiler(layer: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        asked.append(options)

        def compiled(**operands: Any) -> Any:
            seen.append(operands["x"].shape[-2])
            return layer(**operands)

        return compiled

    monkeypatch.setattr(torch, "compile", compiler)
    timer = bench(Compiled(setting()), workload)
    for rows in (5, 64):
        assert timer.check({"shape": {"T": rows}})["correct"]
    assert asked == [{"dynamic": True, "mode": MODE}]
    assert seen == [64, 5, 64], "the largest length is the example"


def test_triton_is_missing_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependencyError, match="pip install triton"):
        make_contender("triton", setting("cuda"), {})


def test_triton_s_configurations_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton comes with PyTorch for CUDA")
    from dietlab.targets.cuda.contenders.triton_matmul import CONFIGURATIONS, TritonMatmul, _fitting

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    contender = TritonMatmul(setting("cuda"))
    with pytest.raises(NoFormError, match="must have no epilogue"):
        contender.kind(EPILOGUES_OF_DENSE[0])
    some = contender._program.configs
    operands = {dtype: torch.empty(1, dtype=getattr(torch, dtype)) for dtype in ("float32", "float16")}
    fitting = {dtype: _fitting(99 << 10, some, {"x": x}) for dtype, x in operands.items()}
    assert 0 < len(fitting["float32"]) < len(fitting["float16"]) <= len(CONFIGURATIONS)


# The match


def test_a_match_on_a_gpu_asks_the_gpu_s_worker() -> None:
    entries = [Entrant(name, name, options=ON_CPU) for name in ("cublas", "cublaslt", "triton")]
    with TimingSession(DENSE, Hardware.preset("h100"), entries) as played:
        assert played.names == ("cublas", "cublaslt")
        assert [bool(c.absent) for c in played.contenders] == [False, False, True]
        turns = played.play(Shape.of(T=33), "rotating", 2, 0.001, {})
        assert "a CPU stands in for the GPU" in played.note
    found = {name: (turn.correct, len(turn.samples)) for name, (turn,) in turns.items()}
    assert found == {"cublas": (True, 2), "cublaslt": (True, 2)}


# The machine


def test_facts_about_the_machine(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.82.07, 1980 MHz, 3201 MHz, 700.00 W'\n")
    tool.chmod(0o755)
    found = contenders.facts(str(tool))
    assert found["GPU"] == "NVIDIA H200" and found["NVIDIA driver"] == "580.82.07"
    assert found["highest SM clock"] == "1980 MHz" and found["power limit"] == "700.00 W"
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert contenders.facts(str(tool)) == contenders.facts(str(tmp_path / "none")) == {}
