"""The programs that MetaSchedule tunes compute their workload, unscheduled, on this machine's processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dietlab.problem import BatchMatmul, Conv1d, Conv2d, Dense, Dim, Shape, Workload, tolerance

tvm = pytest.importorskip("tvm")

from dietlab.compare.ansor.program import k_major, static_program  # noqa: E402

T = Dim(1, 64)
DENSE = Dense(T, 12, 9)
WORKLOADS = (
    DENSE,
    Dense(7, 12, 9, bias=True),
    replace(DENSE, bias=True, activation="relu", residual=True),
    replace(DENSE, bias=True, activation="relu", residual="before"),
    replace(DENSE, activation="gelu_tanh", constant=False),
    replace(DENSE, activation="gelu_erf", bias=True),
    replace(DENSE, dtype="float16"),
    replace(DENSE, dtype="float16", bias=True, residual=True),
    BatchMatmul(T, 3, 5, "nt"),
    BatchMatmul(T, 3, 5, "nn"),
    BatchMatmul(T, 3, 5, "nn", "float16"),
)
IMAGES = Conv2d(N=2, H=T, W=9, IC=6, OC=4, kernel=(3, 2), padding=((1, 2), (0, 1)))
CONVOLUTIONS = (
    IMAGES,
    replace(IMAGES, stride=(2, 1), dilation=(1, 2), bias=True, activation="relu"),
    replace(IMAGES, kernel=1, padding=0, residual=True),
    replace(IMAGES, groups=2),
    replace(IMAGES, OC=6, groups=6, dtype="float16"),
    Conv1d(N=1, L=T, IC=3, OC=5, kernel=4, padding=((3, 0),)),
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


@pytest.mark.parametrize("workload", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("free_layout", [False, True])
def test_programs_compute_their_convolution(workload: Workload, free_layout: bool) -> None:
    for size in (5, 11):
        shape = Shape.of(**dict.fromkeys(workload.dims, size))
        program = static_program(workload, shape, free_layout=free_layout)
        assert run(workload, shape, program, free_layout) <= 1


def run(workload: Workload, shape: Shape, program: object, free_layout: bool = False) -> float:
    """The largest error, as a multiple of what it may be."""
    inputs = workload.inputs(shape, seed=4)
    major = inputs["w"].transpose(k_major(inputs["w"].ndim))
    given = {**inputs, "w": np.ascontiguousarray(major)} if free_layout else inputs
    out = np.full(workload.output_shape(shape), np.nan, inputs["x"].dtype)
    tensors = [tvm.runtime.tensor(array) for array in (*given.values(), out)]
    tvm.compile(program, target="llvm")["main"](*tensors)
    error = np.abs(tensors[-1].numpy().astype(np.float64) - workload.reference(inputs)).max()
    return float(error / tolerance(workload, inputs))
