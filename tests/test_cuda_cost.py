"""The cost model of a GPU: waves and padding against sums by hand, and ranking on what was never measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_samples import CONTEXT, DENSE, SCORES, cuda_kernels, few, typed
from hypothesis import assume, given
from hypothesis import strategies as st
from schemes import cuda_scheme

from dietlab.cost import CostModel, adaptation_cost, best_shape, evaluate_model, f_occ, f_pad, fit_cost_model
from dietlab.cost.adaptation import Adaptation
from dietlab.cost.model import features
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record, SyntheticRunner, Trial
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload, extents
from dietlab.scheme import build_space, plan_for
from dietlab.targets.cuda.adaptation import (
    CLUSTER_STEPS,
    EDGE_STEPS,
    IMBALANCE,
    LAUNCH_SECONDS,
    BlockAdaptation,
    CudaAdaptation,
)
from dietlab.targets.cuda.features import CUDA_FEATURES
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.needs import shared_bytes, thread_registers
from dietlab.targets.cuda.occupancy import blocks_per_sm
from dietlab.targets.cuda.rates import STREAMED
from dietlab.targets.cuda.synthetic import DEVIATION

HARDWARE = Hardware.preset("h100")
KERNEL = cuda_scheme(64, 64, 16, 8, 16, stages=3)
GUARD = 1.25
"""A call of so many launches or more: of a shorter one a launch is not taken off whole."""

rows = st.integers(1, 600).map(lambda t: Shape.of(T=t))
PRODUCTS = [BatchMatmul(T=Dim(1, 128), B=6, D=40, form=form) for form in ("nt", "nn")]
works = st.sampled_from([DENSE, Dense(T=Dim(1, 128), N=100, K=7), *PRODUCTS])
speeds = st.floats(1e9, 5e11)
kinds = st.sampled_from(["paper", "streamed"])
caches = st.sampled_from(["hot", "rotating"])


def alike(speed: float) -> Callable[[CudaScheme], float]:
    return lambda kernel: speed


def up(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


# The adaptation


@given(cuda_kernels(), works, rows, speeds, kinds, caches)
def test_parts_of_a_time_are_what_their_names_say(
    kernel: CudaScheme, work: Workload, shape: Shape, speed: float, kind: Adaptation, cache: CacheState
) -> None:
    cost = adaptation_cost(work, HARDWARE, kind, cache)
    parts = cost.parts(kernel, shape, alike(speed))
    values = [parts.compute, parts.edges, parts.padding, parts.weights, parts.idle]
    assert all(value >= -1e-15 for value in values)
    assert cost.seconds(kernel, shape, alike(speed)) == parts.total == pytest.approx(sum(values))
    sizes, plan, together = extents(work, shape), plan_for(kernel, shape["T"]), speed * HARDWARE.cores
    assert parts.compute == pytest.approx(work.flops(shape) / together)
    # The reduction axis is padded too, for all blocks that share it.
    area = plan.executed_rows * up(sizes["cols"], kernel.cols) * sizes["batch"]
    steps = kernel.kernel.step * kernel.kernel.splits
    executed = 2.0 * area * up(sizes["depth"], steps) / together
    assert parts.compute + parts.padding == pytest.approx(executed)
    if kind == "paper":
        edges = EDGE_STEPS + (CLUSTER_STEPS if kernel.kernel.splits > 1 else 0)
        starts = 2.0 * area * edges * steps / together
        assert parts.edges == pytest.approx(LAUNCH_SECONDS + starts)
    assert parts.edges >= LAUNCH_SECONDS
    memory = work.bytes(shape) / (1e9 * STREAMED * (HARDWARE.dram_gbps or 0))
    if kind == "paper" or cache == "hot":  # all of these stay in L2
        assert parts.weights == 0
    else:
        assert parts.total >= memory - 1e-15
        assert parts.weights == 0 or parts.total == pytest.approx(memory + LAUNCH_SECONDS)


@given(cuda_kernels(), works, rows, speeds)
def test_throughput_is_the_inverse_of_seconds(
    kernel: CudaScheme, work: Workload, shape: Shape, speed: float
) -> None:
    cost = adaptation_cost(work, HARDWARE)
    seconds = cost.seconds(kernel, shape, alike(speed))
    found = cost.throughput(kernel, shape, seconds)
    if seconds >= GUARD * LAUNCH_SECONDS:
        assert found == pytest.approx(speed)
    else:
        assert 0 < found <= speed * (1 + 1e-9)


def test_a_call_shorter_than_a_launch_gives_a_finite_label() -> None:
    cost, shape = adaptation_cost(DENSE, HARDWARE), Shape.of(T=5)
    labels = [cost.throughput(KERNEL, shape, seconds) for seconds in (1e-7, 1e-6, 2e-6, 2.4e-6)]
    assert all(0 < label < math.inf for label in labels) and labels == sorted(labels, reverse=True)


@given(cuda_kernels(), rows, st.floats(1e9, 1e11), st.floats(1e9, 1e11))
def test_a_composed_plan_computes_each_tile_at_its_own_throughput(
    kernel: CudaScheme, shape: Shape, full: float, lower: float
) -> None:
    cost = adaptation_cost(DENSE, HARDWARE, "paper")
    plan = plan_for(kernel, shape["T"])
    parts = cost.parts(kernel, shape, lambda k: full if k.rows == kernel.rows else lower)
    area = 2.0 * up(DENSE.N, kernel.cols) * up(DENSE.K, kernel.kernel.step * kernel.kernel.splits)
    expected = sum(
        area * part.executed_rows / (HARDWARE.cores * (full if part.kernel.rows == kernel.rows else lower))
        for part in plan.regions
    )
    assert parts.compute + parts.padding == pytest.approx(expected)


@given(cuda_kernels(edges=("padded",)), works, rows, speeds, st.sampled_from(["even", "rest"]))
def test_composition_never_executes_more_than_local_padding(
    kernel: CudaScheme, work: Workload, shape: Shape, speed: float, edge: str
) -> None:
    cost = adaptation_cost(work, HARDWARE, "paper")
    plans = (kernel, kernel.changed(edge=edge))  # type: ignore[arg-type]
    padded, composed = (cost.parts(plan, shape, alike(speed)) for plan in plans)
    assert composed.compute == pytest.approx(padded.compute)
    assert composed.padding <= padded.padding * (1 + 1e-9) + 1e-15
    assert composed.edges <= padded.edges * (1 + 1e-9)


def test_padding_counts_the_reduction_axis() -> None:
    kernel = cuda_scheme(64, 64, 32, 8, 16)
    cost = adaptation_cost(Dense(T=Dim(1, 64), N=64, K=100), HARDWARE)
    parts = cost.parts(kernel, Shape.of(T=64), alike(1e9))
    assert parts.compute / (parts.compute + parts.padding) == pytest.approx(100 / 128)
    work = BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nn")  # the sum runs over T
    parts = adaptation_cost(work, HARDWARE).parts(kernel, Shape.of(T=33), alike(1e9))
    assert parts.compute / (parts.compute + parts.padding) == pytest.approx(33 / 64 * 33 / 64)


def test_an_empty_call_costs_nothing() -> None:
    for work in (DENSE, SCORES, CONTEXT):
        cost = adaptation_cost(work, HARDWARE)
        assert cost.parts(KERNEL, Shape.of(T=0), alike(1e9)).total == 0
        assert cost.static(KERNEL, Shape.of(T=0)) == 1


# Waves


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 40), st.sampled_from(["padded", "even", "rest"]))
def test_exact_waves_leave_no_multiprocessor_idle(waves: int, blocks: int, cores: int, edge: str) -> None:
    kernel = KERNEL.changed(edge=edge)  # type: ignore[arg-type]
    work, hardware = Dense(T=Dim(1, 1 << 20), N=64, K=768), HARDWARE.with_cores(cores)
    cost = adaptation_cost(work, hardware, "paper", resident={kernel.kernel: blocks})
    full = waves * cores * blocks
    whole, more = (cost.parts(kernel, Shape.of(T=64 * full + extra), alike(1e9)) for extra in (0, 1))
    assert whole.idle == pytest.approx(0, abs=1e-12 * whole.total)
    busy = more.compute + more.padding + more.edges - LAUNCH_SECONDS
    expected = f_occ(full + 1, cores * blocks, IMBALANCE[1])
    assert more.idle == pytest.approx(busy * (1 / expected - 1), abs=1e-15)
    assert more.idle > 0 or cores * blocks == 1
    assert cost.static(kernel, Shape.of(T=64 * full)) == pytest.approx(1)


@given(cuda_kernels(), works, rows)
def test_below_one_wave_and_above_the_papers_constants_count(
    kernel: CudaScheme, work: Workload, shape: Shape
) -> None:
    cost = adaptation_cost(work, HARDWARE, "paper")
    assert isinstance(cost.formulas, CudaAdaptation)
    sizes, plan = extents(work, shape), plan_for(kernel, shape["T"])
    blocks = plan.tiles * -(-sizes["cols"] // kernel.cols) * sizes["batch"] * kernel.kernel.splits
    places = HARDWARE.cores * cost.formulas.places(kernel.kernel)
    busy = f_occ(blocks, places, 1.433 if blocks < places else 2.14)
    tile = {**kernel.cover_tile, "depth": kernel.kernel.step * kernel.kernel.splits}
    assert cost.static(kernel, shape) == pytest.approx(f_pad(sizes, tile) * busy)


def test_real_blocks_of_a_multiprocessor_change_the_answer() -> None:
    estimated = adaptation_cost(DENSE, HARDWARE, "paper")
    few_blocks, many = (
        adaptation_cost(DENSE, HARDWARE, "paper", resident={KERNEL.kernel: n}) for n in (1, 6)
    )
    assert isinstance(estimated.formulas, CudaAdaptation)
    assert isinstance(few_blocks.formulas, CudaAdaptation)
    used = KERNEL.kernel.threads, thread_registers(KERNEL.kernel), shared_bytes(KERNEL.kernel, 4)
    assert estimated.formulas.places(KERNEL.kernel) == blocks_per_sm(HARDWARE.limits, *used)
    assert few_blocks.formulas.places(KERNEL.kernel) == 1
    # 4 x 36 blocks: 2 waves of 132, or a fifth of one.
    shape = Shape.of(T=256)
    parts = [cost.parts(KERNEL, shape, alike(1e11)) for cost in (few_blocks, many)]
    assert parts[0].compute == parts[1].compute and parts[0].idle != parts[1].idle
    assert parts[0].idle / parts[0].compute < parts[1].idle / parts[1].compute
    assert few_blocks.with_cache("rotating").static(KERNEL, shape) == few_blocks.static(KERNEL, shape)


def test_what_does_not_fit_at_all_counts_one_block() -> None:
    huge = cuda_scheme(512, 512, 64, 8, 8)
    cost = adaptation_cost(DENSE, HARDWARE, resident={KERNEL.kernel: 0}).formulas
    assert isinstance(cost, BlockAdaptation) and cost.places(huge.kernel) == cost.places(KERNEL.kernel) == 1


def test_memory_bounds_a_call_whose_operands_rotate() -> None:
    hot, rotating = (adaptation_cost(DENSE, HARDWARE, cache=cache) for cache in ("hot", "rotating"))
    small, large = Shape.of(T=1), Shape.of(T=2048)
    quick = alike(1e9 * (HARDWARE.peak_gflops or 0))
    kernel = cuda_scheme(16, 64, 32, 4, 16, 2, 4, edge="even")
    assert hot.parts(kernel, small, quick).weights == 0
    for shape in (small, large):
        assert hot.seconds(kernel, shape, quick) <= rotating.seconds(kernel, shape, quick)
    assert rotating.parts(kernel, large, quick).weights == 0
    faster = alike(100e9 * (HARDWARE.peak_gflops or 0))
    assert rotating.parts(kernel, small, faster).weights > 0


def test_best_shape_fills_the_multiprocessors() -> None:
    shapes = tuple(Shape.of(T=t) for t in (64, 100, 704, 705))
    work = Dense(T=Dim(1, 704), N=64 * 12, K=768)
    cost = adaptation_cost(work, HARDWARE, resident={KERNEL.kernel: 1})
    assert best_shape(KERNEL, shapes, cost) == Shape.of(T=704)  # 11 x 12 blocks


# The learned model

MODELLED: dict[str, tuple[str, Workload]] = {
    "dense on an H100": ("h100", DENSE),
    "dense in bfloat16 on an H100": ("h100", typed(DENSE, "bfloat16")),
    "dense on a T4": ("t4", Dense(T=Dim(1, 128), N=2304, K=768)),
    "scores on an A100": ("a100", SCORES),
    "context on an A100": ("a100", CONTEXT),
}


def synthetic_records(
    preset: str, work: Workload, count: int, seed: int
) -> tuple[list[Record], list[Record]]:
    """Micro-kernels measured once each, and others on all eight shapes."""
    """Micro-kernels measured once each, and others on all eight shapes."""
    hardware, shapes = Hardware.preset(preset), ShapeSet.uniform(work)
    chosen = few(build_space(work, hardware), 2 * count, seed).schemes
    runner, cost = SyntheticRunner(hardware), adaptation_cost(work, hardware)
    train = [Trial(kernel, (best_shape(kernel, shapes.shapes, cost),)) for kernel in chosen[::2]]
    others = [Trial(kernel, shapes.shapes) for kernel in chosen[1::2]]
    return list(runner.measure(work, train)), list(runner.measure(work, others))


@pytest.mark.parametrize("name", MODELLED)
def test_model_ranks_micro_kernels_and_shapes_it_never_saw(name: str) -> None:
    preset, work = MODELLED[name]
    ordered = []
    for seed in range(3):
        train, held_out = synthetic_records(preset, work, 64, seed)
        assert not {r.scheme for r in train} & {r.scheme for r in held_out}
        # Pairs count that are further apart than what no size of a micro-kernel tells.
        held_out = [replace(record, spread=DEVIATION) for record in held_out]
        fitted = fit_cost_model(work, Hardware.preset(preset), train)
        ordered.append(evaluate_model(fitted, held_out)["pairwise"])
    assert np.mean(ordered) > 0.79, ordered


def with_resources(records: list[Record], blocks: int) -> list[Record]:
    used = {"registers": 128, "spill_bytes": 0, "shared_bytes": 30_000, "blocks_per_sm": blocks}
    return [replace(record, resources=used) for record in records]


@pytest.fixture(scope="module")
def train() -> list[Record]:
    return synthetic_records("h100", DENSE, 40, 0)[0]


def test_saved_model_predicts_the_same_and_keeps_the_real_blocks(train: list[Record], tmp_path: Path) -> None:
    model = fit_cost_model(DENSE, HARDWARE, with_resources(train, 3))
    model.save(tmp_path / "model.json")
    loaded = CostModel.load(tmp_path / "model.json")
    here, again = model.cost.formulas, loaded.cost.formulas
    assert isinstance(here, BlockAdaptation) and isinstance(again, BlockAdaptation)
    assert again.resident == here.resident == {r.scheme.kernel: 3 for r in train}
    assert loaded.cost == model.cost and loaded.samples == model.samples == len(train)
    kernels, shapes = [r.scheme for r in train], ShapeSet.uniform(DENSE).shapes
    np.testing.assert_array_equal(model.seconds(kernels, shapes), loaded.seconds(kernels, shapes))
    written = json.loads((tmp_path / "model.json").read_text())
    assert written["features"] == list(CUDA_FEATURES) == list(model.cost.formulas.FEATURES)
    assert set(written["resident"]) == {r.scheme.kernel.key for r in train}


def test_real_blocks_of_records_count_in_predictions(train: list[Record]) -> None:
    shapes = ShapeSet.uniform(DENSE).shapes
    kernels = [r.scheme for r in train[:8]]
    models = [fit_cost_model(DENSE, HARDWARE, with_resources(train, blocks)) for blocks in (1, 8)]
    tables = [model.seconds(kernels, shapes) for model in models]
    assert (tables[0] != tables[1]).any()


def test_halves_are_as_fast_as_tensor_cores_are(train: list[Record]) -> None:
    """No label is cut at what CUDA cores reach."""
    halves = typed(DENSE, "bfloat16")
    measured = synthetic_records("h100", halves, 40, 0)[0]
    kernels = [r.scheme for r in measured]
    found = fit_cost_model(halves, HARDWARE, measured).throughput(kernels)
    peak, half = 1e9 * (HARDWARE.peak_gflops or 0), 1e9 * (HARDWARE.limits.half_gflops or 0)
    assert peak < np.median(found) and found.max() <= 1.05 * half
    slower = fit_cost_model(DENSE, HARDWARE, train).throughput([r.scheme for r in train])
    assert slower.max() <= 1.05 * peak


@pytest.mark.parametrize("work", [DENSE, typed(DENSE, "float16"), SCORES, CONTEXT], ids=str)
def test_features_are_finite_for_the_whole_space(work: Workload) -> None:
    kernels = build_space(work, HARDWARE).schemes
    lowest = sorted({kernel.family for kernel in kernels})
    for chosen in (kernels, lowest):
        table = features(adaptation_cost(work, HARDWARE).formulas, chosen)
        assert table.shape == (len(chosen), len(CUDA_FEATURES)) and np.isfinite(table).all()


def test_features_do_not_depend_on_the_range_of_shapes() -> None:
    chosen = few(build_space(DENSE, HARDWARE), 50).schemes
    works = (DENSE, replace(DENSE, T=Dim(3, 9999)))
    tables = [features(adaptation_cost(work, HARDWARE).formulas, chosen) for work in works]
    np.testing.assert_array_equal(*tables)


@given(cuda_kernels(units=("fma",)), rows)
def test_what_was_measured_comes_back_from_its_label(kernel: CudaScheme, shape: Shape) -> None:
    """One record is a model that predicts its own time."""
    cost = adaptation_cost(DENSE, HARDWARE)
    seconds = cost.seconds(kernel, shape, alike(1e11))
    assume(seconds >= GUARD * LAUNCH_SECONDS)
    model = fit_cost_model(DENSE, HARDWARE, [Record(kernel, shape, "ok", seconds=seconds)])
    assert model.seconds([kernel], [shape])[0, 0] == pytest.approx(seconds, rel=1e-3)
