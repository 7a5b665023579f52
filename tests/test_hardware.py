"""Descriptions of processors: detected, measured, preset, saved and refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dietlab.errors import HardwareError
from dietlab.hardware import CpuLimits, Hardware

LIMITS = {
    "llvm_cpu": "haswell", "vector_bytes": 32, "vector_registers": 16, "l1d_bytes": 32768,
    "l2_bytes": 262144, "l3_bytes": 8388608,
}  # fmt: skip


def test_detected_processor_is_sane() -> None:
    found = Hardware.detect(measure=False)
    cpu = found.cpu
    assert found.kind == "cpu" and found.source == "detected" and found.name
    assert found.cores == len(os.sched_getaffinity(0))
    assert (found.peak_gflops, found.dram_gbps, found.l3_gbps) == (None, None, None)
    assert cpu.lanes in (4, 8, 16) and cpu.vector_registers in (16, 32)
    assert 8 << 10 <= cpu.l1d_bytes < cpu.l2_bytes <= 64 << 20
    assert cpu.l3_bytes == 0 or cpu.l3_bytes > cpu.l2_bytes


def test_measuring_finds_peak_and_bandwidths() -> None:
    found = replace(Hardware.detect(), name="here")
    assert found.source == "detected and measured"
    assert found.peak_gflops is not None and found.peak_gflops > 1
    assert found.dram_gbps is not None and found.dram_gbps > 0
    assert found.l3_gbps is not None and found.l3_gbps > 0
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("name", Hardware.presets())
def test_preset_loads_with_its_source_and_survives_json(name: str, tmp_path: Path) -> None:
    preset = Hardware.preset(name)
    assert preset.source and preset.peak_gflops and preset.dram_gbps
    assert preset.kind in ("cpu", "cuda")
    preset.save(tmp_path / "hardware.json")
    assert Hardware.load(tmp_path / "hardware.json") == preset


def test_presets_cover_the_machines_that_are_not_here() -> None:
    assert {"t4", "a100", "h100", "h200", "cascadelake-1core", "zen4-1core"} <= set(Hardware.presets())


def test_unknown_preset_is_named_with_the_known_ones() -> None:
    with pytest.raises(HardwareError, match=r"one of .*cascadelake-1core.*; got 'z80'"):
        Hardware.preset("z80")


def test_total_is_the_peak_of_all_cores_and_the_roofline_takes_the_slower_side() -> None:
    two = Hardware("m", "s", 2, CpuLimits(**LIMITS), peak_gflops=100.0, dram_gbps=10.0)  # type: ignore[arg-type]
    assert two.total_gflops == 200 and two.with_cores(4).total_gflops == 400
    assert two.roofline_seconds(200e9, 1.0) == pytest.approx(1.0)
    assert two.roofline_seconds(1.0, 30e9) == pytest.approx(3.0)
    assert replace(two, peak_gflops=None).roofline_seconds(1.0, 1.0) is None
    assert replace(two, peak_gflops=None).total_gflops is None


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"vector_bytes": 24}, "16, 32 or 64 bytes; got 24"),
        ({"vector_registers": 0}, "vector_registers is positive; got 0"),
        ({"l1d_bytes": -1}, "l1d_bytes is positive; got -1"),
        ({"l2_bytes": 0}, "l2_bytes is positive"),
    ],
)
def test_contradicting_limits_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HardwareError, match=complaint):
        CpuLimits(**{**LIMITS, **changed})


@pytest.mark.parametrize(
    "changed", [{"cores": 0}, {"peak_gflops": 0.0}, {"dram_gbps": -1.0}, {"l3_gbps": float("nan")}]
)
def test_figure_that_is_not_positive_is_refused(changed: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "name": "m",
        "source": "s",
        "cores": 1,
        "limits": CpuLimits(**LIMITS),
        **changed,
    }  # type: ignore[arg-type]
    with pytest.raises(HardwareError, match=f"{next(iter(changed))} is positive"):
        Hardware(**fields)


def test_gpu_is_refused_where_a_cpu_is_needed() -> None:
    with pytest.raises(HardwareError, match="this stage needs a CPU; got NVIDIA T4"):
        Hardware.preset("t4").cpu  # noqa: B018


GOOD = Hardware.preset("haswell-1core").to_json()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "readable JSON"),
        ("{", "readable JSON"),
        ("[1, 2]", "one JSON object"),
        ("null", "one JSON object"),
        ("{}", "all fields of Hardware"),
        (json.dumps({**GOOD, "schema_version": 99}), "schema 1; got 99"),
        (json.dumps({**GOOD, "kind": "tpu"}), "all fields"),
        (json.dumps({**GOOD, "limits": {}}), "all fields"),
        (json.dumps({**GOOD, "limits": None}), "all fields"),
        (json.dumps({**GOOD, "colour": "red"}), "all fields"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "cores"}), "all fields"),
        (json.dumps({**GOOD, "cores": "two"}), "hardware|fields|positive"),
    ],
)
def test_broken_or_foreign_file_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    path.write_text(text)
    with pytest.raises(HardwareError, match=complaint):
        Hardware.load(path)


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="readable JSON"):
        Hardware.load(tmp_path / "nowhere.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HardwareError, match="readable JSON"):
        Hardware.load(tmp_path / "binary")
