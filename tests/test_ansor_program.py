"""The programs that MetaSchedule tunes compute their workload, unscheduled, on this machine's processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, tolerance

tvm = pytest.importorskip("tvm")

from dietlab.compare.ansor.program import static_program  # noqa: E402

T = Dim(1, 64)
DENSE = Dense(T, 12, 9)
WORKLOADS = (
    DENSE,
    Dense(7, 12, 9, bias=True),
    replace(DENSE, bias=True, activation="relu", residual=True),
    replace(DENSE, activation="gelu_tanh", constant=False),
    replace(DENSE, activation="gelu_erf", bias=True),
    replace(DENSE, dtype="float16"),
    replace(DENSE, dtype="float16", bias=True, residual=True),
    BatchMatmul(T, 3, 5, "nt"),
    BatchMatmul(T, 3, 5, "nn"),
    BatchMatmul(T, 3, 5, "nn", "float16"),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("rows", [1, 7])
def test_programs_compute_their_workload(workload: Workload, rows: int) -> None:
    shape = Shape.of(**dict.fromkeys(workload.dims, rows))
    assert run(workload, shape, static_program(workload, shape)) <= 1


def test_a_free_layout_takes_the_weights_the_other_way_round() -> None:
    shape = Shape.of(T=5)
    program = static_program(DENSE, shape, free_layout=True)
    assert list(program["main"].attrs["layout_free_buffers"]) == [1]
    assert "layout_free_buffers" not in static_program(DENSE, shape)["main"].attrs
    assert run(DENSE, shape, program, free_layout=True) <= 1


def run(workload: Workload, shape: Shape, program: object, free_layout: bool = False) -> float:
    """The largest error, as a multiple of what it may be."""
    inputs = workload.inputs(shape, seed=4)
    given = {**inputs, "w": np.ascontiguousarray(inputs["w"].T)} if free_layout else inputs
    out = np.full(workload.output_shape(shape), np.nan, inputs["x"].dtype)
    tensors = [tvm.runtime.tensor(array) for array in (*given.values(), out)]
    tvm.compile(program, target="llvm")["main"](*tensors)
    error = np.abs(tensors[-1].numpy().astype(np.float64) - workload.reference(inputs)).max()
    return float(error / tolerance(workload, inputs))
