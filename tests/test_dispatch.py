"""Portfolio, decision tree, and the operator that people call."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import combinations, product
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Golden, python
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from schemes import cpu_scheme

from dietlab.base.errors import DispatchError
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, tolerance
from dietlab.scheme import Leaf, Split, build_space, depth, heights, leaves, plan_for, with_rows
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.tuning import (
    Choice,
    Dispatcher,
    Operator,
    Portfolio,
    TuningRun,
    build,
    choose_portfolio,
    load,
    train_dispatcher,
    tune,
)
from dietlab.tuning.build import entries
from dietlab.tuning.choice import exchanged, filled, filled_in_pairs, with_best_addition, with_best_pair
from dietlab.tuning.losses import UNCOVERED, lost
from dietlab.tuning.measured import beyond_measured
from dietlab.tuning.tree_growth import best_cuts

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is an extra")
HARDWARE = Hardware.preset("haswell-1core")
WORK = Dense(T=Dim(1, 40), N=64, K=32)


# Portfolio


PortfolioOf = Callable[[int], Portfolio]


def test_larger_portfolios_are_never_worse(portfolio_of: PortfolioOf) -> None:
    curves = [portfolio_of(n).curve for n in (1, 3, 8)]
    for curve in curves:
        losses = [loss for _, loss in curve]
        assert [n for n, _ in curve] == list(range(1, len(curve) + 1))
        assert losses == sorted(losses, reverse=True) and losses[-1] >= 1
    assert curves[0][-1][1] >= curves[1][-1][1] >= curves[2][-1][1]
    # Exchanges change the last size only.
    assert curves[2][-1][1] < curves[0][-1][1] and curves[1][:2] == curves[2][:2]


@pytest.mark.parametrize("max_kernels", [1, 2, 5, 8])
def test_plans_of_a_portfolio_need_its_micro_kernels_only(
    portfolio_of: PortfolioOf, max_kernels: int
) -> None:
    portfolio = portfolio_of(max_kernels)
    present = set(portfolio.micro_kernels)
    assert len(present) == len(portfolio) <= max_kernels and all(type(k) is CpuMicroKernel for k in present)
    for plan, seconds in zip(portfolio.schemes, portfolio.seconds, strict=True):
        for shape, time in zip(portfolio.shapes, seconds, strict=True):
            needed = {region.kernel for region in plan_for(plan, shape["T"]).regions}
            assert np.isfinite(time) == (needed <= present)
    table = np.array(portfolio.seconds)
    assert np.isfinite(table.min(axis=0)).all() and (portfolio.slowdowns >= 1 - 1e-12).all()
    assert set(table.argmin(axis=0)) == set(range(len(portfolio.schemes)))
    beyond = heights(portfolio.safe_scheme, 129)
    assert {with_rows(portfolio.safe_scheme.kernel, rows) for rows in beyond} <= present
    # The tree compiles nothing else, even where a shape is called a thousand times more than others.
    skewed = {t: 1.0 if t > 20 else 1e-7 for t in range(1, 129)}
    shapes = ShapeSet.weighted(portfolio.workload, skewed)
    for dispatcher in (train_dispatcher(portfolio), train_dispatcher(portfolio, shapes)):
        assert set(dispatcher.micro_kernels) <= present
        assert {dispatcher.plan(Shape.of(T=t)).rows for t in range(300)} == set(range(300))


def choices(draw: st.DrawFn) -> Choice:
    """Plans of three families over sixteen shapes, with times at random; one of dot products, which need
    several widths."""
    families = [cpu_scheme(1, 16, edge="even"), cpu_scheme(1, 32, edge="even", ahead=True)]
    plans = [
        family.changed(rows=rows, edge=edge, order=order)
        for family in families
        for rows in range(1, 5)
        for edge, order in (("even", "ws"), ("rest", "ws"), ("even", "is"), ("padded", "ws"))
    ]
    shapes_of_tiles = product((1, 2, 3), (1, 2, 3), ("even", "rest"))
    plans += [cpu_scheme(rows, cols, edge=edge, along="depth") for rows, cols, edge in shapes_of_tiles]
    plans = sorted(draw(st.lists(st.sampled_from(plans), min_size=1, max_size=9, unique=True)))
    shapes = ShapeSet.extents(shapes_work(), range(1, 17))
    table = draw(arrays(np.float64, (len(plans), 16), elements=st.floats(1, 9, width=16)))
    return Choice(shapes_work(), tuple(plans), shapes, table)


def shapes_work() -> BatchMatmul:
    return BatchMatmul(T=Dim(1, 16), B=3, D=32, form="nt")


@settings(max_examples=60)
@given(st.composite(choices)(), st.data())
def test_the_best_pair_is_the_best_of_those_that_a_scheme_needs(choice: Choice, data: st.DataObject) -> None:
    codes = range(len(choice.kernels))
    chosen = tuple(data.draw(st.sets(st.sampled_from(codes), max_size=max(0, len(codes) - 2))))
    if len(codes) - len(chosen) < 2:
        return
    longer = with_best_pair(choice.losses, chosen)
    assert longer[:-2] == chosen and len(set(longer)) == len(chosen) + 2
    needed = {tuple(sorted(one)) for one in choice.needs.sets}
    pairs = [pair for pair in combinations(codes, 2) if pair in needed and not {*pair} & {*chosen}]
    if pairs:
        assert longer[-2:] in pairs
        least = min(choice.losses.loss((*chosen, *pair)) for pair in pairs)
        assert choice.losses.loss(longer) == pytest.approx(least)
    assert sorted(filled_in_pairs(choice.losses, len(codes))) == [*codes]


@settings(max_examples=60)
@given(st.composite(choices)(), st.data())
def test_the_loss_is_that_of_the_schemes_that_the_chosen_cover(choice: Choice, data: st.DataObject) -> None:
    """Also at other times, whose ways are not sought anew."""
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(choice.kernels))))))
    choice.losses.loss(chosen)
    times = np.random.default_rng(len(chosen)).permutation(choice.table.ravel()).reshape(choice.table.shape)
    for known in (choice, choice.with_table(times)):
        slowdowns = known.table / known.table.min(axis=0)
        least = np.where(known.covered(chosen), lost(slowdowns), UNCOVERED).min(axis=0)
        beyond = 0.0 if known.settled(chosen) else UNCOVERED
        assert known.losses.loss(chosen) == pytest.approx(least @ np.array(known.shapes.weights) + beyond)


@settings(max_examples=60)
@given(st.composite(choices)(), st.data())
def test_the_best_addition_is_the_best_of_all(choice: Choice, data: st.DataObject) -> None:
    codes = range(len(choice.kernels))
    some = st.sets(st.sampled_from(codes), max_size=len(codes) - 1) if len(codes) > 1 else st.just(())
    chosen = tuple(data.draw(some))
    longer = with_best_addition(choice.losses, chosen)
    assert longer[:-1] == chosen and longer[-1] not in chosen
    losses = [choice.losses.loss((*chosen, code)) for code in codes if code not in chosen]
    assert choice.losses.loss(longer) == pytest.approx(min(losses))
    better = exchanged(choice.losses, longer)
    assert len(set(better)) == len(longer) and choice.losses.loss(better) <= choice.losses.loss(longer) + 1e-9
    for member in better:
        rest = [code for code in better if code != member]
        others = [choice.losses.loss((*rest, code)) for code in codes if code not in rest]
        assert choice.losses.loss(better) <= min(others) + 1e-8


@settings(max_examples=40)
@given(st.composite(choices)(), st.data())
def test_what_is_filled_reaches_the_size_and_loses_no_more(choice: Choice, data: st.DataObject) -> None:
    codes = range(len(choice.kernels))
    chosen = tuple(sorted(data.draw(st.sets(st.sampled_from(codes)))))
    size = data.draw(st.integers(len(chosen), len(codes)))
    found = filled(choice.losses, chosen, size)
    assert found[: len(chosen)] == chosen and len(set(found)) == len(found) == size
    assert choice.losses.loss(found) <= choice.losses.loss(chosen) + 1e-9
    assert filled(choice.losses, chosen, len(chosen)) == chosen


@settings(max_examples=40)
@given(st.composite(choices)(), st.integers(1, 6))
def test_the_best_library_is_as_large_as_allowed_while_more_would_help(choice: Choice, size: int) -> None:
    chosen, curve = choice.best(size)
    assert curve[-1][0] == len(set(chosen)) == len(chosen) <= size
    if len(chosen) < min(size, len(choice.kernels)):
        others = set(range(len(choice.kernels))) - set(chosen)
        more = [choice.losses.loss((*chosen, code)) for code in others]
        assert choice.losses.loss(chosen) <= min(more) + 1e-9
    assert choice.losses.loss(chosen) <= choice.losses.loss(filled(choice.losses, (), len(chosen))) + 1e-9


@settings(max_examples=40)
@given(st.composite(choices)(), st.integers(1, 6))
def test_each_shape_is_served_by_the_fastest_scheme_that_is_covered(choice: Choice, size: int) -> None:
    chosen, _ = choice.best(size)
    covered = choice.covered(chosen)
    for column, number in enumerate(choice.fastest(chosen)):
        able = [n for n in range(len(choice.schemes)) if covered[n, column]]
        if able:
            assert number in able
            assert choice.table[number, column] == min(choice.table[n, column] for n in able)


def test_a_large_slowdown_counts_more_than_small_ones_together() -> None:
    shapes = ShapeSet.extents(shapes_work(), range(1, 17))
    plans = tuple(cpu_scheme(1, cols, edge="padded") for cols in (16, 32, 48))
    one_bad, all_meagre, best = [1.0] * 15 + [2.0], [1.05] * 16, [1.0] * 16
    choice = Choice(shapes_work(), plans, shapes, np.array([one_bad, all_meagre, best]))
    assert np.mean(np.log(one_bad)) < np.mean(np.log(all_meagre))
    assert choice.losses.loss((1,)) < choice.losses.loss((0,)) and choice.losses.loss((2,)) == 0
    assert choice.losses.mean_slowdown((0,)) == pytest.approx(2 ** (1 / 16))
    assert choice.losses.mean_slowdown(()) is None


@pytest.mark.parametrize("max_kernels", [2, 5, 8])
def test_no_portfolio_ends_while_another_micro_kernel_would_help(
    portfolio_of: PortfolioOf, max_kernels: int
) -> None:
    smaller, larger = portfolio_of(max_kernels), portfolio_of(max_kernels + 1)
    assert larger.curve[-1][1] < smaller.curve[-1][1] and len(smaller) == max_kernels


def test_portfolio_stops_at_the_slowdown_that_suffices(
    synthetic_run: TuningRun, portfolio_of: PortfolioOf
) -> None:
    target = portfolio_of(8).curve[2][1]
    assert len(choose_portfolio(synthetic_run, max_kernels=8, max_slowdown=target)) == 3


def test_portfolio_of_nothing_is_refused(synthetic_run: TuningRun) -> None:
    with pytest.raises(DispatchError, match="at least one micro-kernel; got 0"):
        choose_portfolio(synthetic_run, max_kernels=0)


# Tree


@settings(max_examples=80)
@given(
    st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, 3), elements=st.floats(0, 4, width=16))),
    st.sampled_from([0.0, 0.25, 1.0, 5.0]),
)
def test_best_cuts_are_the_best_of_all(losses: Any, price: float) -> None:
    count = len(losses)

    def cost(ends: Sequence[int]) -> float:
        parts = zip((0, *(end + 1 for end in ends)), ends, strict=False)
        return sum(losses[begin : end + 1].sum(axis=0).min() + price for begin, end in parts)

    found = best_cuts(losses, price)
    ends = [last for last, _ in found]
    assert ends == sorted(set(ends)) and ends[-1] == count - 1
    begins = [0, *(end + 1 for end in ends)]
    parts = zip(begins, found, strict=False)
    total = sum(losses[a : b + 1, choice].sum() + price for a, (b, choice) in parts)
    sizes = (combinations(range(count - 1), size) for size in range(count))
    everything = (cost([*inner, count - 1]) for some in sizes for inner in some)
    assert total == pytest.approx(min(everything))


@st.composite
def portfolios(draw: st.DrawFn) -> Portfolio:
    count = draw(st.integers(1, 5))
    seconds = draw(arrays(np.float64, (count, 40), elements=st.floats(0.5, 50)))
    weights = draw(arrays(np.float64, 40, elements=st.floats(0.01, 10)))
    shapes = ShapeSet.weighted(WORK, dict(zip(range(1, 41), weights.tolist(), strict=True)))
    kernels = tuple(cpu_scheme(rows, 16) for rows in range(1, count + 1))
    # A plan may lack micro-kernels on some shapes, but not all of them on the same.
    seconds[1:][draw(arrays(np.bool_, (count - 1, 40)))] = np.inf
    table = tuple(tuple(row) for row in seconds.tolist())
    best = tuple(seconds.min(axis=0).tolist())
    codes = tuple(kernel.kernel for kernel in kernels)
    return Portfolio(WORK, HARDWARE, codes, kernels, shapes, table, best, ((count, 1.0),), kernels[-1])


def weighted_slowdown(portfolio: Portfolio, choose: Callable[[Shape], int]) -> float:
    weights = np.array(portfolio.shapes.weights)
    logs = [np.log(portfolio.slowdowns[choose(s), i]) for i, s in enumerate(portfolio.shapes)]
    return float(np.exp(weights @ np.array(logs)))


@settings(max_examples=30)
@given(portfolios())
def test_trained_tree_loses_no_more_than_the_best_single_micro_kernel(portfolio: Portfolio) -> None:
    dispatcher = train_dispatcher(portfolio)
    single = min(weighted_slowdown(portfolio, lambda s, i=i: i) for i in range(len(portfolio.schemes)))  # type: ignore[misc]
    reached = weighted_slowdown(portfolio, lambda s: portfolio.schemes.index(dispatcher.scheme(s)))
    assert reached == pytest.approx(dispatcher.expected_slowdown)
    assert 1 - 1e-9 <= reached <= single + 1e-9
    used = {dispatcher.schemes[leaf.scheme] for leaf in leaves(dispatcher.tree)}
    assert used == set(dispatcher.schemes) <= set(portfolio.schemes)
    rules = len(leaves(dispatcher.tree)) - 1
    assert depth(dispatcher.tree) == 1 + max(0, math.ceil(math.log2(rules)))


@settings(max_examples=15)
@given(portfolios(), st.integers(0, 8192))
def test_source_executes_to_the_choice_of_the_tree(portfolio: Portfolio, rows: int) -> None:
    dispatcher = train_dispatcher(portfolio, tolerance=0.0)
    namespace: dict[str, Any] = {}
    exec(dispatcher.to_source(), namespace)
    for t in (rows, *range(0, 45)):
        assert namespace["choose"](t) == dispatcher.scheme(Shape.of(T=t)).key


def test_tree_finds_a_known_boundary() -> None:
    shapes = ShapeSet.every(WORK)
    small = [1.0 if s["T"] <= 17 else 2.0 for s in shapes]
    large = [2.0 if s["T"] <= 17 else 1.0 for s in shapes]
    kernels = (cpu_scheme(4, 16), cpu_scheme(8, 16), cpu_scheme(9, 16))
    table = (tuple(small), tuple(large), (3.0,) * 40)
    portfolio = Portfolio(WORK, HARDWARE, kernels, kernels, shapes, table, (1.0,) * 40, (), kernels[0])
    dispatcher = train_dispatcher(portfolio)
    assert dispatcher.tree == Split("T", 40, Split("T", 17, Leaf(0), Leaf(1)), Leaf(0))
    assert dispatcher.schemes == kernels[:2] and dispatcher.expected_slowdown == pytest.approx(1)


def test_no_plan_serves_a_shape_that_it_lacks_micro_kernels_for() -> None:
    """However rare the shape is, and however much faster the plan is around it."""
    shapes = ShapeSet.weighted(WORK, {t: 1e-12 if t == 7 else 1.0 for t in range(1, 41)})
    fast = tuple(np.inf if s["T"] == 7 else 1.0 for s in shapes)
    kernels = (cpu_scheme(4, 16), cpu_scheme(8, 16))
    best = tuple(5.0 if s["T"] == 7 else 1.0 for s in shapes)
    portfolio = Portfolio(WORK, HARDWARE, kernels, kernels, shapes, (fast, (5.0,) * 40), best, (), kernels[1])
    for chosen in (None, ShapeSet.extents(WORK, [30])):
        dispatcher = train_dispatcher(portfolio, chosen)
        assert [dispatcher.scheme(Shape.of(T=t)).rows for t in (6, 7, 8, 40, 41)] == [4, 8, 4, 4, 8]
        assert dispatcher.expected_slowdown == pytest.approx(1)


def test_a_static_operator_has_one_rule() -> None:
    work = Dense(T=9, N=64, K=32)
    kernels = (cpu_scheme(4, 16), cpu_scheme(9, 16))
    one = ShapeSet.of({Shape(()): 1.0})
    portfolio = Portfolio(work, HARDWARE, kernels, kernels, one, ((2.0,), (1.0,)), (1.0,), (), kernels[0])
    dispatcher = train_dispatcher(portfolio)
    assert dispatcher.schemes == (cpu_scheme(9, 16),) and dispatcher.tree == Leaf(0)
    assert dispatcher.to_source().splitlines() == ["def choose(T):", '    return "9x16.u1.ws.p0"']


def test_every_row_count_is_served_and_beyond_the_range_by_the_safe_plan(portfolio_of: PortfolioOf) -> None:
    dispatcher = train_dispatcher(portfolio_of(8))
    compiled, safe = set(dispatcher.micro_kernels), portfolio_of(8).safe_scheme
    assert 1 < len(compiled) <= 8 and dispatcher.expected_slowdown < 1.1
    for t in range(8193):
        plan = dispatcher.plan(Shape.of(T=t))
        assert plan.rows == t and {region.kernel for region in plan.regions} <= compiled
    assert {dispatcher.scheme(Shape.of(T=t)) for t in (129, 130, 1000, 1 << 30)} == {safe}


def known_dispatcher() -> Dispatcher:
    plans = (
        cpu_scheme(1, 24),
        cpu_scheme(4, 16, 4, "is", 16, "even"),
        cpu_scheme(6, 16, edge="checked"),
        cpu_scheme(5, 16, 4, "ws", 16, "rest"),
    )
    tree = Split("T", 64, Split("T", 3, Leaf(0), Split("T", 20, Leaf(2), Leaf(1))), Leaf(3))
    return Dispatcher(Dense(T=Dim(1, 64), N=50, K=7), HARDWARE, plans, tree, 1.25)


def test_source_of_a_known_dispatcher(golden: Golden) -> None:
    dispatcher = known_dispatcher()
    golden("dispatcher.py.txt", dispatcher.to_source())
    facts = "7 micro-kernels, 4 schemes, 4 rules, 3 comparisons at most, 1.250x mean slowdown"
    assert str(dispatcher).endswith(f": {facts}>")
    # 21 rows and more split evenly into 3 and 4; the rest of 5 has any height, some of them in common.
    shared = {cpu_scheme(rows, 16, 4, prefetch=16).kernel for rows in range(1, 6)}
    alone = {cpu_scheme(1, 24).kernel, cpu_scheme(6, 16).kernel}
    assert set(dispatcher.micro_kernels) == shared | alone
    assert str(dispatcher.plan(Shape.of(T=23))) == "5 x 4 + 1 x 3 rows of 4x16.u4.is.p16.even"


def test_dispatcher_survives_its_file_and_refuses_others(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.json"
    known_dispatcher().save(path)
    assert Dispatcher.load(path) == known_dispatcher()
    path.write_text(json.dumps({**known_dispatcher().to_json(), "schema_version": 7}))
    with pytest.raises(DispatchError, match="a dispatcher must have schema 3; got 7"):
        Dispatcher.load(path)
    path.write_text("{")
    with pytest.raises(DispatchError, match="a dispatcher file must be readable JSON"):
        Dispatcher.load(path)
    with pytest.raises(DispatchError, match=r"every leaf must name a scheme; got \[0, 5\]"):
        Dispatcher(WORK, HARDWARE, (cpu_scheme(4, 16),), Split("T", 3, Leaf(0), Leaf(5)))


# Operator


@pytest.fixture(scope="module")
def op(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    lanes, work = here.limits.lanes, Dense(T=Dim(1, 64), N=50, K=7)
    even = cpu_scheme(6, lanes, 4, "is", edge="even")
    kernels = (cpu_scheme(1, 2 * lanes), even, cpu_scheme(4, 3 * lanes))
    tree = Split("T", 3, Leaf(0), Split("T", 20, Leaf(1), Leaf(2)))
    return build(Dispatcher(work, here, kernels, tree), tmp_path_factory.mktemp("op"))


@pytest.fixture(scope="module")
def thin(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """K = 1, with a bias."""
    dispatcher = Dispatcher(Dense(Dim(1, 8), 5, 1, True), here, (cpu_scheme(4, here.limits.lanes),), Leaf(0))
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


@pytest.mark.parametrize("layout", ["fortran", "every second column", "read-only"])
def test_weights_may_have_any_layout(op: Operator, layout: str) -> None:
    x, w = operands(4)
    expected = op(x, w)
    w = w.copy() if layout == "read-only" else LAYOUTS[layout](w)
    w.flags.writeable = layout != "read-only"
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
    "scalar": (np.ones((), np.float32), r"float32 \[\]"),
    "half": (X.astype(np.float16), r"float16 \[4, 7\]"),
    "nothing": (None, "x NoneType"),
}


@pytest.mark.parametrize("name", BAD_X)
def test_bad_input_is_told_with_rule_value_and_remedy(op: Operator, name: str) -> None:
    x, value = BAD_X[name]
    remedy = r"np.array\(x"
    if name in ("rank 1", "rank 3", "too wide", "scalar"):
        remedy = (
            "The size of x differs; this operator was tuned for N=50, K=7, and another size is another op"
        )
    told = rf"x \[T, 7\].*: float32, contiguous, on the CPU.*got .*{value}.*{remedy}"
    with pytest.raises(DispatchError, match=told):
        op.pack(operands(1)[1])(x)


BAD_OUT: dict[str, tuple[Any, str]] = {
    "float64": (np.zeros((4, 50)), r"out float64 \[4, 50\]"),
    "too few rows": (np.zeros((3, 50), np.float32), r"\[4, 50\] if x is \[4, 7\]; got float32 \[3, 50\]"),
    "too many rows": (np.zeros((5, 50), np.float32), r"got float32 \[5, 50\]"),
    "too narrow": (np.zeros((4, 49), np.float32), r"out float32 \[4, 49\]"),
    "fortran": (np.zeros((4, 50), np.float32, order="F"), r"strides \(4, 16\)"),
    "rank 1": (np.zeros(200, np.float32), r"got float32 \[200\]"),
}


@pytest.mark.parametrize("name", BAD_OUT)
def test_bad_output_is_refused_and_not_written(op: Operator, name: str) -> None:
    out, value = BAD_OUT[name]
    told = rf"(x \[T, 7\], out \[T, 50\]: float32|out must have the shape).*{value}"
    with pytest.raises(DispatchError, match=told):
        op.pack(operands(1)[1])(X, out=out)
    assert not out.any()


def test_output_that_overlaps_the_input_is_refused(op: Operator) -> None:
    layer = op.pack(operands(1)[1])
    memory = np.zeros(300, np.float32)
    x = memory[:28].reshape(4, 7)
    told = r"apart from each other.*out shares memory with an operand. Give another array."
    with pytest.raises(DispatchError, match=told):
        layer(x, out=memory[27:227].reshape(4, 50))
    layer(x, out=memory[28:228].reshape(4, 50))
    if torch is not None:
        tensor = torch.zeros(300)
        with pytest.raises(DispatchError, match="out shares memory with an operand"):
            layer(tensor[:28].view(4, 7), out=tensor[20:220].view(4, 50))


@needs_torch
def test_bad_tensors_are_refused(op: Operator) -> None:
    layer = op.pack(operands(1)[1])
    whole = torch.ones(4, 7)
    for tensor in (whole.double(), torch.ones(7, 4).T, torch.ones(4, 8), torch.ones(7)):
        with pytest.raises(DispatchError, match=r"x \[T, 7\].*got x torch\.float"):
            layer(tensor)


@needs_torch
def test_an_operand_that_wants_a_gradient_is_refused(op: Operator) -> None:
    x, w = (torch.from_numpy(np.ascontiguousarray(array)) for array in operands(4))
    layer, wanted = op.pack(w), op.pack(w)(x)
    for call in (lambda: layer(x.requires_grad_(True)), lambda: op(x.detach(), w.requires_grad_(True))):
        with pytest.raises(
            DispatchError, match=r"no operand may require a gradient, .*; got an operand .*torch.no_grad\(\)"
        ):
            call()
    with torch.no_grad():
        assert torch.equal(layer(x), wanted) and torch.equal(op(x, w), wanted)


def test_bad_weights_are_told_with_rule_and_value(op: Operator, thin: Operator) -> None:
    (x, w), thinner = operands(4), operands(4, 5, 1)
    for bad, value in (
        (w.astype(np.float64), r"float64 \[50, 7\]"),
        (w.T, r"float32 \[7, 50\]"),
        (w[0], r"float32 \[7\]"),
        (w[:-1], r"float32 \[49, 7\]"),
    ):
        with pytest.raises(DispatchError, match=rf"w \[50, 7\]: float32, contiguous.*got w {value}") as told:
            op(x, bad)
        assert ("The size of w differs" in str(told.value)) == (bad.shape != w.shape)
        assert ("np.array(x" in str(told.value)) == (bad.shape == w.shape)
    bias = np.zeros(50, np.float32)
    for call, told in (
        (lambda: op.pack(w, bias), "the operands to pack must be w; got w, bias"),
        (lambda: op(x, w, bias), "the operands must be x, w; got 3 arrays"),
        (lambda: thin(*thinner), "the operands must be x, w, bias; got 2 arrays"),
        (lambda: thin.pack(thinner[1]), "the operands to pack must be w, bias; got w"),
        (lambda: thin(*thinner, bias[:6]), r"bias \[5\]: float32.*got .*bias float32 \[6\]"),
    ):
        with pytest.raises(DispatchError, match=told):
            call()


# Arrays of any kind


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda a: a,
    "fortran": np.asfortranarray,
    "every second row": lambda a: np.repeat(a, 2, axis=-2)[..., ::2, :],
    "every second column": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed rows": lambda a: np.ascontiguousarray(a[..., ::-1, :])[..., ::-1, :],
    "reversed columns": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "long rows": lambda a: np.concatenate([a, a], axis=-1)[..., : a.shape[-1]],
    "one row for all": lambda a: np.broadcast_to(a[..., :1, :], a.shape),
    "one number for all": lambda a: np.broadcast_to(a[..., :1, :1], a.shape),
    "swapped axes": lambda a: np.ascontiguousarray(np.swapaxes(a, -1, -2)).swapaxes(-1, -2),
    "odd start": lambda a: shifted(a, 4),
    "no float's address": lambda a: shifted(a, 1),
    "another odd address": lambda a: shifted(a, 6),
    "one axis more": lambda a: a[None],
    "one axis less": lambda a: a[0] if len(a) else a.reshape(-1),
    "wider": lambda a: np.concatenate([a, a[..., :1]], axis=-1),
    "narrower": lambda a: np.ascontiguousarray(a[..., :-1]),
    "one row more": lambda a: np.concatenate([a, a[..., :1, :]], axis=-2),
    "one row less": lambda a: np.ascontiguousarray(a[..., 1:, :]),
    "flat": lambda a: a.reshape(-1),
    **{name: methodcaller("astype", name) for name in ("f8", "f2", "i4", "i8", "u1", ">f4", "c8", "?")},
}


def shifted(array: Any, offset: int) -> Any:
    """A copy that begins ``offset`` bytes behind a multiple of 64."""
    raw = np.zeros(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = np.ndarray(array.shape, array.dtype, raw.data, start)
    copy[...] = array
    return copy


@pytest.fixture(scope="module")
def several(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Operator]:
    """Operators of every kind, each with plans of several edges."""
    lanes = here.limits.lanes
    works = {
        "residual": Dense(Dim(1, 64), 20, 6, bias=True, activation="relu", residual=True),
        "thin": Dense(Dim(1, 64), 1, 1),
        "variable": Dense(Dim(1, 64), 20, 6, bias=True, residual=True, constant=False),
        "nt": BatchMatmul(Dim(1, 64), 2, 6, "nt"),
        "nn": BatchMatmul(Dim(1, 64), 2, 6, "nn"),
    }
    tree = Split("T", 2, Leaf(0), Split("T", 5, Leaf(1), Leaf(2)))
    kernels = [cpu_scheme(4, lanes, edge=edge) for edge in ("even", "checked", "rest")]
    return {
        name: build(Dispatcher(work, here, tuple(kernels), tree), tmp_path_factory.mktemp(name))
        for name, work in works.items()
    }


def outside(array: Any) -> bytes:
    """Everything in the memory that ``array`` is a part of, except the array itself."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    held = array.copy()
    array[...] = 0
    rest = bytes(base.tobytes())
    array[...] = held
    return rest


@settings(max_examples=250)
@given(data=st.data(), name=st.sampled_from(["residual", "thin", "variable", "nt", "nn"]))
def test_arrays_of_any_kind_give_an_error_or_the_right_result(
    several: dict[str, Operator], data: st.DataObject, name: str
) -> None:
    op = several[name]
    work, rows = op.workload, data.draw(st.integers(0, 9), label="T")
    inputs = dict(work.inputs(Shape.of(T=rows), seed=rows))
    common = st.just("as it is")
    for operand in inputs:
        layout = data.draw(common | st.sampled_from(sorted(LAYOUTS)), label=operand)
        if inputs[operand].ndim > 1 and inputs[operand].size:
            inputs[operand] = LAYOUTS[layout](inputs[operand])
    if data.draw(st.booleans(), label="read-only"):
        inputs["x"] = inputs["x"].copy()
        inputs["x"].flags.writeable = False
    out = None
    if data.draw(st.booleans(), label="with out"):
        made = np.full(work.output_shape(Shape.of(T=rows)), 77, np.float32)
        layout = data.draw(common | st.sampled_from(sorted(LAYOUTS)), label="out")
        out = LAYOUTS[layout](made) if made.size else made
        if not out.flags.writeable:
            out = made
    kept = {operand: array.tobytes() for operand, array in inputs.items()}
    before, around = (None, None) if out is None else (out.copy(), outside(out))
    try:
        result = op(*inputs.values(), out=out)
    except DispatchError:
        assert out is None or np.array_equal(out, before)
    else:
        assert not rows or all(array.dtype == np.float32 for array in inputs.values())
        assert result is out or (out is None and result.dtype == np.float32)
        expected = work.reference(inputs)
        assert result.shape == expected.shape
        assert np.abs(result - expected).max(initial=0) <= tolerance(work, inputs)
    assert all(array.tobytes() == kept[operand] for operand, array in inputs.items())
    assert out is None or outside(out) == around


@settings(max_examples=100)
@given(data=st.data(), name=st.sampled_from(["residual", "variable", "nt", "nn"]), rows=st.integers(1, 7))
def test_outputs_that_overlap_an_operand_are_refused(
    several: dict[str, Operator], data: st.DataObject, name: str, rows: int
) -> None:
    op = several[name]
    inputs = dict(op.workload.inputs(Shape.of(T=rows)))
    variable = sorted(set(inputs) - set(op.workload.constants))
    operand = data.draw(st.sampled_from(variable))
    array, shape = inputs[operand], op.workload.output_shape(Shape.of(T=rows))
    size = math.prod(shape)
    memory = np.zeros(array.size + 2 * size, np.float32)
    inputs[operand] = memory[size : size + array.size].reshape(array.shape)
    inputs[operand][...] = array
    start = data.draw(st.integers(0, size + array.size), label="start")
    out = memory[start : start + size].reshape(shape)
    apart = start + size <= size or start >= size + array.size
    before = memory.copy()
    if apart:
        expected = op.workload.reference(inputs)
        op(*inputs.values(), out=out)
        assert np.abs(out - expected).max() <= tolerance(op.workload, inputs)
    else:
        with pytest.raises(DispatchError, match="out shares memory with an operand"):
            op(*inputs.values(), out=out)
        np.testing.assert_array_equal(memory, before)


def test_missing_and_unexpected_operands_are_told(several: dict[str, Operator], op: Operator) -> None:
    residual, x, w = several["residual"], np.ones((3, 6), np.float32), np.ones((20, 6), np.float32)
    layer = residual.pack(w, np.zeros(20, np.float32))
    with pytest.raises(DispatchError, match=r"with a residual needs one.*got none. Give it behind"):
        layer(x)
    told = r"residual must have the shape \[3, 20\] if x is \[3, 6\]; got float32 \[4, 20\]"
    with pytest.raises(DispatchError, match=told):
        layer(x, np.ones((4, 20), np.float32))
    told = r"without a residual takes none.*got float32 \[4, 50\].*Leave it out"
    with pytest.raises(DispatchError, match=told):
        op.pack(operands(4)[1])(operands(4)[0], np.zeros((4, 50), np.float32))
    for name in ("nt", "nn"):
        with pytest.raises(DispatchError, match="the operands to pack must be none; got w"):
            several[name].pack(np.ones((2, 3, 6), np.float32))
        for bad in (np.ones((), np.float32), None, 3, [[1.0]]):
            with pytest.raises(DispatchError, match=r"w \[2, T, 6\]"):
                several[name](bad, bad)
    for bad in (None, 3, [[1.0]], np.ones((), np.float32)):
        with pytest.raises(DispatchError, match=r"w \[50, 7\]"):
            op.pack(bad)


@pytest.mark.parametrize("name", ["variable", "nt", "nn"])
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6, 64, 65, 131])
def test_operators_without_constants_are_right(several: dict[str, Operator], name: str, rows: int) -> None:
    op = several[name]
    inputs = op.workload.inputs(Shape.of(T=rows))
    expected = op.workload.reference(inputs)
    result = op(*inputs.values())
    assert np.abs(result - expected).max(initial=0) <= tolerance(op.workload, inputs)
    out = np.full(expected.shape, np.nan, np.float32)
    op.bind(inputs, out)()
    np.testing.assert_array_equal(out, result)
    if torch is not None:
        tensors = [torch.from_numpy(array) for array in inputs.values()]
        np.testing.assert_array_equal(op(*tensors).numpy(), result)


def test_operator_says_what_it_is(op: Operator) -> None:
    # Even splits of 4..20 rows have tiles of 3..6; the other two plans have one micro-kernel each.
    assert repr(op) == "Operator(dense T=1..64 N=50 K=7, 6 micro-kernels, 3 schemes)"
    assert [op.scheme(t) for t in (0, 3, 4, 20, 21, 9999)] == [op.schemes[i] for i in (0, 0, 1, 1, 2, 2)]
    manifest = json.loads((op.path.parent / "manifest.json").read_text())
    assert manifest["code_bytes"] < manifest["file_bytes"] == op.path.stat().st_size
    dispatcher = Dispatcher.from_json(manifest)
    assert dispatcher.to_source() == manifest["rules"] and op.dispatcher == dispatcher
    assert [kernel.key for kernel in dispatcher.micro_kernels] == list(op.micro_kernels)
    assert manifest["entries"] == {
        "run": "run(x [T, 7], packed, y [T, 50])",
        "plan": "plan(T) -> number of the scheme",
        "idle": "idle(T) -> 0",
        "pack": "pack(w [50, 7], packed)",
    }
    assert op.library.idle(5) == 0


def test_entries_of_an_operator_without_constants() -> None:
    found = entries(Dense(T=Dim(1, 8), N=3, K=5, bias=True, residual=True, constant=False), every_plan=True)
    call = "x [T, 5], w [3, 5], bias [3], residual [T, 3], y [T, 3]"
    assert found["run"] == f"run({call})" and found["run_plan"] == f"run_plan({call}, plan)"
    assert set(found) == {"run", "run_plan", "plan", "idle"}
    batched = entries(BatchMatmul(9, 2, 4, "nn"), every_plan=False)
    assert batched["run"] == "run(x [2, 9, 9], w [2, 9, 4], y [2, 9, 4])"


# Loading


def test_study_library_folder_and_file_all_load(op: Operator) -> None:
    x, w = operands(4)
    for path in (op.path.parent.parent, op.path.parent, op.path, str(op.path)):
        np.testing.assert_array_equal(load(path)(x, w), op(x, w))


def test_library_that_is_built_again_replaces_the_loaded_one(here: Hardware, tmp_path: Path) -> None:
    kernels = (cpu_scheme(4, here.limits.lanes), cpu_scheme(8, here.limits.lanes))
    first = build(Dispatcher(WORK, here, kernels, Leaf(0)), tmp_path)
    second = build(Dispatcher(WORK, here, kernels, Leaf(1)), tmp_path)
    chosen = [one.scheme(5) for one in (first, second, load(tmp_path))]
    assert chosen == [kernels[0].key, kernels[1].key, kernels[1].key]
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
        ('{"schema_version": 9}', "a library must have schema 3; got 9 in .*Build it again"),
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
    command = ["nm", "-D", "--undefined-only", str(op.path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
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
heavy = {{"tvm", "xgboost", "plotly", "pandas"}} & loaded
assert not heavy, heavy
"""
BARE = (
    "import tvm_ffi; library = tvm_ffi.load_module(sys.argv[1])",
    "size = library.packed_floats(50, 7)\n"
    "raw = np.empty(4 * size + 64, np.uint8); start = -raw.ctypes.data % 64\n"
    "packed = raw[start:start + 4 * size].view(np.float32)\n"
    "y = np.empty((5, 50), np.float32); library.pack(w, packed); library.run(x, packed, y)",
)
WITH_DIETLAB = ("from dietlab.tuning.operator import load; op = load(sys.argv[1])", "y = op(x, w)")


@pytest.mark.parametrize("way", ["bare", "dietlab"])
def test_library_runs_where_tvm_cannot_be_imported(op: Operator, way: str) -> None:
    loading, running = BARE if way == "bare" else WITH_DIETLAB
    python("-c", WITHOUT_TVM.format(load=loading, run=running), op.path)


# How far measurements reach


@pytest.mark.parametrize(
    ("dim", "measured", "said"),
    [
        (Dim(1, 4096), (1, 8), "plans were compared for T in 1..8 of 1..4096: .* reach T=4096."),
        (Dim(1, 4096), (2048, 4096), "T in 2048..4096 of .* reach T=1."),
        (Dim(1, 4096), (64, 128), "T in 64..128 of .* reach T=1 and T=4096."),
        (Dim(1, 4096), (1, 4096), None),
        (Dim(1, 4096), (1, 2048), None),
        (Dim(1, 128), (1, 63), "reach T=128."),
        (Dim(1, 128), (1, 64), None),
    ],
)
def test_a_range_far_beyond_what_was_measured_is_told(
    dim: Dim, measured: tuple[int, int], said: str | None
) -> None:
    found = beyond_measured({"T": dim}, (("T", *measured),))
    assert re.search(said, found) if said else found == ""
    assert beyond_measured({"T": dim}, ()) == "", "older dispatchers do not know"


def test_a_dispatcher_says_where_it_rests_on_predictions_alone(tmp_path: Path) -> None:
    wide = Dense(T=Dim(1, 4096), N=64, K=32)
    texts = []
    for lengths in ([1, 2, 4, 8], [1, 64, 4096]):
        shapes = ShapeSet.extents(wide, lengths)
        run = tune(build_space(wide, HARDWARE), shapes, SyntheticRunner(HARDWARE), "smoke")
        dispatcher = train_dispatcher(choose_portfolio(run, max_kernels=3))
        assert dispatcher.reach == (("T", 1, lengths[-1]),)
        dispatcher.save(tmp_path / "dispatcher.json")
        assert Dispatcher.load(tmp_path / "dispatcher.json") == dispatcher
        texts.append(dispatcher.to_source())
        assert (dispatcher.caution != "") == (lengths[-1] == 8)
    assert "# plans were compared for T in 1..8 of 1..4096: further away" in texts[0]
    assert "Tune longer, or with shapes that reach T=4096." in texts[0] and "predictions" not in texts[1]
