"""Thread-block tiles: what fits a GPU is kept, everything else is rejected for a stated reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from conftest import in_turn
from cuda_samples import CONTEXT, CUDA_EDGES, DENSE, GPUS, SCORES, WORKS, cuda_kernels, few, typed
from hypothesis import given, settings
from hypothesis import strategies as st
from schemes import cuda_scheme

from dietlab.base.errors import SpaceError
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Workload, require_dtype
from dietlab.scheme import Scheme, build_space, edges_of, heights, plan_for
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.limits import GpuLimits
from dietlab.targets.cuda.space import ARRANGEMENTS, ENDING, MULTICAST, SHARES, STAGES, STEPS, units
from dietlab.targets.cuda.space import limits as cuda_limits
from dietlab.targets.cuda.unit import GROUPED, PIECES

KERNEL = cuda_scheme(128, 64, 16, 16, 16, stages=3)
HALVES = cuda_scheme(128, 64, 32, 2, 2, unit="mma")
GROUPS = cuda_scheme(128, 256, 64, 2, 1, stages=4, unit="wgmma")


# Micro-kernels


@given(cuda_kernels(), cuda_kernels())
def test_key_is_unique_and_reads_back(one: CudaScheme, other: CudaScheme) -> None:
    assert Scheme.from_key(one.key) == one
    assert CpuMicroKernel.parse(one.key) is None
    assert (one.key == other.key) == (one == other)


def test_keys_of_known_micro_kernels() -> None:
    assert KERNEL.key == "128x64x16.t16x16.s3"
    sliced = cuda_scheme(32, 64, 64, 4, 16, 4, 3, edge="even")
    assert str(sliced) == sliced.key == "32x64x64.t4x16x4.s3.even"
    warps = cuda_scheme(128, 128, 32, 2, 2, stages=4, unit="mma")
    assert warps.key == "128x128x32.w2x2.s4"
    assert KERNEL.changed(edge="checked").key == "128x64x16.t16x16.s3.checked"
    assert Scheme.from_key("128x128x32.w2x2.s4.rest") == warps.changed(edge="rest")
    assert Scheme.from_key("128x64x16.t16x16.s3.checked") == KERNEL.changed(edge="checked")
    assert HALVES.changed(splits=4, resident=2, edge="even").key == "128x64x32.w2x2.s2.k4.b2.even"
    assert GROUPS.key == "128x256x64.g2x1.s4"
    assert Scheme.from_key("128x256x64.g2x1.s4.k2.rest") == GROUPS.changed(splits=2, edge="rest")
    assert Scheme.from_key("128x64x16.t16x16.s3.k8") == KERNEL.changed(splits=8)
    assert Scheme.from_key("128x64x16.t16x16.s3.b2") == KERNEL.changed(resident=2)


NO_KEYS = (
    *("128x64x16", "128x64.t16x16.s3", "128x64x16.t16x16", "128x64x16.z16x16.s3", "128x64x16.t16.s3"),
    *(f"128x64x16.t16x16.s3.{edge}" for edge in ("padded", "evenly", "even.rest", "k", "b2.k4", "even.k2")),
    *(" 128x64x16.t16x16.s3", "128x64x16.t16x16.s3\n", "128x64x16.t16x16.s"),
)


@pytest.mark.parametrize("key", NO_KEYS)
def test_text_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(SpaceError, match=r"or 128x64x16\.t16x16\.s3\.even \(cuda\); got"):
        Scheme.from_key(key)


@pytest.mark.parametrize(
    ("scheme", "changed", "complaint"),
    [
        (KERNEL, {"rows": 0}, r"sizes must be positive; got 0x64x16\.t16x16\.s3\. Make each 1 or more"),
        (KERNEL, {"stages": 0}, r"sizes must be positive; got 128x64x16\.t16x16\.s0"),
        (
            KERNEL,
            {"stages": 1},
            r"one stage must be fetched while another is computed; got .*\.s1\. Give it 2",
        ),
        (KERNEL, {"slices": -1}, "sizes must be positive"),
        (KERNEL, {"rows": 120}, r"a multiple of 16 rows; got 120x64x16\.t16.* Change the rows"),
        (KERNEL, {"cols": 60}, r"a multiple of 16 columns; got 128x60x16\..* Change the columns"),
        (KERNEL, {"step": 18}, r"a multiple of 4 steps; got 128x64x18\..* Change the steps"),
        (KERNEL, {"slices": 8}, r"share a multiple of 32 steps; got 128x64x16\.t16x16x8\.s3"),
        (
            KERNEL,
            {"edge": "partitioned"},
            r"padded, even, rest, checked; .*; got partitioned, ws\. Choose",
        ),
        # Tensor cores want whole fragments,
        (HALVES, {"rows": 48}, "share a multiple of 32 rows; got 48x64x32"),
        (HALVES, {"cols": 48}, "share a multiple of 32 columns; got 128x48x32"),
        (HALVES, {"step": 24}, "share a multiple of 16 steps; got 128x64x24"),
        (HALVES, {"slices": 4}, "share a multiple of 64 steps; got 128x64x32"),
        (HALVES, {"edge": "checked"}, "padded, even, rest; its order .*; got checked"),
        # and groups of warps whole instructions.
        (GROUPS, {"rows": 192}, "share a multiple of 128 rows; got 192x256x64"),
        (GROUPS, {"cols": 248}, "share a multiple of 16 columns; got 128x248x64"),
        (
            GROUPS,
            {"cols": 272},
            r"must compute at most 256 columns; got 128x272x64\.g2x1\.s4\. Let more share",
        ),
        (GROUPS, {"step": 72}, "share a multiple of 16 steps; got 128x256x72"),
        (GROUPS, {"stages": 2}, r"fetched while two are computed; got .*\.s2\. Give it 3 or more"),
        (GROUPS, {"edge": "checked"}, "padded, even, rest; its order .*; got checked"),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_refused(
    scheme: CudaScheme, changed: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SpaceError, match=complaint):
        scheme.changed(**changed)


@given(cuda_kernels())
def test_a_scheme_and_what_it_shares(scheme: CudaScheme) -> None:
    kernel, lower = scheme.kernel, scheme.heights
    fragment, threads = {"fma": (1, 1), "mma": (16, 32), "wgmma": (64, 128)}[kernel.unit]
    assert kernel.granule == kernel.down * fragment and kernel.rows % kernel.granule == 0
    assert Scheme(kernel, scheme.edge) == scheme and scheme.family.family == scheme.family
    assert scheme.family.changed(rows=kernel.rows, edge=scheme.edge) == scheme
    assert scheme in lower and {s.family for s in lower} == {scheme.family}
    assert {s.kernel.granule for s in lower} == {kernel.granule}
    assert {s.kernel.threads for s in lower} == {kernel.threads}
    expected = range(kernel.granule, kernel.rows + 1, kernel.granule) if scheme.composed else [kernel.rows]
    assert [s.rows for s in lower] == list(expected)
    assert kernel.tile == {"rows": kernel.rows, "cols": kernel.cols, "depth": kernel.step}
    covered = kernel.granule if scheme.composed else kernel.rows
    assert scheme.cover_tile == {**kernel.tile, "rows": covered}
    assert kernel.threads == kernel.down * kernel.across * kernel.slices * threads
    # What is on its way, what is computed and, in groups of warps, what may still be.
    assert kernel.ahead == kernel.stages - (2 if kernel.unit == "wgmma" else 1) > 0
    assert kernel.tile_rows * kernel.down == kernel.rows and kernel.tile_cols * kernel.across == kernel.cols
    # Each slice has all sums of the tile.
    assert kernel.accumulators * kernel.threads == kernel.rows * kernel.cols * kernel.slices


# Plans


@given(cuda_kernels(), st.integers(0, 5000))
def test_a_plan_covers_every_row_exactly_once(kernel: CudaScheme, rows: int) -> None:
    plan = plan_for(kernel, rows)
    next_row = 0
    for region in plan.regions:
        assert region.first_row == next_row and region.tiles > 0
        assert region.scheme == kernel.changed(rows=region.kernel.rows)
        assert region.kernel.rows <= kernel.rows and region.kernel.rows % kernel.kernel.granule == 0
        # Every tile has rows of its own, and all but the last region are full.
        assert (region.tiles - 1) * region.kernel.rows < region.rows <= region.executed_rows
        assert region is plan.regions[-1] or region.rows == region.executed_rows
        next_row += region.rows
    assert next_row == rows == plan.rows
    assert plan.tiles == -(-rows // kernel.rows)
    assert 0 <= plan.executed_rows - rows < (kernel.kernel.granule if kernel.composed else kernel.rows)
    sizes = [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]
    assert sizes == sorted(sizes, reverse=True)
    if kernel.edge == "even":
        assert not sizes or sizes[0] - sizes[-1] <= kernel.kernel.granule
    if kernel.edge == "rest":
        assert set(sizes[:-1]) <= {kernel.rows}


@given(cuda_kernels(), st.integers(1, 1500), st.integers(0, 200))
def test_heights_are_those_that_plans_use(kernel: CudaScheme, low: int, more: int) -> None:
    used = {r.kernel.rows for rows in range(low, low + more + 1) for r in plan_for(kernel, rows).regions}
    assert heights(kernel, low, low + more) == tuple(sorted(used))


@settings(max_examples=20)
@given(cuda_kernels(units=("fma",)), st.integers(1, 300))
def test_an_open_end_is_a_long_range(kernel: CudaScheme, low: int) -> None:
    """Heights repeat long before it ends."""
    most = kernel.rows // kernel.kernel.granule
    end = max(low, kernel.rows * most) + 3 * kernel.rows
    used = {r.kernel.rows for rows in range(low, end + 1) for r in plan_for(kernel, rows).regions}
    assert heights(kernel, low) == tuple(sorted(used))


def test_plans_of_a_known_micro_kernel() -> None:
    kernel = cuda_scheme(64, 64, 16, 16, 16)  # in granules of 16 rows, of which 100 rows need seven
    expected = {
        "even": [(64, 0, 64, 1), (48, 64, 36, 1)],
        "rest": [(64, 0, 64, 1), (48, 64, 36, 1)],
        "padded": [(64, 0, 100, 2)],
    }
    for edge in CUDA_EDGES:
        plan = plan_for(kernel.changed(edge=edge), 100)
        assert [(r.kernel.rows, r.first_row, r.rows, r.tiles) for r in plan.regions] == expected[edge]
    even, rest = (plan_for(kernel.changed(edge=edge), 144) for edge in ("even", "rest"))  # nine granules
    assert str(even) == "3 x 48 rows of 64x64x16.t16x16.s2.even"
    assert str(rest) == "2 x 64 + 1 x 16 rows of 64x64x16.t16x16.s2.rest"
    assert heights(kernel.changed(edge="even"), 100, 144) == (48, 64)


# The space


def candidates(work: Workload, hardware: Hardware) -> int:
    """How many are tried: every tile in every way, twice where a second resident block needs a bound."""
    clusters, total = hardware.limits.compute_capability == "9.0", 0
    for unit in units(work, hardware):
        down_across, tiles = ARRANGEMENTS[unit][:2], [*product(*ARRANGEMENTS[unit][2:])]
        for slices, splits in SHARES:
            if (splits > 1 and not clusters) or (PIECES[unit].producers and slices > 1):
                continue
            shared = len(MULTICAST) + len(ENDING) if unit == "tma" and splits == 1 else 1
            steps = [step for step in STEPS[unit] if step % (PIECES[unit].steps * slices) == 0]
            parts = len(steps) * len(tiles)
            if unit == "fma":
                few = sum(rows * cols <= 64 and cols < 16 for rows, cols in tiles)
                parts = len(steps) * few + steps.count(8)
            for down, across in product(*down_across):
                threads = down * across * slices * PIECES[unit].threads + PIECES[unit].producers
                bounded = 2 * threads * 255 > 65536
                total += parts * len(STAGES[unit]) * (2 if bounded else 1) * shared
    return total


def check_fits(kernel: CudaScheme, work: Workload, limits: GpuLimits) -> None:
    """The limits, computed from the sizes alone."""
    item = require_dtype(work.dtype).itemsize
    workers = kernel.kernel.down * kernel.kernel.across * kernel.kernel.slices
    threads = workers * (128 if kernel.kernel.unit in GROUPED else {"fma": 1, "mma": 32}[kernel.kernel.unit])
    assert 64 <= threads <= limits.threads_per_block
    sums = kernel.rows * kernel.cols * kernel.kernel.slices // threads
    assert sums < limits.registers_per_thread
    assert sums * threads <= limits.registers_per_block
    pad = 0 if kernel.kernel.unit in GROUPED else 16
    down, across = kernel.kernel.run_rows, kernel.kernel.panel_run_cols  # lines between two pads
    lines = kernel.rows * kernel.kernel.step * item + kernel.rows // down * pad
    if work.weights == "direct":
        lines += kernel.kernel.step * (kernel.cols * item + pad)
    else:
        lines += kernel.cols * kernel.kernel.step * item + kernel.cols // across * pad
    shared = max(kernel.kernel.slices - 1, int(kernel.kernel.sharing > 1))
    smem = max(kernel.kernel.stages * lines, 4 * kernel.rows * kernel.cols * shared)
    assert smem <= limits.smem_per_block_bytes
    assert kernel.kernel.stages <= 2 or limits.compute_capability != "7.5"
    assert kernel.kernel.splits == 1 or (limits.compute_capability == "9.0" and kernel.kernel.slices == 1)
    assert kernel.kernel.sharing == 1 or 2 * kernel.kernel.sharing * kernel.kernel.step <= 768
    assert kernel.kernel.resident * threads <= limits.threads_per_sm
    assert kernel.kernel.resident * smem <= limits.smem_per_sm_bytes
    assert kernel.kernel.resident == 1 or 2 * sums * threads <= 65536


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize(("preset", "dtype"), in_turn(GPUS, ("float32", "float16")))
def test_space_is_of_a_useful_size_and_all_of_it_fits(preset: str, name: str, dtype: str) -> None:
    work, hardware = typed(WORKS[name], dtype), Hardware.preset(preset)
    if preset == "t4" and dtype != "float32":
        with pytest.raises(SpaceError, match="tensor cores multiply"):
            build_space(work, hardware)
        return
    space = build_space(work, hardware)
    assert 100 <= len(space) <= 20_000
    assert list(space) == sorted(set(space))
    assert {(type(scheme.kernel), scheme.edge) for scheme in space} == {(CudaMicroKernel, "even")}
    halves = {"mma", "wgmma"} if preset in ("h100", "h200") else {"mma"}
    if preset in ("h100", "h200") and name == "dense":
        halves |= {"tma", "swapped"}
    assert {k.kernel.unit for k in space} == ({"fma"} if dtype == "float32" else halves)
    for scheme in space:
        check_fits(scheme, work, hardware.limits)


@pytest.mark.parametrize(("preset", "dtype"), [("t4", "float32"), ("a100", "float32"), ("h100", "bfloat16")])
def test_rejections_name_reasons_and_nearest_misses(preset: str, dtype: str) -> None:
    work, hardware = typed(DENSE, dtype), Hardware.preset(preset)
    space = build_space(work, hardware)
    limits = {limit.reason: limit for limit in cuda_limits(work, hardware)}
    table = space.rejections
    assert list(table.columns) == ["reason", "rejected", "most", "unit", "nearest_miss", "nearest_value"]
    assert table["rejected"].sum() + len(space) == candidates(work, hardware)
    assert len(table) >= 3 and set(table["reason"]) <= set(limits)
    for rejection in space.rejected:
        limit = limits[rejection.reason]
        assert rejection.nearest_miss not in space
        assert rejection.nearest_value == limit.measure(rejection.nearest_miss) > rejection.most
    copies = "copies without cp.async go through registers: two stages at most"
    assert (copies in set(table["reason"])) == (preset == "t4")


@pytest.mark.parametrize("work", [DENSE, SCORES, CONTEXT], ids=["dense", "scores", "context"])
def test_papers_cover_is_local_padding_of_the_same_tiles(work: Workload) -> None:
    """A dynamic reduction axis is padded where it is fetched, so that no form needs loop partitioning."""
    hardware = Hardware.preset("t4")
    assert edges_of("paper", work, hardware) == ("padded",)
    assert edges_of("composed", work, hardware) == ("even",)
    spaces = [build_space(work, hardware, edges_of(cover, work, hardware)) for cover in ("composed", "paper")]
    composed, paper = spaces
    assert {kernel.edge for kernel in paper} == {"padded"}
    assert {scheme.kernel for scheme in composed} == {scheme.kernel for scheme in paper}
    assert len(build_space(work, hardware, CUDA_EDGES)) == 3 * len(paper)


def test_halves_on_a_t4_are_refused_with_the_one_reason() -> None:
    for dtype in ("float16", "bfloat16"):
        with pytest.raises(SpaceError) as caught:
            build_space(typed(DENSE, dtype), Hardware.preset("t4"))
        assert str(caught.value.invariant).endswith("must fit NVIDIA T4")
        reason = "tensor cores multiply 16 x 16 by 16 x 8 from compute capability 8.0 on"
        count = candidates(typed(DENSE, dtype), Hardware.preset("t4"))
        assert caught.value.value == f"none; rejected candidates: {reason} ({count:,})"


def test_groups_of_warps_are_of_one_compute_capability() -> None:
    """Neither an older GPU nor a newer one has the instruction."""
    work = typed(DENSE, "float16")
    for capability, fits in (("8.0", False), ("9.0", True), ("10.0", False)):
        hopper = Hardware.preset("h200")
        hardware = replace(hopper, limits=replace(hopper.limits, compute_capability=capability))
        limits = cuda_limits(work, hardware)
        broken = next((limit.reason for limit in limits if limit.excess(GROUPS) > 0), "")
        reason = "groups of warps multiply from shared memory at compute capability 9.0"
        assert broken == ("" if fits else reason)
        assert (GROUPS.kernel.unit in units(work, hardware)) == fits
        assert units(DENSE, hardware) == ("fma",)


def test_halves_on_a_cpu_are_refused_with_the_one_reason() -> None:
    reason = r"; got none; rejected candidates: the micro-kernel's unit multiplies float16 .* \([\d,]+\)\. T"
    with pytest.raises(SpaceError, match=reason):
        build_space(typed(DENSE, "float16"), Hardware.preset("zen4-1core"))


def test_space_of_a_dense_layer_does_not_depend_on_the_range_of_shapes() -> None:
    hardware = Hardware.preset("a100")
    other = build_space(replace(DENSE, T=Dim(7, 100_000)), hardware)
    assert other.schemes == build_space(DENSE, hardware).schemes


@pytest.mark.parametrize(("cols", "depth"), [(1, 768), (7, 1), (1, 1), (33, 7), (100_000, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_awkward_operators_have_micro_kernels(cols: int, depth: int, dtype: str) -> None:
    space = build_space(Dense(T=Dim(1, 8), N=cols, K=depth, dtype=dtype), Hardware.preset("h100"))
    assert len(space) > 0
    assert max(kernel.cols for kernel in space) <= max(2 * cols, 16)


def test_narrow_heads_have_micro_kernels_too() -> None:
    for form in ("nt", "nn"):
        assert len(build_space(BatchMatmul(T=Dim(1, 4), B=3, D=5, form=form), Hardware.preset("t4"))) > 0


def test_space_is_restricted_to_its_own_micro_kernels() -> None:
    space = build_space(DENSE, Hardware.preset("t4"))
    chosen = few(space, 5).schemes
    assert space.restricted_to(chosen).schemes == chosen
    with pytest.raises(SpaceError, match=r"some of its schemes; got 128x128x32\.w2x2\.s2"):
        space.restricted_to([cuda_scheme(128, 128, 32, 2, 2, unit="mma")])


def test_the_largest_tiles_need_a_large_gpu() -> None:
    """What an H100 has room for and a T4 has not: sizes come from the hardware."""
    spaces = {name: set(build_space(DENSE, Hardware.preset(name))) for name in ("t4", "h100")}
    assert spaces["t4"] < spaces["h100"]
    shared = [k.kernel.stages * (k.rows + k.cols) * k.kernel.step for k in spaces["h100"]]
    assert max(shared) * 4 > Hardware.preset("t4").limits.smem_per_block_bytes
