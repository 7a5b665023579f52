"""The space: what fits the hardware is kept, everything else is rejected for a stated reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.base.errors import DispatchError, SpaceError
from dietlab.cost.measured import program_on
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, batch_of
from dietlab.scheme import (
    COMPOSED,
    EDGES,
    Edge,
    Leaf,
    MicroKernel,
    Scheme,
    Space,
    Split,
    Tree,
    build_space,
    depth,
    edges_of,
    heights,
    intervals,
    leaves,
    plan_for,
    route,
    scheme_with,
    tiling,
    with_rows,
)
from dietlab.scheme.tree import relabelled, tree_from_json, tree_to_json
from dietlab.targets.cpu.limits import CpuLimits
from dietlab.targets.cpu.space import FMA_LATENCY, MAX_VECTORS, ORDERS, UNROLLS, streams
from dietlab.targets.cpu.space import limits as cpu_limits


def output(rows: int, cols: int) -> tuple[Workload, Shape]:
    """Returns an operator and its shape with an output of that size."""
    return BatchMatmul(T=Dim(1, 1000), B=1, D=cols, form="nn"), Shape.of(T=rows)


QKV = Dense(T=Dim(1, 128), N=2304, K=768)
VARIABLE = Dense(T=Dim(1, 128), N=2304, K=768, constant=False)
SCORES = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nt")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nn")


@st.composite
def processors(draw: st.DrawFn) -> Hardware:
    vectors, registers = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([8, 16, 32]))
    l2 = draw(st.sampled_from([128, 256, 512, 1024, 4096])) << 10
    limits = CpuLimits("generic", vectors, registers, 32 << 10, l2, 0)
    return Hardware("drawn", "test", draw(st.integers(1, 8)), limits)


def candidates(space: Space) -> int:
    registers, reads = space.hardware.limits.vector_registers, len(streams(space.workload))
    axes = 2 if space.workload.weights == "transposed" else 1  # vectors along columns, or depth
    return registers * MAX_VECTORS * len(UNROLLS) * len(ORDERS) * reads * axes


@settings(max_examples=15)
@given(
    processors(),
    st.sampled_from([256, 500, 2304]),
    st.sampled_from([7, 64, 768]),
    st.sampled_from(EDGES),
    st.booleans(),
)
def test_kept_micro_kernels_satisfy_every_limit_and_none_is_lost(
    hardware: Hardware, cols: int, depth: int, edge: Edge, constant: bool
) -> None:
    work = Dense(T=Dim(1, 64), N=cols, K=depth, constant=constant)
    space = build_space(work, hardware, (edge,))
    lanes, cpu = hardware.limits.lanes, hardware.limits
    assert len(space) + sum(r.count for r in space.rejected) == candidates(space)
    assert list(space) == sorted(set(space))
    for kernel in space:
        across = kernel.kernel.vectors(lanes)
        assert kernel.edge == edge
        assert kernel.kernel.along == "depth" or (kernel.cols % lanes == 0 and kernel.kernel.unroll <= depth)
        assert kernel.rows * across + across + 1 <= cpu.vector_registers
        assert kernel.rows * across >= FMA_LATENCY
        assert edge != "padded" or 4 * kernel.rows * depth <= cpu.l2_bytes / 2 or kernel.rows == 1
        steps = kernel.kernel.block or depth
        assert kernel.order == "is" or across == 1 or 4 * kernel.cols * steps <= 0.75 * cpu.l2_bytes
        assert kernel.order == "ws" or (constant and not kernel.kernel.ahead)
        assert constant or not kernel.kernel.ahead
        assert -(-cols // kernel.cols) >= hardware.cores


@settings(max_examples=6)
@given(processors(), st.sampled_from([256, 2304]), st.sampled_from([QKV, VARIABLE]))
def test_nearest_miss_breaks_its_limit_by_least(hardware: Hardware, cols: int, like: Dense) -> None:
    work = replace(like, N=cols)
    space = build_space(work, hardware, ("padded",))
    limits = {limit.reason: limit for limit in cpu_limits(work, hardware)}
    order, lanes = list(limits), hardware.limits.lanes
    everything = [
        cpu_scheme(rows, vectors * width, unroll, o, steps, "padded", ahead, along, block)
        for along, width in ((("cols", lanes), ("depth", 1)) if like is VARIABLE else (("cols", lanes),))
        for rows in range(1, hardware.limits.vector_registers + 1)
        for vectors in range(1, MAX_VECTORS + 1)
        for unroll in UNROLLS
        for o in ORDERS
        for steps, ahead, block in streams(work)
    ]
    first_broken = {k: next((r for r in order if limits[r].excess(k) > 0), None) for k in everything}
    assert {k for k, reason in first_broken.items() if reason is None} == set(space)
    for rejection in space.rejected:
        limit = limits[rejection.reason]
        broken = [k for k, reason in first_broken.items() if reason == rejection.reason]
        assert len(broken) == rejection.count
        assert rejection.nearest_miss in broken
        assert rejection.nearest_value == limit.measure(rejection.nearest_miss) > rejection.most
        assert rejection.nearest_value == min(limit.measure(k) for k in broken)


@pytest.mark.parametrize("preset", ["cascadelake-1core", "zen4-1core"])
def test_space_of_the_main_job_holds_hundreds_of_varied_micro_kernels(preset: str) -> None:
    space = build_space(QKV, Hardware.preset(preset))
    assert len(space) >= 300
    assert {k.order for k in space} == set(ORDERS) and {k.kernel.unroll for k in space} == set(UNROLLS)
    assert {14, 8, 6, 1} <= {k.rows for k in space}
    assert cpu_scheme(14, 32, edge="even") in space and cpu_scheme(30, 32, edge="even") not in space
    assert {k.edge for k in space} == {"even"} and {k.kernel.ahead for k in space} == {False, True}
    table = space.rejections
    assert list(table.columns) == ["reason", "rejected", "most", "unit", "nearest_miss", "nearest_value"]
    assert table["rejected"].sum() + len(space) == candidates(space)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("cols", "depth"), [(1, 768), (50, 768), (2304, 1), (2304, 7), (1, 1), (17, 3)])
def test_awkward_operators_have_micro_kernels(cols: int, depth: int, cores: int) -> None:
    hardware = Hardware.preset("cascadelake-1core").with_cores(cores)
    space = build_space(Dense(T=Dim(1, 8), N=cols, K=depth), hardware)
    assert len(space) > 0
    assert max(kernel.kernel.unroll for kernel in space) <= depth


def test_space_does_not_depend_on_the_range_of_shapes() -> None:
    hardware = Hardware.preset("zen4-1core")
    for edge in ("even", "padded"):
        other = build_space(Dense(T=Dim(7, 4096), N=2304, K=768), hardware, (edge,))
        assert other.schemes == build_space(QKV, hardware, (edge,)).schemes


def test_edges_multiply_the_space() -> None:
    hardware = Hardware.preset("haswell-1core")
    one, all_of_them = build_space(QKV, hardware), build_space(QKV, hardware, EDGES)
    cut = sum(kernel.kernel.block > 0 for kernel in one)
    assert len(all_of_them) == len(EDGES) * (len(one) - cut) + len(COMPOSED) * cut


@pytest.mark.parametrize(
    ("work", "ahead", "orders"),
    [
        (QKV, {True, False}, {"ws", "is"}),
        (SCORES, {True, False}, {"ws"}),
        (VARIABLE, {False}, {"ws"}),
        (CONTEXT, {True, False}, {"ws", "is"}),
    ],
)
def test_what_can_be_asked_for_ahead_and_exchanged(
    work: Workload, ahead: set[bool], orders: set[str]
) -> None:
    space = build_space(work, Hardware.preset("zen4-1core"), EDGES)
    assert {kernel.kernel.ahead for kernel in space} == ahead and {kernel.order for kernel in space} == orders
    # The next panel is that of weights which stay; a batch's next product is asked for in any order.
    assert batch_of(work) or {kernel.order for kernel in space if kernel.kernel.ahead} <= {"ws"}


def test_a_dynamic_depth_has_no_padded_copy_but_every_other_edge() -> None:
    hardware = Hardware.preset("zen4-1core")
    space = build_space(CONTEXT, hardware, EDGES)
    assert {k.edge for k in space if k.rows > 1} == set(EDGES) - {"padded"}
    assert edges_of("paper", CONTEXT, hardware) == ("partitioned",)
    for work in (QKV, VARIABLE, SCORES):
        assert edges_of("paper", work, hardware) == ("padded",)
    for work in (QKV, VARIABLE, SCORES, CONTEXT):
        assert edges_of("composed", work, hardware) == ("even",)
        for cover in ("composed", "paper"):
            assert len(build_space(work, hardware, edges_of(cover, work, hardware))) > 100


def test_a_reduction_is_cut_into_equal_parts_where_weights_stream() -> None:
    """Plans are composed and ask for the next panel; panels of a part are shorter, so that wider ones fit."""
    hardware = Hardware.preset("zen4-1core")
    parts = {256: set(), 768: {256}, 4096: {256, 512, 1024}, 4608: {256, 512}, 4100: set()}
    for steps, blocks in parts.items():
        space = build_space(Dense(T=Dim(1, 512), N=4096, K=steps), hardware, EDGES)
        assert {kernel.kernel.block for kernel in space} == {0, *blocks}, steps
        cut = {(k.order, k.composed, k.kernel.ahead) for k in space if k.kernel.block}
        assert cut <= {("ws", True, True)}
        widest_last = sorted((k for k in space if k.order == "ws"), key=lambda k: k.cols)
        widths = {bool(k.kernel.block): k.cols for k in widest_last}
        assert steps < 4096 or not blocks or widths[True] > widths[False]
    for work in (Dense(T=Dim(1, 64), N=4096, K=4096, constant=False), BatchMatmul(Dim(1, 64), 2, 4096, "nt")):
        assert {kernel.kernel.block for kernel in build_space(work, hardware)} == {0}


def test_products_of_a_batch_need_no_panel_for_every_core() -> None:
    """They are dealt whole, so that a tile as wide as the output keeps all cores busy."""
    wide = cpu_scheme(4, 64, edge="even")
    four = Hardware.preset("zen4-1core").with_cores(4)
    assert wide in build_space(CONTEXT, four)
    assert wide not in build_space(Dense(T=Dim(1, 128), N=64, K=64), four)


def test_space_without_a_fit_says_how_many_each_limit_rejected() -> None:
    tiny = Hardware("tiny", "test", 1, CpuLimits("generic", 64, 2, 1024, 1024, 0))
    said = r"at least one scheme for dense .* must fit tiny; got none; .*vector registers \(\d"
    with pytest.raises(SpaceError, match=said):
        build_space(QKV, tiny)
    said = r"; got none; .*: the micro-kernel's unit multiplies float16 on this processor \([\d,]+\)\. T"
    with pytest.raises(SpaceError, match=said):
        build_space(replace(QKV, dtype="float16"), Hardware.preset("zen4-1core"))


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        ("padded", r"got the string 'padded'\. Give a list of them, as in \['even'\]"),
        (["pad"], "got pad$"),
        (["even", "pad"], "got pad$"),
        ([], "got none of them"),
    ],
)
def test_unknown_treatments_of_the_edge_make_no_space(edges: Any, complaint: str) -> None:
    known = "treatments of the edge tile are even, rest, padded, checked, partitioned"
    with pytest.raises(SpaceError, match=f"{known}; {complaint}"):
        build_space(QKV, Hardware.preset("zen4-1core"), edges=edges)


def test_weights_on_the_fly_that_no_stack_holds_are_refused() -> None:
    deep = Dense(T=Dim(1, 8), N=64, K=200_000)
    assert len(build_space(deep, Hardware.preset("zen4-1core"))) > 0
    with pytest.raises(SpaceError, match="a panel transposed on the fly fits the stack"):
        build_space(replace(deep, constant=False), Hardware.preset("zen4-1core"), ("padded",))
    composed = build_space(replace(deep, constant=False), Hardware.preset("zen4-1core"))
    assert {kernel.kernel.along for kernel in composed} == {"depth"}  # without a copy


kernels = st.builds(
    cpu_scheme,
    st.integers(1, 40),
    st.integers(1, 400),
    st.integers(1, 16),
    st.sampled_from(["ws", "is"]),
    st.integers(0, 99),
    st.sampled_from(EDGES),
    st.booleans(),
    st.sampled_from(["cols", "depth"]),
    st.sampled_from([0, 512, 1024]),
)


@given(kernels, kernels)
def test_key_is_unique_and_reads_back(one: MicroKernel, other: MicroKernel) -> None:
    assert Scheme.from_key(one.key) == one
    assert (one.key == other.key) == (one == other)


def test_keys_of_known_micro_kernels() -> None:
    assert cpu_scheme(8, 32, 4, ahead=True, edge="even").key == "8x32.u4.ws.p0a.even"
    assert str(cpu_scheme(8, 32, 4, "is", 16, "rest")) == "8x32.u4.is.p16.rest"
    assert cpu_scheme(6, 48, 2, ahead=True, edge="even", block=512).key == "6x48.u2.ws.p0a.k512.even"
    assert Scheme.from_key("8x32.u4.ws.p0") == cpu_scheme(8, 32, 4)


@given(kernels)
def test_a_scheme_and_what_it_shares(scheme: Scheme) -> None:
    assert Scheme(scheme.kernel, scheme.edge, scheme.order) == scheme
    assert scheme.family.family == scheme.family
    assert scheme_with(scheme.family, rows=scheme.rows, edge=scheme.edge) == scheme
    lower = scheme.heights
    assert scheme in lower and {s.family for s in lower} == {scheme.family}
    assert [s.rows for s in lower] == (list(range(1, scheme.rows + 1)) if scheme.composed else [scheme.rows])


@pytest.mark.parametrize(
    "key",
    [
        "",
        "8x32",
        "8x32.u4.ws",
        "8x32.u4.xs.p0",
        "8x32.u4.ws.p0.padded",
        "x8x32.u4.ws.p0 ",
        "8x32.u4.ws.pa",
        "8x32.u4.ws.p0b",
        "8x32.u4.ws.p0.evenly",
        "8x32.u4.ws.p0.even.rest",
    ],
)
def test_text_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(SpaceError, match=r"reads like 8x32\.u4\.ws\.p0\.even \(cpu\) or .*; got"):
        Scheme.from_key(key)


@pytest.mark.parametrize("sizes", [(0, 32), (8, 0), (8, 32, 0), (-1, 32)])
def test_micro_kernel_of_no_size_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(SpaceError, match="sizes must be positive"):
        cpu_scheme(*sizes)
    with pytest.raises(SpaceError, match="sizes must be positive"):
        cpu_scheme(8, 32, prefetch=-1)


# Plans


@given(kernels, st.integers(0, 4000))
def test_a_plan_covers_every_row_exactly_once(kernel: MicroKernel, rows: int) -> None:
    plan = plan_for(kernel, rows)
    next_row = 0
    for region in plan.regions:
        assert region.first_row == next_row and region.tiles > 0 and 0 < region.kernel.rows <= kernel.rows
        assert region.kernel == with_rows(kernel.kernel, region.kernel.rows)
        next_row += region.rows
    assert next_row == rows == plan.rows
    assert plan.tiles == -(-rows // kernel.rows)
    sizes = [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == plan.executed_rows
    if kernel.composed:
        assert plan.executed_rows == rows
    else:
        assert set(sizes) <= {kernel.rows} and 0 <= plan.executed_rows - rows < kernel.rows
    if kernel.edge == "even":
        assert not sizes or sizes[0] - sizes[-1] <= 1
    if kernel.edge == "rest":
        assert set(sizes[:-1]) <= {kernel.rows}


def test_plans_of_the_drawing() -> None:
    expected = {
        "even": [(11, 0, 1), (10, 11, 2)],
        "rest": [(14, 0, 2), (3, 28, 1)],
        "padded": [(14, 0, 3)],
        "checked": [(14, 0, 3)],
        "partitioned": [(14, 0, 3)],
    }
    for edge in EDGES:
        plan = plan_for(cpu_scheme(14, 32, edge=edge), 31)
        assert [(r.kernel.rows, r.first_row, r.tiles) for r in plan.regions] == expected[edge]
    assert str(plan_for(cpu_scheme(14, 32, edge="even"), 31)) == "1 x 11 + 2 x 10 rows of 14x32.u1.ws.p0.even"


def test_plans_of_the_same_tiles_are_told_from_others() -> None:
    twins = ("12x32.u1.ws.p0.even", "12x32.u1.ws.p0.rest", "14x32.u1.ws.p0.even")
    others = ("14x32.u1.ws.p0.rest", "12x32.u1.is.p0.even", "12x32.u2.ws.p0.even", "12x32.u1.ws.p0.checked")
    seen = [tiling(Scheme.from_key(key), *output(48, 64)) for key in (*twins, *others, "12x32.u1.ws.p0")]
    assert len(set(seen[:3])) == 1 and len(set(seen)) == 6
    # Dot products are composed along the columns too: 7 = 3 + 4 or 5 + 2.
    even, rest = (Scheme.from_key(f"4x5.u1.ws.p0.depth.{edge}") for edge in ("even", "rest"))
    assert tiling(even, *output(8, 10)) == tiling(rest, *output(8, 10)) != tiling(even, *output(8, 7))
    assert tiling(even, *output(8, 7)) != tiling(rest, *output(8, 7))


def test_what_a_gpu_reserves_for_its_tallest_tile_makes_another_program() -> None:
    work, shape = Dense(T=Dim(1, 128), N=64, K=64), Shape.of(T=48)
    cpu = [Scheme.from_key(f"{rows}x32.u1.ws.p0.even") for rows in (12, 14)]
    gpu = [Scheme.from_key(f"{rows}x64x16.t16x16.s2.even") for rows in (64, 128)]
    for pair, programs in ((cpu, 1), (gpu, 2)):
        assert len({tiling(kernel, work, shape) for kernel in pair}) == 1
        assert len({program_on(kernel, work, shape) for kernel in pair}) == programs


@given(kernels, kernels, st.integers(1, 300), st.integers(1, 100))
def test_equal_tilings_have_equal_plans(one: Scheme, other: Scheme, rows: int, cols: int) -> None:
    heights_of = [[(r.kernel.rows, r.tiles) for r in plan_for(k, rows).regions] for k in (one, other)]
    if tiling(one, *output(rows, cols)) == tiling(other, *output(rows, cols)):
        assert one.family == other.family and heights_of[0] == heights_of[1]
    assert tiling(one, *output(rows, cols)) == tiling(one, *output(rows, cols))


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 14])
def test_heights_are_those_that_plans_use(edge: Edge, rows: int) -> None:
    kernel = cpu_scheme(rows, 16, edge=edge)
    far = 3 * rows * rows + 50
    used = [{r.kernel.rows for r in plan_for(kernel, extent).regions} for extent in range(far)]
    for low in range(1, rows * rows + 10, max(1, rows // 3)):
        # An open end is a long range: heights repeat long before it ends.
        assert set(heights(kernel, low)) == set().union(*used[low:])
        for high in (low, low + 1, low + rows - 1, 2 * low, far - 1):
            found = heights(kernel, low, high)
            assert list(found) == sorted(set(found))
            assert set(found) == set().union(*used[low : high + 1])


trees = st.recursive(
    st.builds(Leaf, st.integers(0, 5)),
    lambda below: st.builds(Split, st.just("T"), st.integers(1, 200), below, below),
    max_leaves=12,
)


def by_hand(tree: Tree, rows: int) -> int:
    if isinstance(tree, Leaf):
        return tree.scheme
    return by_hand(tree.low if rows <= tree.at_most else tree.high, rows)


@given(trees, st.integers(0, 300))
def test_tree_routes_alike_after_json_and_renumbering(tree: Tree, rows: int) -> None:
    shape = Shape.of(T=rows)
    assert route(tree, shape) == by_hand(tree, rows)
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree)))) == tree
    assert route(relabelled(tree, {i: 9 - i for i in range(6)}), shape) == 9 - route(tree, shape)


@given(trees, st.integers(-5, 60), st.none() | st.integers(-5, 260))
def test_intervals_of_a_tree_partition_the_range(tree: Tree, low: int, high: int | None) -> None:
    found = intervals(tree, low, high)
    end = 299 if high is None else high
    covered = [
        (rows, number)
        for number, first, last in found
        for rows in range(first, (end if last is None else last) + 1)
    ]
    assert covered == [(rows, by_hand(tree, rows)) for rows in range(low, end + 1)]
    assert all(last is not None for _, _, last in found[:-1])
    if high is None:
        assert found[-1][2] is None


def test_depth_and_leaves_of_a_known_tree() -> None:
    tree = Split("T", 4, Leaf(2), Split("T", 9, Leaf(0), Leaf(1)))
    assert depth(tree) == 2 and [leaf.scheme for leaf in leaves(tree)] == [2, 0, 1]
    assert [route(tree, Shape.of(T=t)) for t in (0, 4, 5, 9, 10, 9999)] == [2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "value", [{}, {"dim": "T"}, None, "0", [1], {"dim": "T", "at_most": None, "low": 0, "high": 1}]
)
def test_json_that_is_no_tree_is_refused(value: object) -> None:
    told = r"of a decision tree must be an extent|a decision tree must be a scheme's number, or have dim"
    with pytest.raises(DispatchError, match=told):
        tree_from_json(value)
