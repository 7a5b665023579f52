"""Vendors are right, alone in their process, and say what to do when they are absent."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from dietlab.errors import MeasureError, MissingDependencyError
from dietlab.evaluation import vendors
from dietlab.evaluation.contender_worker import Bench, Case, Service
from dietlab.evaluation.vendors import VENDORS, contender_env
from dietlab.measure.process import WorkerProcess, WorkerRefused
from dietlab.shapes import Dim, Shape
from dietlab.workloads import Dense, FloatArray

WORKER = "dietlab.evaluation.contender_worker"
ROWS = (1, 5, 17)
L3_BYTES = 1 << 20


def dense(bias: bool = False) -> Dense:
    return Dense(T=Dim(1, 32), N=70, K=45, bias=bias)


def opening(contender: str, bias: bool = False, threads: int = 1) -> dict[str, object]:
    return {
        "op": "open", "contender": contender, "workload": dense(bias).to_json(), "threads": threads,
        "options": {"l3_bytes": L3_BYTES},
    }  # fmt: skip


@pytest.fixture(params=sorted(VENDORS))
def vendor(request: pytest.FixtureRequest) -> Iterator[tuple[str, WorkerProcess]]:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        answer = worker.ask(opening(request.param), 120)
        if "absent" in answer:
            pytest.skip(answer["absent"])
        assert answer["version"] and answer["kind"] in ("plain", "prepacked")
        yield request.param, worker


def test_vendor_is_right_and_timed(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    for bias in (False, True):
        worker.ask(opening(name, bias), 60)
        for rows in ROWS:
            answer = worker.ask({"op": "check", "shape": {"T": rows}, "seed": rows}, 60)
            assert answer["correct"], (bias, rows, answer)
            assert 0 < answer["max_error"] <= answer["tolerance"]
    hot = worker.ask({"op": "time", "shape": {"T": 5}, "cache": "hot", "min_seconds": 0.002}, 60)
    assert hot["copies"] == 1 and hot["calls"] > 1 and 0 < hot["seconds"] < 0.1
    rotating = worker.ask({"op": "time", "shape": {"T": 5}, "cache": "rotating", "max_calls": 7}, 60)
    assert rotating["copies"] == 64 and rotating["calls"] == 7
    assert worker.ask({"op": "check", "shape": {"T": 5}}, 60)["correct"]


def test_two_threads_compute_the_same() -> None:
    with WorkerProcess(WORKER, contender_env(2)) as worker:
        worker.ask(opening("openblas", threads=2), 60)
        assert worker.ask({"op": "check", "shape": {"T": 17}}, 60)["correct"]


def test_absent_mkl_has_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", not_found)
    for name in ("mkl", "mkl-packed"):
        with pytest.raises(MissingDependencyError, match="not installed") as raised:
            VENDORS[name](1)
        assert "pip install mkl" in raised.value.remedy


def test_absent_torch_has_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("torch", "onednn-packed"):
        with pytest.raises(MissingDependencyError) as raised:
            VENDORS[name](1)
        assert "pip install torch" in raised.value.remedy


def test_numpy_with_another_blas_is_no_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "numpy_blas", lambda: {"name": "accelerate"})
    with pytest.raises(MissingDependencyError, match="accelerate") as raised:
        VENDORS["openblas"](1)
    assert "pip install numpy" in raised.value.remedy


def test_absent_contender_is_an_answer_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = Service()(opening("torch"))
    assert "torch" in answer["absent"]


def test_unknown_contender_names_the_known_ones() -> None:
    with WorkerProcess(WORKER) as worker, pytest.raises(WorkerRefused, match="openblas"):
        worker.ask(opening("eigen"), 60)


class Lying:
    """A contender whose layer writes what ``fault`` says."""

    kind = "plain"

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def version(self) -> str:
        return "0"

    def layer(self, w: FloatArray, bias: FloatArray | None, shape: Shape, rows: int) -> Lying:
        self._w = w
        return self

    def bind(self, x: FloatArray, out: FloatArray) -> object:
        def call() -> None:
            np.matmul(x, self._w.T, out)
            if self._fault == "gap":
                out[-1, -1] = np.nan
            elif self._fault == "wrong":
                out[0, 0] += 1.0
            elif self._fault == "beyond":
                rows, cols = out.shape
                np.lib.stride_tricks.as_strided(out, (rows + 1, cols))[rows, 0] = 0.0

        return call


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("", ""), ("gap", "never written"), ("wrong", "is above"), ("beyond", "overwritten")],
)
def test_check_notices(fault: str, reason: str) -> None:
    bench = Bench(Lying(fault), dense(), 1, {"l3_bytes": L3_BYTES})  # type: ignore[arg-type]
    answer = bench.check({"shape": {"T": 5}})
    assert answer["correct"] is (not fault)
    assert reason in answer["reason"]
    assert math.isinf(answer["max_error"]) is (fault == "gap")


def test_everyone_gets_arrays_on_cache_lines() -> None:
    case = Case.make(dense(bias=True), Shape.of(T=5), 0)
    for array in (*case.operands.values(), case.out):
        assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous


def test_unknown_cache_state_is_refused() -> None:
    bench = Bench(Lying(""), dense(), 1, {"l3_bytes": L3_BYTES})  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match="hot or rotating"):
        bench.time({"shape": {"T": 5}, "cache": "lukewarm"})
