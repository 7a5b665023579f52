"""What a pass over the weights asks for ahead: all of what comes next, and little of it twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm.script.ir_builder import tirx as T

from dietlab.hardware import Hardware
from dietlab.lower.cpu import ahead
from dietlab.lower.program import compile_plans
from dietlab.shapes import Dim
from dietlab.space import CpuMicroKernel, Leaf, plan_for
from dietlab.workloads import Dense

DEPTH, UNROLL = 64, 4


def count(buffer: Any, offset: Any, level: int) -> None:
    """Counts in the weights themselves what is asked for: the program is right no longer, but tells."""
    T.buffer_store(buffer, buffer[offset] + T.float32(1), [offset])


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("block", [0, DEPTH // 2])
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 12, 13, 40])
def test_the_row_tiles_of_a_pass_share_the_lines_of_the_next_panel(
    vectors: int, block: int, rows: int, here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "prefetch", count)
    lanes = here.cpu.lanes
    work = Dense(Dim(1, 64), 4 * vectors * lanes, DEPTH)
    kernel = CpuMicroKernel(4, vectors * lanes, UNROLL, prefetch=0, edge="even", ahead=True, block=block)
    compile_plans(work, here.with_cores(1), [kernel], Leaf(0), tmp_path / "kernel.so")
    library = tvm_ffi.load_module(str(tmp_path / "kernel.so"))

    panel = DEPTH * lanes  # floats of one panel; a line is one step of it
    memory = np.zeros(16 + (work.N // lanes + 2 * vectors) * panel, np.float32)
    first = -(memory.ctypes.data // 4) % 16  # panels begin with a cache line
    packed = memory[first : first + work.N * DEPTH].reshape(-1, DEPTH, lanes)
    x, y = np.zeros((rows, DEPTH), np.float32), np.zeros((rows, work.N), np.float32)
    library.run(x, packed, y)

    asked = packed.reshape(-1, DEPTH, lanes).sum(axis=2)[vectors:]  # nobody asks for the first panels
    tiles = plan_for(kernel, rows).tiles
    iterations = (block or DEPTH) // UNROLL
    assert asked.min() >= 1, "some line is not asked for"
    assert asked.mean() <= -(-iterations // tiles) * tiles / iterations, (
        "lines are asked for more than a share's rounding"
    )
