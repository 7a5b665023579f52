"""The bound from a GPU's throughputs: a tile and a shape by hand, and what holds for all of them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from math import inf
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cuda_samples import DENSE, SCORES, cuda_kernels, typed
from hypothesis import given
from hypothesis import strategies as st
from schemes import cuda_scheme

from dietlab.cost import Analytic, adaptation_cost
from dietlab.lab.heuristics.agreement import frame_drafts, medians
from dietlab.lab.heuristics.nvidia import MODULE
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import Space, build_space, plan_for
from dietlab.targets.cuda.bound import (
    BESIDE,
    BESIDE_BULK,
    BULK_SPEED,
    CLUSTER_CYCLES,
    FETCH_CYCLES,
    LAUNCH_SECONDS,
    STALLED,
    START_CYCLES,
    STEP_CYCLES,
    UNIT_NUMBERS,
    BlockTiles,
    bound_seconds,
    busy_cycles,
    cluster_places,
    memory_seconds,
    pace,
    step_cycles,
    step_flops,
)
from dietlab.targets.cuda.cost import BoundedAdaptation
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import RATES
from dietlab.targets.cuda.rates import STREAMED, GpuRates, gpu_rates
from dietlab.tuning.state import SearchState
from dietlab.tuning.strategies.marginal import DraftStrategy

H100, H200, A100 = (Hardware.preset(name) for name in ("h100", "h200", "a100"))
CPU = Hardware.preset("cascadelake-1core")
BF16 = Dense(T=Dim(1, 512), N=4096, K=4096, dtype="bfloat16")
FP32 = Dense(T=Dim(16, 2048), N=2304, K=768)

PER_CYCLE = {"fma_macs": 128, "warp_macs": 1000, "group_macs": 2000, "l2_bytes": 32}
HAND = GpuRates(multiprocessors=10, hertz=1e9, memory_bytes=1e12, cache_bytes=4_000_000, **PER_CYCLE)


def tile(unit: str, **sizes: Any) -> BlockTiles:
    plain = {"splits": 1, "multicast": 1, "ending": 1, "persistent": False}
    given = {"unit": UNIT_NUMBERS[unit], **plain, "itemsize": 2, **sizes}  # type: ignore[index]
    return BlockTiles(**{name: np.asarray(value) for name, value in given.items()})


# By hand

GROUP = tile("wgmma", rows=128, cols=128, step=64, down=1, across=1, threads=128, ahead=3, resident=2)
WARPS = tile("mma", rows=64, cols=64, step=32, down=2, across=2, threads=128, ahead=3, resident=4)
THREADS = tile(
    "fma", rows=64, cols=64, step=16, down=8, across=16, threads=128, ahead=2, resident=4, itemsize=4
)


def test_a_step_of_a_group_of_warps() -> None:
    """128 x 128 x 64 multiply-adds; 16 KiB of each operand; w is read again for each 64 rows."""
    found = step_cycles(GROUP, HAND)
    assert found.math == 128 * 128 * 64 / 2000
    assert found.l2 == 2 * 128 * 64 * 2 / 32
    assert found.shared == (4 * 32 * 2 * (64 + 128) + 32768) / 128
    # Two of 64 rows, half as wide as they go, four deep; by four warps.
    instructions = 2 * (128 / 256) * 4 * 4
    copies = 32768 / 16 / 32 * 2
    assert found.issue == (instructions + copies + 4 * BESIDE[2]) / 4
    assert found.most == found.l2 == 1024


def test_a_step_of_single_warps() -> None:
    found = step_cycles(WARPS, HAND)
    assert found.math == 64 * 64 * 32 / 1000
    # Four warps read 32 rows and 32 columns of two pieces; lines of 64 bytes collide when they are copied.
    read = 4 * 2 * 32 * (32 + 32)
    assert found.shared == (read + 2 * 8192) / 128
    assert found.issue == (64 * 64 * 32 / 2048 + read / 512 + 8192 / 512 * 2 + 4 * BESIDE[1]) / 4


def test_a_step_of_threads() -> None:
    """Four warps of 32 threads; a thread has 8 rows and 4 columns, four quads a step."""
    found = step_cycles(THREADS, HAND)
    assert found.math == 64 * 64 * 16 / 128
    assert found.shared == 4 * 4 * 2 * (8 + 4) + 2 * 8192 / 128
    assert found.issue == (64 * 64 * 16 / 32 + 4 * 4 * 12 + 8192 / 512 * 2 + 4 * BESIDE[0]) / 4


def test_blocks_side_by_side_hide_latency() -> None:
    cycles = step_cycles(WARPS, HAND)
    alone = max(FETCH_CYCLES / 3, STEP_CYCLES + float(cycles.issue))
    # Units of single warps hinder each other: the root of the sum of squares.
    work = float(np.hypot(np.hypot(cycles.math, cycles.shared), np.hypot(cycles.l2, cycles.issue)))
    assert cycles.most < work < alone < 4 * work
    assert pace(WARPS, HAND).of(np.asarray(1)) == alone
    assert pace(WARPS, HAND).of(np.asarray(4)) == pytest.approx(4 * work)
    assert step_flops(WARPS, HAND) == pytest.approx(2 * 64 * 64 * 32 / work * 1e9)
    # One warp keeps one of four parts busy.
    one = replace(WARPS, threads=np.asarray(32), down=np.asarray(1), across=np.asarray(1))
    assert pace(one, HAND).of(np.asarray(1)) >= 4 * step_cycles(one, HAND).math


def test_a_call_is_waves_of_blocks() -> None:
    """45 blocks on 10 multiprocessors are 5 on the busiest: a wave of 4 and one that is left."""
    found = bound_seconds(WARPS, np.asarray(45), np.asarray(1000), np.asarray(0.0), HAND)
    steps = 32  # of 32, the last one in part
    full, last = (float(pace(WARPS, HAND).of(np.asarray(blocks))) for blocks in (4, 1))
    assert found.steps == pytest.approx(steps * (full + last) / 1e9)
    assert found.edges == pytest.approx((2 * START_CYCLES + 5 * 64 * 64 * 2 / 32) / 1e9)
    assert found.total == pytest.approx(LAUNCH_SECONDS + float(found.steps + found.edges))
    split = replace(WARPS, splits=np.asarray(4))
    shared = bound_seconds(split, np.asarray(45), np.asarray(1000), np.asarray(0.0), HAND)
    assert shared.steps == pytest.approx(8 * (full + last) / 1e9)
    added = 5 * (CLUSTER_CYCLES + 4 * 64 * 64 / 32)
    assert shared.edges == pytest.approx(float(found.edges) + added / 1e9)
    waits = bound_seconds(WARPS, np.asarray(45), np.asarray(1000), np.asarray(1.0), HAND)
    assert waits.total == pytest.approx(LAUNCH_SECONDS + 1.0 + float(found.edges))


def test_what_bulk_copies_bring_hinders_nobody() -> None:
    """Workers only multiply, L2 gives more in a cycle, and the slowest unit alone bounds a step."""
    bulk = replace(GROUP, unit=np.asarray(UNIT_NUMBERS["tma"]), threads=np.asarray(256))
    found = step_cycles(bulk, HAND)
    assert found.l2 == pytest.approx(1024 / BULK_SPEED) and found.most == found.l2
    assert busy_cycles(found, bulk.unit) == found.most
    own = step_cycles(GROUP, HAND)
    assert busy_cycles(own, GROUP.unit) == pytest.approx(sum(float(part) ** 3 for part in own) ** (1 / 3))
    assert pace(bulk, HAND).least == STEP_CYCLES + float(found.math)
    assert pace(bulk, HAND).each == found.most < pace(GROUP, HAND).each


def test_exchanged_operands_are_read_from_shared_memory_by_64_columns() -> None:
    """Few rows are read with each 64 columns, not 64 rows with all columns."""
    few = replace(
        GROUP, unit=np.asarray(UNIT_NUMBERS["swapped"]), rows=np.asarray(8), threads=np.asarray(256)
    )
    found, fill = step_cycles(few, HAND), (8 + 128) * 64 * 2
    assert found.shared == (4 * 32 * 2 * (64 + 8) + fill) / 128
    assert found.issue == pytest.approx((2 * 4 * 4 + 8 * BESIDE_BULK) / 4)
    assert found.math == 8 * 128 * 64 / 2000 and busy_cycles(found, few.unit) == found.most


def test_warps_that_are_dealt_unevenly_leave_parts_idle() -> None:
    """Three blocks of two warps: two parts of a multiprocessor have two, the others one."""
    three = replace(THREADS, threads=np.asarray(64), resident=np.asarray(3))
    cycles = step_cycles(three, HAND)
    own = max(float(cycles.math), float(cycles.issue))
    expected = max(own * (8 / 6 + STALLED * 4 / 6), busy_cycles(cycles, three.unit))
    assert pace(three, HAND).each == pytest.approx(expected)
    assert pace(three, HAND).each > pace(replace(three, resident=np.asarray(4)), HAND).each


@pytest.mark.parametrize(
    ("splits", "resident", "places"),
    [(1, 1, 132), (2, 1, 132), (4, 1, 124), (8, 1, 104), (4, 2, 264), (8, 3, 384), (132, 1, 132)],
)
def test_clusters_that_do_not_fit_a_group_leave_places_empty(splits: int, resident: int, places: int) -> None:
    """132 multiprocessors in eight groups: 31 clusters of four blocks, 13 of eight; one at least."""
    rates = replace(HAND, multiprocessors=132)
    sizes = {"splits": np.asarray(splits), "resident": np.asarray(resident)}
    assert cluster_places(replace(GROUP, **sizes), rates) == places
    shared = {"multicast": np.asarray(splits), "resident": np.asarray(resident)}
    assert cluster_places(replace(GROUP, **shared), rates) == places


@pytest.mark.parametrize(
    ("operands", "hot", "expected"),
    [
        (1_000_000, False, 1e-6),
        (1_000_000, True, 0.0),
        (2_000_000, True, 0.0),  # half of L2
        (3_000_000, True, 1.5e-6),
        (4_000_000, True, 4e-6),
        (9_000_000, True, 9e-6),
    ],
)
def test_hot_operands_come_from_memory_if_l2_does_not_hold_them(
    operands: int, hot: bool, expected: float
) -> None:
    assert memory_seconds(np.asarray(operands), HAND, hot=hot) == pytest.approx(expected)
    unknown = replace(HAND, memory_bytes=None)
    assert memory_seconds(np.asarray(operands), unknown, hot=hot) == 0


# Rates


def test_a_file_without_rates_still_has_a_bound() -> None:
    """They follow from its peaks; it is the same GPU."""
    limits = {name: value for name, value in H100.to_json()["limits"].items() if name not in RATES}
    old = Hardware.from_json({**H100.to_json(), "limits": limits})
    assert old.is_same_as(H100) and old == H100 and old.limits.clock_ghz is None
    known, derived = gpu_rates(H100), gpu_rates(old)
    assert derived.hertz == pytest.approx(1e9 * (H100.peak_gflops or 0) / 256)
    assert derived.group_macs * derived.hertz == pytest.approx(1e9 * (H100.limits.half_gflops or 0) / 2)
    assert derived.warp_macs / derived.group_macs == known.warp_macs / known.group_macs
    bare = replace(old, peak_gflops=None, dram_gbps=None, limits=replace(old.limits, half_gflops=None))
    work = typed(DENSE, "bfloat16")
    for hardware in (old, bare):
        found = Analytic.of(Space(work, hardware, (cuda_scheme(64, 64, 32, 2, 2, unit="mma"),)))
        seconds = found.seconds([cuda_scheme(64, 64, 32, 2, 2, unit="mma")], [Shape.of(T=100)])
        assert 0 < seconds[0, 0] < 1e-3


@pytest.mark.parametrize("name", ["t4", "rtx3090", "a100", "h100", "h200"])
def test_rates_are_those_of_the_peaks(name: str) -> None:
    """Data sheets quote peaks at the highest clock; a bound counts at one that may be a little lower."""
    hardware = Hardware.preset(name)
    rates = gpu_rates(hardware)
    peaks = {rates.fma_macs: hardware.peak_gflops, rates.group_macs: hardware.limits.half_gflops}
    for macs, peak in peaks.items():
        assert 0.85 < 2 * macs * rates.hertz / (1e9 * (peak or inf)) < 1.01


# What holds for all tiles

works = st.sampled_from([DENSE, typed(DENSE, "bfloat16"), SCORES])
lengths = st.integers(1, 2048)
presets = st.sampled_from([H100, H200, A100])


def fitting(work: Workload, scheme: CudaScheme) -> bool:
    return (work.dtype == "float32") == (scheme.kernel.unit == "fma")


@given(cuda_kernels(), works, lengths, presets)
def test_no_call_is_quicker_than_the_roofline(
    kernel: CudaScheme, work: Workload, length: int, hardware: Hardware
) -> None:
    if not fitting(work, kernel):
        return
    shape = Shape.of(T=length)
    rotating = adaptation_cost(work, hardware, cache="rotating").bound([kernel], [shape])[0, 0]
    hot = adaptation_cost(work, hardware).bound([kernel], [shape])[0, 0]
    memory = work.bytes(shape) / (1e9 * STREAMED * (hardware.dram_gbps or inf))
    peak = 1e9 * hardware.cores * (hardware.peak_for(work.dtype) or inf)
    assert rotating >= LAUNCH_SECONDS + memory * (1 - 1e-12)
    assert hot >= LAUNCH_SECONDS + 0.98 * work.flops(shape) / peak
    assert hot <= rotating


@given(cuda_kernels(), st.sampled_from(["float32", "bfloat16"]), lengths, presets, st.integers(1, 4))
def test_more_work_takes_no_less(
    kernel: CudaScheme, dtype: str, length: int, hardware: Hardware, more: int
) -> None:
    small = Dense(T=Dim(1, 2048), N=768, K=512, dtype=dtype)
    if not fitting(small, kernel):
        return
    shapes = [Shape.of(T=length)]
    for large in (replace(small, N=768 * more), replace(small, K=512 * more)):
        less, many = (adaptation_cost(work, hardware).bound([kernel], shapes) for work in (small, large))
        assert less[0, 0] <= many[0, 0] * (1 + 1e-12)
    padded = kernel.changed(edge="padded")
    cost = adaptation_cost(small, hardware)
    rising = cost.bound([padded], [Shape.of(T=t) for t in (length, length + 37, length + 500)])[0]
    assert (np.diff(rising) >= -1e-12 * rising[1:]).all()


@given(cuda_kernels(), works, lengths, st.sampled_from(["hot", "rotating"]))
def test_the_bound_is_a_table_at_the_bounds_own_throughputs(
    kernel: CudaScheme, work: Workload, length: int, state: Any
) -> None:
    cost, shape = adaptation_cost(work, H100, cache=state), Shape.of(T=length)
    formulas = cost.formulas
    assert isinstance(formulas, BoundedAdaptation)

    def fastest(scheme: CudaScheme) -> float:
        k = scheme.kernel
        sizes = {"rows": k.rows, "cols": k.cols, "step": k.step, "down": k.down, "across": k.across}
        blocks = {"threads": k.threads, "ahead": k.ahead}
        shared = {"splits": k.splits, "multicast": k.multicast, "ending": k.ending}
        itemsize = 4 if work.dtype == "float32" else 2
        # A lower tile has the stages of the scheme's tallest, which the launch reserves.
        resident = formulas.places(kernel.kernel)
        of_tile = tile(k.unit, **sizes, **blocks, **shared, resident=resident, itemsize=itemsize)
        return float(step_flops(of_tile, gpu_rates(H100)))

    expected = cost.seconds(kernel, shape, fastest)
    assert cost.bound([kernel], [shape])[0, 0] == pytest.approx(expected, rel=1e-9)
    assert cost.bound_of([kernel], [shape])[0] == pytest.approx(expected, rel=1e-9)
    slower = cost.seconds(kernel, shape, lambda scheme: fastest(scheme) / 3)
    if cost.parts(kernel, shape, fastest).weights == 0:
        assert slower - LAUNCH_SECONDS == pytest.approx(3 * (expected - LAUNCH_SECONDS))


def test_waves_end_with_the_tallest_tile() -> None:
    kernel = cuda_scheme(128, 64, 16, 8, 16, stages=3, edge="rest")
    cost = adaptation_cost(DENSE, H100)
    full, rest = (cost.bound([kernel], [Shape.of(T=t)])[0, 0] for t in (256, 136))
    assert [region.kernel.rows for region in plan_for(kernel, 136).regions] == [128, 8]
    assert full == rest
    low = cost.bound([kernel.changed(edge="even")], [Shape.of(T=136)])[0, 0]
    assert low < rest


# The first round


@cache
def spaces(name: str) -> tuple[Space, ShapeSet]:
    work, hardware = {"bf16": (BF16, H200), "fp32": (FP32, H200), "cpu": (FP32, CPU)}[name]
    return build_space(work, hardware), ShapeSet.uniform(work)


def first_round(name: str) -> tuple[list[CudaScheme], npt.NDArray[np.float64], list[int]]:
    """The schemes, the expected seconds of the whole space, and the rows of the schemes in it."""
    space, shapes = spaces(name)
    first = DraftStrategy().propose(SearchState(space, shapes, (), None, "hot"), 64, Random(0))
    seconds = Analytic.of(space).seconds(space.schemes, shapes.shapes)
    return first, seconds, [space.schemes.index(scheme) for scheme in first]


@pytest.mark.parametrize("name", ["bf16", "fp32", "cpu"])
def test_half_of_the_first_round_is_what_is_expected_to_be_fastest(name: str) -> None:
    (space, shapes), (first, seconds, chosen) = spaces(name), first_round(name)
    cost = adaptation_cost(space.workload, space.hardware)
    np.testing.assert_array_equal(seconds, cost.expected(space.schemes, shapes.shapes))
    assert len(first) == len(set(first)) == 64
    tiles = [tuple(scheme.kernel.tile.values()) for scheme in first[:32]]
    assert len(set(tiles)) == 32
    # On each shape one of them is nearly as fast as the fastest: no two have one tile.
    assert (seconds[chosen[:32]].min(axis=0) <= 1.05 * seconds.min(axis=0)).all()


@pytest.mark.parametrize("name", ["bf16", "fp32", "cpu"])
def test_the_other_half_of_a_gpus_is_of_the_best_tenth_and_of_a_cpus_of_the_whole_space(name: str) -> None:
    first, seconds, chosen = first_round(name)
    behind = (seconds / seconds.min(axis=0)).min(axis=1)
    if name == "cpu":
        assert behind[chosen[32:]].max() > np.median(behind)
        return
    assert behind[chosen[32:]].max() <= np.sort(behind)[len(behind) // 10]
    units = {scheme.kernel.unit for scheme in first}
    assert units == ({"fma"} if name == "fp32" else {"mma", "wgmma", "tma", "swapped"})


# NVIDIA's choices


@pytest.mark.skipif(importlib.util.find_spec(MODULE) is None, reason="NVIDIA's heuristics are not installed")
@pytest.mark.parametrize("hardware", [H100, H200], ids=["h100", "h200"])
@pytest.mark.parametrize(
    ("work", "called", "median"),
    [
        (BF16, (8, 16, 38, 64, 111, 184, 257, 330, 403, 512), 0.10),
        (FP32, (16, 64, 157, 448, 739, 1321, 1903, 2048), 0.02),
    ],
    ids=["bf16", "fp32"],
)
def test_the_bound_puts_nvidias_first_choice_among_the_best(
    hardware: Hardware, work: Dense, called: tuple[int, ...], median: float
) -> None:
    space = build_space(work, hardware)
    table = frame_drafts(space, [Shape.of(T=length) for length in called])
    found = medians(table)
    assert found["bound"]["share"] <= median and found["bound"]["best_share"] <= median
    assert found["waves"]["share"] > 5 * found["bound"]["share"]
    of_bound = table[table["draft"] == "bound"]["share"].dropna()
    assert of_bound.max() <= 0.15, "of every shape"
