"""The explorers of the roofline and of waves: what they show is what bounds and occupancy say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import python
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, HardwareError, RecordError, WorkloadError
from dietlab.base.shipped import data_path
from dietlab.compare.results import ResultTable
from dietlab.compare.results.report import Report
from dietlab.cost import adaptation_cost, f_occ
from dietlab.machine import Hardware
from dietlab.measure import read_records
from dietlab.measure.record_files import RecordFile
from dietlab.problem import BatchMatmul, Dense, Dim, Shape
from dietlab.scheme import Scheme
from dietlab.targets.cuda.occupancy import block_bounds, blocks_per_sm
from dietlab.targets.cuda.view.waves import (
    MOST_ROUNDS,
    Waves,
    frame_wave_times,
    frame_waves,
    occupancy_of,
    plot_waves,
)
from dietlab.targets.cuda.view.waves_explorer import MOST_KEYS, OWN, waves_explorer
from dietlab.view.figures.roofline import (
    LENGTHS,
    ceilings,
    frame_below_roofline,
    frame_roofline,
    plot_roofline,
    tile_intensity,
    tile_level,
)
from dietlab.view.widgets.roofline_explorer import roofline_explorer

LAYER = Dense(T=Dim(1, 2048), N=2304, K=768)
SCORES = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nt")
EVERY = Dense(T=Dim(1, 128), N=Dim(64, 4096), K=768)
ZEN, H200 = Hardware.preset("zen4-1core"), Hardware.preset("h200")
TALL = Scheme.from_key("128x256x64.p2x1.s4.even")


@cache
def zen4() -> Report:
    return ResultTable.load(data_path("results/zen4-bench.csv.gz")).report("dense-k768-n2304", 1)


@cache
def bf16() -> RecordFile:
    return read_records(data_path("h200/bf16-later/records.jsonl.gz"))


def trace(figure: Any, beginning: str) -> Any:
    return next(t for t in figure.data if t.name and t.name.startswith(beginning))


# --- the roofline -----------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 5000), st.sampled_from(["zen4-1core", "haswell-1core", "h200", "t4"]))
def test_a_roof_is_the_lower_of_bandwidth_and_peak(length: int, name: str) -> None:
    hardware = Hardware.preset(name)
    frame = frame_roofline(LAYER, hardware, [length])
    shape = Shape.of(T=length)
    roof = hardware.roofline(LAYER.flops(shape), LAYER.bytes(shape))
    assert roof is not None and hardware.total_gflops is not None
    memory = frame[frame["level"] == "memory"].iloc[0]
    assert memory["gflops"] == pytest.approx(LAYER.flops(shape) / roof.least_seconds("rotating") / 1e9)
    assert (frame["gflops"] <= hardware.total_gflops).all()
    assert frame["gbps"].is_monotonic_increasing and frame["gflops"].is_monotonic_increasing
    reached = (frame["gflops"] == hardware.total_gflops).tolist()
    assert (frame["bound"] == "peak").tolist() == reached


def test_a_layer_is_bound_by_memory_first_and_by_multiply_adds_later() -> None:
    for work in (LAYER, SCORES):
        frame = frame_roofline(work, ZEN)
        cold = frame[frame["level"] == "memory"]
        assert cold["T"].tolist() == list(LENGTHS) and cold["intensity"].is_monotonic_increasing
        assert cold["bound"].iloc[0] == "memory" and cold["bound"].iloc[-1] == "peak"


def test_ceilings_follow_cores() -> None:
    one, two = ceilings(ZEN), ceilings(ZEN.with_cores(2))
    assert [c.level for c in one] == ["memory", "L3", "L1"]
    assert [b.gbps / a.gbps for a, b in zip(one, two, strict=True)] == [1, 2, 2]
    assert [c.level for c in ceilings(H200)] == ["memory", "L2", "shared memory"]
    assert [c.level for c in ceilings(replace(ZEN, l3_gbps=None))] == ["memory", "L1"]


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 512), st.integers(1, 512))
def test_squares_reuse_most(rows: int, cols: int) -> None:
    assert tile_intensity(rows, cols) == pytest.approx(tile_intensity(cols, rows))
    assert tile_intensity(rows, cols) <= tile_intensity(max(rows, cols), max(rows, cols))
    assert tile_intensity(rows, cols, "float16") == pytest.approx(2 * tile_intensity(rows, cols))
    assert tile_level(ZEN).level == "L1" and tile_level(H200).level == "L2"


def test_measured_calls_are_those_of_the_report() -> None:
    frame, report = frame_below_roofline(zen4()), zen4()
    ours = [row for row in report.rows if row.contender == "dietlab"]
    assert len(frame) == len(ours) and set(frame["cache"]) == set(report.caches)
    assert frame["gflops"].tolist() == [row.gflops for row in ours]
    # A warm call passes the roof of memory, and not that of the cache it comes from.
    cold = frame_roofline(LAYER, report.processor, [1]).set_index("level")["gflops"]
    warm = frame[(frame["T"] == 1) & (frame["cache"] == "interleaved")]["gflops"].iloc[0]
    assert 2 * cold["memory"] < warm <= cold["L3"]


def test_the_roofline_is_drawn_on_logarithmic_axes() -> None:
    figure = plot_roofline(LAYER, ZEN, zen4(), 64, (8, 32))
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    memory = trace(figure, "memory: ")
    low, ridge = memory.x
    assert memory.y[0] / low == pytest.approx(ZEN.dram_gbps) and memory.y[1] == ZEN.total_gflops
    assert ridge == pytest.approx(ZEN.total_gflops / ZEN.dram_gbps)
    assert len(trace(figure, "measured, operands from memory").x) > 20
    assert trace(figure, "a tile of 8 x 32").y[0] == ZEN.total_gflops


def test_the_roofline_explorer_shows_what_it_computes() -> None:
    explorer = roofline_explorer(LAYER, ZEN, [zen4()])
    plain, measured = explorer.controls["study"].options
    assert explorer.values["study"] == measured and "105 % (rotating)" in explorer.drawn.note
    assert "Above 100 %" in explorer.drawn.note
    explorer.set(study=plain, length=64)
    assert "Nothing was measured" in explorer.drawn.note and set(explorer.frame["T"]) == {64}
    explorer.live.clicked = {"trace": 0, "point": 3}
    assert explorer.values["length"] == LENGTHS[3]
    for nothing in ({"trace": 0, "point": len(LENGTHS)}, {"trace": 2, "point": 1}):
        explorer.live.clicked = nothing
        assert explorer.values["length"] == LENGTHS[3]


def test_a_roofline_that_cannot_be_drawn_is_refused() -> None:
    unknown = replace(ZEN, dram_gbps=None)
    with pytest.raises(HardwareError, match="a peak and a bandwidth of memory"):
        roofline_explorer(LAYER, unknown)
    halves = replace(H200, limits=replace(H200.limits, half_gflops=None))
    with pytest.raises(HardwareError, match="a roofline of float16 needs a peak"):
        frame_roofline(replace(LAYER, dtype="float16"), halves)
    with pytest.raises(WorkloadError, match="one dynamic dimension"):
        roofline_explorer(EVERY, ZEN)
    with pytest.raises(RecordError, match="measured layers are reports"):
        roofline_explorer(LAYER, ZEN, ["zen4-bench"])  # type: ignore[list-item]
    with pytest.raises(WorkloadError, match="a call on a roofline needs rows"):
        frame_roofline(LAYER, ZEN, [0])
    with pytest.raises(WorkloadError, match="a tile must have rows"):
        tile_intensity(0, 8)


# --- waves ------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 5000), st.integers(1, 200), st.integers(1, 32))
def test_waves_pay_for_all_their_places(blocks: int, multiprocessors: int, resident: int) -> None:
    launch = Waves(blocks, multiprocessors, resident)
    assert launch.places * (launch.waves - 1) < max(1, blocks) <= max(1, launch.places * launch.waves)
    assert 0 <= launch.empty < 1 and launch.last_blocks <= launch.places
    if blocks:
        assert launch.last_blocks >= 1
        assert 1 - launch.empty == pytest.approx(f_occ(blocks, multiprocessors))


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 4096), st.sampled_from([32, 64, 128, 168, None]))
def test_rounds_have_all_blocks(length: int, registers: int | None) -> None:
    work, scheme = bf16().workload, Scheme.from_key("64x64x64.w2x2.s3.even")
    frame = frame_waves(work, H200, scheme, length, registers)
    assert frame["blocks"].sum() == -(-length // 64) * 64
    assert (frame["blocks"] + frame["idle"] == H200.cores).all() and (frame["idle"].iloc[:-1] == 0).all()
    held = occupancy_of(scheme.kernel, work, H200, registers).blocks
    assert frame["wave"].iloc[-1] == -(-len(frame) // held)


def test_occupancy_names_its_limit() -> None:
    kernel = Scheme.from_key("128x64x16.t16x16.s3").kernel
    fits = occupancy_of(kernel, LAYER, H200)
    assert fits.blocks == blocks_per_sm(H200.limits, kernel.threads, fits.registers, fits.shared_bytes)
    assert fits.bounds[fits.by] == fits.blocks == min(fits.bounds.values())
    assert fits.bounds == block_bounds(H200.limits, kernel.threads, fits.registers, fits.shared_bytes)
    assert occupancy_of(kernel, LAYER, H200, 32).by == "shared memory"
    assert occupancy_of(kernel, LAYER, H200, 255).by == "registers"


def test_a_row_beyond_a_full_wave_costs_another() -> None:
    work, chip = bf16().workload, bf16().hardware
    frame = frame_wave_times(work, chip, TALL, lengths=[1024, 1025, 1088]).set_index("T")
    assert frame["waves"].tolist() == [1, 2, 2] and frame["blocks"].tolist() == [128, 144, 144]
    assert frame["expected_seconds"][1088] > 1.8 * frame["expected_seconds"][1024]
    expected = adaptation_cost(work, chip, cache="rotating", resident={TALL.kernel: 1})
    assert frame["expected_seconds"][1024] == expected.bound([TALL], [Shape.of(T=1024)])[0, 0]


def test_measured_times_stand_at_their_lengths() -> None:
    run = bf16()
    frame = frame_wave_times(run.workload, run.hardware, TALL, run.records)
    known = frame[frame["measured_seconds"].notna()].set_index("T")
    assert {1, 1024, 2048, 4096} <= set(known.index)
    at = [r.seconds for r in run.records if r.ok and r.scheme == TALL and r.shape["T"] == 1024]
    assert known["measured_seconds"][1024] == min(at)
    ratio = known["measured_seconds"] / known["expected_seconds"]
    assert ratio[[1024, 2048, 4096]].between(0.9, 1.1).all()
    assert frame_wave_times(run.workload, run.hardware, TALL)["measured_seconds"].isna().all()


def test_the_grid_shows_what_stays_empty() -> None:
    run = bf16()
    cells = np.array(plot_waves(run.workload, run.hardware, TALL, 1088, records=run.records).data[0].z)
    assert cells.shape == (2, 132) and (cells[0] == 1).all()
    assert (cells[1] == 2).sum() == 12 and (cells[1] == 0).sum() == 120
    low = Scheme.from_key("64x64x64.p1x1.s6.even")
    t4 = replace(run.hardware, cores=4)
    many = plot_waves(run.workload, t4, low, 4096)
    assert np.array(many.data[0].z).shape == (MOST_ROUNDS, 4) and "not drawn" in many.layout.yaxis.title.text


def test_the_waves_explorer_shows_what_it_computes() -> None:
    run = bf16()
    explorer = waves_explorer(run.workload, run.hardware, run.records)
    assert explorer.drawn.numbers["waves"] == "1 of 132 places, 128 blocks in the last"
    explorer.set(length=1088)
    assert explorer.drawn.numbers["waves"] == "2 of 132 places, 12 blocks in the last"
    assert explorer.frame["measured_seconds"].notna().any()  # it was measured, too
    keys = explorer.controls["scheme"].options
    assert keys[0] == OWN and 1 < len(keys) <= 1 + MOST_KEYS
    explorer.set(scheme=keys[1])
    assert explorer.figure.layout.title.text.startswith(keys[1])
    explorer.set(scheme=OWN, registers=255)
    assert "Not one block fits a multiprocessor, by registers" in explorer.drawn.note


def test_units_follow_the_gpu() -> None:
    explorer = waves_explorer(bf16().workload, bf16().hardware, bf16().records)
    explorer.set(chip=Hardware.preset("a100").name)
    assert explorer.values["unit"] == "mma" and explorer.controls["unit"].options == ("mma",)
    assert explorer.frame["measured_seconds"].isna().all()  # on another GPU
    explorer.set(chip=Hardware.preset("t4").name)
    assert "tensor cores" in explorer.drawn.note or "Not one block" in explorer.drawn.note
    explorer.set(chip=bf16().hardware.name)
    explorer.set(unit="wgmma", splits=2)
    assert explorer.figure.layout.title.text.split(" ")[0].endswith(".k2.even")
    assert len(explorer.frame)


def test_a_gpu_of_other_units_names_their_workers_and_gives_the_tile_back() -> None:
    run = bf16()
    explorer = waves_explorer(run.workload, run.hardware)
    before, (down, across) = explorer.state(), (explorer.controls[name] for name in ("down", "across"))
    assert (down.description, across.description) == ("groups down", "groups across")
    explorer.controls["chip"].value = Hardware.preset("a100").name
    assert (down.description, across.description) == ("warps down", "warps across")
    explorer.controls["chip"].value = run.hardware.name
    assert explorer.state() == before
    assert (down.description, across.description) == ("groups down", "groups across")


def test_what_has_no_waves_is_refused() -> None:
    with pytest.raises(HardwareError, match="the stage needs a GPU"):
        waves_explorer(LAYER, ZEN)
    with pytest.raises(WorkloadError, match="exactly one dynamic dimension"):
        waves_explorer(EVERY, H200)
    cpu = read_records(data_path("quickstart/records.jsonl.gz")).records[:1]
    for wrong in (cpu, ["128x64x16.t16x16.s3"]):
        with pytest.raises(RecordError, match="records of thread blocks"):
            waves_explorer(LAYER, H200, wrong)
    with pytest.raises(DietlabError, match="no negative sizes"):
        occupancy_of(TALL.kernel, LAYER, H200, -1)
    with pytest.raises(WorkloadError, match="a length must be 0 or more"):
        frame_waves(LAYER, H200, TALL, -1)


def test_importing_is_light() -> None:
    code = """import sys, dietlab.view.figures.roofline, dietlab.targets.cuda.view.waves
import dietlab.view.widgets.roofline_explorer, dietlab.targets.cuda.view.waves_explorer
assert not {'plotly', 'ipywidgets', 'pandas', 'tvm', 'matplotlib'} & set(sys.modules)"""
    python("-c", code)
