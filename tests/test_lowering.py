"""Micro-kernels as real programs: right at every edge, and padded locally without a bound check."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Golden

from dietlab.dispatch import Dispatcher, Operator, build
from dietlab.errors import BuildError
from dietlab.hardware import Hardware
from dietlab.lower.compiler import compile_library
from dietlab.lower.geometry import Geometry
from dietlab.lower.library import library_module
from dietlab.lower.micro_kernel import tile_function
from dietlab.lower.region import edge_variants
from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.shapes import Dim, Shape
from dietlab.space import Leaf, MicroKernel, Split, route
from dietlab.space.micro_kernel import Edge
from dietlab.workloads import Dense, tolerance

EDGES: tuple[Edge, ...] = ("padded", "checked", "partitioned")
GUARD_ROWS = 5
GUARD = np.float32(-54321.0)


def compiled(work: Dense, hardware: Hardware, kernel: MicroKernel, folder: Path) -> tuple[Any, Geometry]:
    geometry = Geometry.of(work, hardware, [kernel])
    artifact = compile_library(library_module(geometry, [kernel], Leaf(0)), hardware, folder / "kernel.so")
    return load_library(artifact.path, hardware.cores), geometry


def packed_weights(library: Any, geometry: Geometry, inputs: dict[str, Any]) -> Any:
    packed = aligned_empty(geometry.packed_shape)
    packed.fill(np.nan)
    library.pack(*(inputs[name] for name in ("w", "bias") if name in inputs), packed)
    return packed


def run_guarded(library: Any, packed: Any, x: Any, cols: int) -> Any:
    """The result, after a look at the rows behind it."""
    buffer = np.full((len(x) + GUARD_ROWS, cols), GUARD, np.float32)
    buffer[: len(x)] = np.nan
    # No spare row is readable behind x either: the array ends where its memory ends.
    library.run(np.ascontiguousarray(x), packed, buffer[: len(x)])
    assert (buffer[len(x) :] == GUARD).all(), "rows behind the output were overwritten"
    return buffer[: len(x)]


def awkward_rows(kernel: MicroKernel) -> list[int]:
    return sorted({1, 13, max(1, kernel.rows - 1), kernel.rows, kernel.rows + 1, 3 * kernel.rows})


def cases() -> list[Any]:
    """Every edge with and without bias, each with a width and a depth that do not divide."""
    found = []
    sizes = [("N fits", 64, 24), ("N sticks out", 83, 24), ("K = 1", 40, 1), ("K sticks out", 33, 23)]
    for edge in EDGES:
        for number, (name, cols, depth) in enumerate(sizes):
            kernel = MicroKernel(
                (4, 7, 1, 3)[number], (1, 2, 1, 3)[number], (4, 8, 1, 4)[number],
                ("ws", "is")[number % 2], (0, 16)[number // 2], edge,
            )  # fmt: skip
            for cores in (1, 2):
                bias = (number + cores) % 2 == 0
                found.append(
                    pytest.param(
                        kernel, cols, depth, bias, cores, id=f"{edge}, {name}, {cores} cores, {bias=}"
                    )
                )
    return found


@pytest.mark.parametrize(("kernel", "cols", "depth", "bias", "cores"), cases())
def test_micro_kernel_equals_the_reference(
    kernel: MicroKernel, cols: int, depth: int, bias: bool, cores: int, here: Hardware, tmp_path: Path
) -> None:
    lanes, hardware = here.cpu.lanes, here.with_cores(cores)
    kernel = MicroKernel(
        kernel.rows, kernel.cols * lanes, kernel.unroll, kernel.order, kernel.prefetch, kernel.edge
    )
    work = Dense(T=Dim(1, 64), N=cols, K=depth, bias=bias)
    library, geometry = compiled(work, hardware, kernel, tmp_path)
    packed = packed_weights(library, geometry, work.inputs(Shape.of(T=1)))
    for rows in awkward_rows(kernel):
        inputs = work.inputs(Shape.of(T=rows), seed=rows)
        packed = packed_weights(library, geometry, inputs)
        result = run_guarded(library, packed, inputs["x"], cols)
        error = np.abs(result - work.reference(inputs)).max()
        assert error <= tolerance(work, inputs), (rows, error)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("bias", [False, True])
def test_not_a_number_stays_in_its_row(edge: Edge, bias: bool, here: Hardware, tmp_path: Path) -> None:
    """Zeros that pad a tile meet only numbers: no row is spoilt by the one next to it."""
    work = Dense(T=Dim(1, 64), N=37, K=9, bias=bias)
    kernel = MicroKernel(4, 2 * here.cpu.lanes, 2, edge=edge)
    library, geometry = compiled(work, here, kernel, tmp_path)
    inputs = work.inputs(Shape.of(T=11))
    packed = packed_weights(library, geometry, inputs)
    inputs["x"][2, 3], inputs["x"][9, 0], inputs["x"][10, 8] = np.nan, np.inf, -np.inf
    result = run_guarded(library, packed, inputs["x"], 37)
    with np.errstate(invalid="ignore"):
        expected = work.reference(inputs)
    untouched = np.isfinite(inputs["x"]).all(axis=1)
    assert untouched.sum() == 8
    np.testing.assert_allclose(result[untouched], expected[untouched], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(result[np.isinf(expected)], expected[np.isinf(expected)].astype(np.float32))


@pytest.mark.parametrize("edge", EDGES)
def test_infinite_weights_spoil_only_their_columns(edge: Edge, here: Hardware, tmp_path: Path) -> None:
    """0 x inf of a padded row is written nowhere."""
    work = Dense(T=Dim(1, 64), N=20, K=6)
    library, geometry = compiled(work, here, MicroKernel(4, here.cpu.lanes, edge=edge), tmp_path)
    inputs = work.inputs(Shape.of(T=5))
    inputs["w"][7, 2], inputs["w"][19, 5] = np.inf, np.nan
    result = run_guarded(library, packed_weights(library, geometry, inputs), inputs["x"], 20)
    expected = inputs["x"] @ inputs["w"].T
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_array_equal(result[:, 7], expected[:, 7])


def test_packed_weights_are_panels_with_bias_first_and_zeros_beyond(here: Hardware, tmp_path: Path) -> None:
    lanes = here.cpu.lanes
    work = Dense(T=Dim(1, 4), N=lanes + 3, K=5, bias=True)
    library, geometry = compiled(work, here, MicroKernel(2, 2 * lanes), tmp_path)
    inputs = work.inputs(Shape.of(T=1))
    packed = packed_weights(library, geometry, inputs)
    assert packed.shape == (2, 6, lanes)
    for panel in range(2):
        for lane in range(lanes):
            column = panel * lanes + lane
            inside = column < work.N
            assert packed[panel, 0, lane] == (inputs["bias"][column] if inside else 0)
            np.testing.assert_array_equal(
                packed[panel, 1:, lane], inputs["w"][column] if inside else np.zeros(5)
            )


SMALL = Dense(T=Dim(1, 16), N=20, K=6, bias=True)
PROCESSOR = Hardware.preset("haswell-1core")


@pytest.mark.parametrize("edge", EDGES)
def test_tensorir_of_a_small_micro_kernel(edge: Edge, golden: Golden) -> None:
    kernel = MicroKernel(2, 8, 4, "ws", 0, edge)
    geometry = Geometry.of(SMALL, PROCESSOR, [kernel])
    script = library_module(geometry, [kernel], Leaf(0)).script(show_meta=False)
    golden(f"tensorir_{edge}.txt", script.rstrip() + "\n")


def test_only_checked_tiles_test_bounds_where_they_load() -> None:
    kernel = MicroKernel(4, 8, 2)
    geometry = Geometry.of(SMALL, PROCESSOR, [kernel])
    assert "if_then_else" not in tile_function(kernel, geometry, checked=False).script()
    checked = tile_function(kernel, geometry, checked=True).script()
    # Three rows of four (the first is always inside), in two unrolled steps.
    assert checked.count("if_then_else") == 3 * 2


def test_edges_need_the_tile_functions_that_their_names_say() -> None:
    variants = {edge: edge_variants(MicroKernel(4, 8, edge=edge)) for edge in EDGES}
    assert variants == {"padded": (False,), "checked": (True,), "partitioned": (False, True)}
    assert {edge_variants(MicroKernel(1, 8, edge=edge)) for edge in EDGES} == {(False,)}


@pytest.fixture(scope="module")
def portfolio_library(
    here: Hardware, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Dispatcher, Operator]:
    lanes = here.cpu.lanes
    kernels = (
        MicroKernel(1, 2 * lanes), MicroKernel(6, lanes, 2, "is", 16),
        MicroKernel(8, 3 * lanes, 4, edge="checked"), MicroKernel(5, lanes, edge="partitioned"),
    )  # fmt: skip
    tree = Split(
        "T", 3, Leaf(0), Split("T", 17, Split("T", 9, Leaf(3), Leaf(1)), Split("T", 40, Leaf(2), Leaf(1)))
    )
    dispatcher = Dispatcher(Dense(T=Dim(1, 64), N=70, K=19), here, kernels, tree)
    return dispatcher, build(dispatcher, tmp_path_factory.mktemp("portfolio"))


def test_library_chooses_as_the_tree_does_for_any_row_count(
    portfolio_library: tuple[Dispatcher, Operator],
) -> None:
    dispatcher, op = portfolio_library
    for rows in [*range(200), 1 << 20, (1 << 40) + 1]:
        number = route(dispatcher.tree, Shape.of(T=rows))
        assert op.plan(rows) == dispatcher.micro_kernels[number].key, rows


def test_library_is_right_on_every_row_count_around_its_rules(
    portfolio_library: tuple[Dispatcher, Operator],
) -> None:
    dispatcher, op = portfolio_library
    work = dispatcher.workload
    layer = op.pack(work.inputs(Shape.of(T=1))["w"])
    for rows in [*range(0, 90), 257]:
        inputs = work.inputs(Shape.of(T=rows))
        out = np.full((rows + GUARD_ROWS, 70), GUARD, np.float32)
        assert layer(inputs["x"], out=out[:rows]) is not None
        assert (out[rows:] == GUARD).all()
        if rows:
            assert np.abs(out[:rows] - work.reference(inputs)).max() <= tolerance(work, inputs), rows


def test_every_plan_of_a_library_gives_the_same_result(
    portfolio_library: tuple[Dispatcher, Operator],
) -> None:
    dispatcher, op = portfolio_library
    inputs = dispatcher.workload.inputs(Shape.of(T=23))
    layer, expected = op.pack(inputs["w"]), dispatcher.workload.reference(inputs)
    for plan in range(len(op.micro_kernels)):
        out = np.full((23, 70), np.nan, np.float32)
        layer.bind(inputs["x"], out, plan)()
        assert np.abs(out - expected).max() <= tolerance(dispatcher.workload, inputs), plan


def test_equal_programs_have_equal_code_and_other_programs_other_code(here: Hardware, tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 8), N=32, K=8)

    def code(rows: int, name: str) -> str:
        kernel = MicroKernel(rows, here.cpu.lanes)
        module = library_module(Geometry.of(work, here, [kernel]), [kernel], Leaf(0))
        artifact = compile_library(module, here, tmp_path / name / "kernel.so")
        assert 0 < artifact.code_bytes < artifact.path.stat().st_size
        return artifact.code_hash

    assert code(4, "one") == code(4, "another-folder") != code(5, "third")


def test_missing_linker_is_named_with_a_remedy(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BuildError, match=r"C\+\+ compiler is installed.*none of g\+\+.*apt-get install g\+\+"
    ):
        compile_library(None, here, tmp_path / "kernel.so")


def test_geometry_is_wide_enough_for_the_widest_last_tile() -> None:
    kernels = [MicroKernel(4, 8), MicroKernel(2, 24)]
    geometry = Geometry.of(SMALL, PROCESSOR, kernels)
    assert geometry.panels * geometry.lanes == max(math.ceil(20 / 8) * 8, math.ceil(20 / 24) * 24) == 24
    assert geometry.packed_bytes == 4 * math.prod(geometry.packed_shape)
