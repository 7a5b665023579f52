"""Portfolio, decision tree, and the operator that people call."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Golden
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dietlab.dispatch import (
    Dispatcher,
    Operator,
    Portfolio,
    build,
    choose_portfolio,
    dense_shapes,
    load,
    train_dispatcher,
)
from dietlab.errors import DispatchError
from dietlab.hardware import Hardware
from dietlab.search import TuningRun
from dietlab.shapes import Dim, Shape, ShapeSet
from dietlab.space import Leaf, MicroKernel, Split, leaves
from dietlab.workloads import Dense, tolerance

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is an extra")
HARDWARE = Hardware.preset("haswell-1core")
WORK = Dense(T=Dim(1, 40), N=64, K=32)


# Portfolio


def test_larger_portfolios_are_never_worse(synthetic_run: TuningRun) -> None:
    curves = [choose_portfolio(synthetic_run, max_kernels=n).curve for n in (1, 3, 8)]
    for curve in curves:
        losses = [loss for _, loss in curve]
        assert [n for n, _ in curve] == list(range(1, len(curve) + 1))
        assert losses == sorted(losses, reverse=True) and losses[-1] >= 1
    assert curves[0][-1][1] >= curves[1][-1][1] >= curves[2][-1][1]
    assert curves[2][-1][1] < curves[0][-1][1] and curves[1] == curves[2][:3]


def test_swaps_reach_the_best_pair_or_what_no_swap_improves(synthetic_run: TuningRun) -> None:
    kernels = synthetic_run.micro_kernels
    shapes = dense_shapes(synthetic_run.space.workload, synthetic_run.shapes)
    logs = np.log(synthetic_run.seconds_table(kernels, shapes.shapes))
    logs -= logs.min(axis=0)
    weights = np.array(shapes.weights)

    def loss(pair: tuple[int, ...]) -> float:
        return float(logs[list(pair)].min(axis=0) @ weights)

    chosen = choose_portfolio(synthetic_run, max_kernels=2)
    pair = tuple(kernels.index(k) for k in chosen.micro_kernels)
    assert np.exp(loss(pair)) == pytest.approx(chosen.curve[-1][1])
    for member in pair:
        (kept,) = set(pair) - {member}
        assert all(loss((kept, other)) >= loss(pair) - 1e-6 for other in range(len(kernels)) if other != kept)
    assert loss(pair) <= 1.05 * min(loss(p) for p in combinations(range(len(kernels)), 2)) + 1e-3


def test_portfolio_stops_at_the_slowdown_that_suffices(synthetic_run: TuningRun) -> None:
    whole = choose_portfolio(synthetic_run, max_kernels=8)
    target = whole.curve[2][1]
    assert len(choose_portfolio(synthetic_run, max_kernels=8, max_slowdown=target)) == 3


def test_portfolio_of_nothing_is_refused(synthetic_run: TuningRun) -> None:
    with pytest.raises(DispatchError, match="at least one micro-kernel; got 0"):
        choose_portfolio(synthetic_run, max_kernels=0)


def test_dense_shapes_share_the_weight_of_their_nearest() -> None:
    given_shapes = ShapeSet.weighted(WORK, {10: 3.0, 30: 1.0})
    dense = dense_shapes(WORK, given_shapes)
    assert [s["T"] for s in dense] == list(range(1, 41))
    assert sum(dense.weight(Shape.of(T=t)) for t in range(1, 20)) == pytest.approx(0.75 * 19 / 20)
    assert len({round(dense.weight(Shape.of(T=t)), 12) for t in range(1, 20)}) == 1
    assert len(dense_shapes(Dense(T=Dim(1, 5000), N=1, K=1), given_shapes)) == 1024


# Tree


@st.composite
def portfolios(draw: st.DrawFn) -> Portfolio:
    count = draw(st.integers(1, 5))
    seconds = draw(arrays(np.float64, (count, 40), elements=st.floats(0.5, 50)))
    weights = draw(arrays(np.float64, 40, elements=st.floats(0.01, 10)))
    shapes = ShapeSet.weighted(WORK, dict(zip(range(1, 41), weights.tolist(), strict=True)))
    kernels = tuple(MicroKernel(rows, 16) for rows in range(1, count + 1))
    table = tuple(tuple(row) for row in seconds.tolist())
    return Portfolio(
        WORK,
        HARDWARE,
        kernels,
        shapes,
        table,
        tuple(seconds.min(axis=0).tolist()),
        ((count, 1.0),),
        kernels[-1],
    )


def weighted_slowdown(portfolio: Portfolio, choose: Callable[[Shape], int]) -> float:
    weights = np.array(portfolio.shapes.weights)
    logs = [np.log(portfolio.slowdowns[choose(s), i]) for i, s in enumerate(portfolio.shapes)]
    return float(np.exp(weights @ np.array(logs)))


@settings(max_examples=30)
@given(portfolios())
def test_trained_tree_loses_no_more_than_the_best_single_micro_kernel(portfolio: Portfolio) -> None:
    dispatcher = train_dispatcher(portfolio)
    single = min(weighted_slowdown(portfolio, lambda s, i=i: i) for i in range(len(portfolio)))  # type: ignore[misc]
    reached = weighted_slowdown(portfolio, lambda s: portfolio.micro_kernels.index(dispatcher.kernel(s)))
    assert reached == pytest.approx(dispatcher.expected_slowdown)
    assert 1 - 1e-9 <= reached <= single + 1e-9
    used = {dispatcher.micro_kernels[leaf.kernel] for leaf in leaves(dispatcher.tree)}
    assert used == set(dispatcher.micro_kernels) <= set(portfolio.micro_kernels)


@settings(max_examples=15)
@given(portfolios(), st.integers(0, 8192))
def test_source_executes_to_the_choice_of_the_tree(portfolio: Portfolio, rows: int) -> None:
    dispatcher = train_dispatcher(portfolio, tolerance=0.0)
    namespace: dict[str, Any] = {}
    exec(dispatcher.to_source(), namespace)
    for t in (rows, *range(0, 45)):
        assert namespace["choose"](t) == dispatcher.kernel(Shape.of(T=t)).key


def test_tree_finds_a_known_boundary() -> None:
    shapes = ShapeSet.every(WORK)
    small = [1.0 if s["T"] <= 17 else 2.0 for s in shapes]
    large = [2.0 if s["T"] <= 17 else 1.0 for s in shapes]
    kernels = (MicroKernel(4, 16), MicroKernel(8, 16), MicroKernel(9, 16))
    table = (tuple(small), tuple(large), (3.0,) * 40)
    dispatcher = train_dispatcher(
        Portfolio(WORK, HARDWARE, kernels, shapes, table, (1.0,) * 40, (), kernels[0])
    )
    assert dispatcher.tree == Split("T", 40, Split("T", 17, Leaf(0), Leaf(1)), Leaf(0))
    assert dispatcher.micro_kernels == kernels[:2] and dispatcher.expected_slowdown == pytest.approx(1)


def test_beyond_the_range_the_safe_micro_kernel_serves(synthetic_run: TuningRun) -> None:
    portfolio = choose_portfolio(synthetic_run)
    dispatcher = train_dispatcher(portfolio)
    assert portfolio.safe_kernel in portfolio.micro_kernels
    assert {dispatcher.kernel(Shape.of(T=t)) for t in (129, 130, 1000, 1 << 30)} == {portfolio.safe_kernel}


def test_every_row_count_is_served(synthetic_run: TuningRun) -> None:
    dispatcher = train_dispatcher(choose_portfolio(synthetic_run))
    assert all(dispatcher.kernel(Shape.of(T=t)) in synthetic_run.micro_kernels for t in range(8193))
    assert len(dispatcher.micro_kernels) > 1 and dispatcher.expected_slowdown < 1.1


def known_dispatcher() -> Dispatcher:
    kernels = (MicroKernel(1, 24), MicroKernel(4, 16, 4, "is", 16), MicroKernel(6, 16, edge="checked"))
    tree = Split("T", 3, Leaf(0), Split("T", 20, Leaf(2), Leaf(1)))
    return Dispatcher(Dense(T=Dim(1, 64), N=50, K=7), HARDWARE, kernels, tree, 1.25)


def test_source_of_a_known_dispatcher(golden: Golden) -> None:
    golden("dispatcher.py.txt", known_dispatcher().to_source())
    assert str(known_dispatcher()) == "Dispatcher(3 micro-kernels, 3 rules, depth 2, expected slowdown 1.250)"


def test_dispatcher_survives_its_file_and_refuses_others(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.json"
    known_dispatcher().save(path)
    assert Dispatcher.load(path) == known_dispatcher()
    path.write_text(json.dumps({**known_dispatcher().to_json(), "schema_version": 7}))
    with pytest.raises(DispatchError, match="a dispatcher has schema 1; got 7"):
        Dispatcher.load(path)
    path.write_text("{")
    with pytest.raises(DispatchError, match="a dispatcher file is readable JSON"):
        Dispatcher.load(path)
    with pytest.raises(DispatchError, match=r"every leaf names a micro-kernel .*; got \[0, 5\]"):
        Dispatcher(WORK, HARDWARE, (MicroKernel(4, 16),), Split("T", 3, Leaf(0), Leaf(5)))


# Operator


@pytest.fixture(scope="module")
def op(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    lanes = here.cpu.lanes
    kernels = (MicroKernel(1, 2 * lanes), MicroKernel(6, lanes, 4, "is"), MicroKernel(4, 3 * lanes))
    tree = Split("T", 3, Leaf(0), Split("T", 20, Leaf(1), Leaf(2)))
    return build(
        Dispatcher(Dense(T=Dim(1, 64), N=50, K=7), here, kernels, tree), tmp_path_factory.mktemp("op")
    )


@pytest.fixture(scope="module")
def thin(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """K = 1, with a bias."""
    dispatcher = Dispatcher(Dense(Dim(1, 8), 5, 1, True), here, (MicroKernel(4, here.cpu.lanes),), Leaf(0))
    return build(dispatcher, tmp_path_factory.mktemp("thin"))


def operands(rows: int, cols: int = 50, depth: int = 7) -> tuple[Any, Any]:
    inputs = Dense(T=Dim(1, 64), N=cols, K=depth).inputs(Shape.of(T=max(rows, 1)))
    return inputs["x"][:rows], inputs["w"]


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 20, 21, 64, 65, 1000])
def test_numpy_call_is_right_for_any_row_count(op: Operator, rows: int) -> None:
    x, w = operands(rows)
    result = op(x, w)
    assert result.shape == (rows, 50) and result.dtype == np.float32
    if rows:
        work = Dense(T=Dim(1, 64), N=50, K=7)
        assert np.abs(result - work.reference({"x": x, "w": w})).max() <= tolerance(work, {"x": x, "w": w})
    out = np.full((rows, 50), np.nan, np.float32)
    assert op.pack(w)(x, out=out) is out
    np.testing.assert_array_equal(out, result)


@needs_torch
@pytest.mark.parametrize("rows", [0, 1, 4, 21, 65])
def test_torch_call_is_the_numpy_call(op: Operator, rows: int) -> None:
    x, w = operands(rows)
    layer, tensor = op.pack(torch.from_numpy(w)), torch.from_numpy(np.ascontiguousarray(x))
    result = layer(tensor)
    assert isinstance(result, torch.Tensor) and result.dtype == torch.float32
    np.testing.assert_array_equal(result.numpy(), op(x, w))
    out = torch.full((rows, 50), float("nan"))
    address = out.data_ptr()
    assert layer(tensor, out=out) is out and out.data_ptr() == address
    np.testing.assert_array_equal(out.numpy(), op(x, w))


def test_depth_one_with_bias(thin: Operator) -> None:
    x, w = operands(9, 5, 1)
    bias = np.arange(5, dtype=np.float32)
    np.testing.assert_allclose(thin(x, w, bias), x @ w.T + bias, rtol=1e-6, atol=1e-6)


def test_bound_call_reads_and_writes_the_arrays_themselves(op: Operator) -> None:
    x, w = operands(5)
    x, out = x.copy(), np.zeros((5, 50), np.float32)
    call = op.pack(w).bind(x, out)
    call()
    np.testing.assert_allclose(out, x @ w.T, rtol=1e-4, atol=1e-5)
    x *= 2
    call()
    np.testing.assert_allclose(out, x @ w.T, rtol=1e-4, atol=1e-5)


def test_packed_weights_are_a_copy(op: Operator) -> None:
    x, w = operands(4)
    layer, expected, w = op.pack(w), op(x, w), w.copy()
    w[:] = 0
    np.testing.assert_array_equal(layer(x), expected)


@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only"])
def test_weights_may_have_any_layout(op: Operator, layout: str) -> None:
    x, w = operands(4)
    expected = op(x, w)
    if layout == "fortran":
        w = np.asfortranarray(w)
    elif layout == "strided":
        w = np.repeat(w, 2, axis=1)[:, ::2]
    else:
        w = w.copy()
        w.flags.writeable = False
    np.testing.assert_array_equal(op(x, w), expected)


X = np.ones((4, 7), np.float32)
BAD_X: dict[str, tuple[Any, str]] = {
    "float64": (X.astype(np.float64), r"float64 \[4, 7\]"),
    "int": (X.astype(np.int32), r"int32 \[4, 7\]"),
    "rank 1": (X[0], r"float32 \[7\]"),
    "rank 3": (X[None], r"float32 \[1, 4, 7\]"),
    "too wide": (np.ones((4, 8), np.float32), r"float32 \[4, 8\]"),
    "fortran": (np.asfortranarray(X), r"float32 \[4, 7\] strides \(4, 16\)"),
    "strided": (np.ones((8, 7), np.float32)[::2], r"float32 \[4, 7\] strides \(56, 4\)"),
    "reversed": (X[::-1], r"strides \(-28, 4\)"),
    "big-endian": (X.astype(">f4"), r">f4 \[4, 7\]"),
    "list": ([[1.0] * 7] * 4, "x list"),
    "nothing": (None, "x NoneType"),
}


@pytest.mark.parametrize("name", BAD_X)
def test_bad_input_is_told_with_rule_value_and_remedy(op: Operator, name: str) -> None:
    x, value = BAD_X[name]
    with pytest.raises(
        DispatchError,
        match=rf"x is float32 \[T, 7\], out float32 \[T, 50\].*got .*{value}.*ascontiguousarray",
    ):
        op.pack(operands(1)[1])(x)


BAD_OUT: dict[str, tuple[Any, str]] = {
    "float64": (np.zeros((4, 50)), r"out float64 \[4, 50\]"),
    "too few rows": (np.zeros((3, 50), np.float32), r"out float32 \[3, 50\]"),
    "too many rows": (np.zeros((5, 50), np.float32), r"out float32 \[5, 50\]"),
    "too narrow": (np.zeros((4, 49), np.float32), r"out float32 \[4, 49\]"),
    "fortran": (np.zeros((4, 50), np.float32, order="F"), r"strides \(4, 16\)"),
    "rank 1": (np.zeros(200, np.float32), r"out float32 \[200\]"),
}


@pytest.mark.parametrize("name", BAD_OUT)
def test_bad_output_is_refused_and_not_written(op: Operator, name: str) -> None:
    out, value = BAD_OUT[name]
    with pytest.raises(DispatchError, match=rf"x is float32 \[T, 7\].*{value}"):
        op.pack(operands(1)[1])(X, out=out)
    assert not out.any()


def test_output_that_overlaps_the_input_is_refused(op: Operator) -> None:
    layer = op.pack(operands(1)[1])
    memory = np.zeros(300, np.float32)
    x = memory[:28].reshape(4, 7)
    with pytest.raises(DispatchError, match=r"apart from each other.*out shares memory with x"):
        layer(x, out=memory[27:227].reshape(4, 50))
    layer(x, out=memory[28:228].reshape(4, 50))
    if torch is not None:
        tensor = torch.zeros(300)
        with pytest.raises(DispatchError, match="out shares memory with x"):
            layer(tensor[:28].view(4, 7), out=tensor[20:220].view(4, 50))


@needs_torch
def test_bad_tensors_are_refused(op: Operator) -> None:
    layer = op.pack(operands(1)[1])
    for tensor in (
        torch.ones(4, 7, dtype=torch.float64),
        torch.ones(7, 4).T,
        torch.ones(4, 8),
        torch.ones(7),
    ):
        with pytest.raises(DispatchError, match=r"x is float32 \[T, 7\].*got x torch\.float"):
            layer(tensor)


def test_bad_weights_are_told_with_rule_and_value(op: Operator, thin: Operator) -> None:
    x, w = operands(4)
    for bad, value in (
        (w.astype(np.float64), r"float64 \[50, 7\]"),
        (w.T, r"float32 \[7, 50\]"),
        (w[0], r"float32 \[7\]"),
        (w[:-1], r"float32 \[49, 7\]"),
    ):
        with pytest.raises(DispatchError, match=rf"w is a float32 array of shape \[50, 7\]; got {value}"):
            op(x, bad)
    with pytest.raises(DispatchError, match="this operator has no bias; got one given"):
        op(x, w, np.zeros(50, np.float32))
    with pytest.raises(DispatchError, match="this operator has a bias; got none given"):
        thin(*operands(4, 5, 1))
    with pytest.raises(DispatchError, match=r"bias of \[5\]; got .*bias float32 \[6\]"):
        thin(*operands(4, 5, 1), np.zeros(6, np.float32))


def test_operator_says_what_it_is(op: Operator) -> None:
    assert repr(op) == "Operator(dense T=[1, 64], N=50, K=7, 3 micro-kernels)"
    assert [op.plan(t) for t in (0, 3, 4, 20, 21, 9999)] == [op.micro_kernels[i] for i in (0, 0, 1, 1, 2, 2)]
    manifest = json.loads((op.path.parent / "manifest.json").read_text())
    assert manifest["code_bytes"] < manifest["file_bytes"] == op.path.stat().st_size
    assert Dispatcher.from_json(manifest).to_source() == manifest["rules"]


# Loading


def test_study_library_folder_and_file_all_load(op: Operator) -> None:
    x, w = operands(4)
    for path in (op.path.parent.parent, op.path.parent, op.path, str(op.path)):
        np.testing.assert_array_equal(load(path)(x, w), op(x, w))


def test_library_that_is_built_again_replaces_the_loaded_one(here: Hardware, tmp_path: Path) -> None:
    kernels = (MicroKernel(4, here.cpu.lanes), MicroKernel(8, here.cpu.lanes))
    first = build(Dispatcher(WORK, here, kernels, Leaf(0)), tmp_path)
    second = build(Dispatcher(WORK, here, kernels, Leaf(1)), tmp_path)
    assert (first.plan(5), second.plan(5), load(tmp_path).plan(5)) == (
        kernels[0].key,
        kernels[1].key,
        kernels[1].key,
    )
    x, w = operands(5, 64, 32)
    np.testing.assert_allclose(first(x, w), second(x, w), rtol=1e-4, atol=1e-4)


def test_folder_without_a_library_is_refused(op: Operator, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "x.so"):
        with pytest.raises(DispatchError, match=r"a study, a library folder or a library; got .*library\.so"):
            load(path)


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ("{", "readable manifest.json"),
        ('{"schema_version": 9}', "a library has schema 1; got 9. Build it again"),
        ("[]", "schema|readable"),
    ],
)
def test_library_with_a_foreign_manifest_is_refused(
    op: Operator, tmp_path: Path, manifest: str, complaint: str
) -> None:
    shutil.copy(op.path, tmp_path / "library.so")
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(DispatchError, match=complaint):
        load(tmp_path)


def test_file_that_is_no_library_is_refused(op: Operator, tmp_path: Path) -> None:
    shutil.copy(op.path.parent / "manifest.json", tmp_path)
    (tmp_path / "library.so").write_bytes(b"no library")
    with pytest.raises(DispatchError, match="a compiled library for this machine"):
        load(tmp_path)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_library_needs_tvm_ffi_and_the_c_library_only(op: Operator) -> None:
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", str(op.path)], capture_output=True, text=True, check=True
    )
    symbols = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
    weak = {"__gmon_start__", "__cxa_finalize", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    foreign = {s for s in symbols - weak if not re.match(r"TVMFFI|memset$|memcpy$|__stack_chk", s)}
    assert not foreign, foreign


WITHOUT_TVM = """
import sys
sys.modules["tvm"] = None
import numpy as np
{load}
x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
w = np.random.default_rng(1).standard_normal((50, 7), np.float32)
{run}
assert np.abs(y - x @ w.T).max() < 1e-4
loaded = {{name for name, module in sys.modules.items() if module}}
heavy = {{"tvm", "xgboost", "sklearn", "plotly", "pandas"}} & loaded
assert not heavy, heavy
"""
BARE = ("import tvm_ffi; library = tvm_ffi.load_module(sys.argv[1])",
        "raw = np.empty(4 * {size} + 64, np.uint8); start = -raw.ctypes.data % 64\n"
        "packed = raw[start:start + 4 * {size}].view(np.float32).reshape({shape})\n"
        "y = np.empty((5, 50), np.float32); library.pack(w, packed); library.run(x, packed, y)")  # fmt: skip
WITH_DIETLAB = ("from dietlab.dispatch.operator import load; op = load(sys.argv[1])", "y = op(x, w)")


@pytest.mark.parametrize("way", ["bare", "dietlab"])
def test_library_runs_where_tvm_cannot_be_imported(op: Operator, way: str) -> None:
    shape = tuple(op.manifest["packed_shape"])
    loading, running = BARE if way == "bare" else WITH_DIETLAB
    script = WITHOUT_TVM.format(
        load=loading, run=running.replace("{size}", str(int(np.prod(shape)))).replace("{shape}", str(shape))
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(op.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
