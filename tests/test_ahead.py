"""What a pass over the weights asks for ahead: all of what comes next, and little of it twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.script.ir_builder import tirx as T

from dietlab.hardware import Hardware
from dietlab.lower.cpu import ahead
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.shapes import Dim
from dietlab.space import CpuMicroKernel, Leaf, plan_for
from dietlab.workloads import Dense

DEPTH, UNROLL = 64, 4


def count(buffer: Any, offset: Any, level: int) -> None:
    """Counts in the weights themselves what is asked for: the program is right no longer, but tells."""
    T.buffer_store(buffer, buffer[offset] + T.float32(1), [offset])


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("block", [0, DEPTH // 2])
@pytest.mark.parametrize("rows", [1, 3, 7, 12, 13, 40])
def test_the_row_tiles_of_a_pass_share_the_lines_that_come_next(
    cores: int, vectors: int, block: int, rows: int, here: Hardware, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every line is asked for but those that each core begins with; the last tile asks for its own."""
    monkeypatch.setattr(ahead, "prefetch", count)
    lanes = here.cpu.lanes
    work = Dense(Dim(1, 64), 6 * vectors * lanes, DEPTH)
    kernel = CpuMicroKernel(4, vectors * lanes, UNROLL, prefetch=0, edge="even", ahead=True, block=block)
    compile_plans(work, here.with_cores(cores), [kernel], Leaf(0), tmp_path / "kernel.so")
    library = load_library(tmp_path / "kernel.so", cores=cores)

    packed = aligned_empty((work.N // lanes, DEPTH, lanes))  # a line is one step of one panel
    packed.fill(0)
    x, y = np.zeros((rows, DEPTH), np.float32), np.zeros((rows, work.N), np.float32)
    library.run(x, packed, y)

    asked = packed.sum(axis=2).reshape(cores, -1, DEPTH)
    part = block or DEPTH
    begun, own = np.s_[:, :vectors, :part], np.s_[:, -vectors:, -part:]
    assert not asked[begun].any()
    others = np.ones(asked.shape, bool)
    others[begun] = others[own] = False
    tiles, iterations = plan_for(kernel, rows).tiles, part // UNROLL
    assert asked[others].min() >= 1 and asked[own].min() >= 1, "some line is not asked for"
    most = -(-iterations // tiles) * tiles / iterations
    assert asked[others].mean() <= most, "lines are asked for more than a share's rounding"
