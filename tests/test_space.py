"""The space: what fits the hardware is kept, everything else is rejected for a stated reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.errors import DispatchError, SpaceError
from dietlab.hardware import CpuLimits, Hardware
from dietlab.shapes import Dim, Shape
from dietlab.space import Leaf, MicroKernel, Space, Split, Tree, build_space, cpu_limits, depth, leaves, route
from dietlab.space.decision import relabelled, tree_from_json, tree_to_json
from dietlab.space.space import MAX_VECTORS, ORDERS, PREFETCHES, UNROLLS
from dietlab.workloads import Dense

QKV = Dense(T=Dim(1, 128), N=2304, K=768)


@st.composite
def processors(draw: st.DrawFn) -> Hardware:
    vectors, registers = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([8, 16, 32]))
    l2 = draw(st.sampled_from([128, 256, 512, 1024, 4096])) << 10
    limits = CpuLimits("generic", vectors, registers, 32 << 10, l2, 0)
    return Hardware("drawn", "test", draw(st.integers(1, 8)), limits)


def candidates(space: Space) -> int:
    registers = space.hardware.cpu.vector_registers
    return registers * MAX_VECTORS * len(UNROLLS) * len(ORDERS) * len(PREFETCHES)


@settings(max_examples=25)
@given(processors(), st.sampled_from([256, 500, 2304]), st.sampled_from([7, 64, 768]))
def test_kept_micro_kernels_satisfy_every_limit_and_none_is_lost(
    hardware: Hardware, cols: int, depth: int
) -> None:
    work = Dense(T=Dim(1, 64), N=cols, K=depth)
    space = build_space(work, hardware)
    lanes, cpu = hardware.cpu.lanes, hardware.cpu
    assert len(space) + sum(r.count for r in space.rejected) == candidates(space)
    assert list(space) == sorted(set(space))
    for kernel in space:
        across = kernel.cols // lanes
        assert kernel.cols % lanes == 0 and kernel.unroll <= depth
        assert kernel.rows * across + across + 1 <= cpu.vector_registers
        assert 4 * kernel.rows * depth <= cpu.l2_bytes / 2 or kernel.rows == 1
        assert kernel.order == "is" or across == 1 or 4 * kernel.cols * depth <= 0.75 * cpu.l2_bytes
        assert -(-cols // kernel.cols) >= hardware.cores


@settings(max_examples=25)
@given(processors(), st.sampled_from([256, 2304]))
def test_nearest_miss_breaks_its_limit_by_least(hardware: Hardware, cols: int) -> None:
    work = Dense(T=Dim(1, 64), N=cols, K=768)
    space = build_space(work, hardware)
    limits = {limit.reason: limit for limit in cpu_limits(work, hardware)}
    order = list(limits)
    everything = [
        MicroKernel(rows, vectors * hardware.cpu.lanes, unroll, o, prefetch)
        for rows in range(1, hardware.cpu.vector_registers + 1) for vectors in range(1, MAX_VECTORS + 1)
        for unroll in UNROLLS for o in ORDERS for prefetch in PREFETCHES
    ]  # fmt: skip
    for rejection in space.rejected:
        limit, earlier = limits[rejection.reason], order[: order.index(rejection.reason)]
        broken = [
            k for k in everything if limit.excess(k) > 0 and all(limits[e].excess(k) <= 0 for e in earlier)
        ]
        assert len(broken) == rejection.count
        assert rejection.nearest_miss in broken
        assert rejection.nearest_value == limit.measure(rejection.nearest_miss) > rejection.most
        assert rejection.nearest_value == min(limit.measure(k) for k in broken)


@pytest.mark.parametrize("preset", ["cascadelake-1core", "zen4-1core"])
def test_space_of_the_main_job_holds_hundreds_of_varied_micro_kernels(preset: str) -> None:
    space = build_space(QKV, Hardware.preset(preset))
    assert len(space) >= 300
    assert {k.order for k in space} == set(ORDERS) and {k.unroll for k in space} == set(UNROLLS)
    assert {14, 8, 6, 1} <= {k.rows for k in space}
    assert MicroKernel(14, 32) in space and MicroKernel(30, 32) not in space
    table = space.rejections
    assert list(table.columns) == ["reason", "count", "most", "unit", "nearest_miss", "nearest_value"]
    assert table["count"].sum() + len(space) == candidates(space)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("cols", "depth"), [(1, 768), (50, 768), (2304, 1), (2304, 7), (1, 1), (17, 3)])
def test_awkward_operators_have_micro_kernels(cols: int, depth: int, cores: int) -> None:
    hardware = Hardware.preset("cascadelake-1core").with_cores(cores)
    space = build_space(Dense(T=Dim(1, 8), N=cols, K=depth), hardware)
    assert len(space) > 0
    assert max(kernel.unroll for kernel in space) <= depth


def test_space_does_not_depend_on_the_range_of_shapes() -> None:
    hardware = Hardware.preset("zen4-1core")
    other = build_space(Dense(T=Dim(7, 4096), N=2304, K=768), hardware)
    assert other.micro_kernels == build_space(QKV, hardware).micro_kernels


def test_edges_multiply_the_space() -> None:
    hardware = Hardware.preset("haswell-1core")
    one, three = build_space(QKV, hardware), build_space(QKV, hardware, ("padded", "checked", "partitioned"))
    assert len(three) == 3 * len(one)


def test_space_without_a_fit_says_how_many_each_limit_rejected() -> None:
    tiny = Hardware("tiny", "test", 1, CpuLimits("generic", 64, 2, 1024, 1024, 0))
    with pytest.raises(
        SpaceError, match=r"at least one micro-kernel fits the hardware; got .*vector registers"
    ):
        build_space(QKV, tiny)


def test_gpu_space_is_refused_for_now() -> None:
    with pytest.raises(ValueError, match="needs a CPU"):
        build_space(QKV, Hardware.preset("t4"))


kernels = st.builds(
    MicroKernel, st.integers(1, 40), st.integers(1, 400), st.integers(1, 16), st.sampled_from(["ws", "is"]),
    st.integers(0, 99), st.sampled_from(["padded", "checked", "partitioned"]),
)  # fmt: skip


@given(kernels, kernels)
def test_key_is_unique_and_reads_back(one: MicroKernel, other: MicroKernel) -> None:
    assert MicroKernel.from_key(one.key) == one
    assert (one.key == other.key) == (one == other)


@pytest.mark.parametrize(
    "key", ["", "8x32", "8x32.u4.ws", "8x32.u4.xs.p0", "8x32.u4.ws.p0.padded", "x8x32.u4.ws.p0 "]
)
def test_text_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(SpaceError, match=r"reads like 8x32\.u4\.ws\.p0; got"):
        MicroKernel.from_key(key)


@pytest.mark.parametrize("sizes", [(0, 32), (8, 0), (8, 32, 0), (-1, 32)])
def test_micro_kernel_of_no_size_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(SpaceError, match="sizes are positive"):
        MicroKernel(*sizes)
    with pytest.raises(SpaceError, match="sizes are positive"):
        MicroKernel(8, 32, prefetch=-1)


trees = st.recursive(
    st.builds(Leaf, st.integers(0, 5)),
    lambda below: st.builds(Split, st.just("T"), st.integers(0, 200), below, below),
    max_leaves=12,
)


def by_hand(tree: Tree, rows: int) -> int:
    if isinstance(tree, Leaf):
        return tree.kernel
    return by_hand(tree.low if rows <= tree.at_most else tree.high, rows)


@given(trees, st.integers(0, 300))
def test_tree_routes_alike_after_json_and_renumbering(tree: Tree, rows: int) -> None:
    shape = Shape.of(T=rows)
    assert route(tree, shape) == by_hand(tree, rows)
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree)))) == tree
    assert route(relabelled(tree, {i: 9 - i for i in range(6)}), shape) == 9 - route(tree, shape)


def test_depth_and_leaves_of_a_known_tree() -> None:
    tree = Split("T", 4, Leaf(2), Split("T", 9, Leaf(0), Leaf(1)))
    assert depth(tree) == 2 and [leaf.kernel for leaf in leaves(tree)] == [2, 0, 1]
    assert [route(tree, Shape.of(T=t)) for t in (0, 4, 5, 9, 10, 9999)] == [2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "value", [{}, {"dim": "T"}, None, "0", [1], {"dim": "T", "at_most": None, "low": 0, "high": 1}]
)
def test_json_that_is_no_tree_is_refused(value: object) -> None:
    with pytest.raises(DispatchError, match="a decision tree has dim, at_most, low and high"):
        tree_from_json(value)
