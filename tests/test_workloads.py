"""Operators: sizes, references, inputs and the error a correct result may have."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dietlab.base.errors import MissingDependencyError, WorkloadError
from dietlab.problem import (
    ACTIVATIONS,
    OPERATORS,
    PRECISIONS,
    Activation,
    BatchMatmul,
    Dense,
    Dim,
    Epilogue,
    Shape,
    Workload,
    batch_of,
    batched,
    extents,
    largest,
    largest_shape,
    make_workload,
    name_of_role,
    require_dtype,
    smallest_shape,
    tolerance,
    workload_from_json,
)
from dietlab.problem.precision import FLOATS

DENSE = Dense(T=Dim(1, 128), N=3, K=5)
SCORES = BatchMatmul(T=Dim(1, 128), B=6, D=4, form="nt")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=6, D=4, form="nn")
RICH = Dense(Dim(1, 8), 3, 5, bias=True, activation="gelu_tanh", residual=True, constant=False)
NOTHING = Shape(())
sizes, depths, seeds = st.integers(1, 96), st.integers(1, 512), st.integers(0, 1000)
activations = st.sampled_from(ACTIVATIONS)


def test_flops_and_bytes_count_each_operand_once() -> None:
    shape = Shape.of(T=7)
    assert DENSE.flops(shape) == 2 * 7 * 3 * 5
    assert DENSE.bytes(shape) == 4 * (7 * 5 + 3 * 5 + 7 * 3)
    assert Dense(T=Dim(1, 8), N=3, K=5, bias=True).bytes(shape) == DENSE.bytes(shape) + 4 * 3
    for work in (SCORES, CONTEXT):
        assert work.flops(shape) == 2 * 6 * 7 * 7 * 4
        assert work.bytes(shape) == 4 * 6 * (7 * 4 + 7 * 4 + 7 * 7)


@pytest.mark.parametrize(
    "work", [DENSE, RICH, SCORES, CONTEXT, Dense(T=9, N=2, K=1, residual=True), BatchMatmul(5, 2, 3)]
)
def test_operands_and_bytes_follow_the_signature(work: Workload) -> None:
    shape = Shape.of(T=7) if work.dims else Shape(())
    expected = {
        name: tuple(7 if extent == "T" else extent for extent in sizes)
        for name, sizes in work.signature.items()
    }
    inputs = work.inputs(shape)
    assert [*inputs, "out"] == list(expected)
    assert all(array.shape == expected[name] and array.dtype == np.float32 for name, array in inputs.items())
    assert work.output_shape(shape) == expected["out"] == work.reference(inputs).shape
    assert set(work.constants) <= set(inputs)
    assert work.bytes(shape) == 4 * sum(int(np.prod(size)) for size in expected.values())


@pytest.mark.parametrize("work", [SCORES, CONTEXT])
def test_products_of_a_batch_are_independent(work: BatchMatmul) -> None:
    inputs = work.inputs(Shape.of(T=7))
    result = work.reference(inputs)
    assert result.dtype == np.float64
    for b in range(work.B):
        x, w = inputs["x"][b].astype(np.float64), inputs["w"][b].astype(np.float64)
        np.testing.assert_allclose(result[b], x @ (w.T if work is SCORES else w), rtol=1e-12, atol=1e-12)


def formula(activation: Activation, value: float) -> float:
    """As the literature has it, from the standard library."""
    if activation == "relu":
        return max(value, 0.0)
    if activation == "gelu_erf":
        return value * (1 + math.erf(value / math.sqrt(2))) / 2
    if activation == "gelu_tanh":
        return value * (1 + math.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))) / 2
    return value


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_reference_is_products_then_bias_then_activation_then_residual_in_float64(
    activation: Activation, residual: bool, bias: bool
) -> None:
    work = Dense(T=Dim(1, 8), N=3, K=5, bias=bias, activation=activation, residual=residual)
    inputs = work.inputs(Shape.of(T=4))
    result = work.reference(inputs)
    assert result.dtype == np.float64 and result.shape == (4, 3)
    for i, j in product(range(4), range(3)):
        products = (float(inputs["x"][i, k]) * float(inputs["w"][j, k]) for k in range(5))
        expected = formula(activation, sum(products) + (float(inputs["bias"][j]) if bias else 0.0))
        expected += float(inputs["residual"][i, j]) if residual else 0.0
        assert result[i, j] == pytest.approx(expected, rel=1e-12)


def test_epilogues_read_as_they_are_written() -> None:
    assert str(Epilogue()) == "" and str(Epilogue(bias=True, activation="relu")) == "+bias relu"
    assert str(Epilogue(True, "relu", True)) == "+bias relu +residual"
    assert str(Epilogue(True, "relu", "before")) == "+bias +residual relu"
    assert str(Epilogue(residual="before")) == "+residual" and not Epilogue(residual="before").before
    assert str(RICH) == "dense T=1..8 N=3 K=5 +bias gelu_tanh +residual variable weights"
    assert str(SCORES) == "batch-matmul-nt T=1..128 B=6 D=4"


def test_inputs_belong_to_whoever_asked_for_them() -> None:
    work = Dense(T=Dim(1, 64), N=6, K=5)
    first = work.inputs(Shape.of(T=3))
    first["w"][:] = 0
    assert work.inputs(Shape.of(T=3))["w"].all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inputs_of_a_smaller_shape_are_the_first_rows_of_a_larger(dtype: str) -> None:
    work = Dense(T=Dim(1, 64), N=6, K=5, bias=True, dtype=dtype)
    small, large = work.inputs(Shape.of(T=3)), work.inputs(Shape.of(T=40))
    np.testing.assert_array_equal(small["x"], large["x"][:3])
    np.testing.assert_array_equal(small["w"], large["w"])
    np.testing.assert_array_equal(small["bias"], large["bias"])
    assert not np.array_equal(small["x"], work.inputs(Shape.of(T=3), seed=1)["x"])
    assert {name: array.shape for name, array in small.items()} == {"x": (3, 5), "w": (6, 5), "bias": (6,)}


@pytest.mark.parametrize(
    "work",
    [
        DENSE,
        Dense(T=9, N=2, K=1),
        Dense(T=Dim(4, 5), N=1, K=1, bias=True),
        RICH,
        SCORES,
        CONTEXT,
        BatchMatmul(9, 1, 64, "nn"),
    ],
)
def test_workload_survives_json(work: Workload) -> None:
    assert workload_from_json(json.loads(json.dumps(work.to_json()))) == work


def test_dense_layer_of_an_earlier_version_reads_as_it_was() -> None:
    old = {"operator": "dense", "T": [1, 8], "N": 2, "K": 3, "bias": True, "dtype": "float32"}
    assert workload_from_json(old) == Dense(T=Dim(1, 8), N=2, K=3, bias=True)


def test_axes_have_roles_and_extents() -> None:
    assert extents(DENSE, Shape.of(T=43)) == {"batch": 1, "rows": 43, "cols": 3, "depth": 5}
    assert name_of_role(DENSE, "depth") == "K"
    assert dict(DENSE.dims) == {"T": Dim(1, 128)} and dict(Dense(T=4, N=1, K=1).dims) == {}
    assert str(Dense(T=Dim(1, 8), N=2, K=3, bias=True)) == "dense T=1..8 N=2 K=3 +bias"
    assert extents(SCORES, Shape.of(T=43)) == {"batch": 6, "rows": 43, "cols": 43, "depth": 4}
    assert extents(CONTEXT, Shape.of(T=43)) == {"batch": 6, "rows": 43, "cols": 4, "depth": 43}
    assert extents(BatchMatmul(9, 2, 4, "nn"), Shape(())) == {"batch": 2, "rows": 9, "cols": 4, "depth": 9}
    assert (batch_of(SCORES), batch_of(DENSE)) == (6, None)


def test_weights_come_as_constness_and_layout_say() -> None:
    assert (DENSE.weights, DENSE.constants) == ("packed", ("w",))
    assert Dense(Dim(1, 8), 2, 3, bias=True).constants == ("w", "bias")
    assert (RICH.weights, RICH.constants) == ("transposed", ())
    assert (SCORES.weights, CONTEXT.weights) == ("transposed", "direct")
    assert SCORES.constants == CONTEXT.constants == ()


def test_make_workload_builds_what_the_command_line_names() -> None:
    assert make_workload("dense", {"T": Dim(1, 8), "N": 2, "K": 3}, bias=True) == Dense(Dim(1, 8), 2, 3, True)
    made = make_workload("dense", {"T": 4, "N": 2, "K": 3}, activation="relu", residual=True, constant=False)
    assert made == Dense(4, 2, 3, activation="relu", residual=True, constant=False)
    for form in ("nt", "nn"):
        made = make_workload(f"batch-matmul-{form}", {"T": Dim(1, 8), "B": 2, "D": 3})
        assert made == BatchMatmul(Dim(1, 8), 2, 3, form) and made.operator in OPERATORS


def test_unknown_operator_is_named_with_the_known_ones() -> None:
    known = f"one of {', '.join(OPERATORS)}"
    with pytest.raises(WorkloadError, match=f"{known}; got 'conv'"):
        make_workload("conv", {})
    with pytest.raises(WorkloadError, match=f"{known}; got None"):
        workload_from_json({})
    with pytest.raises(WorkloadError, match="batch-matmul-nt must support the given options; got bias"):
        make_workload("batch-matmul-nt", {"T": 4, "B": 2, "D": 3}, bias=True)


@pytest.mark.parametrize(
    ("dims", "complaint"),
    [
        ({"T": Dim(1, 8), "N": 2}, "missing K"),
        ({"T": Dim(1, 8), "N": 2, "K": 3, "M": 1}, "unknown M"),
        ({"M": 4, "N": 2, "K": 3}, "unknown M; missing T"),
    ],
)
def test_unknown_or_missing_dimension_is_named(dims: dict[str, Dim | int], complaint: str) -> None:
    said = f"dense must have the dimensions T, N, K; got {complaint}. For example --dim"
    with pytest.raises(WorkloadError, match=said):
        make_workload("dense", dims)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (
            {"N": 0},
            r"^every dimension must be at least 1; got N=0\. Give a number of 1 or more, or a range such as "
            r"N=Dim\(1, 128\) \(--dim N=1:128\)\.$",
        ),
        ({"K": -4}, "at least 1; got K=-4"),
        ({"T": 0}, "at least 1; got T=0"),
        (
            {"K": (1, 8)},
            r"^T, N and K must each be an int or a Dim; got K=\(1, 8\)\. A range is written K=Dim\(1, 8\) "
            r"\(--dim K=1:8\)\.$",
        ),
        (
            {"T": (1, 128)},
            r"must each be an int or a Dim; got T=\(1, 128\)\. A range is written T=Dim\(1, 128\)",
        ),
        ({"T": [2, 9]}, r"got T=\[2, 9\]\. A range is written T=Dim\(2, 9\)"),
        ({"T": "1:128"}, r"got T='1:128'\. A range is written T=Dim\(1, 128\)"),
        ({"N": 4.0}, r"N and K must each be an int or a Dim; got N=4\.0"),
        ({"T": True}, "got T=True"),
        ({"dtype": "float64"}, "a dtype is one of float32, float16, bfloat16, int8; got 'float64'"),
        ({"dtype": np.dtype("float16")}, r"one of float32, .*; got dtype\('float16'\)"),
        ({"activation": "swish"}, "one of none, relu, gelu_tanh, gelu_erf; got 'swish'"),
    ],
)
def test_impossible_dense_layers_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        Dense(**{"T": Dim(1, 8), "N": 4, "K": 4, **changed})


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"B": 0}, "at least 1; got B=0"),
        ({"D": -1}, "at least 1; got D=-1"),
        (
            {"B": 2.0},
            r"T, B and D must each be an int or a Dim; got B=2\.0\. A range is written B=Dim\(1, 128\)",
        ),
        ({"T": (1, 8)}, r"got T=\(1, 8\)\. A range is written T=Dim\(1, 8\)"),
        ({"form": "tn"}, "the form must be nt or nn; got 'tn'"),
        ({"dtype": "int8"}, "a dtype is one of float32, float16, bfloat16; got 'int8'"),
    ],
)
def test_impossible_products_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        BatchMatmul(**{"T": Dim(1, 8), "B": 2, "D": 4, **changed})


@given(sizes, sizes, st.integers(1, 2048), st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_tolerance_accepts_float32_in_any_order_of_summation(
    rows: int, cols: int, depth: int, seed: int, scale: float
) -> None:
    work = Dense(T=rows, N=cols, K=depth)
    inputs = {name: array * np.float32(scale) for name, array in work.inputs(Shape(()), seed).items()}
    exact, allowed = work.reference(inputs), tolerance(work, inputs)
    blas = inputs["x"] @ inputs["w"].T
    one_by_one = np.zeros((rows, cols), np.float32)
    for k in range(min(depth, 256)):
        one_by_one += np.outer(inputs["x"][:, k], inputs["w"][:, k])
    rest = work.reference({name: array[:, :256] for name, array in inputs.items()})
    assert np.abs(blas - exact).max() <= allowed
    assert np.abs(one_by_one - rest).max() <= allowed


@given(st.integers(8, 96), st.integers(2, 2048), seeds)
def test_tolerance_rejects_a_missing_term(rows: int, depth: int, seed: int) -> None:
    work = Dense(T=rows, N=16, K=depth)
    inputs = work.inputs(Shape(()), seed)
    short = {name: array[:, :-1] for name, array in inputs.items()}
    assert np.abs(work.reference(short) - work.reference(inputs)).max() > tolerance(work, inputs)


@given(st.integers(1, 48), depths, activations, st.booleans(), st.booleans(), seeds)
@example(rows=1, depth=1, activation="gelu_tanh", bias=True, residual=True, seed=108)
def test_tolerance_accepts_an_epilogue_in_float32(
    rows: int, depth: int, activation: Activation, bias: bool, residual: bool, seed: int
) -> None:
    work = Dense(rows, 16, depth, bias, activation=activation, residual=residual)
    inputs = work.inputs(NOTHING, seed)
    value = finished(work, inputs["x"] @ inputs["w"].T, inputs)
    assert np.abs(value - work.reference(inputs)).max() <= tolerance(work, inputs)


@given(depths, st.floats(-6, 6), st.floats(-6, 6), activations, seeds)
def test_tolerance_accepts_bias_and_residual_of_any_size(
    depth: int, bias_digits: float, residual_digits: float, activation: Activation, seed: int
) -> None:
    work = Dense(5, 16, depth, True, activation=activation, residual=True)
    inputs = work.inputs(NOTHING, seed)
    inputs["bias"] *= np.float32(10.0**bias_digits)
    inputs["residual"] *= np.float32(10.0**residual_digits)
    added_last = finished(work, inputs["x"] @ inputs["w"].T, inputs)
    with_bias_first = np.broadcast_to(inputs["bias"], (5, 16)).copy()
    for k in range(depth):
        with_bias_first += np.outer(inputs["x"][:, k], inputs["w"][:, k])
    added_first = finished(work, with_bias_first, {"residual": inputs["residual"]})
    for value in (added_last, added_first):
        assert np.abs(value - work.reference(inputs)).max() <= tolerance(work, inputs)


def test_tolerance_of_the_smallest_layer_covers_every_rounding_of_its_epilogue() -> None:
    """One product, bias and residual: three roundings, and the larger the bias, the larger the error."""
    work = Dense(1, 1, 1, bias=True, residual=True)
    one = {"x": np.ones((1, 1), np.float32), "w": np.full((1, 1), 2.0**-24, np.float32)}
    inputs = {**one, "bias": np.ones(1, np.float32), "residual": np.zeros((1, 1), np.float32)}
    value = inputs["bias"] + one["x"] @ one["w"].T  # the product is lost: half an epsilon of the bias
    lost = float(np.abs(value - work.reference(inputs)).max())
    assert lost == 2.0**-24 <= tolerance(work, inputs)
    assert lost > tolerance(Dense(1, 1, 1), one)


@given(st.integers(8, 48), depths, activations, st.sampled_from(["bias", "residual"]), seeds)
def test_tolerance_rejects_a_wrong_bias_or_residual(
    rows: int, depth: int, activation: Activation, name: str, seed: int
) -> None:
    """Neither left out nor taken from a neighbour is right."""
    work = Dense(rows, 16, depth, True, activation=activation, residual=True)
    inputs = work.inputs(NOTHING, seed)
    right, allowed = work.reference(inputs), tolerance(work, inputs)
    for wrong in (np.zeros_like(inputs[name]), np.roll(inputs[name], 1, axis=-1)):
        assert np.abs(work.reference({**inputs, name: wrong}) - right).max() > allowed


@given(st.integers(8, 48), st.integers(2, 512), activations, seeds)
def test_tolerance_rejects_a_missing_term_under_an_epilogue(
    rows: int, depth: int, activation: Activation, seed: int
) -> None:
    work = Dense(rows, 16, depth, True, activation=activation, residual=True)
    inputs = work.inputs(NOTHING, seed)
    short = {**inputs, "x": inputs["x"][:, :-1], "w": inputs["w"][:, :-1]}
    assert np.abs(work.reference(short) - work.reference(inputs)).max() > tolerance(work, inputs)


@given(st.integers(64, 2048), activations, seeds)
def test_an_epilogue_less_than_doubles_the_tolerance_of_a_long_sum(
    depth: int, activation: Activation, seed: int
) -> None:
    work = Dense(8, 16, depth, True, activation=activation, residual=True)
    inputs = work.inputs(NOTHING, seed)
    plain = tolerance(Dense(8, 16, depth), {name: inputs[name] for name in ("x", "w")})
    assert plain < tolerance(work, inputs) < 2 * plain


@given(st.sampled_from(["nt", "nn"]), st.integers(2, 40), st.integers(1, 80), seeds)
def test_tolerance_of_batched_products_accepts_float32_and_rejects_a_missing_term(
    form: Any, length: int, size: int, seed: int
) -> None:
    work = BatchMatmul(length, 4, size, form)
    inputs = work.inputs(Shape(()), seed)
    x, w = inputs["x"], inputs["w"].transpose(0, 2, 1) if form == "nt" else inputs["w"]
    allowed = tolerance(work, inputs)
    assert np.abs(x @ w - work.reference(inputs)).max() <= allowed
    assert np.abs(x[:, :, :-1].astype(float) @ w[:, :-1] - work.reference(inputs)).max() > allowed


def test_tolerance_of_zeros_is_positive() -> None:
    zeros = {"x": np.zeros((2, 5), np.float32), "w": np.zeros((3, 5), np.float32)}
    assert 0 < tolerance(DENSE, zeros) < 1e-20


# --- several dynamic dimensions -------------------------------------------------------------------

ANY_DENSE = Dense(T=Dim(1, 64), N=Dim(2, 96), K=Dim(3, 80), bias=True, residual=True)


@st.composite
def bound_workloads(draw: st.DrawFn) -> tuple[Any, Any, Shape]:
    """An operator some of whose dimensions are dynamic, the same one with static extents, and the shape."""
    if draw(st.booleans()):
        form: Any = draw(st.sampled_from(["nt", "nn"]))
        static: Any = BatchMatmul(draw(sizes), draw(st.integers(1, 6)), draw(sizes), form)
        names = ("T", "B", "D")
    else:
        flags = [draw(st.booleans()) for _ in range(3)]
        static = Dense(draw(sizes), draw(sizes), draw(sizes), flags[0], residual=flags[1], constant=flags[2])
        names = ("T", "N", "K")
    found = {name: getattr(static, name) for name in names if draw(st.booleans())}
    ranges = {name: Dim(max(1, e - draw(sizes)), e + draw(st.integers(0, 9))) for name, e in found.items()}
    return replace(static, **ranges), static, Shape.of(**found)


@given(bound_workloads(), st.integers(0, 5))
def test_dynamic_operator_on_a_shape_is_the_static_one(case: tuple[Any, Any, Shape], seed: int) -> None:
    work, static, shape = case
    assert work.flops(shape) == static.flops(NOTHING) and work.bytes(shape) == static.bytes(NOTHING)
    assert work.output_shape(shape) == static.output_shape(NOTHING)
    assert extents(work, shape) == extents(static, NOTHING)
    ours, theirs = work.inputs(shape, seed), static.inputs(NOTHING, seed)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])
    np.testing.assert_array_equal(work.reference(ours), static.reference(theirs))


@given(bound_workloads())
def test_dimensions_signature_and_json_follow_the_ranges(case: tuple[Any, Any, Shape]) -> None:
    work, static, shape = case
    names = [name for name in ("T", "N", "K", "B", "D") if isinstance(getattr(work, name, None), Dim)]
    assert list(work.dims) == names and all(shape[name] in dim for name, dim in work.dims.items())
    bound = {
        operand: tuple(shape[e] if isinstance(e, str) else e for e in size)
        for operand, size in work.signature.items()
    }
    assert bound == static.signature
    assert {e for size in work.signature.values() for e in size if isinstance(e, str)} == set(names)
    assert workload_from_json(json.loads(json.dumps(work.to_json()))) == work
    assert str(work).split()[0] == str(static).split()[0] == work.operator


def test_dimensions_come_in_the_order_of_the_arguments() -> None:
    assert list(ANY_DENSE.dims) == ["T", "N", "K"]
    work = BatchMatmul(T=Dim(1, 4), B=Dim(1, 3), D=Dim(1, 2))
    assert list(work.dims) == ["T", "B", "D"] and [axis.name for axis in work.axes] == ["B", "T", "T", "D"]
    assert list(Dense(T=8, N=Dim(1, 4), K=2).dims) == ["N"]


def test_signature_and_texts_name_what_is_dynamic() -> None:
    operands = {"x": ("T", "K"), "w": ("N", "K"), "bias": ("N",), "residual": ("T", "N")}
    assert ANY_DENSE.signature == {**operands, "out": ("T", "N")}
    assert str(ANY_DENSE) == "dense T=1..64 N=2..96 K=3..80 +bias +residual"
    work = BatchMatmul(T=5, B=Dim(1, 12), D=Dim(8, 64), form="nn")
    assert work.signature == {"x": ("B", 5, 5), "w": ("B", 5, "D"), "out": ("B", 5, "D")}
    assert str(work) == "batch-matmul-nn T=5 B=1..12 D=8..64"
    assert work.to_json()["B"] == [1, 12] and work.to_json()["T"] == 5


@given(st.integers(1, 64), st.integers(1, 64), st.integers(2, 96), st.integers(3, 80))
def test_a_layer_has_the_same_weights_at_every_length(few: int, many: int, cols: int, depth: int) -> None:
    few, many = sorted((few, many))
    short, long = (ANY_DENSE.inputs(Shape.of(T=t, N=cols, K=depth)) for t in (few, many))
    for name, array in short.items():
        np.testing.assert_array_equal(array, long[name][: None if name in ANY_DENSE.constants else few])


def test_smallest_and_largest_shapes_are_the_ends_of_all_ranges() -> None:
    assert smallest_shape(ANY_DENSE) == Shape.of(T=1, N=2, K=3)
    assert largest_shape(ANY_DENSE) == Shape.of(T=64, N=96, K=80)
    assert smallest_shape(Dense(4, 2, 3)) == largest_shape(Dense(4, 2, 3)) == NOTHING
    assert largest(ANY_DENSE, "cols") == 96


def test_a_dynamic_batch_is_one_whose_number_is_not_known() -> None:
    work = BatchMatmul(T=8, B=Dim(1, 12), D=4)
    assert [batched(w) for w in (work, SCORES, CONTEXT, DENSE, ANY_DENSE)] == [True, True, True, False, False]
    said = r"^the batch axis must be static; got 1\.\.12\. batched\(\) returns whether there is one; "
    with pytest.raises(WorkloadError, match=said):
        batch_of(work)


MOST = r"an operand must have at most 2,147,483,647 elements \(2\*\*31 - 1\); got "
SMALLER = r"\. Make an extent smaller, or divide the operator into several\.$"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Dense(1, 2**16, 2**15), r"w\[65536, 32768\] with 2,147,483,648"),
        (lambda: Dense(Dim(1, 8), 2**16, 2**15), r"w\[65536, 32768\] with 2,147,483,648"),
        (lambda: Dense(2**16, 1, 2**15), r"x\[65536, 32768\] with 2,147,483,648"),
        (lambda: Dense(2**16, 2**15, 1), r"out\[65536, 32768\] with 2,147,483,648"),
        (lambda: Dense(Dim(2**16, 2**17), Dim(2**15, 2**16), 1), r"out\[65536, 32768\] with 2,147,483,648"),
        (lambda: BatchMatmul(2**13, 32, 1), r"out\[32, 8192, 8192\] with 2,147,483,648"),
    ],
)
def test_operands_that_no_index_reaches_are_refused(make: Any, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=f"^{MOST}{complaint}{SMALLER}"):
        make()


def test_largest_operand_and_wider_ranges_are_allowed() -> None:
    assert Dense(1, 2**31 - 1, 1).bytes(NOTHING) == 4 * (2**32 - 1)
    assert list(Dense(Dim(1, 2**20), Dim(1, 2**20), 8).dims) == ["T", "N"]


# --- float16 and bfloat16 ------------------------------------------------------------------------

HALVES = ("float16", "bfloat16")


@st.composite
def workloads(draw: st.DrawFn, dtypes: tuple[str, ...] = FLOATS, deep: int = 300) -> Workload:
    """Small operators of static shapes."""
    dtype = draw(st.sampled_from(dtypes))
    rows, depth = draw(st.integers(8, 40)), draw(st.integers(2, deep))
    if draw(st.booleans()):
        form: Any = draw(st.sampled_from(["nt", "nn"]))
        return BatchMatmul(T=min(rows, deep), B=3, D=depth, form=form, dtype=dtype)
    activation, flags = draw(st.sampled_from(ACTIVATIONS)), [draw(st.booleans()) for _ in range(3)]
    bias, residual, constant = flags
    return Dense(rows, 16, depth, bias, dtype, activation, residual, constant)


def multiplied(work: Workload, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return x @ (w if work.weights == "direct" else np.swapaxes(w, -1, -2))


def finished(
    work: Workload, value: npt.NDArray[np.float32], wide: dict[str, npt.NDArray[np.float32]]
) -> npt.NDArray[Any]:
    """The epilogue in float32, then one rounding to the dtype, as float64."""
    value = value + wide["bias"] if "bias" in wide else value
    value = np.vectorize(lambda v: formula(work.epilogue.activation, v), otypes=[np.float32])(value)
    value = value + wide["residual"] if "residual" in wide else value
    return PRECISIONS[work.dtype].rounded(value).astype(np.float64)


def truncated(exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Rounded to float32 toward zero."""
    nearest = exact.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)


def on_tensor_cores(work: Workload, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Sums of eight products at a time, truncated to float32."""
    total = np.zeros(work.output_shape(NOTHING), np.float32)
    for k in range(0, x.shape[-1], 8):
        some = w[..., k : k + 8, :] if work.weights == "direct" else w[..., k : k + 8]
        part = multiplied(work, x[..., k : k + 8].astype(np.float64), some.astype(np.float64))
        total = truncated(total + part)
    return total


@given(workloads(), seeds)
def test_bytes_are_those_of_the_arrays_and_scale_with_the_itemsize(work: Any, seed: int) -> None:
    arrays = work.inputs(NOTHING, seed).values()
    itemsize = require_dtype(work.dtype).itemsize
    assert {array.dtype for array in arrays} == {require_dtype(work.dtype).numpy}
    outputs = math.prod(work.output_shape(NOTHING))
    assert work.bytes(NOTHING) == sum(array.nbytes for array in arrays) + itemsize * outputs
    assert 4 * work.bytes(NOTHING) == itemsize * replace(work, dtype="float32").bytes(NOTHING)


@given(workloads(), seeds)
def test_inputs_are_those_of_float32_rounded_to_nearest(work: Any, seed: int) -> None:
    exact, inputs = replace(work, dtype="float32").inputs(NOTHING, seed), work.inputs(NOTHING, seed)
    assert list(inputs) == list(exact)
    for name, array in inputs.items():
        error = np.abs(array.astype(np.float64) - exact[name])
        precision = require_dtype(work.dtype)
        assert (error <= (precision.epsilon * np.abs(exact[name]) + precision.smallest) / 2).all()
    assert work.reference(inputs).dtype == np.float64


@given(workloads(), seeds)
def test_tolerance_accepts_float32_sums_that_are_rounded_once(work: Workload, seed: int) -> None:
    inputs = work.inputs(NOTHING, seed)
    wide = {name: array.astype(np.float32) for name, array in inputs.items()}
    right = work.reference(inputs)
    allowed = tolerance(work, inputs)
    assert allowed == tolerance(work, inputs, right)
    for value in (multiplied(work, wide["x"], wide["w"]), on_tensor_cores(work, wide["x"], wide["w"])):
        assert np.abs(finished(work, value, wide) - right).max() <= allowed


@given(workloads(HALVES, deep=100), seeds)
def test_tolerance_of_halves_rejects_a_missing_term(work: Any, seed: int) -> None:
    # An activation may hide what is missing, and a residual of any size is right.
    work = replace(work, activation="none", residual=False) if isinstance(work, Dense) else work
    inputs = work.inputs(NOTHING, seed)
    short = {**inputs, "x": inputs["x"].copy()}
    short["x"][..., -1] = 0
    assert np.abs(work.reference(short) - work.reference(inputs)).max() > tolerance(work, inputs)


@given(workloads(HALVES, deep=100), seeds)
def test_halves_need_more_tolerance_than_their_sums(work: Any, seed: int) -> None:
    inputs = work.inputs(NOTHING, seed)
    assert tolerance(work, inputs) > tolerance(replace(work, dtype="float32"), inputs) > 0


@given(workloads(), st.booleans())
def test_json_keeps_the_dtype_and_its_absence_is_float32(work: Any, dynamic: bool) -> None:
    work = replace(work, T=Dim(1, work.T)) if dynamic else work
    value = json.loads(json.dumps(work.to_json()))
    assert workload_from_json(value) == work
    del value["dtype"]
    assert workload_from_json(value) == replace(work, dtype="float32")


def test_dtype_is_shown_unless_it_is_float32() -> None:
    assert str(replace(DENSE, dtype="float16")) == "dense T=1..128 N=3 K=5 float16"
    shown = "dense T=1..8 N=3 K=5 bfloat16 +bias gelu_tanh +residual variable weights"
    assert str(replace(RICH, dtype="bfloat16")) == shown
    assert str(replace(SCORES, dtype="float16")) == "batch-matmul-nt T=1..128 B=6 D=4 float16"
    made = make_workload("dense", {"T": 4, "N": 2, "K": 3}, dtype="float16")
    assert made == Dense(4, 2, 3, dtype="float16")


@pytest.mark.parametrize("name", FLOATS)
def test_formats_are_those_of_numpy_and_ml_dtypes(name: str) -> None:
    precision = require_dtype(name)
    facts = ml_dtypes.finfo(precision.numpy)
    assert precision.numpy.name == precision.name == name
    assert precision.itemsize == precision.numpy.itemsize
    assert precision.epsilon == float(facts.eps) and precision.smallest == float(facts.smallest_subnormal)


def test_float32_values_are_not_copied_to_be_rounded() -> None:
    values = np.ones(3, np.float32)
    assert require_dtype("float32").rounded(values) is values


def test_ties_round_to_even() -> None:
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    assert require_dtype("bfloat16").rounded(ties).astype(float).tolist() == [1.0, 1 + 2.0**-6]
    ties = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11], np.float32)
    assert require_dtype("float16").rounded(ties).astype(float).tolist() == [1.0, 1 + 2.0**-9]


def test_bfloat16_without_its_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    work = Dense(T=4, N=2, K=3, dtype="bfloat16")
    assert work.bytes(NOTHING) == 2 * (12 + 6 + 8)
    with pytest.raises(MissingDependencyError, match=r"need the package ml_dtypes; .* pip install ml_dtypes"):
        work.inputs(NOTHING)


def test_tolerance_of_zero_halves_is_their_smallest_step() -> None:
    zeros = {"x": np.zeros((2, 5), np.float16), "w": np.zeros((3, 5), np.float16)}
    allowed = tolerance(replace(DENSE, dtype="float16"), zeros)
    assert allowed == pytest.approx(2.0**-25)
