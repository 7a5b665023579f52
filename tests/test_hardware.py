"""Descriptions of processors: detected, measured, preset, saved and refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware, system
from dietlab.machine.instruction_sets import FAMILIES, LINUX_NAMES, X86_WIDE, used
from dietlab.problem import PRECISIONS
from dietlab.targets.cpu import machine as detect
from dietlab.targets.cpu.limits import CpuLimits, cpu_of
from dietlab.targets.cpu.units import UNITS
from dietlab.targets.cuda import machine as detect_gpu
from dietlab.targets.cuda.limits import GpuLimits, gpu_of

SIZES = {"l1d_bytes": 32768, "l2_bytes": 262144, "l3_bytes": 8388608}
LIMITS: dict[str, Any] = {"llvm_cpu": "haswell", "vector_bytes": 32, "vector_registers": 16, **SIZES}


def test_detected_processor_is_sane() -> None:
    found = Hardware.detect(measure=False)
    cpu = found.limits
    assert found.kind == "cpu" and found.source == "detected" and found.name
    assert found.cores == system.usable_cores() <= len(os.sched_getaffinity(0))
    assert (found.peak_gflops, found.dram_gbps, found.l3_gbps) == (None, None, None)
    assert cpu.lanes in (4, 8, 16) and cpu.vector_registers in (16, 32)
    assert 8 << 10 <= cpu.l1d_bytes < cpu.l2_bytes <= 64 << 20
    assert cpu.l3_bytes == 0 or cpu.l3_bytes > cpu.l2_bytes


FAMILY = {family.llvm_cpu: family for family in FAMILIES}
AVX2_FLAGS, AVX512_FLAGS = (FAMILY[name].instructions for name in ("haswell", "cooperlake"))
AMX_FLAGS = FAMILY["sapphirerapids"].instructions | FAMILY["sapphirerapids"].matrix


@pytest.mark.parametrize(
    ("flags", "permitted", "family"),
    [
        (AVX2_FLAGS, True, "haswell"),
        (AVX2_FLAGS | {"sse4a"}, True, "znver3"),
        (AVX512_FLAGS, True, "cooperlake"),
        (FAMILY["znver4"].instructions, True, "znver4"),
        (AMX_FLAGS, True, "sapphirerapids"),
        (AMX_FLAGS, False, "cooperlake"),
        # A virtual machine that hides one of the instruction sets that the compiler would use.
        (AMX_FLAGS - {"gfni"}, True, "cooperlake"),
        (AVX512_FLAGS - {"avx512dq"}, True, "haswell"),
    ],
)
def test_families_are_told_by_flags_and_amx_by_the_system_too(
    flags: frozenset[str], permitted: bool, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "amx_permitted", lambda: permitted)
    assert detect._vector_unit("x86_64", flags)[0] == family


def test_processor_without_what_every_family_has_is_refused_by_name() -> None:
    with pytest.raises(HardwareError, match=r"AVX2 with FMA, .*; got x86_64 without bmi2\. Use a preset"):
        detect._vector_unit("x86_64", AVX2_FLAGS - {"bmi2"})


def groups(folder: Path, files: dict[str, str]) -> Path:
    """A folder of control groups, and beside it the file that says which are a process's."""
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "cgroup"


V1 = {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        # Version 2: a container sees its own group as the root of all.
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        # The least of the group and of those above it counts.
        ("0::/a/b\n", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "300000 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "max 100000\n"}, 4.0),
        # Version 1, whose folder is named after one controller or two; its path may be the host's.
        ("4:cpu,cpuacct:/\n", {f"cpu,cpuacct/{name}": text for name, text in V1.items()}, 1.5),
        ("2:cpuset:/\n1:cpu:/docker/7\n0::/\n", {f"cpu/{name}": text for name, text in V1.items()}, 1.5),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("1:cpu:/\n0::/\n", {"unified/cpu.max": "100000 100000\n"}, 1.0),
        # Another controller's group, a group outside of the folder, and what is damaged.
        ("3:memory:/a\n", {"memory/a/cpu.max": "100000 100000\n"}, None),
        ("0::/../../elsewhere\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/\n", {"cpu.max": "200000\n"}, None),
        ("0::/\n", {"cpu.max": "200000 0\n"}, None),
        ("rubbish\n", {"cpu.max": "rubbish"}, None),
    ],
)
def test_quota_of_a_container_is_that_of_its_groups(
    own: str, files: dict[str, str], cores: float | None, tmp_path: Path
) -> None:
    mounted, said = groups(tmp_path, files), tmp_path / "own"
    said.write_text(own)
    assert system.quota(mounted, said) == cores
    here = len(os.sched_getaffinity(0))
    assert system.usable_cores(mounted, said) == (here if cores is None else max(1, min(here, int(cores))))


MEMORY_V1 = {
    "memory.limit_in_bytes": "900",
    "memory.usage_in_bytes": "8",
    "memory.stat": "total_active_file 7\ntotal_inactive_file 1\n",
}
STAT = "active_file 100\ninactive_file 20\nanon 5\n"


@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        ("0::/\n", {"memory.max": "5000", "memory.current": "3000", "memory.stat": STAT}, 2120),
        ("0::/\n", {"memory.max": "max", "memory.current": "3000", "memory.stat": STAT}, 1 << 50),
        ("0::/a\n", {"a/memory.max": "50", "a/memory.current": "300", "a/memory.stat": ""}, 0),
        ("4:memory:/docker/7\n", {f"memory/{name}": text for name, text in MEMORY_V1.items()}, 900),
        ("4:cpu:/\n", {"cpu/memory.limit_in_bytes": "900", "cpu/memory.usage_in_bytes": "8"}, 1 << 50),
        ("0::/\n", {"memory.max": "5000", "memory.current": "rubbish"}, 1 << 50),
    ],
)
def test_free_memory_is_what_the_groups_of_a_container_leave(
    own: str, files: dict[str, str], free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system.psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 50))
    mounted, said = groups(tmp_path, files), tmp_path / "own"
    said.write_text(own)
    assert system.free_bytes(mounted, said) == free


def test_detection_counts_the_cores_of_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for limit, cores in ((None, 16), (3.5, 3), (0.25, 1), (64.0, 16)):
        monkeypatch.setattr(system, "quota", lambda *_, limit=limit: limit)
        assert Hardware.detect(measure=False).cores == cores


def test_families_are_what_llvm_compiles_for() -> None:
    """The instruction sets of a family are those that LLVM may use for it; AMX is asked for by its units."""
    tvm_ffi, target = pytest.importorskip("tvm_ffi"), pytest.importorskip("tvm").target.Target
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")
    for family in FAMILIES:
        triple = {"mtriple": "aarch64-linux-gnu"} if family.machine == "aarch64" else {}
        told = features(target({"kind": "llvm", "mcpu": family.llvm_cpu, **triple}))
        assert used(map(str, told)) == family.instructions, family.llvm_cpu
    # Every name of a vector instruction set that LLVM knows is known here, too.
    known = set().union(*(unit.instructions for unit in UNITS.values()))
    assert known == FAMILY["sapphirerapids"].matrix
    names = map(str, tvm_ffi.get_global_func("target.llvm_get_cpu_archlist")(target("llvm")))
    every = {str(name) for cpu in names for name in features(target({"kind": "llvm", "mcpu": cpu}))}
    strange = {name for name in every if name.startswith(X86_WIDE) and name not in LINUX_NAMES}
    assert strange == {"sse", "sse2", "avx10.1", "avx10.2"}


def test_measuring_finds_peak_and_bandwidths() -> None:
    found = replace(Hardware.detect(), name="here")
    assert found.source == "detected and measured"
    assert found.peak_gflops is not None and found.peak_gflops > 1
    assert found.dram_gbps is not None and found.dram_gbps > 0
    assert found.l3_gbps is not None and found.l3_gbps > 0
    assert found.l3_mib is None or found.last_level_bytes == round(found.l3_mib * MIB)
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found


@given(
    st.integers(2, 12),
    st.integers(2, 12),
    st.floats(1.5, 10),
    st.lists(st.floats(0.9, 1), min_size=24, max_size=24),
    st.integers(0, 23),
)
def test_the_last_level_ends_where_the_bandwidth_falls(
    cached: int, beyond: int, ratio: float, noise: list[float], disturbed: int
) -> None:
    """Nearly, where one size between others was twice as slow."""
    sizes = [1 << (16 + i) for i in range(cached + beyond)]
    speeds = [(ratio if i < cached else 1.0) * noise[i] for i in range(len(sizes))]
    if 0 < disturbed < len(sizes) - 1 and min(cached, beyond) > 2:
        speeds[disturbed] /= 2
    cached_bytes = pytest.importorskip("dietlab.targets.cpu.probe").cached_bytes
    found = cached_bytes(dict(zip(sizes, speeds, strict=True)))
    assert found in (sizes[cached - 1], sizes[cached - 2])
    assert found == sizes[cached - 1] or disturbed == cached - 1


@given(st.floats(1, 1e4), st.floats(1, 1e4), st.integers(1, 64))
def test_programs_depend_on_a_coarse_ratio_of_speeds(peak: float, bandwidth: float, cores: int) -> None:
    known = {"cores": cores, "peak_gflops": peak, "dram_gbps": bandwidth, "l3_mib": 2.5}
    measured = replace(Hardware.preset("haswell-1core"), **known)
    programmed = measured.as_programmed()
    assert (programmed.limits, programmed.cores) == (measured.limits, cores)
    assert programmed.total_gflops and programmed.dram_gbps
    ratio = programmed.total_gflops / programmed.dram_gbps * bandwidth / (peak * cores)
    assert 2**-0.2501 <= ratio <= 2**0.2501
    assert programmed.as_programmed() == programmed
    faster = replace(measured, peak_gflops=2 * peak, dram_gbps=2 * bandwidth, l3_gbps=1.0)
    assert faster.as_programmed() == programmed


def test_a_curve_without_an_edge_tells_of_no_last_level() -> None:
    cached_bytes = pytest.importorskip("dietlab.targets.cpu.probe").cached_bytes
    assert cached_bytes({1 << i: 20.0 - 0.1 * i for i in range(20)}) is None
    told = replace(Hardware.preset("haswell-1core"), l3_mib=2.5)
    assert told.last_level_bytes == 5 * MIB // 2 and told.is_same_as(Hardware.preset("haswell-1core"))
    assert ("l3", "2.5 MiB") in told.table().items


@pytest.mark.parametrize("name", Hardware.presets())
def test_preset_loads_with_its_source_and_survives_json(name: str, tmp_path: Path) -> None:
    """Its name counts no cores: ``with_cores`` changes their number, and the name stays."""
    preset = Hardware.preset(name)
    assert preset.source and preset.peak_gflops and preset.dram_gbps
    assert preset.kind in ("cpu", "cuda")
    preset.save(tmp_path / "hardware.json")
    assert Hardware.load(tmp_path / "hardware.json") == preset
    assert not re.search(r"\bcores?\b", preset.with_cores(64).name)


def test_presets_cover_the_machines_that_are_not_here() -> None:
    known = {"t4", "rtx3090", "a100", "h100", "h200", "cascadelake-1core", "zen4-1core"}
    assert known <= set(Hardware.presets())


KIB, MIB = 1 << 10, 1 << 20
ARCHES = {"9.0": "90a"}
"""Architectures with instructions of their own, which are compiled for."""


@pytest.mark.parametrize(
    ("name", "capability", "block_kib", "sm_kib", "threads", "blocks", "l2_mib"),
    [
        ("t4", "7.5", 64, 64, 1024, 16, 4),
        ("rtx3090", "8.6", 99, 100, 1536, 16, 6),
        ("a100", "8.0", 163, 164, 2048, 32, 40),
        ("h100", "9.0", 227, 228, 2048, 32, 50),
        ("h200", "9.0", 227, 228, 2048, 32, 50),
    ],
)
def test_gpu_presets_are_the_programming_guides_table(
    name: str, capability: str, block_kib: int, sm_kib: int, threads: int, blocks: int, l2_mib: int
) -> None:
    gpu = Hardware.preset(name).limits
    assert gpu.compute_capability == capability
    assert gpu.arch == "sm_" + ARCHES.get(capability, capability.replace(".", ""))
    assert (gpu.smem_per_block_bytes, gpu.smem_per_sm_bytes) == (block_kib * KIB, sm_kib * KIB)
    assert (gpu.threads_per_sm, gpu.blocks_per_sm, gpu.l2_bytes) == (threads, blocks, l2_mib * MIB)
    assert (gpu.threads_per_block, gpu.warp_threads, gpu.register_unit) == (1024, 32, 256)
    assert gpu.registers_per_sm == gpu.registers_per_block == 64 * KIB and gpu.registers_per_thread == 255
    # What the driver reserves is the difference between a block's and a multiprocessor's shared memory.
    assert gpu.smem_reserved_bytes == gpu.smem_per_sm_bytes - gpu.smem_per_block_bytes
    assert gpu.smem_unit_bytes == (256 if capability == "7.5" else 128)


TFLOPS = {
    "t4": (8.1, 65),
    "rtx3090": (35.6, 71),
    "a100": (19.5, 312),
    **dict.fromkeys(("h100", "h200"), (66.9, 989.4)),
}
"""Of whole GPUs, in float32 and in halves."""


@pytest.mark.parametrize("name", TFLOPS)
def test_peaks_of_gpu_presets_are_those_of_one_multiprocessor(name: str) -> None:
    float32_tflops, half_tflops = TFLOPS[name]
    preset = Hardware.preset(name)
    assert preset.total_gflops == pytest.approx(1e3 * float32_tflops, rel=1e-3)
    assert preset.limits.half_gflops is not None
    assert preset.limits.half_gflops * preset.cores == pytest.approx(1e3 * half_tflops, rel=1e-3)
    known = {dtype: preset.peak_for(dtype) for dtype in PRECISIONS}
    half = preset.limits.half_gflops
    bfloat16 = None if name == "t4" else half  # Turing has no instruction for it
    assert known == {"float32": preset.peak_gflops, "float16": half, "bfloat16": bfloat16, "int8": None}
    assert preset.roofline(1.0, 1.0, "int8") is None


def test_total_is_the_peak_of_all_cores_and_the_roofline_takes_the_slower_side() -> None:
    two = Hardware("m", "s", 2, CpuLimits(**LIMITS), 100.0, 10.0, 40.0)  # type: ignore[arg-type]
    assert two.total_gflops == 200 and two.with_cores(4).total_gflops == 400
    busy, moving = two.roofline(200e9, 1.0), two.roofline(1.0, 40e9)
    assert busy and moving
    states = ("hot", "interleaved", "rotating")
    assert [busy.least_seconds(cache) for cache in states] == pytest.approx([1.0, 1.0, 1.0])
    assert [moving.least_seconds(cache) for cache in states] == pytest.approx([5e-12, 0.5, 4.0])
    assert replace(two, peak_gflops=None).roofline(1.0, 1.0) is None
    gpu = Hardware.preset("h100")
    single, half = (gpu.roofline(1e12, 1.0, dtype) for dtype in ("float32", "float16"))
    assert single and half and single.compute_seconds > 10 * half.compute_seconds
    assert replace(two, peak_gflops=None).total_gflops is None


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"vector_bytes": 24}, "16, 32 or 64 bytes; got 24"),
        ({"vector_registers": 0}, "vector_registers must be positive; got 0"),
        ({"l1d_bytes": -1}, "l1d_bytes must be positive; got -1"),
        ({"l2_bytes": 0}, "l2_bytes must be positive"),
    ],
)
def test_contradicting_limits_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HardwareError, match=complaint):
        CpuLimits(**{**LIMITS, **changed})


@pytest.mark.parametrize(
    "changed",
    [{"cores": 0}, {"peak_gflops": 0.0}, {"dram_gbps": -1.0}, {"l3_gbps": float("nan")}, {"l3_mib": 0.0}],
)
def test_figure_that_is_not_positive_is_refused(changed: dict[str, Any]) -> None:
    fields = {"name": "m", "source": "s", "cores": 1, "limits": CpuLimits(**LIMITS), **changed}
    with pytest.raises(HardwareError, match=f"{next(iter(changed))} must be positive"):
        Hardware(**fields)


@pytest.mark.parametrize("preset", ["haswell-1core", "a100"])
@pytest.mark.parametrize("wrong", ["fast", True, [1], {}])
def test_a_field_of_a_file_that_is_no_number_is_named(preset: str, wrong: object) -> None:
    value = Hardware.preset(preset).to_json()
    strings = ("name", "source", "kind", "schema_version", "llvm_cpu", "vector_bytes", "compute_capability")
    for part in (value, value["limits"]):
        for name in [name for name in part if name not in (*strings, "limits")]:
            kept = part[name]
            part[name] = wrong
            with pytest.raises(
                HardwareError, match=f"^{name} must be a number; got {re.escape(repr(wrong))}"
            ):
                Hardware.from_json(value)
            part[name] = kept


def test_gpu_is_refused_where_a_cpu_is_needed_and_the_other_way_round() -> None:
    with pytest.raises(HardwareError, match=r"the stage needs a CPU; got NVIDIA T4\. Use Hardware\.detect"):
        cpu_of(Hardware.preset("t4"))
    with pytest.raises(HardwareError, match=r"needs a GPU; got a CPU .* Use Hardware.detect\('cuda'\)"):
        gpu_of(Hardware.preset("haswell-1core"))
    assert cpu_of(Hardware.preset("haswell-1core")).lanes == 8


def test_last_level_is_the_cache_before_memory() -> None:
    assert Hardware.preset("haswell-1core").last_level_bytes == 8 * MIB
    cpu = Hardware.preset("haswell-1core")
    assert replace(cpu, limits=replace(cpu.limits, l3_bytes=0)).last_level_bytes == 256 * KIB
    assert Hardware.preset("a100").last_level_bytes == 40 * MIB


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"compute_capability": "sm_90"}, "reads like '9.0'; got 'sm_90'"),
        ({"compute_capability": 9.0}, "reads like '9.0'; got 9.0"),
        ({"blocks_per_sm": 0}, "blocks_per_sm must be positive; got 0"),
        ({"registers_per_sm": -1}, "registers_per_sm must be positive"),
        ({"smem_unit_bytes": 0}, "smem_unit_bytes must be positive"),
        ({"register_unit": 0}, "register_unit must be positive"),
        ({"warp_threads": 0}, "warp_threads must be positive"),
        ({"smem_reserved_bytes": -1}, "smem_reserved_bytes must be 0 or more; got -1"),
        ({"half_gflops": 0.0}, "half_gflops must be positive; got 0.0"),
    ],
)
def test_contradicting_gpu_limits_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HardwareError, match=complaint):
        replace(Hardware.preset("h100").limits, **changed)


def test_gpu_file_of_an_earlier_version_names_what_it_lacks() -> None:
    value = Hardware.preset("a100").to_json()
    for name in ("blocks_per_sm", "register_unit", "half_gflops"):
        del value["limits"][name]
    with pytest.raises(HardwareError, match=r"got no blocks_per_sm, register_unit\. Describe it anew"):
        Hardware.from_json(value)
    value["limits"] = None
    with pytest.raises(HardwareError, match="all fields"):
        Hardware.from_json(value)


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
        (json.dumps({**GOOD, "kind": "tpu"}), "the target is one of cpu, cuda; got 'tpu'"),
        (json.dumps({**GOOD, "limits": {}}), "all of its limits; got no llvm_cpu"),
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
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere.json", "binary"):
        with pytest.raises(HardwareError, match="readable JSON"):
            Hardware.load(tmp_path / name)


# --- GPUs of this machine -----------------------------------------------------------------------

UNKNOWN, NO_DEVICE = 1, 100
CLOCKS = {
    "t4": (1590, 5001, 256),
    "rtx3090": (1695, 9751, 384),
    "a100": (1410, 1215, 5120),
    "h100": (1980, 2619, 5120),
}
"""Highest clocks of multiprocessors and memory in MHz, and the width of the memory's bus in bits."""


def attributes(preset: str) -> dict[int, int]:
    """What a driver would say about the device of a preset, by the number of the attribute."""
    hardware, (clock, memory, bus) = Hardware.preset(preset), CLOCKS[preset]
    major, minor = map(int, hardware.limits.compute_capability.split("."))
    limits = {number: getattr(hardware.limits, name) for name, number in detect_gpu.ATTRIBUTES.items()}
    return {
        **limits,
        detect_gpu.MULTIPROCESSORS: hardware.cores,
        detect_gpu.CLOCK_KHZ: 1000 * clock,
        detect_gpu.MEMORY_CLOCK_KHZ: 1000 * memory,
        detect_gpu.BUS_BITS: bus,
        detect_gpu.MAJOR: major,
        detect_gpu.MINOR: minor,
    }


class FakeDriver:
    """As much of ``libcuda`` as detection calls; each device is a name and its attributes."""

    def __init__(self, *devices: tuple[str, dict[int, int]], status: int = 0) -> None:
        self.devices, self.status = devices, status

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count.contents.value = len(self.devices)
        return 0

    def cuDeviceGet(self, handle: Any, device: int) -> int:
        handle.contents.value = 70 + device
        return 0

    def cuDeviceGetName(self, text: Any, size: int, handle: int) -> int:
        text.value = self.devices[handle - 70][0].encode()[: size - 1]
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, handle: int) -> int:
        known = self.devices[handle - 70][1]
        value.contents.value = known.get(number, 0)
        return 0 if number in known else UNKNOWN

    def cuGetErrorString(self, status: int, words: Any) -> int:
        words.contents.value = {UNKNOWN: b"invalid argument"}.get(status)
        return 0 if status == UNKNOWN else UNKNOWN


NAMES = {
    "t4": "Tesla T4",
    "rtx3090": "NVIDIA GeForce RTX 3090",
    "a100": "NVIDIA A100-SXM4-40GB",
    "h100": "NVIDIA H100 80GB HBM3",
}


@pytest.mark.parametrize("preset", NAMES)
def test_detected_gpu_is_what_its_preset_says(preset: str) -> None:
    name = NAMES[preset]
    found = detect_gpu.detect_gpu(driver=FakeDriver((name, attributes(preset))))
    expected = Hardware.preset(preset)
    assert (found.name, found.kind, found.cores) == (name, "cuda", expected.cores)
    assert found.limits == expected.limits and "detected" in found.source and preset in found.source
    assert found.peak_gflops == pytest.approx(expected.peak_gflops, rel=0.01)
    assert found.dram_gbps == pytest.approx(expected.dram_gbps, rel=0.01)
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_second_gpu_is_described_by_its_number() -> None:
    driver = FakeDriver(("Tesla T4", attributes("t4")), ("NVIDIA H100 80GB HBM3", attributes("h100")))
    assert detect_gpu.detect_gpu(1, driver).limits.arch == "sm_90a"
    assert detect_gpu.detect_gpu(0, driver).limits.arch == "sm_75"


def test_share_of_a_gpu_has_the_tensor_cores_of_the_whole() -> None:
    share = {**attributes("h100"), detect_gpu.MULTIPROCESSORS: 16}
    found = detect_gpu.detect_gpu(driver=FakeDriver(("NVIDIA H100 80GB HBM3 MIG 1g.10gb", share)))
    assert found.cores == 16 and found.limits.half_gflops == Hardware.preset("h100").limits.half_gflops


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA L4"])
def test_gpu_without_a_preset_has_unknown_tensor_cores(name: str) -> None:
    found = detect_gpu.detect_gpu(driver=FakeDriver((name, attributes("h100"))))
    assert found.limits.half_gflops is None and "tensor cores" not in found.source


@pytest.mark.parametrize(("capability", "lanes"), [((7, 0), 64), ((7, 5), 64), ((8, 0), 64), ((8, 9), 128)])
def test_float32_peak_follows_from_lanes_and_clock(capability: tuple[int, int], lanes: int) -> None:
    device = {**attributes("a100"), detect_gpu.MAJOR: capability[0], detect_gpu.MINOR: capability[1]}
    found = detect_gpu.detect_gpu(driver=FakeDriver(("a GPU", device)))
    assert found.peak_gflops == pytest.approx(2 * lanes * 1.41)
    assert found.limits.smem_unit_bytes == (256 if capability[0] == 7 else 128)


def test_driver_that_gives_no_clocks_leaves_the_peaks_unknown() -> None:
    device = {**attributes("t4"), detect_gpu.CLOCK_KHZ: 0, detect_gpu.MEMORY_CLOCK_KHZ: 0}
    found = detect_gpu.detect_gpu(driver=FakeDriver(("Tesla T4", device)))
    assert (found.peak_gflops, found.dram_gbps) == (None, None)


H100 = ("NVIDIA H100 80GB HBM3", attributes("h100"))
OLD = ("Tesla P100-PCIE-16GB", {**attributes("h100"), detect_gpu.MAJOR: 6})
EARLY = ("Tesla T4", {number: value for number, value in attributes("t4").items() if number != 111})


@pytest.mark.parametrize(
    ("driver", "device", "complaint"),
    [
        (FakeDriver(status=NO_DEVICE), 0, "got a driver, but no device. nvidia-smi -L"),
        (FakeDriver(), 0, "got a driver, but no device"),
        (FakeDriver(H100, status=803), 0, r"driver must answer; got cuInit: no words for it \(error 803\)"),
        (FakeDriver(H100), 1, "must be 0 to 0; got 1"),
        (FakeDriver(H100, H100), -1, "must be 0 to 1; got -1"),
        (FakeDriver(OLD), 0, "compute capability 7.0 or later; got Tesla P100-PCIE-16GB with 6.0"),
        (FakeDriver(EARLY), 0, r"cuDeviceGetAttribute\(111\): invalid argument \(error 1\). .* an update"),
    ],
)
def test_what_is_missing_for_a_gpu_is_said(driver: FakeDriver, device: int, complaint: str) -> None:
    with pytest.raises(HardwareError, match=complaint):
        detect_gpu.detect_gpu(device, driver)


def test_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_gpu, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    with pytest.raises(HardwareError, match=r"got no driver \(libcuda-that-is-nowhere.*or use a preset"):
        Hardware.detect("cuda")


def test_unknown_presets_and_targets_are_named_with_the_known_ones() -> None:
    with pytest.raises(HardwareError, match=r"one of .*cascadelake-1core.*; got 'z80'"):
        Hardware.preset("z80")
    with pytest.raises(HardwareError, match="the target is one of cpu, cuda; got 'tpu'"):
        Hardware.detect("tpu")


STUB = """
#include <string.h>
int cuInit(unsigned flags) {{ return flags; }}
int cuDeviceGetCount(int *count) {{ *count = 2; return 0; }}
int cuDeviceGet(int *handle, int device) {{ *handle = 70 + device; return 0; }}
int cuDeviceGetName(char *text, int size, int handle) {{
    strncpy(text, "Tesla T4", size);
    return handle != 71;
}}
int cuDeviceGetAttribute(int *value, int number, int handle) {{
    switch (number) {{ {cases} default: return 1; }}
    return handle != 71;
}}
int cuGetErrorString(int status, const char **words) {{ *words = "a stub's words"; return 0; }}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile a stub of libcuda")
def test_library_is_called_as_the_driver_api_wants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cases = " ".join(f"case {n}: *value = {v}; break;" for n, v in attributes("t4").items())
    (tmp_path / "stub.c").write_text(STUB.format(cases=cases))
    command = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "stub.c")]
    subprocess.run(command, check=True)
    monkeypatch.setattr(detect_gpu, "LIBRARY", str(tmp_path / "libcuda.so.1"))
    found = Hardware.detect("cuda", device=1)
    assert (found.name, found.cores, found.limits) == ("Tesla T4", 40, Hardware.preset("t4").limits)
    with pytest.raises(HardwareError, match=r"cuDeviceGetName: a stub's words \(error 1\)"):
        Hardware.detect("cuda", device=0)


def test_gpu_of_this_machine_is_described_or_missed() -> None:
    missed, found = "", None
    try:
        found = Hardware.detect("cuda")
    except HardwareError as error:
        missed = str(error)
    if found is None:
        assert any(words in missed for words in ("no driver", "no device", "driver must answer", "or later"))
    else:
        assert found.kind == "cuda" and found.cores >= 1 and found.limits.arch.startswith("sm_")
        assert found.limits.smem_per_block_bytes <= found.limits.smem_per_sm_bytes


def test_what_a_call_uses_is_counted_in_cores_and_in_whole_gpus() -> None:
    assert [CpuLimits.used(cores) for cores in (1, 2)] == ["one core", "2 cores"]
    assert GpuLimits.used(1) == GpuLimits.used(132) == "one GPU"
