"""Convolutions on a GPU: threads copy what the kernel covers by address, with zeros beyond the image."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from conftest import in_turn
from cuda_emulation.operators import Emulated
from cuda_samples import emulated as needs_emulator
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cuda_compile import CALM, SLACK, assembled, compute_stage, has_bound_check, main_loops, program

from dietlab.lower.program import source_of
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Conv1d, Conv2d, Dense, Dim, ShapeSet, Workload
from dietlab.scheme import Leaf, Scheme, Split, build_space
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.lowering.cubin import Resources
from dietlab.targets.cuda.lowering.nvcc import Compiler
from dietlab.targets.cuda.needs import BOOKKEEPING, held_registers, thread_registers
from dietlab.targets.cuda.space import limits
from dietlab.tuning import choose_portfolio, effort_named, tune

H200 = Hardware.preset("h200")
SIDE = Dim(10, 40)
LAYER = Conv2d(N=Dim(1, 3), H=SIDE, W=SIDE, IC=16, OC=24, padding=1)
HALVES = replace(LAYER, IC=32, OC=40, bias=True, activation="relu", residual=True, dtype="bfloat16")
CAUSAL = Conv1d(N=2, L=Dim(1, 200), IC=12, OC=20, kernel=5, padding=((4, 0),), bias=True)
IMAGES = [{"N": 1, "H": 10, "W": 11}, {"N": 3, "H": 13, "W": 10}, {"N": 2, "H": 17, "W": 31}]

FMA = ("32x32x16.t8x8.s2", "24x64x8.t4x16.s4.rest", "16x32x32.t4x8x4.s2", "16x64x16.t4x16.s2.k4.even")
SHIFTED = ("20x48x16.t4x8.s2", "32x32x16.t8x8.s3.b2")
WARPS = ("32x32x32.w2x2.s3", "48x64x32.w1x2.s2.even", "32x32x64.w1x1x2.s3.rest", "16x64x32.w1x4.s2.k8")
GROUPS = ("64x64x64.g1x1.s3", "128x96x32.g2x1.s4.even", "64x32x128.g1x1x2.s3.rest")

sides = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2)
options = st.fixed_dictionaries({"kernel": sides, "stride": sides, "padding": pads, "dilation": sides})


@needs_emulator
@settings(max_examples=12)
@given(
    options,
    st.sampled_from((1, 3, 6, 16, 20)),
    st.sampled_from((3, 16, 40)),
    st.sampled_from(FMA),
    st.booleans(),
)
def test_every_image_is_served(
    emulated: Emulated, given_: dict[str, Any], inner: int, outer: int, key: str, rich: bool
) -> None:
    """On the emulator each operand ends where nothing is mapped: to read beyond it is a fault."""
    extras: Any = {"bias": rich, "residual": rich, "activation": "relu" if rich else "none"}
    emulated.check(replace(LAYER, IC=inner, OC=outer, **given_, **extras), [key], IMAGES)


@needs_emulator
@settings(max_examples=6)
@given(
    options,
    st.sampled_from((8, 12, 32)),
    st.sampled_from(WARPS + GROUPS),
    st.sampled_from(("float16", "bfloat16")),
)
def test_tensor_cores_serve_every_image(
    emulated: Emulated, given_: dict[str, Any], inner: int, key: str, dtype: str
) -> None:
    emulated.check(replace(LAYER, IC=inner, OC=40, dtype=dtype, **given_), [key], IMAGES[:2])


@needs_emulator
@pytest.mark.parametrize("hardware", ["h100", "t4"])
def test_sequences_of_every_length(emulated: Emulated, hardware: str) -> None:
    """Also without asynchronous copies, whose elements wait in registers."""
    emulated.check(CAUSAL, ["32x32x16.t8x8.s2.even"], [1, 2, 31, 67, 200], hardware=hardware)


@needs_emulator
@pytest.mark.parametrize(
    ("work", "key"), in_turn((LAYER, replace(LAYER, kernel=1, padding=0)), SHIFTED), ids=str
)
def test_arrays_that_begin_anywhere(emulated: Emulated, work: Workload, key: str) -> None:
    emulated.check(work, [key], IMAGES[:2], shift=4)


@needs_emulator
def test_bound_checks_instead_of_local_padding_compute_the_same(emulated: Emulated) -> None:
    """Zeros around the image remain: they are part of the operator."""
    emulated.check(replace(LAYER, IC=3), ["32x32x16.t8x8.s3.checked"], IMAGES)


@needs_emulator
def test_the_tree_chooses_by_rows(emulated: Emulated) -> None:
    tree = Split("rows", 150, Leaf(0), Split("rows", 500, Leaf(1), Leaf(2)))
    plans = ["16x32x16.t4x8.s3.even", "64x32x16.t8x8.s2.even", "32x32x16.t8x8.s2"]
    found = emulated.check(LAYER, plans, IMAGES, tree)
    assert [case["plan"] for case in found] == [0, 1, 2]


@needs_emulator
def test_a_plan_with_bulk_copies_is_replaced(emulated: Emulated) -> None:
    """A portfolio may have been tuned for other operands."""
    emulated.check(replace(LAYER, IC=64, OC=32, dtype="bfloat16"), ["64x32x64.p1x1.s4"], IMAGES[:2])


@needs_emulator
def test_no_images_launch_nothing(emulated: Emulated) -> None:
    (case,) = emulated.run(LAYER, [FMA[0]], [{"N": 0, "H": 10, "W": 10}])
    assert case["launches"] == [] and case["error"] == 0.0


@needs_emulator
def test_pixels_that_no_32_bits_count_are_refused(emulated: Emulated) -> None:
    """Of few rows, since the stride is long: each row's place is counted in pixels."""
    work = Conv1d(N=2, L=Dim(1, 200), IC=1, OC=4, kernel=1, stride=64)
    refused = emulated.ask(work, [FMA[0]], refuse=2**30)["refused"]
    assert f"counts {2**31 - 1} pixels at most; 0 launches" in refused


@needs_emulator
def test_zeros_beyond_an_image_meet_no_other_image(emulated: Emulated) -> None:
    """A kernel as large as its images, of which most lies beyond them, and images side by side in memory."""
    work = Conv2d(N=Dim(1, 8), H=3, W=2, IC=8, OC=16, kernel=(5, 7), padding=3)
    emulated.check(work, [FMA[0]], [1, 2, 8])


@pytest.mark.parametrize(
    ("dtype", "key"),
    [
        ("float32", "32x64x16.t8x16.s3"),
        ("bfloat16", "64x32x64.g1x1.s3.even"),
        ("float16", "64x96x64.p1x1.s4"),
    ],
)
def test_a_kernel_of_one_element_is_the_dense_program(dtype: str, key: str) -> None:
    work = Conv2d(N=1, H=SIDE, W=SIDE, IC=64, OC=96, kernel=1, dtype=dtype)
    dense, scheme = Dense(T=Dim(1, 1600), N=96, K=64, dtype=dtype), Scheme.from_key(key)
    assert source_of(work, H200, scheme) == source_of(dense, H200, scheme)
    assert set(build_space(work, H200).schemes) == set(build_space(dense, H200).schemes)


@pytest.mark.parametrize(
    ("inner", "wide", "of_w"), [(16, "16", "4"), (6, "8", "4"), (3, "4", "4")], ids=["16", "6", "3"]
)
def test_copies_are_as_wide_as_the_channels_allow(inner: int, wide: str, of_w: str) -> None:
    text = source_of(replace(LAYER, IC=inner), H200, Scheme.from_key(FMA[0]))
    found = {width for width in ("4", "8", "16") if f"shared_global_{width}(" in text}
    assert found == {wide, of_w}


def test_no_bound_check_is_left_in_the_compute_stage() -> None:
    for work, key in ((LAYER, FMA[0]), (HALVES, "32x32x32.w2x2.s3")):
        text = program(work, H200, [Scheme.from_key(key)]).text(0)
        (loop,) = main_loops(text)
        assert not has_bound_check(compute_stage(loop, asynchronous="held_ptr" not in text))


def test_what_reads_no_images_is_refused_with_the_reason() -> None:
    bulk = next(one for one in build_space(HALVES, H200).rejected if "im2col" in one.reason)
    assert bulk.nearest_miss.kernel.unit == "tma" and "need descriptors of images" in bulk.reason
    grouped, scheme = replace(LAYER, OC=96, groups=4), Scheme.from_key(FMA[0])
    (several,) = (limit for limit in limits(grouped, H200) if limit.excess(scheme) > 0)
    assert several.reason == "all channels of a convolution are one group" and several.excess(scheme) == 3


def test_places_of_rows_take_registers() -> None:
    """Two copies a thread, each with a pixel and its index along each padded dimension."""
    scheme, gpu = Scheme.from_key("32x32x32.t8x16.s2"), H200.limits
    padded, narrow = replace(LAYER, padding=((0, 0), (0, 1))), replace(LAYER, IC=6)
    found = [held_registers(scheme.kernel, work, gpu) for work in (LAYER, padded, narrow)]
    assert found == [6, 4, 12]


@pytest.fixture(scope="module")
def compiled(compiler: Compiler) -> list[tuple[Workload, CudaScheme, Resources]]:
    found = []
    for seed, work in enumerate((LAYER, replace(LAYER, IC=3, kernel=7, stride=2), HALVES)):
        chosen = Random(seed).sample(build_space(work, H200, ("padded", "even")).schemes, 6)
        one = program(work, H200, chosen)
        cubin = assembled(one)
        assert not cubin.remarks
        found += [(work, scheme, cubin.kernels[f"k{n}_kernel"]) for n, scheme in enumerate(chosen)]
    return found


@pytest.mark.cuda_compile
def test_estimated_registers_are_those_of_the_compiler(
    compiled: list[tuple[Workload, CudaScheme, Resources]],
) -> None:
    assert {scheme.kernel.unit for _, scheme, _ in compiled} == {"fma", "mma", "wgmma"}
    for work, scheme, used in compiled:
        estimate = thread_registers(scheme.kernel) + held_registers(scheme.kernel, work, H200.limits)
        room = min(H200.limits.registers_per_thread, H200.limits.registers_per_block // scheme.kernel.threads)
        if estimate <= CALM * room and scheme.kernel.resident == 1:
            assert not used.spill_bytes and not used.stack_bytes, (work, scheme.key)
        assert estimate <= max(SLACK * used.registers, used.registers + BOOKKEEPING), (work, scheme.key)


def test_a_search_proposes_schemes_for_images() -> None:
    """With times that are computed, from the first round to the portfolio."""
    shapes = ShapeSet.grid(LAYER, N=[1, 3], H=[10, 24], W=[10, 40])
    run = tune(build_space(LAYER, H200), shapes, SyntheticRunner(H200), effort_named("smoke"))
    portfolio = choose_portfolio(run, max_kernels=3)
    assert 1 <= len(portfolio) <= 3 and {scheme.kernel.unit for scheme in portfolio.schemes} == {"fma"}
