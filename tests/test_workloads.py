"""Operators: sizes, references, inputs and the error a correct float32 result may have."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.errors import WorkloadError
from dietlab.shapes import Dim, Shape
from dietlab.workloads import Dense, axis_of, extents, make_workload, tolerance, workload_from_json

DENSE = Dense(T=Dim(1, 128), N=3, K=5)
sizes = st.integers(1, 96)


def test_flops_and_bytes_count_each_operand_once() -> None:
    shape = Shape.of(T=7)
    assert DENSE.flops(shape) == 2 * 7 * 3 * 5
    assert DENSE.bytes(shape) == 4 * (7 * 5 + 3 * 5 + 7 * 3)
    assert Dense(T=Dim(1, 8), N=3, K=5, bias=True).bytes(shape) == DENSE.bytes(shape) + 4 * 3


@pytest.mark.parametrize("bias", [False, True])
def test_reference_is_the_sum_of_products_in_float64(bias: bool) -> None:
    work = Dense(T=Dim(1, 8), N=3, K=5, bias=bias)
    inputs = work.inputs(Shape.of(T=4))
    result = work.reference(inputs)
    assert result.dtype == np.float64 and result.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            products = (float(inputs["x"][i, k]) * float(inputs["w"][j, k]) for k in range(5))
            expected = sum(products) + (float(inputs["bias"][j]) if bias else 0.0)
            assert result[i, j] == pytest.approx(expected, rel=1e-12)


def test_inputs_of_a_smaller_shape_are_the_first_rows_of_a_larger() -> None:
    work = Dense(T=Dim(1, 64), N=6, K=5, bias=True)
    small, large = work.inputs(Shape.of(T=3)), work.inputs(Shape.of(T=40))
    np.testing.assert_array_equal(small["x"], large["x"][:3])
    np.testing.assert_array_equal(small["w"], large["w"])
    np.testing.assert_array_equal(small["bias"], large["bias"])
    assert not np.array_equal(small["x"], work.inputs(Shape.of(T=3), seed=1)["x"])
    assert {name: array.shape for name, array in small.items()} == {"x": (3, 5), "w": (6, 5), "bias": (6,)}


@pytest.mark.parametrize("work", [DENSE, Dense(T=9, N=2, K=1), Dense(T=Dim(4, 5), N=1, K=1, bias=True)])
def test_workload_survives_json(work: Dense) -> None:
    assert workload_from_json(json.loads(json.dumps(work.to_json()))) == work


def test_axes_have_roles_and_extents() -> None:
    assert extents(DENSE, Shape.of(T=43)) == {"batch": 1, "rows": 43, "cols": 3, "depth": 5}
    assert axis_of(DENSE, "depth").name == "K"
    assert dict(DENSE.dims) == {"T": Dim(1, 128)} and dict(Dense(T=4, N=1, K=1).dims) == {}
    assert str(Dense(T=Dim(1, 8), N=2, K=3, bias=True)) == "dense T=1..8 N=2 K=3 +bias"


def test_make_workload_builds_what_the_command_line_names() -> None:
    assert make_workload("dense", {"T": Dim(1, 8), "N": 2, "K": 3}, bias=True) == Dense(Dim(1, 8), 2, 3, True)


def test_unknown_operator_is_named_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="one of dense; got 'conv'"):
        make_workload("conv", {})
    with pytest.raises(WorkloadError, match="one of dense; got None"):
        workload_from_json({})


@pytest.mark.parametrize(
    ("dims", "complaint"),
    [
        ({"T": Dim(1, 8), "N": 2}, "missing K"),
        ({"T": Dim(1, 8), "N": 2, "K": 3, "M": 1}, "unknown M"),
        ({"M": 4, "N": 2, "K": 3}, "unknown M; missing T"),
    ],
)
def test_unknown_or_missing_dimension_is_named(dims: dict[str, Dim | int], complaint: str) -> None:
    with pytest.raises(
        WorkloadError, match=f"dense has the dimensions T, N, K; got {complaint}. For example --dim"
    ):
        make_workload("dense", dims)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"N": 0}, "at least 1; got N=0"),
        ({"K": -4}, "at least 1; got K=-4"),
        ({"T": 0}, "at least 1; got T=0"),
        ({"K": Dim(1, 8)}, r"N and K .* fixed.*; got K=1\.\.8\. Give the range to T"),
        ({"dtype": "float16"}, "float32; got float16. Use dtype='float32'"),
    ],
)
def test_impossible_dense_layers_are_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        Dense(**{"T": Dim(1, 8), "N": 4, "K": 4, **changed})


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


@given(st.integers(8, 96), st.integers(2, 2048), st.integers(0, 1000))
def test_tolerance_rejects_a_missing_term(rows: int, depth: int, seed: int) -> None:
    work = Dense(T=rows, N=16, K=depth)
    inputs = work.inputs(Shape(()), seed)
    short = {name: array[:, :-1] for name, array in inputs.items()}
    assert np.abs(work.reference(short) - work.reference(inputs)).max() > tolerance(work, inputs)


def test_tolerance_of_zeros_is_positive() -> None:
    zeros = {"x": np.zeros((2, 5), np.float32), "w": np.zeros((3, 5), np.float32)}
    assert 0 < tolerance(DENSE, zeros) < 1e-20
