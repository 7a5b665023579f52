"""Blocks that remain for several tiles: every tile once, right results, and the same loop."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

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
from dietlab.targets.cuda.ending import places_for
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.tir import int32
from dietlab.targets.cuda.lowering.walk import Walk
from dietlab.targets.cuda.needs import exchanged_bytes, shared_bytes
from dietlab.targets.cuda.rates import gpu_rates
from dietlab.targets.cuda.space import LEAST_REMAINING
from dietlab.targets.cuda.synthetic import synthetic_call

H200 = Hardware.preset("h200")
HALVES = replace(FUSED, dtype="bfloat16")
KEYS = ["64x32x16.p1x1.s4.r", "128x48x16.p1x1.s3.r.even", "128x64x32.p2x1.s4.r.b2.rest"]
"""Few columns and short steps, so that small products have many tiles and steps. Two heights, and 48 columns,
which four lanes cannot exchange."""
TREE: Tree = Split("T", 90, Split("N", 80, Leaf(0), Leaf(2)), Leaf(1))


# Which block has which tile


def folded(value: Any) -> int:
    """The number that an expression of numbers is."""
    return int(tvm.sym.Analyzer().simplify(value))


@given(st.integers(1, 11), st.integers(1, 7), st.integers(1, 90), st.integers(1, 8))
def test_every_tile_is_computed_once(rows: int, cols: int, held: int, group: int) -> None:
    """A block's tiles are as many as those of others, or one less; groups of row tiles come one by one."""
    blocks = min(held, rows * cols)
    walk = Walk(int32(rows), int32(cols), int32(blocks), group)
    own = [
        [
            tuple(map(folded, walk.tile(int32(block + turn * blocks))))
            for turn in range(folded(walk.rounds(int32(block))))
        ]
        for block in range(blocks)
    ]
    assert {len(tiles) for tiles in own} <= {rows * cols // blocks, -(-rows * cols // blocks)}
    turns = max(map(len, own))
    order = [tiles[turn] for turn in range(turns) for tiles in own if turn < len(tiles)]
    expected = [
        (row, col)
        for first in range(0, rows, group)
        for col in range(cols)
        for row in range(first, min(first + group, rows))
    ]
    assert order == expected


# Results


def sizes_of_tiles(seed: str) -> list[dict[str, int]]:
    """500 sizes; a third of all depths make no lines for bulk copies."""
    chance = random.Random(seed)
    found = [
        {
            **size,
            "T": min(400, size["T"] * chance.choice((1, 4))),
            "K": chance.choice((8, 8, 1)) * chance.randint(1, 30),
        }
        for size in drawn(490, seed)
    ]
    return found + [{"T": T, "N": N, "K": K} for T in (1, 64, 65, 200, 400) for N, K in ((136, 64), (400, 8))]


@needs_emulator
@pytest.mark.parametrize("cores", [1, 3])
def test_layers_of_500_random_sizes_are_right(emulated: Emulated, cores: int) -> None:
    """On few multiprocessors: blocks have one tile, two or more, and some one more than others."""
    seen = set()
    hardware = replace(H200, cores=cores)
    for case in emulated.check(HALVES, KEYS, sizes_of_tiles(f"{cores}"), TREE, hardware="h200", cores=cores):
        (launch,), scheme, size = case["launches"], Scheme.from_key(KEYS[case["plan"]]), case["size"]
        kernel: Any = scheme.kernel
        if size["K"] % 8:
            assert launch["block"][0] == 128
            continue
        tiles, held = (
            -(-size["T"] // scheme.rows) * -(-size["N"] // scheme.cols),
            places_for(kernel, hardware, 2),
        )
        assert launch["grid"] == [min(held, tiles), 1, 1] and launch["cluster"] == 1
        seen.add((case["plan"], min(3, -(-tiles // held)), tiles % held > 0))
    turns = {1, 2, 3} if cores == 1 else {1, 2}
    assert {(plan, turn) for plan, turn, _ in seen} >= set(product(range(3), turns))
    assert {uneven for _, _, uneven in seen} == {False, True}


@needs_emulator
def test_one_block_computes_all_tiles_of_many_steps(emulated: Emulated) -> None:
    """Slots and phases go on from tile to tile, whatever a tile's number of steps leaves; no bias is read."""
    work = Dense(T=Dim(1, 400), N=320, K=1272, dtype="float16")
    key = "128x64x64.p2x1.s5.r"
    for case in emulated.check(work, [key], [1, 128, 129, 400], hardware="h200", cores=1):
        held, tiles = (
            places_for(Scheme.from_key(key).kernel, replace(H200, cores=1), 2),
            -(-case["size"] // 128) * 5,
        )
        assert case["launches"][0]["grid"] == [min(held, tiles), 1, 1]


@needs_emulator
@pytest.mark.parametrize("cols", [96, 100, 98, 97])
def test_outputs_whose_lines_begin_anywhere(emulated: Emulated, cols: int) -> None:
    """Stores of 16, 8, 4 and 2 bytes."""
    work = Dense(T=Dim(1, 200), N=cols, K=72, dtype="bfloat16", residual=True)
    emulated.check(work, ["64x32x16.p1x1.s3.r.even"], [1, 70, 200], hardware="h200", cores=1)


@needs_emulator
def test_empty_extents(emulated: Emulated) -> None:
    """An output without elements needs no launch; a sum of nothing is the bias with what follows."""
    for empty in ({"T": 0, "N": 8, "K": 8}, {"T": 8, "N": 0, "K": 8}):
        (case,) = emulated.run(HALVES, KEYS[:1], [empty])
        assert case["launches"] == [] and case["error"] == 0.0
    emulated.check(HALVES, KEYS[:1], [{"T": 8, "N": 8, "K": 0}])


# Machine code


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize(
    "key",
    [
        "128x128x64.p2x1.s6",
        "64x128x64.p1x1.s6",
        "256x128x64.p2x1.s4",
        "128x256x64.p2x1.s4",
        "128x192x64.p1x2.s4",
    ],
)
def test_workers_that_remain_loop_as_others_do(key: str) -> None:
    work = replace(HALF, T=Dim(1, 4096))
    remaining, others = (wide(work, one) for one in (f"{key}.r.even", f"{key}.even"))
    assert remaining.main_loop.total() <= others.main_loop.total()
    assert remaining.main_loop["HGMMA"] == others.main_loop["HGMMA"] > 0
    for kernel in code(work, f"{key}.r.even").values():
        assert kernel.loops and kernel.divisions == 0 and kernel.spills == 0 and kernel.two_byte_stores == 0


# Keys, the space, and what is expected


@given(
    st.sampled_from([(1, 1), (2, 1), (1, 4)]),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from(["padded", "even", "rest"]),
)
def test_keys_read_back(shared: tuple[int, int], remain: bool, resident: int, edge: Any) -> None:
    multicast, ending = shared
    plain = CudaMicroKernel(128, 128, 64, 2, 1, stages=4, unit="tma", resident=resident)
    kernel = replace(plain, multicast=multicast, ending=ending, persistent=remain and shared == (1, 1))
    scheme = Scheme(kernel, edge)
    assert (
        Scheme.from_key(scheme.key) == scheme
        and (".r" in scheme.key.removesuffix(".rest")) == kernel.persistent
    )


@pytest.mark.parametrize(
    "key",
    [
        "64x64x64.p1x1.s4.k2.r",
        "64x64x64.p1x1.s4.m2.r",
        "64x64x64.p1x1.s4.e2.r",
        "64x64x64.g1x1.s4.r",
        "64x64x64.x1x1.s4.r",
    ],
)
def test_blocks_that_share_do_not_remain(key: str) -> None:
    with pytest.raises(
        SpaceError, match=r"can remain if each has its own tiles; got .*\.r\. Take tma, no splits"
    ):
        Scheme.from_key(key)


def test_large_plain_rings_may_remain() -> None:
    work = Dense(T=Dim(1, 2048), N=4096, K=4096, dtype="bfloat16")
    space = build_space(work, H200)
    found: list[Any] = [scheme.kernel for scheme in space if scheme.kernel.persistent]
    assert {replace(kernel, persistent=False) for kernel in found} <= {scheme.kernel for scheme in space}
    assert 0 < len(found) < 0.05 * len(space)
    assert min(kernel.rows * kernel.cols for kernel in found) == LEAST_REMAINING
    assert all(exchanged_bytes(kernel) == 0 and shared_bytes(kernel, 2) <= 227 * 1024 for kernel in found)
    reasons = {rejection.reason for rejection in space.rejected}
    assert "tiles of blocks that remain are large" in reasons
    few = build_space(replace(work, T=Dim(1, 128), N=1024), H200)
    assert not any(scheme.kernel.persistent for scheme in few), "no block has a second tile"


def seconds(key: str, rows: int) -> float:
    work = Dense(T=Dim(1, 4096), N=4096, K=4096, dtype="bfloat16")
    return float(adaptation_cost(work, H200).bound([Scheme.from_key(key)], [Shape.of(T=rows)])[0, 0])


def test_starts_and_stores_but_one_are_expected_to_be_hidden() -> None:
    """64 columns of tiles: one, two and five waves of 132 places."""
    key, hertz = "128x64x64.p2x1.s6", gpu_rates(H200).hertz
    assert seconds(f"{key}.r", 256) == seconds(key, 256)
    hidden = [seconds(key, rows) - seconds(f"{key}.r", rows) for rows in (512, 1280)]
    assert 0.5 * START_CYCLES / hertz < hidden[0] < 1.5 * START_CYCLES / hertz
    assert hidden[1] == pytest.approx(4 * hidden[0])
    table = [
        synthetic_call(H200, HALF, Scheme.from_key(one), Shape.of(T=64), 0.0) for one in (key, f"{key}.r")
    ]
    assert table[0] == table[1]
