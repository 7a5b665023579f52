"""What a pass over the weights asks for ahead: all of what comes next, and little of it twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from schemes import cpu_scheme
from tvm.script.ir_builder import tirx as T

from dietlab.lower.decisions import DEFAULTS
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim
from dietlab.scheme import Leaf, plan_for
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.lowering import prefetch
from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS

DEPTH, UNROLL = 64, 4


def count(buffer: Any, offset: Any, level: int) -> None:
    """Counts in the weights themselves what is asked for: the program is right no longer, but tells."""
    T.buffer_store(buffer, buffer[offset] + T.float32(1), [offset])


@pytest.fixture(params=[(cores, vectors) for cores in (1, 2) for vectors in (1, 2)], ids=str)
def layer(request: pytest.FixtureRequest, here: Hardware, monkeypatch: pytest.MonkeyPatch) -> Layer:
    monkeypatch.setattr(prefetch, "prefetch", count)
    cores, vectors = request.param
    return Layer(here.with_cores(cores), vectors)


@dataclass(frozen=True)
class Layer:
    """Six column tiles of some vectors."""

    hardware: Hardware
    vectors: int

    def kernel(self, block: int) -> CpuScheme:
        cols = self.vectors * self.hardware.limits.lanes
        return cpu_scheme(4, cols, UNROLL, prefetch=0, edge="even", ahead=True, block=block)

    @property
    def work(self) -> Dense:
        return Dense(Dim(1, 64), 6 * self.vectors * self.hardware.limits.lanes, DEPTH)

    def asked(self, rows: int, block: int) -> Any:
        """How often each line is asked for, ``[core, panel, step]``."""
        lanes, cores = self.hardware.limits.lanes, self.hardware.cores
        built, panels = library(self, block), self.work.N // lanes
        packed = aligned_empty((built.packed_floats(self.work.N, DEPTH),))
        built.pack(np.zeros((self.work.N, DEPTH), np.float32), packed)
        out = np.zeros((rows, self.work.N), np.float32)
        built.run(np.zeros((rows, DEPTH), np.float32), packed, out)
        lines = packed[HEADER_FLOATS:].reshape(-1, DEPTH, lanes)  # a line is one step of one panel
        assert not lines[panels:].any(), "empty panels are asked for"
        return lines[:panels].sum(axis=2).reshape(cores, -1, DEPTH)


@cache
def library(layer: Layer, block: int) -> Any:
    """Compiled once for all numbers of rows."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.so"
        compile_plans(layer.work, layer.hardware, [layer.kernel(block)], Leaf(0), path)
        return load_library(path, cores=layer.hardware.cores)


@pytest.mark.parametrize("block", [0, DEPTH // 2])
@pytest.mark.parametrize("rows", [5, 7, 12, 13, 40])
def test_the_row_tiles_of_a_pass_share_the_lines_that_come_next(layer: Layer, block: int, rows: int) -> None:
    """Every line is asked for but those that each core begins with; the last tile asks for its own."""
    asked, vectors = layer.asked(rows, block), layer.vectors
    part = block or DEPTH
    begun, own = np.s_[:, :vectors, :part], np.s_[:, -vectors:, -part:]
    assert not asked[begun].any()
    others = np.ones(asked.shape, bool)
    others[begun] = others[own] = False
    tiles, iterations = plan_for(layer.kernel(block), rows).tiles, part // UNROLL
    assert asked[others].min() >= 1 and asked[own].min() >= 1, "some line is not asked for"
    most = -(-iterations // tiles) * tiles / iterations
    assert asked[others].mean() <= most, "lines are asked for more than a share's rounding"


@pytest.mark.parametrize("rows", [5, 13, 16, 25, 26, 40])
def test_few_rows_ask_for_a_part_and_leave_the_others_to_the_hardware(layer: Layer, rows: int) -> None:
    """In proportion to the rows, the first lines of each column tile, none of them twice but for a share's
    rounding. Of a reduction's block all is asked for."""
    memory = 2 * layer.hardware.cores * 60.0 / (26 / DEFAULTS.prefetch_all_from)
    slow = replace(layer, hardware=replace(layer.hardware, peak_gflops=60.0, dram_gbps=memory))
    tiles, iterations = plan_for(layer.kernel(0), rows).tiles, DEPTH // UNROLL
    of = max(tiles, tiles * 26 // rows)
    asked = slow.asked(rows, 0).reshape(layer.hardware.cores, -1, layer.vectors * DEPTH)
    inner = asked[:, 1:-1]  # the first column tile is there, and the last one has none behind it
    assert inner.mean() == pytest.approx(tiles / of, abs=tiles / iterations)
    assert (inner[..., :-1] >= inner[..., 1:]).mean() > 1 - tiles / DEPTH, "not the first lines"
    assert (inner > 1).mean() <= tiles / iterations
    blocks = slow.asked(rows, DEPTH // 2)[:, layer.vectors : -layer.vectors]
    assert blocks.min() >= 1


@pytest.mark.parametrize("block", [0, DEPTH // 2])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_single_row_tile_leaves_it_to_the_hardware(layer: Layer, block: int, rows: int) -> None:
    """It asks for nothing but its first lines, as many as it reads at once: of each panel if only a block of
    it comes next, else of the column tile."""
    asked = layer.asked(rows, block)
    if block:
        first = np.arange(DEPTH) % block < UNROLL
    else:
        asked = asked.reshape(-1, layer.vectors * DEPTH)
        first = np.arange(layer.vectors * DEPTH) < UNROLL * layer.vectors
    assert (asked == first).all()
