"""The last wave shared by the blocks of its clusters: every tile once, right results, and the same loop."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_emulation.operators import Emulated
from cuda_samples import emulated as needs_emulator
from hypothesis import given
from hypothesis import strategies as st
from test_cuda_dimensions import FUSED, drawn
from test_cuda_machine_code import HALF, code, compiled, wide

from dietlab.base.errors import SpaceError
from dietlab.cost import adaptation_cost
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim, Shape
from dietlab.scheme import Leaf, Scheme, Split, Tree, build_space
from dietlab.targets.cuda.bound import START_CYCLES
from dietlab.targets.cuda.ending import ADDING_STEPS, places, places_for, rounds_of_ending
from dietlab.targets.cuda.lowering.ending import Ending
from dietlab.targets.cuda.lowering.tir import int32
from dietlab.targets.cuda.view.waves import waves_of

H200 = Hardware.preset("h200")
HALVES = replace(FUSED, dtype="bfloat16")
KEYS = ["64x32x16.p1x1.s4.e2.even", "128x64x16.p2x1.s4.e4.rest", "64x32x16.p1x1.s3.e2.b2"]
"""Few columns and short steps, so that small products have many tiles and steps."""
TREE: Tree = Split("T", 90, Split("N", 80, Leaf(0), Leaf(2)), Leaf(1))


# Which tiles are shared


def folded(value: Any) -> int:
    """The number that an expression of numbers is."""
    return int(tvm.sym.Analyzer().simplify(value))


@given(st.integers(0, 60), st.integers(1, 9), st.sampled_from([2, 4, 8]), st.integers(0, 60))
def test_every_step_of_every_tile_is_computed_once(tiles: int, held: int, blocks: int, steps: int) -> None:
    """By one block, or by all blocks of one cluster, which have the same tile."""
    ending = Ending.of(blocks, held * blocks, int32(tiles), int32(steps))
    computed = np.zeros((tiles, steps), int)
    clusters, shared = folded(ending.clusters), folded(ending.shared)
    for cluster in range(clusters):
        own = []
        for rank in range(blocks):
            tile, share = (
                folded(ending.tile(int32(cluster), int32(rank))),
                ending.share(*map(int32, (cluster, rank))),
            )
            assert folded(share.together) == (cluster >= clusters - shared)
            if tile < tiles:
                own.append(tile)
                computed[tile, folded(share.first) :: folded(share.apart)] += 1
        assert len(set(own)) == (1 if cluster >= clusters - shared else len(own)) > 0
    assert (computed == 1).all()
    rounds = int(rounds_of_ending(tiles, held * blocks, blocks, steps))
    assert shared == (tiles % (held * blocks) if rounds else 0)


@pytest.mark.parametrize(
    ("tiles", "ending", "steps", "rounds"),
    [
        (264, 2, 64, 0),  # whole waves
        (264 + 66, 2, 64, 1),
        (264 + 67, 2, 64, 0),  # two rounds of half the steps
        (66, 2, 64, 1),
        (132 + 66, 2, 2 * ADDING_STEPS, 0),
        (132 + 66, 2, 2 * ADDING_STEPS + 1, 0),
        (132 + 66, 2, 2 * ADDING_STEPS + 2, 1),
        (132 + 90, 4, 64, 3 if 3 * (16 + ADDING_STEPS) < 64 else 0),
        (132 + 90, 4, 224, 3),
        (132 + 99, 4, 224, 3),
        (132 + 100, 4, 224, 0),
        (132 + 20, 1, 224, 0),
    ],
)
def test_what_is_shared_ends_earlier(tiles: int, ending: int, steps: int, rounds: int) -> None:
    assert rounds_of_ending(tiles, 132, ending, steps) == rounds


def test_places_are_those_that_whole_clusters_have() -> None:
    for key, held in (
        ("128x64x64.p2x1.s6.e2", 132),
        ("128x64x64.p2x1.s6.e4", 124),
        ("64x64x64.p1x1.s4.e4.b2", 264),
    ):
        kernel: Any = Scheme.from_key(key).kernel
        assert places_for(kernel, H200, 2) == held == places(kernel.cluster, kernel.resident, 132)


# Results


def sizes_with_shared_ends(seed: str) -> list[dict[str, int]]:
    """500 sizes of some tens of steps; a third of all depths make no lines for bulk copies."""
    chance = random.Random(seed)
    depths = [chance.choice((8, 8, 1)) * chance.randint(1, 55) for _ in range(490)]
    found = [
        {**size, "N": min(400, size["N"] * chance.choice((1, 3))), "K": depth}
        for size, depth in zip(drawn(490, seed), depths, strict=True)
    ]
    return found + [
        {"T": T, "N": N, "K": K} for T in (1, 64, 65, 200, 257) for N, K in ((136, 704), (32, 1352))
    ]


@needs_emulator
@pytest.mark.parametrize("cores", [4, 12])
def test_layers_of_500_random_sizes_are_right(emulated: Emulated, cores: int) -> None:
    """On few multiprocessors: no whole wave, one, two and more, with and without a shared one behind them."""
    seen = set()
    hardware = replace(H200, cores=cores)
    for case in emulated.check(
        HALVES, KEYS, sizes_with_shared_ends(f"{cores}"), TREE, hardware="h200", cores=cores
    ):
        (launch,), scheme, size = case["launches"], Scheme.from_key(KEYS[case["plan"]]), case["size"]
        kernel: Any = scheme.kernel
        if size["K"] % 8:
            assert launch["block"][0] == 128 and launch["cluster"] == 1
            continue
        tiles = -(-size["T"] // scheme.rows) * -(-size["N"] // scheme.cols)
        held, steps = places_for(kernel, hardware, 2), -(-size["K"] // kernel.step)
        shared = tiles % held if rounds_of_ending(tiles, held, kernel.ending, steps) else 0
        clusters = -(-(tiles - shared) // kernel.ending) + shared
        assert launch["cluster"] == kernel.ending and launch["grid"][0] == clusters * kernel.ending
        seen.add((case["plan"], min(2, tiles // held), shared > 0))
    assert {(waves, shared) for _, waves, shared in seen} == set(product((0, 1, 2), (False, True)))
    assert {plan for plan, _, shared in seen if shared} == {0, 1, 2}


@needs_emulator
@pytest.mark.parametrize(
    ("rows", "cols", "clusters"),
    [(64, 128, 2), (64, 160, 3), (64, 96, 2), (64, 192, 4), (128, 160, 6), (128, 192, 6), (64, 32, 1)],
)
def test_whole_waves_come_first(emulated: Emulated, rows: int, cols: int, clusters: int) -> None:
    """Tiles of 64 x 32 in clusters of two blocks on four places; 20 steps.

    Of five tiles four are a whole wave, and the fifth is shared. Of three, one more round would be needed.
    """
    work = Dense(T=Dim(1, 128), N=cols, K=1280, dtype="float16")
    (case,) = emulated.check(work, ["64x32x64.p1x1.s4.e2"], [rows], hardware="h200", cores=4)
    (launch,) = case["launches"]
    assert launch["cluster"] == 2 and launch["grid"] == [2 * clusters, 1, 1]


# Machine code


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize(
    "key", ["128x128x64.p2x1.s4", "64x256x64.p1x1.s4", "256x128x64.p2x1.s4", "64x64x64.p1x1.s6"]
)
def test_workers_of_a_shared_end_loop_as_others_do(key: str) -> None:
    work = replace(HALF, T=Dim(1, 4096))
    with_end, without = (wide(work, one) for one in (f"{key}.e2.even", f"{key}.even"))
    assert with_end.main_loop.total() <= without.main_loop.total()
    assert with_end.main_loop["HGMMA"] == without.main_loop["HGMMA"] > 0
    for kernel in code(work, f"{key}.e2.even").values():
        assert kernel.loops and kernel.divisions == 0 and kernel.spills == 0
    assert with_end.most_loads >= 16, "sums of a cluster are read before any is stored"


# The space and what is expected


@pytest.mark.parametrize("key", ["64x64x64.p1x1.s4.k2.e2", "64x64x64.p1x1.s4.m2.e2", "64x64x64.g1x1.s4.e2"])
def test_what_shares_in_another_way_has_no_end_to_share(key: str) -> None:
    with pytest.raises(SpaceError, match=r"share the last wave, and nothing else; got .*\.e2\. Take tma"):
        Scheme.from_key(key)


def test_keys_and_clusters() -> None:
    kernel: Any = Scheme.from_key("128x128x64.p2x1.s4.e4.b2.even").kernel
    assert (kernel.key, kernel.ending, kernel.cluster, kernel.sharing) == (
        "128x128x64.p2x1.s4.e4.b2",
        4,
        4,
        4,
    )
    with pytest.raises(SpaceError, match="a cluster must have at most 8 blocks"):
        Scheme.from_key("64x64x64.p1x1.s4.e16")


def test_each_plain_ring_may_share_its_end() -> None:
    for depth, most in ((4096, 4), (256, 2), (128, 1)):
        work = Dense(T=Dim(1, 2048), N=4096, K=depth, dtype="bfloat16")
        kernels: list[Any] = [scheme.kernel for scheme in build_space(work, H200)]
        assert {kernel.ending for kernel in kernels} == {count for count in (1, 2, 4) if count <= most}
        shared = [kernel for kernel in kernels if kernel.ending > 1]
        assert {replace(kernel, ending=1) for kernel in shared} <= set(kernels) and len(shared) < 0.05 * len(
            kernels
        )


def test_a_picture_of_a_launch_has_the_blocks_that_share_its_end() -> None:
    """192 tiles: a wave of 132 blocks, and two blocks for each of 60."""
    work, scheme = Dense(T=Dim(1, 4096), N=4096, K=4096, dtype="bfloat16"), Scheme.from_key
    launches = [waves_of(work, H200, scheme(f"128x64x64.p2x1.s6{end}"), 384, 1) for end in ("", ".e2")]
    assert [(launch.blocks, launch.last_blocks) for launch in launches] == [(192, 60), (252, 120)]


def seconds(key: str, rows: int, depth: int = 4096) -> float:
    work = Dense(T=Dim(1, 4096), N=4096, K=depth, dtype="bfloat16")
    return float(adaptation_cost(work, H200).bound([Scheme.from_key(key)], [Shape.of(T=rows)])[0, 0])


def test_a_shared_wave_is_expected_to_take_its_part_of_the_steps() -> None:
    """T = 384: three rows of 64 tiles are a whole wave, and 60 tiles with half of the steps a block."""
    key = "128x64x64.p2x1.s6"
    assert seconds(f"{key}.e2", 256) == seconds(key, 256), (
        "128 tiles are less than a wave, but more than half"
    )
    whole, shared, one = seconds(key, 384), seconds(f"{key}.e2", 384), seconds(key, 256)
    adding = shared - one - (whole - one) / 2
    assert one < shared < whole and 0 < adding < 3 * START_CYCLES / 1.5e9
    assert seconds(f"{key}.e2", 384, 512) == seconds(key, 384, 512), "eight steps are too few"
