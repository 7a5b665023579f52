"""Whole tables of the adaptation cost: the same as one call at a time, whatever extents are dynamic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemes import cpu_scheme, cuda_scheme

from dietlab.cost import AdaptationCost, adaptation_cost, best_shape
from dietlab.cost.bundle import Calls
from dietlab.cost.model import features
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record
from dietlab.problem import Axis, BatchMatmul, Dense, Dim, Role, Shape, Workload, extents, extents_of
from dietlab.scheme import EDGES, Scheme, build_space, plan_for, tiles_of
from dietlab.targets.cpu.cost import (
    ALL_HIDDEN,
    EDGE_STEPS,
    SUMS_STEPS,
    TRANSPOSED_ROWS,
    CpuAdaptation,
    Hiding,
)
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.space import FMA_LATENCY

T = Dim(1, 128)
HARDWARE = {
    "zen4": Hardware.preset("zen4-1core"),
    "haswell": Hardware.preset("haswell-1core"),
    "cascadelake": Hardware.preset("cascadelake-1core").with_cores(4),
}
WORKS: list[Workload] = [
    Dense(T=T, N=2304, K=768),
    Dense(T=T, N=100, K=7),
    Dense(T=T, N=16384, K=4096),
    Dense(T=T, N=768, K=256, constant=False),
    BatchMatmul(T=T, B=6, D=64, form="nt"),
    BatchMatmul(T=T, B=6, D=64, form="nn"),
]
costs = st.builds(
    adaptation_cost,
    st.sampled_from(WORKS),
    st.sampled_from(list(HARDWARE.values())),
    st.sampled_from(["paper", "streamed"]),
    st.sampled_from(["hot", "rotating"]),
    hiding=st.sampled_from([ALL_HIDDEN, Hiding(0.4, 0.7)]),
)
schemes = st.builds(
    cpu_scheme,
    st.integers(1, 14),
    st.sampled_from([3, 16, 48, 64, 80]),
    st.sampled_from([1, 4]),
    st.sampled_from(["ws", "is"]),
    edge=st.sampled_from(EDGES),
    ahead=st.booleans(),
    along=st.sampled_from(["cols", "cols", "depth"]),
    block=st.sampled_from([0, 64, 512]),
).filter(lambda scheme: scheme.cols % 16 == 0 or scheme.kernel.along == "depth")
shapes = st.integers(0, 300).map(lambda t: Shape.of(T=t))


def speed(scheme: Scheme) -> float:
    return 1e9 * (20 + 3 * scheme.rows + 0.1 * scheme.cols)


def one_by_one(cost: AdaptationCost, scheme: CpuScheme, shape: Shape) -> float:
    """The formulas of the CPU as a person would write them down, for one call."""
    sizes, cpu, cores = extents(cost.workload, shape), cost.hardware.limits, cost.hardware.cores
    plan, kernel, weights = plan_for(scheme, sizes["rows"]), scheme.kernel, cost.workload.weights
    if not plan.regions or not sizes["cols"]:
        return 0.0
    column_tiles, depth = ceil(sizes["cols"] / scheme.cols), sizes["depth"]
    dots = kernel.along == "depth"
    width = sizes["cols"] / column_tiles if dots else scheme.cols
    edge_steps = EDGE_STEPS * ceil(depth / (kernel.block or depth)) + (SUMS_STEPS * cpu.lanes if dots else 0)
    across = scheme.cols if dots else scheme.cols // cpu.lanes
    steps = [
        2.0 * r.kernel.rows * width / speed(r.scheme) / min(1.0, r.kernel.rows * across / FMA_LATENCY)
        for r in plan.regions
    ]
    every = sum(step * region.tiles for step, region in zip(steps, plan.regions, strict=True))
    computing = (depth + edge_steps) * every
    if weights == "transposed" and not dots:
        computing += TRANSPOSED_ROWS * depth * 2.0 * width / speed(scheme)
    cached = cost.cache == "hot" and 8 * sizes["cols"] * depth <= cpu.l3_bytes
    gbps = cost.hardware.l3_gbps if cached else (cost.hardware.dram_gbps or 0) / cores
    fetch = 4 * scheme.cols * depth / (gbps * 1e9) if gbps else 0.0
    if cost.kind == "paper" or weights != "packed":
        fetch = 0.0
    hiding = cost.formulas.hiding  # type: ignore[attr-defined]
    share = 1.0 if plan.tiles == 1 else hiding.cache if cached else hiding.memory
    if kernel.ahead:
        waiting = fetch - share * computing
    else:
        first = (depth + edge_steps) * steps[0]
        waiting = fetch - first if scheme.order == "ws" else plan.tiles * fetch - computing
    pieces = column_tiles if weights == "transposed" else column_tiles * plan.tiles
    if isinstance(cost.workload, BatchMatmul):
        pieces = sizes["batch"]
    waves = ceil(pieces / cores) * cores / pieces
    return sizes["batch"] * column_tiles / cores * (computing + max(0.0, waiting)) * waves


@given(costs, st.lists(schemes, max_size=6), st.lists(shapes, max_size=6))
def test_a_table_is_the_formulas_of_every_pair(
    cost: AdaptationCost, chosen: list[CpuScheme], called: list[Shape]
) -> None:
    table = cost.table(chosen, called, speed)
    expected = [[one_by_one(cost, scheme, shape) for shape in called] for scheme in chosen]
    assert table.shape == (len(chosen), len(called))
    np.testing.assert_allclose(table, np.array(expected).reshape(table.shape), rtol=1e-12)


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("name", HARDWARE)
def test_a_table_of_a_space_is_the_formulas_of_every_pair(work: Workload, name: str) -> None:
    chosen = Random(1).sample(build_space(work, HARDWARE[name]).schemes, 20)
    called = [Shape.of(T=t) for t in (0, 1, 2, 7, 13, 31, 48, 127, 128, 300)]
    cost = adaptation_cost(work, HARDWARE[name], hiding=Hiding(0.4, 0.7))
    expected = [[one_by_one(cost, scheme, shape) for shape in called] for scheme in chosen]
    np.testing.assert_allclose(cost.table(chosen, called, speed), expected, rtol=1e-12)


CUDA = [
    adaptation_cost(Dense(T=T, N=2304, K=768, dtype="float16"), Hardware.preset("a100"), cache=cache)
    for cache in ("hot", "rotating")
]
BLOCKS = [
    cuda_scheme(64, 64, 16, 16, 16, edge="even"),
    cuda_scheme(64, 64, 16, 16, 16),
    cuda_scheme(128, 64, 16, 16, 16, edge="rest"),
    cuda_scheme(64, 128, 16, 16, 16, edge="even"),
]


@given(st.lists(shapes, max_size=5), st.sampled_from(CUDA), st.lists(st.sampled_from(BLOCKS), max_size=6))
def test_tables_of_blocks_are_their_calls_one_by_one(
    called: list[Shape], cost: Any, chosen: list[Scheme]
) -> None:
    same(cost, chosen, called)


@given(costs, st.lists(schemes, max_size=5), st.lists(shapes, max_size=4))
def test_tables_of_register_tiles_are_their_calls_one_by_one(
    cost: Any, chosen: list[Scheme], called: list[Shape]
) -> None:
    same(cost, chosen, called)


def same(cost: Any, chosen: list[Scheme], called: list[Shape]) -> None:
    """Tables, lists of pairs and single calls agree to the last bit."""
    table, statics = cost.table(chosen, called, speed), cost.statics(chosen, called)
    single = [[cost.seconds(scheme, shape, speed) for shape in called] for scheme in chosen]
    totals = [[cost.parts(scheme, shape, speed).total for shape in called] for scheme in chosen]
    np.testing.assert_array_equal(table.ravel(), np.array(single).ravel())
    np.testing.assert_array_equal(table.ravel(), np.array(totals).ravel())
    known = [cost.static(scheme, shape) for scheme in chosen for shape in called]
    np.testing.assert_array_equal(statics.ravel(), known)
    pairs = [(scheme, shape) for scheme in chosen for shape in called if shape["T"]]
    first, second = [scheme for scheme, _ in pairs], [shape for _, shape in pairs]
    times = cost.seconds_of(first, second, speed)
    np.testing.assert_array_equal(times, [cost.seconds(*pair, speed) for pair in pairs])
    labels = [cost.throughput(*pair, t) for pair, t in zip(pairs, times, strict=True)]
    np.testing.assert_array_equal(cost.throughputs(first, second, times), labels)
    shares = [cost.working_shares([scheme], [shape])[0] for scheme, shape in pairs]
    np.testing.assert_array_equal(cost.working_shares(first, second), shares)


extents_of_rows = st.lists(st.integers(0, 400), min_size=1)


@given(st.sampled_from(EDGES), st.sampled_from([1, 8]), st.integers(1, 14), extents_of_rows)
def test_tiles_of_many_plans_are_those_of_each(
    edge: Any, granule: int, highest: int, rows: list[int]
) -> None:
    many = tiles_of(edge, np.int64(granule), np.int64(granule * highest), np.array(rows))
    for number, extent in enumerate(rows):
        alone = tiles_of(edge, granule, granule * highest, extent)
        assert [(int(h[number]) if np.ndim(h) else h, n[number]) for h, n in many] == alone


def test_the_best_shape_is_found_in_one_table() -> None:
    cost, scheme = adaptation_cost(WORKS[0], HARDWARE["zen4"]), cpu_scheme(8, 48)
    called = tuple(Shape.of(T=t) for t in (5, 8, 9, 16, 17))
    known = {shape: round(cost.static(scheme, shape), 6) for shape in called}
    assert best_shape(scheme, called, cost) == max(called, key=lambda shape: (known[shape], shape))


# No extent is taken for static.


@dataclass(frozen=True)
class AllDynamic(Dense):
    """A dense layer whose outputs and inputs are dynamic too."""

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        roles: Mapping[str, Role] = {"T": "rows", "N": "cols", "K": "depth"}
        return tuple(Axis(name, Dim(1, 20000), role) for name, role in roles.items())


layers = st.tuples(st.integers(1, 200), st.integers(1, 12000), st.integers(1, 4000))


@given(schemes, layers, st.sampled_from(["hot", "rotating"]))
def test_a_dynamic_extent_costs_what_it_costs_as_a_static_one(
    scheme: CpuScheme, layer: tuple[int, int, int], cache: CacheState
) -> None:
    rows, cols, depth = layer
    dynamic, static = (
        adaptation_cost(work, HARDWARE["cascadelake"], "streamed", cache, hiding=Hiding(0.4, 0.7))
        for work in (AllDynamic(T=T, N=1, K=1), Dense(T=T, N=cols, K=depth))
    )
    shape = Shape.of(T=rows, N=cols, K=depth)
    assert dynamic.parts(scheme, shape, speed) == static.parts(scheme, shape, speed)
    seconds = static.seconds(scheme, shape, speed)
    assert dynamic.throughput(scheme, shape, seconds) == static.throughput(scheme, shape, seconds)


def test_where_the_weights_stay_depends_on_the_shape() -> None:
    cost = CpuAdaptation(AllDynamic(T=T, N=1, K=1), HARDWARE["zen4"])
    called = [Shape.of(T=8, N=n, K=1024) for n in (512, 16384)]
    assert cost.from_cache(Calls.of(cost.workload, called)).tolist() == [True, False]
    rotating = replace(cost, cache="rotating")
    assert not rotating.from_cache(Calls.of(cost.workload, called)).any()


def test_each_record_tells_of_the_level_that_its_weights_came_from() -> None:
    """In one cache state the weights of some shapes stay in the last-level cache, and others' do not."""
    start = adaptation_cost(AllDynamic(T=T, N=1, K=1), HARDWARE["cascadelake"].with_cores(1))
    cost = start.changed(hiding=Hiding(0.4, 0.7))
    chosen = [cpu_scheme(height, 32, edge="even", ahead=True) for height in range(4, 15)]
    called = [Shape.of(T=t, N=n, K=1024) for t in (5, 8, 17, 20, 24, 32, 40) for n in (512, 16384)]

    def fast(scheme: Scheme) -> float:
        return 1e9 * (100 + 2 * scheme.rows)

    pairs = [(scheme, shape) for scheme in chosen for shape in called]
    records = [Record(*pair, "ok", seconds=cost.seconds(*pair, fast)) for pair in pairs]
    assert start.formulas.fitted(records, fast) == cost.formulas
    assert start.formulas.fitted(records) == start.formulas


def test_features_do_not_depend_on_the_range_of_any_dimension() -> None:
    """The throughput of a micro-kernel is one for all extents that are dynamic."""
    for form in ("nt", "nn"):
        short, long = (BatchMatmul(T=dim, B=6, D=64, form=form) for dim in (Dim(1, 100), Dim(1, 999)))  # type: ignore[arg-type]
        chosen = build_space(short, HARDWARE["zen4"]).schemes[:50]
        formulas = [adaptation_cost(work, HARDWARE["zen4"]).formulas for work in (short, long)]
        np.testing.assert_array_equal(*(features(one, chosen) for one in formulas))


def test_extents_of_many_shapes_are_those_of_each() -> None:
    work, called = BatchMatmul(T=T, B=6, D=64, form="nn"), [Shape.of(T=t) for t in (1, 7, 128)]
    found = extents_of(work, called)
    for number, shape in enumerate(called):
        assert {role: extent[number] for role, extent in found.items()} == extents(work, shape)
