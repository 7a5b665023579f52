"""Micro-kernels whose vectors run along the reduction axis."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import in_turn
from hypothesis import given
from hypothesis import strategies as st
from programs import Program
from schemes import cpu_scheme

from dietlab.base.errors import SpaceError
from dietlab.cost import adaptation_cost
from dietlab.cost.model import features
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload
from dietlab.scheme import EDGES, Leaf, MicroKernel, Scheme, Split, build_space, heights
from dietlab.targets.cpu.cost import CPU_FEATURES
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.region import tiles_of
from dietlab.targets.cpu.lowering.scratch import scratch_floats
from dietlab.targets.cpu.lowering.specialisation import needed_widths

HERE = Hardware.detect(measure=False)
ZEN4 = Hardware.preset("zen4-1core")
SCORES = BatchMatmul(T=Dim(1, 128), B=192, D=64)
CONTEXT = BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nn")
VARIABLE = Dense(T=Dim(1, 128), N=100, K=64, constant=False)


def dots(*keys: str) -> list[MicroKernel]:
    return [Scheme.from_key(key) for key in keys]


FIVE, WIDE, ASKING = dots("5x5.u4.ws.p0.depth.even", "2x7.u1.ws.p0.depth.rest", "3x4.u2.ws.p0a.depth.even")


# Values


def test_the_axis_of_vectors_is_in_the_key() -> None:
    assert cpu_scheme(5, 5, 4, edge="even", along="depth") == FIVE
    assert FIVE.key == "5x5.u4.ws.p0.depth.even"
    padded = cpu_scheme(4, 4, along="depth")
    assert padded.key == "4x4.u1.ws.p0.depth" and Scheme.from_key(padded.key) == padded
    assert Scheme.from_key("8x32.u4.ws.p0a.even").kernel.along == "cols"
    for key in ("5x5.u4.ws.p0.even.depth", "5x5.u4.ws.p0.rows.even", "5x5.u4.ws.p0.cols.even"):
        with pytest.raises(SpaceError, match="key reads like"):
            Scheme.from_key(key)


def test_every_output_has_a_register_and_every_column_one_for_weights() -> None:
    assert FIVE.kernel.vectors(16) == FIVE.kernel.vectors(8) == 5
    assert FIVE.kernel.registers(16) == 5 * 5 + 5 + 1
    assert FIVE.cover_tile == {"rows": 1, "cols": 1, "depth": 1}


# The space


@pytest.mark.parametrize("work", [SCORES, VARIABLE])
def test_weights_in_rows_can_be_read_both_ways(work: Workload) -> None:
    space = build_space(work, ZEN4, EDGES)
    found = [kernel for kernel in space if kernel.kernel.along == "depth"]
    assert {k.edge for k in found} == {"even", "rest"} and {k.order for k in found} == {"ws"}
    assert {k.kernel.prefetch for k in found} == {0} and {k.kernel.unroll for k in found} == {1, 2, 4}
    assert any(k.kernel.ahead for k in found) == (work is SCORES)
    assert all(k.rows * k.cols + k.cols + 1 <= 32 for k in found) and FIVE in space
    assert {k.kernel.along for k in space} == {"cols", "depth"}


def test_no_dot_products_of_other_weights_nor_before_an_epilogue() -> None:
    biased = Dense(T=Dim(1, 128), N=96, K=64, bias=True, constant=False)
    for work in (Dense(T=Dim(1, 128), N=96, K=64), CONTEXT, biased):
        assert {kernel.kernel.along for kernel in build_space(work, ZEN4)} == {"cols"}
    assert {kernel.kernel.along for kernel in build_space(SCORES, ZEN4, ("padded",))} == {"cols"}


def test_the_learned_model_sees_the_axis() -> None:
    table = features(adaptation_cost(SCORES, ZEN4).formulas, [FIVE, cpu_scheme(8, 32, edge="even")])
    assert table[:, CPU_FEATURES.index("along_depth")].tolist() == [1, 0]


@given(st.sampled_from([FIVE, WIDE, ASKING]), st.sampled_from([SCORES, VARIABLE]), st.integers(1, 200))
def test_throughput_is_the_inverse_of_seconds(kernel: MicroKernel, work: Workload, rows: int) -> None:
    cost, shape = adaptation_cost(work, ZEN4), Shape.of(T=rows)
    assert cost.static(kernel, shape) == pytest.approx(1)
    assert cost.parts(kernel, shape, lambda _: 1e11).padding == pytest.approx(0, abs=1e-15)
    assert cost.throughput(kernel, shape, cost.seconds(kernel, shape, lambda _: 1e11)) == pytest.approx(1e11)


def test_short_products_are_expected_to_be_dot_products_and_long_ones_not() -> None:
    cost, across = adaptation_cost(SCORES, ZEN4), cpu_scheme(8, 16, 4, edge="even")

    def ratio(rows: int) -> float:
        dots, other = (cost.seconds(kernel, Shape.of(T=rows), lambda _: 1e11) for kernel in (FIVE, across))
        return dots / other

    assert ratio(1) < 0.1 and ratio(5) < 0.5 and ratio(128) > 1.1


# Lowering


def test_columns_are_composed_as_rows_are() -> None:
    geometry = Geometry.of(SCORES, ZEN4, [FIVE])
    kernels, tree = [FIVE, cpu_scheme(8, 32, edge="even")], Split("T", 10, Leaf(0), Leaf(1))
    assert needed_widths(geometry, kernels, tree) == [(1, 2, 3, 4, 5), (32,)]
    assert needed_widths(geometry, kernels, tree, only=[[{"T": 13}], [{"T": 13}]]) == [(4, 5), (32,)]
    static = Geometry.of(VARIABLE, ZEN4, [WIDE])
    assert needed_widths(static, [WIDE], Leaf(0), only=[[{"T": 13}]]) == [(2, 7)]
    assert [(t.rows, t.cols) for t, _ in tiles_of(FIVE, (2, 3), (4, 5))] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert heights(FIVE, 13, 13) == (4, 5)


def test_dot_products_need_no_scratch() -> None:
    assert scratch_floats([FIVE, WIDE], Geometry.of(SCORES, ZEN4, [FIVE, WIDE]), 64) == 0


@pytest.mark.parametrize(("depth", "cores"), in_turn((3, 8, 40, 64), (1, 2)))
def test_products_of_a_batch_are_right_for_every_length(depth: int, cores: int, tmp_path: Path) -> None:
    work = BatchMatmul(T=Dim(1, 40), B=3, D=depth)
    Program(work, HERE.with_cores(cores), [FIVE, WIDE, ASKING], tmp_path).check(range(1, 28))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("cols", "depth"), [(100, 37), (3, 64), (16, 16), (1, 1)])
def test_weights_that_vary_are_right(cols: int, depth: int, cores: int, tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 40), N=cols, K=depth, constant=False)
    Program(work, HERE.with_cores(cores), [FIVE, WIDE], tmp_path).check((0, 1, 2, 5, 6, 13, 17))


def test_both_styles_share_a_library(tmp_path: Path) -> None:
    work = BatchMatmul(T=Dim(1, 40), B=2, D=24)
    across = cpu_scheme(8, HERE.limits.lanes, 4, ahead=True, edge="even")
    Program(work, HERE.with_cores(1), [FIVE, across], tmp_path).check((1, 4, 9, 31))


@pytest.mark.parametrize("preset", ["haswell-1core", "zen4-1core"])
def test_eight_lanes_are_added_as_sixteen_are(preset: str, tmp_path: Path) -> None:
    """On whichever processor runs this, code for narrower vectors runs too."""
    hardware = Hardware.preset(preset)
    if hardware.limits.lanes > HERE.limits.lanes:
        pytest.skip("vectors wider than this processor's")
    Program(BatchMatmul(T=Dim(1, 40), B=2, D=21), hardware, [FIVE, WIDE], tmp_path).check(range(1, 16))
