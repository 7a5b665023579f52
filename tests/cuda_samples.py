"""What the tests for GPUs share: micro-kernels drawn at random, operators, and whether there is a driver."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import strategies as st
from schemes import cuda_scheme

from dietlab.problem import BatchMatmul, Dense, Dim, Workload
from dietlab.scheme import Edge, Space
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.unit import PIECES, Unit

GPUS = ("t4", "rtx3090", "a100", "h100", "h200")
UNITS: tuple[Unit, ...] = ("fma", "mma", "wgmma")
CUDA_EDGES: tuple[Edge, ...] = ("padded", "even", "rest")

DENSE = Dense(T=Dim(1, 2048), N=2304, K=768)
SCORES = BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nt")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nn")
WORKS: dict[str, Dense | BatchMatmul] = {"dense": DENSE, "scores": SCORES, "context": CONTEXT}


NO_EMULATOR = "" if shutil.which("g++") and shutil.which("gcc") else "the emulator is compiled by gcc"
emulated = pytest.mark.skipif(bool(NO_EMULATOR), reason=NO_EMULATOR)


def typed(work: Dense | BatchMatmul, dtype: str) -> Workload:
    """The same operator with operands of another type."""
    return replace(work, dtype=dtype)


@st.composite
def cuda_kernels(
    draw: st.DrawFn, units: Sequence[Unit] = UNITS, edges: Sequence[Edge] = CUDA_EDGES
) -> CudaScheme:
    """Micro-kernels whose workers divide their tiles, whether or not a GPU has room for them."""
    unit = draw(st.sampled_from(units))
    pieces = PIECES[unit]
    down, across = (draw(st.sampled_from([1, 2, 3, 4, 8])) for _ in range(2))
    slices = draw(st.sampled_from([1, 2, 4]))
    return cuda_scheme(
        down * pieces.rows * draw(st.integers(1, 8)),
        across * pieces.cols * draw(st.integers(1, 6)),
        slices * pieces.steps * draw(st.integers(1, 3)),
        down,
        across,
        slices,
        draw(st.integers(pieces.stages, 4)),
        unit=unit,
        edge=draw(st.sampled_from([edge for edge in edges if (unit, edge) != ("mma", "checked")])),
        splits=draw(st.sampled_from([1, 2, 4, 8])),
        resident=draw(st.sampled_from([1, 2])),
    )


def few(space: Space, count: int, seed: int = 0) -> Space:
    """The same space with ``count`` of its micro-kernels, drawn at random."""
    chosen = Random(seed).sample(space.schemes, min(count, len(space)))
    return replace(space, schemes=tuple(sorted(chosen)))


def has_driver() -> bool:
    """Whether this machine has NVIDIA's driver (not a library that stands in for it)."""
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), "cuInit")
    except OSError:
        return False
