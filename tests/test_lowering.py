"""Micro-kernels as real programs: right at every edge, and padded locally without a bound check."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from conftest import Golden, in_turn
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from programs import GUARD, Program, shape_of
from schemes import cpu_scheme

from dietlab.base.errors import BuildError
from dietlab.lower import compiler
from dietlab.lower.compiler import compile_library
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.lower.dispatch_tree import needed_heights
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import as_tensor
from dietlab.lower.store import Store
from dietlab.machine import Hardware
from dietlab.problem import ACTIVATIONS, Activation, BatchMatmul, Dense, Dim, Shape, Workload, tolerance
from dietlab.scheme import COMPOSED, EDGES, Edge, Leaf, MicroKernel, Scheme, Split, Tree, heights, route
from dietlab.targets.cpu.lowering import _packing, region, target_of
from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS, Geometry
from dietlab.targets.cpu.lowering.library import library_module, packing_module
from dietlab.targets.cpu.lowering.micro_kernel import tile_arguments, tile_function, tile_name
from dietlab.targets.cpu.lowering.region import tiles_of
from dietlab.targets.cpu.lowering.scratch import scratch_floats
from dietlab.targets.cpu.lowering.specialisation import pieces
from dietlab.tuning import Dispatcher, Operator, build

RANGE = Dim(1, 16)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 31, 97)
"""Primes, neighbours of a tile's height, and some beyond the range."""


def edges_of(work: Workload) -> tuple[Edge, ...]:
    """Weights that are read where they are cannot be padded: their depth is dynamic."""
    return tuple(edge for edge in EDGES if edge != "padded") if work.weights == "direct" else EDGES


def at_edges(base: str, lanes: int, edges: tuple[Edge, ...] = EDGES) -> list[MicroKernel]:
    """``3x2.u1.ws.p0`` with every edge; the width is in vectors."""
    rows, rest = base.split("x", 1)
    vectors, rest = rest.split(".", 1)
    keys = (f"{rows}x{int(vectors) * lanes}.{rest}" + ("" if e == "padded" else f".{e}") for e in edges)
    return [Scheme.from_key(key) for key in keys]


PROGRAMS: dict[str, tuple[Workload, tuple[str, ...]]] = {
    "packed": (Dense(RANGE, 37, 23), ("5x2.u2.ws.p0", "3x1.u1.is.p16", "4x1.u4.ws.p0a", "1x3.u8.ws.p0")),
    "packed, N fits, bias": (Dense(RANGE, 64, 32, bias=True), ("5x2.u4.ws.p0", "4x1.u1.ws.p16a")),
    "packed, K = 1": (Dense(RANGE, 40, 1, bias=True, residual=True), ("3x2.u1.ws.p0a", "2x1.u1.is.p0")),
    "packed, N = 1": (Dense(RANGE, 1, 19, activation="relu"), ("4x1.u2.ws.p0", "3x1.u2.is.p0")),
    "packed, relu": (Dense(RANGE, 21, 18, True, activation="relu", residual=True), ("4x1.u2.ws.p0",)),
    "packed, residual before": (
        Dense(RANGE, 21, 18, True, activation="gelu_erf", residual="before"),
        ("4x1.u2.ws.p0", "3x2.u1.is.p0"),
    ),
    "packed, tanh": (Dense(RANGE, 32, 17, activation="gelu_tanh", residual=True), ("3x2.u2.is.p0",)),
    "packed, erf": (Dense(RANGE, 33, 17, True, activation="gelu_erf"), ("3x2.u2.ws.p0",)),
    "variable": (Dense(RANGE, 37, 23, constant=False), ("5x2.u2.ws.p0", "3x1.u1.ws.p16")),
    "variable, N fits": (
        Dense(RANGE, 48, 35, bias=True, activation="relu", residual=True, constant=False),
        ("4x1.u4.ws.p0",),
    ),
    "variable, N = K = 1": (Dense(RANGE, 1, 1, bias=True, constant=False), ("3x1.u1.ws.p0",)),
    "nt": (BatchMatmul(RANGE, 3, 19, "nt"), ("5x2.u2.ws.p0", "3x1.u1.ws.p16a")),
    "nt, B = 1": (BatchMatmul(RANGE, 1, 32, "nt"), ("4x1.u8.ws.p0", "3x2.u1.ws.p0a")),
    "nn": (BatchMatmul(RANGE, 3, 37, "nn"), ("5x2.u2.ws.p0", "3x1.u1.is.p4")),
    "nn, B = 1, D fits": (BatchMatmul(RANGE, 1, 32, "nn"), ("4x2.u4.ws.p16", "3x1.u1.is.p0")),
    "nn, D = 1": (BatchMatmul(RANGE, 5, 1, "nn"), ("2x1.u1.ws.p0",)),
}


def programmed(name: str, lanes: int) -> tuple[Workload, list[MicroKernel]]:
    work, bases = PROGRAMS[name]
    return work, [kernel for base in bases for kernel in at_edges(base, lanes, edges_of(work))]


@pytest.mark.parametrize(("name", "cores"), in_turn(PROGRAMS, (1, 2)))
def test_every_plan_is_right_on_every_size(name: str, cores: int, here: Hardware, tmp_path: Path) -> None:
    work, kernels = programmed(name, here.limits.lanes)
    Program(work, here.with_cores(cores), kernels, tmp_path).check(SIZES)


SHORT = DEFAULTS.short_rows
ALONE = (1, 2, 5, 8, 13, SHORT + 1, 97)
"""Lengths that have pieces of their own, and two that have none."""


@pytest.mark.parametrize(
    ("name", "cores"), in_turn(("nt, B = 1", "nt", "nn, B = 1, D fits", "nn", "nn, D = 1"), (1, 2))
)
def test_lengths_that_are_compiled_one_by_one_are_right(
    name: str, cores: int, here: Hardware, tmp_path: Path
) -> None:
    work, kernels = programmed(name, here.limits.lanes)
    if work.weights == "transposed":
        kernels.append(Scheme.from_key("3x2.u2.ws.p0.depth.even"))
    Program(work, here.with_cores(cores), kernels, tmp_path, only=ALONE).check(ALONE)


@pytest.mark.parametrize("form", ["nt", "nn"])
@pytest.mark.parametrize("low", [1, 5 + 1])
def test_a_library_with_pieces_for_short_lengths_is_right_on_all(
    low: int, form: Any, here: Hardware, tmp_path: Path
) -> None:
    """Also before its range, wherever that begins."""
    work, lanes = BatchMatmul(Dim(low, 64), 3, 21, form), here.limits.lanes
    plans = (cpu_scheme(5, lanes, edge="even"), cpu_scheme(4, 2 * lanes, edge="rest", ahead=True))
    tree = Split("T", 7, Leaf(1), Split("T", 20, Leaf(0), Leaf(1)))
    op = build(Dispatcher(work, here, plans, tree), tmp_path)
    for rows in range(3 * SHORT):
        inputs = work.inputs(Shape.of(T=rows))
        expected = work.reference(inputs)
        out = np.full(expected.shape, np.nan, np.float32)
        op.library.run(*map(as_tensor, (inputs["x"], inputs["w"], out)))
        assert np.abs(out - expected).max(initial=0.0) <= tolerance(work, inputs), rows
        assert op.library.plan(rows) == route(tree, Shape.of(T=rows))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="nothing here reads machine code")
@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("key", ["4x64.u1.is.p0.rest", "6x16.u8.ws.p0a.even"])
def test_tiles_of_known_depth_do_not_spill(
    forgets: bool, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would if the compiler could keep from tile to tile what it has read of rows with pointers of their
    own."""
    if not forgets:
        monkeypatch.setattr(region, "forget", lambda *pointers: None)
    work, zen4 = BatchMatmul(Dim(1, 64), 192, 64, "nn"), Hardware.preset("zen4-1core")
    path = tmp_path / "kernel.so"
    calls, each_row = [[Shape.of(T=8)]], Lowering(rows_together=0)
    compile_plans(work, zen4, [Scheme.from_key(key)], Leaf(0), path, only=calls, lowering=each_row)
    dump = partial(subprocess.check_output, text=True)
    symbols = dump(["objdump", "-T", str(path)])
    code = dump(["objdump", "-d", "--no-show-raw-insn", str(path)])
    assert "clear_cache" not in symbols
    assert len(re.findall(r"vfmadd\w+\s.*%zmm", code)) >= 64
    spilled = re.findall(r"vmov\w+\s+%zmm\d+,.*\(%rsp\)", code)
    assert bool(spilled) == (not forgets), spilled


def test_where_instructions_are_not_coherent_nothing_is_cleared() -> None:
    """ARM has an instruction for it, and a slow one."""
    kernel, work = cpu_scheme(4, 16, edge="even"), BatchMatmul(Dim(1, 64), 3, 21, "nn")
    arm = replace(PROCESSOR, limits=replace(PROCESSOR.limits, llvm_cpu="generic"))
    for processor in (PROCESSOR, arm):
        module = library_module(Geometry.of(work, processor, [kernel]), [kernel], Leaf(0), only=[[{"T": 8}]])
        assert ("clear_cache" in module.script()) == (processor is PROCESSOR)


CUT: dict[str, Workload] = {
    "plain": Dense(RANGE, 37, 24),
    "bias": Dense(RANGE, 64, 24, bias=True),
    "all": Dense(RANGE, 21, 24, True, activation="relu", residual=True),
}


@pytest.mark.parametrize(("name", "cores"), [("plain", 1), ("bias", 1), ("all", 1), ("all", 2)])
def test_a_reduction_taken_in_parts_is_right(name: str, cores: int, here: Hardware, tmp_path: Path) -> None:
    """Sums wait in the output; bias comes first, activation and residual last. With a small L2, rows are
    taken block by block in each part."""
    bases = ("5x2.u2.ws.p0a.k8", "3x1.u4.ws.p16.k12", "4x1.u1.ws.p0.k24")
    kernels = [kernel for base in bases for kernel in at_edges(base, here.limits.lanes, COMPOSED)]
    small = replace(here, limits=replace(here.limits, l2_bytes=2 * 4 * 24 * 7))
    Program(CUT[name], small.with_cores(cores), kernels, tmp_path).check(SIZES)


@pytest.mark.parametrize(
    "work", [Dense(9, 20, 16), BatchMatmul(9, 2, 20, "nt"), BatchMatmul(9, 2, 20, "nn")], ids=str
)
def test_static_operators_are_right(work: Workload, here: Hardware, tmp_path: Path) -> None:
    kernels = at_edges("4x1.u2.ws.p0", here.limits.lanes)
    for asking in ("9x1.u2.ws.p16a.k8", "4x1.u1.ws.p16a.k8") if isinstance(work, Dense) else ():
        kernels += at_edges(asking, here.limits.lanes, COMPOSED)
    Program(work, here, kernels, tmp_path).check([9])


# What is not a number, and what is huge


SPECIALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30)
SPOILT: dict[str, tuple[Workload, str]] = {
    "packed": (Dense(RANGE, 21, 9), "4x1.u2.ws.p0"),
    "packed, bias, relu": (Dense(RANGE, 21, 9, True, activation="relu", residual=True), "4x1.u2.ws.p0"),
    "packed, tanh": (Dense(RANGE, 21, 9, activation="gelu_tanh"), "4x1.u2.ws.p0"),
    "variable, erf": (Dense(RANGE, 21, 9, True, activation="gelu_erf", constant=False), "4x1.u2.ws.p0"),
    "nt": (BatchMatmul(RANGE, 2, 9, "nt"), "4x1.u2.ws.p0"),
    "nn": (BatchMatmul(RANGE, 2, 21, "nn"), "4x1.u2.ws.p0"),
}


@pytest.fixture(scope="module")
def spoilt(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Program]:
    lanes, folder = here.limits.lanes, tmp_path_factory.mktemp("spoilt")
    return {
        name: Program(work, here, at_edges(base, lanes, edges_of(work)), folder / name)
        for name, (work, base) in SPOILT.items()
    }


@settings(max_examples=150)
@given(st.data(), st.sampled_from(sorted(SPOILT)), st.sampled_from([1, 3, 4, 5, 9, 11]), st.booleans())
def test_what_is_not_finite_comes_out_as_numpys(
    spoilt: dict[str, Program], data: st.DataObject, name: str, size: int, huge: bool
) -> None:
    """No row, column or product is spoilt by the one next to it, by padding or by an activation."""
    program = spoilt[name]
    inputs = program.work.inputs(shape_of(program.work, size), size)
    for operand in sorted(inputs):
        places = st.lists(st.integers(0, inputs[operand].size - 1), max_size=3)
        for place in data.draw(places, label=operand):
            special = data.draw(st.sampled_from(SPECIALS if huge else SPECIALS[:5]))
            inputs[operand].flat[place] = special
    with np.errstate(invalid="ignore", over="ignore"):
        expected = program.work.reference(inputs)
        x, w = (np.nan_to_num(inputs[n], posinf=0, neginf=0).astype(np.float64) for n in ("x", "w"))
        w = w if program.work.weights == "direct" else np.swapaxes(w, -1, -2)
        scale = np.abs(x) @ np.abs(w) + 1  # of the terms, since large ones may cancel
    plan = data.draw(st.integers(0, len(program.kernels) - 1), label="plan")
    result = program(inputs, plan)
    # Where terms overflow in float32 their sum depends on the order.
    result, expected, scale = (values[scale < 1e38] for values in (result, expected, scale))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    finite, infinite = np.isfinite(expected), np.isinf(expected)
    np.testing.assert_array_equal(result[infinite], expected[infinite].astype(np.float32))
    assert (np.abs(result[finite] - expected[finite]) <= 1e-5 * scale[finite]).all()


@pytest.mark.parametrize("activation", [a for a in ACTIVATIONS if a != "none"])
def test_activations_are_as_exact_as_they_say(activation: Activation, here: Hardware, tmp_path: Path) -> None:
    work = Dense(RANGE, 1, 1, activation=activation)
    program = Program(work, here, [cpu_scheme(4, here.limits.lanes, edge="even")], tmp_path)
    near = np.concatenate([np.linspace(-8, 8, 40001), np.linspace(-1e-3, 1e-3, 2001)])
    far = np.array([9.0, 30.0, 1e4, 1e19, 1e30, 3e38, 1e-30, 1e-45])
    x = np.concatenate([near, far, -far]).astype(np.float32)[:, None]
    w = np.ones((1, 1), np.float32)
    result = program({"x": x, "w": w}, 0)
    expected = work.reference({"x": x, "w": w})
    assert np.isfinite(result).all()
    # An exact result rounded to float32 is off by half a unit in the last place of it.
    assert (np.abs(result - expected) <= 1.1e-6 + 1.2e-7 * np.abs(expected)).all()
    assert (result[x > 6] == x[x > 6]).all() and not result[x < -6].any()


def zeros(*shape: int) -> Any:
    """Memory that is taken only where something is written, if the machine promises so much of it."""
    try:
        return np.zeros(shape, np.float32)
    except MemoryError:
        pytest.skip(f"the machine does not lend {4 * math.prod(shape) >> 30} GiB of zeros")


def test_a_library_of_many_elements_is_right(here: Hardware, tmp_path: Path) -> None:
    """More than 2^31 of them: no offset is 32 bits wide. Almost all of x is never written, so that it
    needs no memory."""
    work, rows = Dense(RANGE, 16, 1024), (1 << 21) + 1
    lanes = here.limits.lanes
    kernels = [cpu_scheme(14, lanes, 4, edge=edge) for edge in ("even", "padded")]
    program = Program(work, here, kernels, tmp_path)
    inputs = work.inputs(Shape.of(T=7))
    places = [0, 1, 13, (1 << 20) + 5, (1 << 21) - 1, 1 << 21, rows - 1]
    x = zeros(rows, 1024)
    x[places] = inputs["x"]
    expected = work.reference({**inputs, "x": x[places]})
    packed = program.packed(inputs)
    for plan in range(len(kernels)):
        out = np.full((rows, 16), np.nan, np.float32)
        program.library.run_plan(x, packed, out, plan)
        assert np.abs(out[places] - expected).max() <= tolerance(work, inputs)
        out[places] = 0
        assert not out.any()


def test_a_product_of_many_elements_is_right(here: Hardware, tmp_path: Path) -> None:
    """The same where every extent but the output's width is dynamic."""
    work, size = BatchMatmul(RANGE, 1, 4, "nn"), 46_349
    program = Program(work, here, [cpu_scheme(14, here.limits.lanes, 4, edge="even")], tmp_path)
    x = zeros(1, size, size)
    w = np.random.default_rng(0).standard_normal((1, size, 4), np.float32)
    ones = [(0, 0), (0, size - 1), (5, 17), (size - 1, 0), (size - 1, size - 1)]
    for row, column in ones:
        x[0, row, column] = 1
    out = np.full((1, size, 4), np.nan, np.float32)
    program.library.run_plan(x, w, out, 0)
    expected = np.zeros((size, 4), np.float32)
    for row, column in ones:
        expected[row] += w[0, column]
    np.testing.assert_allclose(out[0], expected, rtol=1e-6, atol=1e-6)


# Weights in panels


@pytest.mark.parametrize("depth", [1, 5, 16, 19, 32, 45])
def test_packed_weights_are_panels_with_bias_first(depth: int, here: Hardware, tmp_path: Path) -> None:
    lanes = here.limits.lanes
    work = Dense(T=Dim(1, 4), N=lanes + 3, K=depth, bias=True)
    program = Program(work, here, [cpu_scheme(4, 3 * lanes, edge="even")], tmp_path)
    inputs = work.inputs(Shape.of(T=1))
    packed = program.packed(inputs)
    panels = 2 + 3 - 1  # two with columns, and what the widest tile may read beyond them
    assert packed.shape == (HEADER_FLOATS + panels * (depth + 1) * lanes,)
    body = packed[HEADER_FLOATS:].reshape(panels, depth + 1, lanes)
    assert np.isfinite(body).all(), "what lies beyond the last column is still a number"
    columns = np.moveaxis(body, 1, 2).reshape(panels * lanes, depth + 1)
    np.testing.assert_array_equal(columns[: work.N, 0], inputs["bias"])
    np.testing.assert_array_equal(columns[: work.N, 1:], inputs["w"])
    assert not columns[work.N :, 0].any() and not body[2].any()


# TensorIR


SMALL = Dense(T=Dim(1, 16), N=20, K=6, bias=True)
PROCESSOR = Hardware.preset("haswell-1core")


@pytest.mark.parametrize("edge", ["even", "padded", "checked", "partitioned"])
def test_tensorir_of_a_small_micro_kernel(edge: Edge, golden: Golden) -> None:
    kernel = cpu_scheme(2, 8, 4, "ws", 0, edge)
    geometry = Geometry.of(SMALL, PROCESSOR, [kernel])
    functions = library_module(geometry, [kernel], Leaf(0)).functions
    shown = {name: f for name, f in functions.items() if name.name_hint.startswith(("run", "tile"))}
    golden(f"tensorir_{edge}.txt", tvm.IRModule(shown).script(show_meta=False).rstrip() + "\n")


def test_only_checked_tiles_test_bounds_where_they_load() -> None:
    kernel = cpu_scheme(4, 8, 2)
    geometry = Geometry.of(SMALL, PROCESSOR, [kernel])
    for fit in ("exact", "guarded"):
        assert "if_then_else" not in tile_function(kernel.kernel, geometry, fit).script()
    checked = tile_function(kernel.kernel, geometry, "checked").script()
    # Three rows of four (the first is always inside), in two unrolled steps.
    assert checked.count("if_then_else") == 3 * 2


def test_only_exact_tiles_of_full_columns_store_without_a_test() -> None:
    kernel = cpu_scheme(4, 8, 2)
    fits = Geometry.of(Dense(T=Dim(1, 16), N=24, K=6), PROCESSOR, [kernel])
    sticks_out = Geometry.of(SMALL, PROCESSOR, [kernel])
    assert "if" not in tile_function(kernel.kernel, fits, "exact").script().replace("from", "")
    assert "masked.store" in tile_function(kernel.kernel, sticks_out, "exact").script()
    assert tile_arguments(kernel.kernel, fits, "exact") == ("x", "w", "y")
    assert tile_arguments(kernel.kernel, sticks_out, "guarded") == ("x", "w", "y", "rows", "cols")


def test_edges_need_the_tile_functions_that_their_names_say() -> None:
    expected = {"padded": ("exact", "guarded"), "checked": ("checked",), "partitioned": ("exact", "checked")}
    for edge, fits in expected.items():
        kernel = cpu_scheme(4, 8, edge=edge)  # type: ignore[arg-type]
        assert tiles_of(kernel, (4,)) == tuple((kernel.kernel, fit) for fit in fits)
    for edge in EDGES:
        kernel = cpu_scheme(1, 8, edge=edge)
        assert tiles_of(kernel, (1,)) == ((kernel.kernel, "exact"),)
    for edge in ("even", "rest"):
        kernel = cpu_scheme(4, 8, edge=edge)
        tiles = [(tile.rows, fit) for tile, fit in tiles_of(kernel, (1, 3, 4))]
        assert tiles == [(1, "exact"), (3, "exact"), (4, "exact")]


def functions_of(module: Any) -> set[str]:
    return {name.name_hint for name in module.functions}


def test_only_what_some_shape_needs_is_compiled() -> None:
    even = [cpu_scheme(rows, 8, edge="even") for rows in (4, 5)]
    kernels = (even[0], cpu_scheme(6, 16, edge="rest"), even[1])
    # 9..17 rows make 3, 4 and 5 tiles of 3 or 4; from 18 on there are full tiles and any rest.
    tree = Split("T", 8, Leaf(2), Split("T", 17, Leaf(0), Leaf(1)))
    dispatcher = Dispatcher(SMALL, PROCESSOR, kernels, tree)
    geometry = Geometry.of(SMALL, PROCESSOR, kernels)
    module = library_module(geometry, kernels, tree)
    assert needed_heights(kernels, tree, "T") == [(3, 4), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5)]
    tiles = {tile_name(kernel, "exact") for kernel in dispatcher.micro_kernels}
    assert functions_of(module) == tiles | {"run", "plan", "idle"}
    assert functions_of(packing_module(geometry)) == {"pack", "packed_floats", "panel"}
    every = library_module(geometry, kernels, tree, every_plan=True)
    assert functions_of(every) == functions_of(module) | {"run_plan"} | {
        tile_name(lower.kernel, "exact") for kernel in kernels for lower in kernel.heights
    }
    assert needed_heights(kernels, tree, "T", only=[[5]] * 3) == [(2, 3), (5,), (5,)]
    assert needed_heights(kernels, Leaf(0), "T", only=[[0, 13], [], [13]]) == [(3, 4), (), (4, 5)]


TREES = st.recursive(
    st.integers(0, 2).map(Leaf),
    lambda inner: st.builds(Split, st.just("T"), st.integers(1, 60), inner, inner),
    max_leaves=6,
)


CALLS = st.lists(st.lists(st.integers(0, 80), max_size=6), min_size=3, max_size=3)


@given(TREES | st.none(), st.none() | CALLS, st.sampled_from(["nt", "nn"]))
def test_each_length_has_the_tiles_that_its_plan_needs(
    tree: Tree | None, only: list[list[int]] | None, form: Any
) -> None:
    """In one piece: its own if it is short, the plan's general one otherwise."""
    third = cpu_scheme(5, 2, along="depth", edge="even") if form == "nt" else cpu_scheme(2, 8)
    plans = [cpu_scheme(4, 8, edge="even"), cpu_scheme(6, 16, edge="rest"), third]
    geometry = Geometry.of(BatchMatmul(Dim(1, 64), 3, 24, form), PROCESSOR, plans)
    found = {
        (piece.length, piece.number): piece
        for piece in pieces(geometry, plans, tree, only and [[{"T": n} for n in called] for called in only])
    }
    assert all(piece.scheme is plans[number] for (_, number), piece in found.items())
    for length in range(1, 81):
        numbers = range(3) if tree is None else [route(tree, Shape.of(T=length))]
        if only is not None:
            others = {number for number in range(3) if length not in only[number]}
            assert not any((length, number) in found for number in others)
            numbers = [number for number in numbers if number not in others]
        alone = length <= SHORT and (tree is not None or only is not None)
        for number in numbers:
            piece, kernel = found[length if alone else None, number], plans[number]
            needed = heights(kernel, length, length)
            assert piece.heights == needed if alone else set(needed) <= set(piece.heights)
            if kernel.kernel.along == "depth":
                across = heights(kernel.changed(rows=kernel.cols), length, length)
                assert piece.widths == across if alone else set(across) <= set(piece.widths)
            else:
                assert piece.widths == (kernel.cols,)
        if alone and tree is not None and numbers:
            assert sum(at == length for at, _ in found) == 1
    longer = BatchMatmul(Dim(SHORT + 1, 64), 3, 24, form)
    assert all(Geometry.of(work, PROCESSOR, plans[:2]).short == 0 for work in (SMALL, longer))


def test_scratch_is_what_the_most_demanding_plan_needs() -> None:
    kernels = [cpu_scheme(4, 8), cpu_scheme(6, 16), cpu_scheme(3, 24), cpu_scheme(9, 8, edge="even")]
    geometry = Geometry.of(SMALL, PROCESSOR, kernels)
    assert scratch_floats(kernels, geometry, 6) == 6 * 6
    variable = Geometry.of(replace(SMALL, constant=False), PROCESSOR, kernels)
    # Panels hold the bias too: seven rows for a depth of six.
    assert scratch_floats(kernels, variable, 6) == max(4 * 6 + 7 * 8, 6 * 6 + 7 * 16, 3 * 6 + 7 * 24, 7 * 8)


def test_geometry_is_wide_enough_for_the_widest_last_tile() -> None:
    kernels = [cpu_scheme(4, 8), cpu_scheme(2, 24)]
    geometry = Geometry.of(SMALL, PROCESSOR, kernels)
    for cols in range(1, 100):
        assert geometry.panels(cols) * 8 >= max(math.ceil(cols / 8) * 8, math.ceil(cols / 24) * 24)
    assert geometry.packed_floats(20, 6) == HEADER_FLOATS + 5 * 7 * 8


@settings(deadline=None)
@given(
    depth=st.integers(1, 256).map(lambda lines: 16 * lines),
    steps=st.sampled_from([0, 128, 256, 512, 1024]),
    cache=st.sampled_from([(1 << 20, 8), (2 << 20, 16), (1 << 18, 8), (5 << 18, 20)]),
)
@example(depth=3072, steps=512, cache=(2 << 20, 16))
def test_a_block_of_rows_leaves_room_for_weights_in_every_set_of_the_cache(
    depth: int, steps: int, cache: tuple[int, int]
) -> None:
    (size, ways), line_floats = cache, 16
    assume(depth % (steps or 1) == 0)
    processor = replace(PROCESSOR, limits=replace(PROCESSOR.limits, l2_bytes=size))
    geometry = Geometry.of(Dense(T=RANGE, N=24, K=depth), processor, [cpu_scheme(4, 16)])
    first = depth // line_floats * np.arange(geometry.block_rows(depth, steps))[:, None]
    lines = first + np.arange((steps or depth) // line_floats)
    in_sets = np.bincount((lines % (size // (4 * line_floats * ways))).ravel())
    assert in_sets.max() <= 0.75 * ways


def test_parts_of_rows_a_power_of_two_apart_are_not_more_rows_the_shorter_they_are() -> None:
    processor = replace(PROCESSOR, limits=replace(PROCESSOR.limits, l2_bytes=2 << 20))
    geometry = Geometry.of(Dense(T=RANGE, N=24, K=3072), processor, [cpu_scheme(4, 16)])
    assert [geometry.block_rows(3072, steps) for steps in (0, 1024, 512, 256)] == [85, 256, 256, 256]


# Libraries


@pytest.fixture(scope="module")
def chosen(here: Hardware) -> Dispatcher:
    lanes = here.limits.lanes
    kernels = (
        cpu_scheme(1, 2 * lanes),
        cpu_scheme(6, lanes, 2, "is", 16, "even"),
        cpu_scheme(8, lanes, 4, edge="checked"),
        cpu_scheme(5, lanes, edge="rest"),
        cpu_scheme(4, 2 * lanes, edge="even", ahead=True),
    )
    low = Split("T", 17, Split("T", 9, Leaf(3), Leaf(1)), Split("T", 40, Leaf(2), Leaf(3)))
    tree = Split("T", 64, Split("T", 3, Leaf(0), low), Leaf(4))
    return Dispatcher(Dense(T=Dim(1, 64), N=lanes + 3, K=5), here, kernels, tree)


@pytest.fixture(scope="module")
def op(chosen: Dispatcher, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return build(chosen, tmp_path_factory.mktemp("portfolio"), every_plan=True)


def test_library_chooses_as_the_tree_does_for_any_row_count(chosen: Dispatcher, op: Operator) -> None:
    for rows in [*range(8193), 1 << 20, (1 << 40) + 1]:
        assert op.library.plan(rows) == route(chosen.tree, Shape.of(T=rows)), rows
        assert op.scheme(rows) == chosen.scheme(Shape.of(T=rows)).key, rows


def sampled_rows() -> Iterator[int]:
    """0..8192: all that are small, neighbours of powers of two, and one in 61 of the others."""
    near_powers = {(1 << bit) + d for bit in range(8, 14) for d in (-1, 0, 1)}
    yield from sorted(rows for rows in {*range(200), *near_powers, *range(200, 8193, 61)} if rows <= 8192)


def test_library_is_right_on_every_row_count(chosen: Dispatcher, op: Operator) -> None:
    work = chosen.workload
    inputs = work.inputs(Shape.of(T=8192))
    expected, allowed = work.reference(inputs), tolerance(work, inputs)
    layer, width = op.pack(inputs["w"]), expected.shape[1]
    buffer = np.empty((8192 + 2, width), np.float32)
    compiled = set(op.micro_kernels)
    for rows in sampled_rows():
        plan = chosen.plan(Shape.of(T=rows))
        assert {region.kernel.key for region in plan.regions} <= compiled, rows
        out = buffer[1 : rows + 1]
        out.fill(np.nan)
        buffer[0], buffer[rows + 1] = GUARD, GUARD
        layer(inputs["x"][:rows], out=out)
        assert np.abs(out - expected[:rows]).max(initial=0) <= allowed, rows
        assert (buffer[0] == GUARD).all() and (buffer[rows + 1] == GUARD).all(), rows


def test_every_plan_of_a_library_gives_the_same_result(chosen: Dispatcher, op: Operator) -> None:
    inputs = chosen.workload.inputs(Shape.of(T=23))
    layer, expected = op.pack(inputs["w"]), chosen.workload.reference(inputs)
    for plan in range(len(op.schemes)):
        out = np.full(expected.shape, np.nan, np.float32)
        layer.bind(inputs["x"], out, plan)()
        assert np.abs(out - expected).max() <= tolerance(chosen.workload, inputs), plan


def test_equal_programs_have_equal_code_and_other_programs_other_code(here: Hardware, tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 8), N=32, K=8)

    def code(kernel: MicroKernel, name: str, only: tuple[int, ...] | None = None) -> str:
        calls = None if only is None else [[{"T": n} for n in only]]
        module = library_module(Geometry.of(work, here, [kernel]), [kernel], Leaf(0), only=calls)
        artifact = compile_library(module, target_of(here), tmp_path / name / "kernel.so")
        assert 0 < artifact.code_bytes < artifact.path.stat().st_size
        return artifact.code_hash

    lanes = here.limits.lanes
    four, five = cpu_scheme(4, lanes, edge="even"), cpu_scheme(5, lanes, edge="even")
    assert code(four, "one") == code(four, "another-folder") != code(five, "third")
    assert code(four, "all") != code(four, "some", (8,))


@pytest.mark.parametrize(
    ("key", "work", "reason"),
    [
        ("4x8.u4.ws.p0.k8", Dense(RANGE, 37, 24), "composed tiles"),
        ("4x8.u4.is.p0.even", Dense(RANGE, 37, 24, constant=False), "stationary"),
        ("4x8.u4.ws.p0", BatchMatmul(RANGE, 3, 37, "nn"), "size known beforehand"),
    ],
)
def test_plans_without_a_program_are_refused(
    key: str, work: Workload, reason: str, here: Hardware, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=rf"{reason}.*{key}"):
        compile_plans(work, here, [Scheme.from_key(key)], Leaf(0), tmp_path / "kernel.so")
    assert not list(tmp_path.iterdir())


def test_missing_linker_is_named_with_a_remedy(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = r"needs a C\+\+ compiler; got.*none of g\+\+.*apt-get install g\+\+"
    with pytest.raises(BuildError, match=told):
        compile_library(None, target_of(here), tmp_path / "kernel.so")


def test_what_packs_is_compiled_once_for_a_layout(tmp_path: Path) -> None:
    """A third of the time of a scheme's library; the widest tile, and with it the layout, may differ."""
    lanes = PROCESSOR.limits.lanes
    work, compiled = Dense(T=Dim(1, 8), N=5 * lanes + 1, K=6), _packing.cache_info()
    for rows, vectors in ((1, 2), (4, 2), (2, 1)):
        scheme, path = cpu_scheme(rows, vectors * lanes, edge="even"), tmp_path / f"{rows}.so"
        compile_plans(work, PROCESSOR, [scheme], Leaf(0), path)
    after = _packing.cache_info()
    assert (after.misses - compiled.misses, after.hits - compiled.hits) == (2, 1)


def test_an_equal_module_is_not_compiled_again(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other heights, layouts and processors make other modules."""
    store = Store(tmp_path / "store")
    monkeypatch.setattr(compiler, "STORE", store)
    lanes, work = here.limits.lanes, Dense(T=Dim(1, 100), N=5 * here.limits.lanes, K=6)
    four = cpu_scheme(4, lanes, edge="even")

    def compiles(lengths: tuple[int, ...], of: Hardware = here, scheme: Scheme = four) -> bool:
        before, path = store.size()[0], tmp_path / f"{len(list(tmp_path.iterdir()))}.so"
        shapes = [[Shape.of(T=length) for length in lengths]]
        artifact = compile_plans(work, of, [scheme], Leaf(0), path, only=shapes)
        assert artifact.code_hash and artifact.code_bytes and artifact.packs and path.stat().st_nlink == 1
        return store.size()[0] > before

    assert compiles((40, 80)) and not compiles((80,)) and compiles((42, 80)) and not compiles((40,))
    assert compiles((80,), scheme=cpu_scheme(4, 2 * lanes, edge="even"))
    assert compiles((80,), of=here.with_cores(here.cores + 1))
    store.clear()
    assert compiles((80,))
