"""Per-shape auto-scheduling: one tiny real tuning, then everything that needs its result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.base.events import Event, StageAdvanced, TrialMeasured
from dietlab.compare.ansor import contender as ansor
from dietlab.compare.ansor.contender import AnsorResult, tune_static, tuned_library
from dietlab.compare.vendor import contender_env
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import NotTunedError, Prepared
from dietlab.measure.timing.problem import aligned
from dietlab.measure.timing.process import WorkerProcess
from dietlab.problem import Conv2d, Dense, Dim, Shape, tolerance
from dietlab.problem.contraction import Inputs
from dietlab.targets.cpu.ansor import load_tuned

DENSE = Dense(T=Dim(1, 8), N=32, K=16, bias=True)
SHAPE = Shape.of(T=4)
TRIALS = 3
CONTENDER = "dietlab.targets.cpu.contenders.worker"


class Log:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return Hardware.detect(measure=False).with_cores(1)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, hardware: Hardware) -> tuple[AnsorResult, Log]:
    pytest.importorskip("tvm")
    pytest.importorskip("xgboost")
    log = Log()
    folder = tmp_path_factory.mktemp("ansor")
    return tune_static(DENSE, hardware, SHAPE, folder, TRIALS, observers=[log]), log


def test_result_counts_what_was_done(tuned: tuple[AnsorResult, Log]) -> None:
    result, log = tuned
    assert result.shape == SHAPE and result.trials == TRIALS and result.failures == 0
    assert result.gflops > 0 and result.seconds > 0 and result.library.name == "T=4.so"
    advanced = [e for e in log.events if isinstance(e, StageAdvanced)]
    assert advanced[-1].done == TRIALS
    assert any(isinstance(e, TrialMeasured) and e.gflops > 0 for e in log.events)


def layer(tuned: tuple[AnsorResult, Log], inputs: Inputs) -> Prepared:
    """The tuned program with packed weights."""
    constants = {name: inputs[name] for name in DENSE.constants}
    return load_tuned(*tuned_library(tuned[0].library.parent, SHAPE))(DENSE, constants)


def test_library_computes_the_layer(tuned: tuple[AnsorResult, Log]) -> None:
    inputs = DENSE.inputs(SHAPE, seed=7)
    x, out = aligned_empty((4, 16)), aligned_empty((4, 32))
    x[...] = inputs["x"]
    out.fill(np.nan)
    layer(tuned, inputs).bind({"x": x}, out)()
    assert np.abs(out - DENSE.reference(inputs)).max() <= tolerance(DENSE, inputs)


@pytest.mark.parametrize("groups", [1, 4])
def test_library_computes_a_convolution(groups: int, hardware: Hardware, tmp_path: Path) -> None:
    """The search may lay the four dimensions of the weights out anew."""
    for package in ("tvm", "xgboost"):
        pytest.importorskip(package)
    images, shape = Dim(4, 9), Shape.of(H=5, W=7)
    work = Conv2d(N=1, H=images, W=images, IC=8, OC=16, padding=1, bias=True, groups=groups)
    found = tune_static(work, hardware, shape, tmp_path, 2)
    saved = json.loads(found.library.with_suffix(".json").read_text())
    assert np.prod(saved["packed_shape"]) == 16 * 8 // groups * 9 and saved["max_error"] <= saved["tolerance"]
    inputs = work.inputs(shape, seed=3)
    inputs = {name: aligned(value) for name, value in inputs.items()}
    out = aligned_empty(work.output_shape(shape))
    constants = {name: inputs[name] for name in work.constants}
    load_tuned(found.library, saved)(work, constants).bind({"x": inputs["x"]}, out)()
    assert np.abs(out - work.reference(inputs)).max() <= tolerance(work, inputs)


def test_unaligned_operands_are_refused(tuned: tuple[AnsorResult, Log]) -> None:
    inputs = DENSE.inputs(SHAPE)
    x = aligned_empty((5, 16)).reshape(-1)[1:65].reshape(4, 16)
    with pytest.raises(MeasureError, match="64 bytes"):
        layer(tuned, inputs).bind({"x": x}, aligned_empty((4, 32)))


def test_tuned_shape_is_loaded(
    tuned: tuple[AnsorResult, Log], hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("tuned again")

    monkeypatch.setattr(ansor, "WorkerProcess", never)
    folder = tuned[0].library.parent
    measured_again = replace(hardware, peak_gflops=77.0, dram_gbps=8.0, l3_gbps=33.0, l3_mib=5.0)
    for known in (hardware, measured_again):
        assert tune_static(DENSE, known, SHAPE, folder, TRIALS) == tuned[0]
    with pytest.raises(AssertionError, match="tuned again"):
        tune_static(DENSE, hardware.with_cores(2), Shape.of(T=5), folder, TRIALS)


def test_json_says_what_was_tuned(tuned: tuple[AnsorResult, Log]) -> None:
    saved = json.loads(tuned[0].library.with_suffix(".json").read_text())
    assert saved["settings"]["shape"] == {"T": 4} and saved["settings"]["seed"] == 0
    assert saved["weights"] in ("rewritten", "K-major")
    assert np.prod(saved["packed_shape"]) == 32 * 16
    assert saved["max_error"] <= saved["tolerance"]
    assert "apache-tvm" in saved["versions"]


def test_contender_serves_tuned_shapes_and_refuses_others(tuned: tuple[AnsorResult, Log]) -> None:
    asked = {"op": "open", "contender": "ansor", "workload": DENSE.to_json(), "threads": 1}
    opening = {**asked, "options": {"library": str(tuned[0].library.parent)}}
    with WorkerProcess(CONTENDER, contender_env(1)) as worker:
        assert "MetaSchedule" in worker.ask(opening, 60)["version"]
        assert worker.ask({"op": "check", "shape": {"T": 4}}, 60)["correct"]
        timed = worker.ask({"op": "time", "shape": {"T": 4}, "cache": "rotating"}, 60)
        assert timed["seconds"] > 0 and timed["copies"] > 1
        for op in ("check", "time"):
            assert "T=5" in worker.ask({"op": op, "shape": {"T": 5}}, 60)["absent"]


def test_shape_that_was_not_tuned(tmp_path: Path) -> None:
    with pytest.raises(NotTunedError, match="no library for T=9") as raised:
        tuned_library(tmp_path, Shape.of(T=9))
    assert "tune_static" in raised.value.remedy


def test_missing_package_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ansor, "find_spec", lambda name: None if name == "xgboost" else object())
    with pytest.raises(MissingDependencyError, match="xgboost-cpu") as raised:
        ansor.require_packages()
    assert raised.value.remedy == "pip install xgboost-cpu"
