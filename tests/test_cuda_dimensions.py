"""Operators whose every dimension is dynamic, on a GPU: one library for all layers of a model."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from cuda_emulation.operators import Emulated
from cuda_samples import emulated as needs_emulator
from cuda_samples import typed

from dietlab.base.errors import SpaceError
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Workload
from dietlab.scheme import Leaf, Split, Tree, build_space
from dietlab.targets.cuda.kernel import CudaMicroKernel

LAYERS = Dense(T=Dim(1, 400), N=Dim(1, 400), K=Dim(1, 400))
FUSED = replace(LAYERS, bias=True, activation="relu", residual=True)
PRODUCTS = [BatchMatmul(T=Dim(1, 130), B=Dim(1, 5), D=Dim(1, 130), form=form) for form in ("nt", "nn")]

UNITS: dict[str, tuple[str, list[str]]] = {
    "threads": ("float32", ["32x32x16.t8x8.s3.even", "64x32x16.t8x8.s2.k2.even", "20x48x16.t4x8.s2"]),
    "warps": ("bfloat16", ["32x32x32.w2x2.s3.even", "16x64x32.w1x4.s2.k4", "48x64x32.w1x2.s2.rest"]),
    "groups": ("float16", ["64x64x64.g1x1.s3.even", "128x96x32.g2x1.s4.k2.even", "64x32x128.g1x1x2.s3"]),
    "few rows": (
        "bfloat16",
        ["48x64x64.x1x1.s4.even", "16x128x64.x1x2.s4.k2.rest", "24x128x64.x1x1.s3.k4"],
    ),
    "bulk": ("bfloat16", ["128x64x64.p2x1.s4.even", "64x32x64.p1x1.s4.k2.even", "64x128x64.p1x2.s4"]),
}
BY_SIZE: Tree = Split("T", 40, Leaf(0), Split("K", 70, Leaf(1), Split("N", 60, Leaf(2), Leaf(0))))

pytestmark = needs_emulator


def drawn(count: int, seed: str, dims: tuple[str, ...] = ("T", "N", "K")) -> list[dict[str, int]]:
    """Random extents: a third of them multiples of 8, whose lines begin at multiples of 16 bytes."""
    chance = random.Random(seed)

    def extent() -> int:
        most = chance.choice((3, 40, 150))
        return chance.randint(1, most) if chance.random() < 0.6 else 8 * chance.randint(1, most // 8 + 1)

    return [{dim: extent() for dim in dims} for _ in range(count)]


@pytest.mark.parametrize("unit", UNITS)
def test_layers_of_500_random_sizes_are_right(emulated: Emulated, unit: str) -> None:
    dtype, plans = UNITS[unit]
    sizes = drawn(500, unit)
    sizes += [{"T": T, "N": 64, "K": 64} for T in (1, 64, 65)] + [{"T": 33, "N": 72, "K": 200}]
    found = emulated.check(typed(FUSED, dtype), plans, sizes, BY_SIZE)
    assert {case["plan"] for case in found} == {0, 1, 2}


@pytest.mark.parametrize("work", PRODUCTS, ids=str)
@pytest.mark.parametrize("unit", ["threads", "warps", "groups"])
def test_batched_products_of_random_sizes_are_right(emulated: Emulated, work: Workload, unit: str) -> None:
    dtype, plans = UNITS[unit]
    sizes = [{**size, "B": number % 5 + 1} for number, size in enumerate(drawn(20, unit, ("T", "D")))]
    emulated.check(typed(work, dtype), plans[:1], [*sizes, {"T": 64, "D": 64, "B": 3}])


def test_lines_that_begin_anywhere_are_served_by_one_narrow_plan(emulated: Emulated) -> None:
    """K decides: the width of the output only concerns stores. Arrays at odd addresses go the same way."""
    plans = UNITS["threads"][1]
    whole, odd, narrow = (
        emulated.check(LAYERS, plans, [size], shift=shift)[0]["launches"][0]["kernel"]
        for size, shift in (({"T": 50, "N": 33, "K": 64}, 0), ({"T": 50, "N": 64, "K": 33}, 0), (50, 4))
    )
    assert whole != odd == narrow


def test_bulk_copies_of_lines_that_begin_anywhere_are_none(emulated: Emulated) -> None:
    work, plans = typed(LAYERS, "bfloat16"), UNITS["bulk"][1][:1]
    sizes = [{"T": 50, "N": 64, "K": K} for K in (64, 72, 70, 1)]
    threads = [case["launches"][0]["block"][0] for case in emulated.check(work, plans, sizes)]
    workers, producer = 256, 128
    assert threads == [workers + producer] * 2 + [128] * 2


@pytest.mark.parametrize("unit", UNITS)
def test_empty_extents(emulated: Emulated, unit: str) -> None:
    """An output without elements needs no launch; a sum of nothing is the bias with what follows."""
    dtype, plans = UNITS[unit]
    for empty in ({"T": 0, "N": 8, "K": 8}, {"T": 8, "N": 0, "K": 8}):
        (case,) = emulated.run(typed(FUSED, dtype), plans[:1], [empty])
        assert case["launches"] == [] and case["error"] == 0.0
    emulated.check(typed(FUSED, dtype), plans[:1], [{"T": 8, "N": 8, "K": 0}])


@pytest.mark.parametrize(
    ("work", "sizes", "message"),
    [
        (LAYERS, {"T": 2**30, "N": 2**20, "K": 1}, f"has {2**31 - 1} blocks at most"),
        (LAYERS, {"T": 1, "N": 2**22 + 1, "K": 1}, f"a line has {2**22} elements at most"),
        (LAYERS, {"T": 1, "N": 1, "K": 2**22 + 1}, f"a line has {2**22} elements at most"),
        (PRODUCTS[0], {"T": 1, "B": 65536, "D": 1}, "has 65535 products at most"),
    ],
    ids=["blocks", "columns", "depth", "batch"],
)
def test_what_no_grid_or_32_bits_count_is_refused(
    emulated: Emulated, work: Workload, sizes: dict[str, int], message: str
) -> None:
    refused = emulated.ask(work, ["32x32x16.t8x8.s3.even"], refuse=sizes)["refused"]
    assert message in refused and refused.endswith("; 0 launches")


def test_a_program_for_measured_shapes_has_nothing_else(emulated: Emulated) -> None:
    """Its registers and its code are the plan's own: no plan for odd addresses stands beside it."""
    plans, called = UNITS["bulk"][1][:1], [{"T": 70, "N": 64, "K": 128}]
    emulated.check(typed(LAYERS, "bfloat16"), plans, called, only=[called])


def test_the_space_has_all_units_and_no_shared_rows() -> None:
    """Blocks side by side share rows only where the output is known to have whole clusters of columns."""
    space = build_space(typed(LAYERS, "bfloat16"), Hardware.preset("h200"))
    kernels = {s.kernel for s in space.schemes if isinstance(s.kernel, CudaMicroKernel)}
    assert {kernel.unit for kernel in kernels} == {"mma", "wgmma", "tma", "swapped"}
    assert {kernel.multicast for kernel in kernels} == {1}


def test_lines_that_no_program_counts_are_in_no_space() -> None:
    long = replace(LAYERS, N=Dim(1, 2**22 + 1))
    with pytest.raises(SpaceError, match=r"lines of dynamic length have 2\^22 elements at most"):
        build_space(long, Hardware.preset("h200"))
