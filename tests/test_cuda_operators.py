"""Operators for a GPU, built as a user builds them and run on a stub driver whose kernels are emulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import in_turn
from cuda_emulation.operators import Emulated
from cuda_samples import emulated as needs_emulator
from cuda_samples import typed

from dietlab.measure.timing.process import WorkerRefused
from dietlab.problem import BatchMatmul, Dense, Dim, Workload
from dietlab.scheme import Leaf, Scheme, Split, heights
from dietlab.targets.cuda.kernel import CudaMicroKernel

DENSE = Dense(T=Dim(1, 128), N=96, K=64)
SCORES = BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nt")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nn")
SIZES = [1, 2, 7, 15, 16, 17, 31, 33, 64, 67, 100]
"""One row, primes, and both sides of tiles."""

pytestmark = needs_emulator


@pytest.mark.parametrize("work", [DENSE, typed(DENSE, "bfloat16")], ids=str)
def test_candidates_are_checked_and_timed_by_the_engine_that_times_all(
    emulated: Emulated, work: Workload
) -> None:
    key = "32x32x16.t8x8.s2" if work.dtype == "float32" else "32x32x32.w2x2.s3.even"
    found = emulated.ask(work, [key], time=[5, 33], break_guard=False)["found"]
    checked, timed = found[::3], [*found[1::3], *found[2::3]]
    assert all(answer["correct"] and answer["max_error"] <= answer["tolerance"] for answer in checked)
    assert all(answer["calls"] >= 1 and answer["graph"] and answer["right"] for answer in timed)
    assert {answer["copies"] > 1 for answer in found[2::3]} == {True}
    broken = emulated.ask(work, [key], time=[5, 33], break_guard=True)["found"][0]
    assert broken["reason"] == "memory around the output was overwritten"


KEYS = (
    "32x32x16.t8x8.s2",
    "32x32x16.t8x8.s3.even",
    "24x64x8.t4x16.s4.rest",
    "16x32x32.t4x8x4.s2",
    "16x32x32.t4x8x2.s3.even",
    "128x32x8.t16x8.s2.even",
    "20x48x16.t4x8.s2",
)


@pytest.mark.parametrize(("key", "work"), in_turn(KEYS, (DENSE, SCORES, CONTEXT)), ids=str)
def test_results_are_right_on_awkward_shapes(emulated: Emulated, work: Workload, key: str) -> None:
    emulated.check(work, [key], SIZES)


CLUSTERED = (
    "32x32x8.t8x8.s3.k2.even",
    "16x64x16.t4x16.s2.k4",
    "24x32x8.t8x8.s4.k8.rest",
    "32x32x16.t8x8.s3.b2",
)


@pytest.mark.parametrize(("key", "work"), in_turn(CLUSTERED, (DENSE, SCORES, CONTEXT)), ids=str)
def test_blocks_of_a_cluster_share_a_reduction(emulated: Emulated, work: Workload, key: str) -> None:
    """Also where a block has no step at all: a reduction of 1 to 100 in steps of 8, over 8 blocks."""
    emulated.check(work, [key], SIZES)


@pytest.mark.parametrize(
    ("key", "dtype"),
    [
        ("32x32x32.w2x2.s3.k2.even", "float16"),
        ("16x64x32.w1x4.s2.k8", "bfloat16"),
        ("32x64x32.w2x2.s2.k4.b2", "float16"),
    ],
)
def test_clusters_of_tensor_cores(emulated: Emulated, key: str, dtype: str) -> None:
    for work in (
        Dense(T=Dim(1, 128), N=40, K=200, bias=True, activation="relu", residual=True, dtype=dtype),
        Dense(T=Dim(1, 128), N=40, K=200, bias=True, activation="relu", residual="before", dtype=dtype),
        BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nn", dtype=dtype),
    ):
        emulated.check(work, [key], [1, 16, 33, 100])


def test_plans_with_and_without_clusters_stand_side_by_side(emulated: Emulated) -> None:
    plans = ["16x32x16.t4x8.s3.k4.even", "32x32x16.t8x8.s2.b2.even", "32x32x16.t8x8.s2"]
    tree = Split("T", 16, Leaf(0), Split("T", 100, Leaf(1), Leaf(2)))
    found = emulated.check(DENSE, plans, [1, 16, 17, 100, 101, 300], tree)
    assert [case["plan"] for case in found] == [0, 0, 1, 1, 2, 2]
    assert [case["launches"][0]["cluster"] for case in found] == [4, 4, 1, 1, 1, 1]


def test_bound_checks_instead_of_local_padding_compute_the_same(emulated: Emulated) -> None:
    for work in (DENSE, SCORES, CONTEXT, Dense(T=Dim(1, 128), N=33, K=20)):
        emulated.check(work, ["32x32x16.t8x8.s3.checked"], SIZES)


TENSOR_CORES = ("32x32x32.w2x2.s3", "48x64x32.w1x2.s2.even", "32x32x64.w1x1x2.s3.rest")


@pytest.mark.parametrize(
    ("work", "key"), in_turn((DENSE, replace(DENSE, N=40, K=72), SCORES, CONTEXT), TENSOR_CORES), ids=str
)
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.thorough)])
def test_tensor_cores_compute_half_precision(
    emulated: Emulated, work: Dense | BatchMatmul, key: str, dtype: str
) -> None:
    emulated.check(typed(work, dtype), [key], [1, 15, 16, 33, 100])


GROUPS = (
    ("64x64x64.g1x1.s3", "float16"),
    ("128x96x32.g2x1.s4.even", "bfloat16"),
    ("64x32x128.g1x1x2.s3.rest", "float16"),
    ("128x48x48.g1x1.s3.even", "bfloat16"),
    ("128x64x64.g1x2.s3.k2.b2.even", "float16"),
)
FUSED = Dense(T=Dim(1, 128), N=40, K=200, bias=True, activation="relu", residual=True)


@pytest.mark.parametrize(("unit", "work"), in_turn(GROUPS, (FUSED, SCORES, CONTEXT)), ids=str)
def test_groups_of_warps_compute_half_precision(
    emulated: Emulated, unit: tuple[str, str], work: Dense | BatchMatmul
) -> None:
    """With strips of 128, 64 and 32 bytes; several strips a line, also of columns (context)."""
    key, dtype = unit
    emulated.check(typed(work, dtype), [key], [1, 63, 64, 65, 150])


def test_warps_and_groups_of_warps_stand_side_by_side(emulated: Emulated) -> None:
    """Few rows by warps, many by groups of four, chosen by the tree."""
    work = Dense(T=Dim(1, 256), N=96, K=64, dtype="bfloat16")
    plans = ["32x32x32.w2x2.s3.even", "128x96x64.g1x1.s3.even"]
    found = emulated.check(work, plans, [1, 40, 41, 200], Split("T", 40, Leaf(0), Leaf(1)))
    assert [case["plan"] for case in found] == [0, 0, 1, 1]


BY_THREADS, BY_GROUPS = ("32x64x16.t8x16.s3.even", "float32"), ("64x32x64.g1x1.s3.even", "float16")


@pytest.mark.parametrize("unit", [BY_THREADS, BY_GROUPS], ids=["threads", "groups of warps"])
@pytest.mark.parametrize(("n", "k"), [(96, 64), (33, 7), (70, 66), (1, 1), (130, 100)])
def test_sizes_that_no_tile_divides(emulated: Emulated, n: int, k: int, unit: tuple[str, str]) -> None:
    """Of groups of warps, copies of 4, 2, 2 and 8 bytes: those of 2 go through registers."""
    key, dtype = unit
    emulated.check(Dense(T=Dim(1, 128), N=n, K=k, dtype=dtype), [key], [1, 13, 40, 65])


def test_a_processor_without_asynchronous_copies(emulated: Emulated) -> None:
    for work in (DENSE, SCORES, CONTEXT):
        emulated.check(work, ["32x32x16.t8x8.s2.even"], SIZES, hardware="t4")


@pytest.mark.parametrize(
    "activation",
    ["gelu_tanh", "gelu_erf", *(pytest.param(a, marks=pytest.mark.thorough) for a in ("none", "relu"))],
)
def test_epilogues(emulated: Emulated, activation: Any) -> None:
    work = Dense(T=Dim(1, 128), N=96, K=64, bias=True, activation=activation, residual=True)
    emulated.check(work, ["32x32x16.t8x8.s3.even"], [1, 33, 64])


def test_the_tree_chooses_and_one_kernel_is_launched(emulated: Emulated) -> None:
    plans = ["16x32x16.t4x8.s3.even", "64x32x16.t8x8.s2.even", "32x32x16.t8x8.s2"]
    tree = Split("T", 16, Leaf(0), Split("T", 100, Leaf(1), Leaf(2)))
    found = emulated.check(DENSE, plans, [1, 16, 17, 100, 101, 300], tree)
    assert [case["plan"] for case in found] == [0, 0, 1, 1, 2, 2]
    blocks = [case["launches"][0]["grid"][0] for case in found]
    assert blocks == [3, 3, 3, 6, 12, 30]  # row tiles times three column tiles
    assert [case["launches"][0]["block"][0] for case in found] == [32, 32, 64, 64, 64, 64]


def test_a_call_runs_on_the_stream_that_its_caller_set(emulated: Emulated) -> None:
    plans = ["32x32x16.t8x8.s3.even"]
    used = [emulated.check(DENSE, plans, [5], own_stream=own)[0] for own in (False, True, True, False)]
    streams = [case["stream"] for case in used]
    assert streams[0] == streams[3] == 0 and len(set(streams)) == 3
    assert [case["launches"][0]["stream"] for case in used] == streams


def test_any_plan_can_be_run_on_any_shape(emulated: Emulated) -> None:
    plans = ["16x32x16.t4x8.s3.even", "64x32x16.t8x8.s2.rest"]
    for plan in (0, 1):
        emulated.check(DENSE, plans, [1, 5, 64, 77], every_plan=True, plan=plan)


def test_no_rows_launch_nothing(emulated: Emulated) -> None:
    (case,) = emulated.run(DENSE, ["32x32x16.t8x8.s3.even"], [0])
    assert case["launches"] == [] and case["error"] == 0.0


@pytest.mark.parametrize(
    ("work", "key", "shift"),
    [
        (DENSE, "32x32x16.t8x8.s3.even", 4),
        (SCORES, "32x32x16.t8x8.s3.even", 4),
        (Dense(T=Dim(1, 128), N=40, K=72, dtype="float16"), "64x32x64.g1x1.s4.even", 2),
        (Dense(T=Dim(1, 128), N=40, K=72, dtype="bfloat16"), "32x32x32.w2x2.s3.even", 2),
        (Dense(T=Dim(1, 128), N=64, K=72, dtype="bfloat16"), "64x32x64.p1x1.s4.even", 6),
    ],
    ids=["dense", "scores", "groups of warps", "warps", "bulk copies"],
)
def test_arrays_that_begin_anywhere_are_copied_in_smaller_pieces(
    emulated: Emulated, work: Workload, key: str, shift: int
) -> None:
    """Copies of 16 bytes from there would be misaligned: the emulator and a GPU refuse them."""
    aligned, shifted = (emulated.check(work, [key], [1, 33, 65], shift=by) for by in (0, shift))
    names = [{case["launches"][0]["kernel"] for case in found} for found in (aligned, shifted)]
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize(
    ("work", "size", "message"),
    [
        (DENSE, 2**31, f"covers {2**31 - 1} rows at most; 0 launches"),
        # TVM's own check of y's strides has 32 bits.
        (SCORES, 46341, "expected to be compact array; 0 launches"),
    ],
    ids=["dense", "scores"],
)
def test_what_no_32_bits_count_is_refused(
    emulated: Emulated, work: Workload, size: int, message: str
) -> None:
    assert message in emulated.ask(work, ["32x32x16.t8x8.s3.even"], refuse=size)["refused"]


def test_a_kernel_for_one_shape_only_has_its_heights(emulated: Emulated) -> None:
    emulated.check(DENSE, ["64x32x16.t8x8.s2.even"], [70], only=[[{"T": 70}]])


def test_wrong_arguments_are_refused_before_any_launch(emulated: Emulated) -> None:
    with pytest.raises(WorkerRefused):
        emulated.run(DENSE, ["32x32x16.t8x8.s3.even"], [4], shift=4, plan=0)  # there is no run_plan


def test_two_heights_cover_rows_to_less_than_a_granule() -> None:
    kernel = Scheme.from_key("128x64x16.t16x16.s3.even")
    assert isinstance(kernel.kernel, CudaMicroKernel)
    assert heights(kernel, 1, 2048) == tuple(range(16, 129, 16))
