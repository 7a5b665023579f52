"""Groups of warps that multiply from shared memory (wgmma): layouts, and what is wrong without each step."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from cuda_emulation.emulator import Emulated
from cuda_emulation.errors import EmulatorError
from cuda_samples import emulated
from test_cuda_compile import Program, program

from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim
from dietlab.scheme import Scheme, build_space
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import (
    PATTERN_BYTES,
    BlockGeometry,
    SwizzledPanel,
    panels,
    shared_elements,
    swizzled,
)
from dietlab.targets.cuda.lowering.warp_group import described

H200 = Hardware.preset("h200")
DENSE = Dense(T=Dim(1, 128), N=40, K=200, dtype="float16")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nn", dtype="bfloat16")
KEY = "64x32x64.g1x1.s3"
ROWS = 70


# Panels and descriptors


def bits(value: int, low: int, count: int) -> int:
    return value >> low & (1 << count) - 1


def where(fields: int, start: int, line: int, step: int, *, across: bool) -> int:
    """The byte of an element, as the PTX ISA reads a descriptor (canonical layouts of ``wgmma``, elements of
    16 bits): ``line`` along rows or columns, ``step`` along the reduction."""
    cells = {1: 8, 2: 4, 3: 2}[bits(fields, 62, 2)]
    leading, stride = (16 * bits(fields, low, 14) for low in (16, 32))
    if across:
        strip, inside = divmod(line, 8 * cells)
        at = start + strip * leading + step // 8 * stride + step % 8 * 16 * cells + 2 * inside
    else:
        at = start + line // 8 * stride + line % 8 * 16 * cells + 2 * step
    return at ^ (at >> 7 & cells - 1) << 4


SIZES = ((64, 16, 16), (64, 32, 32), (128, 64, 64), (64, 128, 128), (192, 48, 48))
ODD_SIZES = ((64, 96, 96), (64, 192, 96), (32, 64, 64), (16, 256, 128))
PANELS = [swizzled(lines, length, whole) for lines, length, whole in (*SIZES, *ODD_SIZES)]


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_every_element_has_a_place_of_its_own(panel: SwizzledPanel) -> None:
    places = [panel.at(0, line, e) for line in range(panel.lines) for e in range(panel.length)]
    assert sorted(places) == list(range(panel.elements))
    # Copies of 16 bytes stay whole.
    assert all(panel.at(0, line, e) % 8 == e % 8 for line in range(8) for e in range(panel.length))


@pytest.mark.parametrize("panel", PANELS, ids=str)
@pytest.mark.parametrize("across", [False, True])
def test_a_descriptor_finds_what_was_copied(panel: SwizzledPanel, across: bool) -> None:
    """For 16 steps of the reduction from any multiple of 16 on."""
    fields = described(panel, across=across) & (1 << 64) - 1
    begin = 5 * PATTERN_BYTES
    lines, steps = (panel.length, panel.lines) if across else (panel.lines, panel.length)
    for first in range(0, steps, 16):
        corner = (first, 0) if across else (0, first)
        start = begin + 2 * panel.at(0, *corner)
        for line, step in product(range(lines), range(16)):
            place = (first + step, line) if across else (line, first + step)
            found = where(fields, start, line, step, across=across)
            assert found == begin + 2 * panel.at(0, *place), (first, line, step)


def test_eight_lines_are_read_without_a_conflict() -> None:
    """A strip of 128 bytes is all banks of shared memory: no two of eight lines have a cell in the same."""
    panel = swizzled(64, 64, 64)
    assert {panel.at(0, line, 0) % 64 for line in range(8)} == set(range(0, 64, 8))


@pytest.mark.parametrize("work", [DENSE, CONTEXT], ids=str)
def test_stages_and_panels_begin_with_a_pattern(work: Dense | BatchMatmul) -> None:
    geometry = BlockGeometry.of(work, H200)
    kernels: Any = [kernel for kernel in build_space(work, H200) if kernel.key.count(".g")]
    assert kernels
    odd = [Scheme.from_key(key) for key in ("64x16x16.g1x1.s3", "64x48x48.g1x1.s4", "128x96x32.g2x2.s3")]
    for kernel in (*kernels, *odd):
        assert isinstance(kernel.kernel, CudaMicroKernel)
        x, w = panels(kernel.kernel, geometry)
        assert isinstance(x, SwizzledPanel) and isinstance(w, SwizzledPanel)
        for panel, first in ((x, 0), (w, x.elements)):
            pattern = 8 * panel.pitch
            assert first % pattern == 0 and (x.elements + w.elements) % pattern == 0, kernel.key
        if geometry.direct:
            assert kernel.kernel.tile_cols % w.pitch == 0


# What the emulator tells of a kernel that leaves something out


@cache
def one(key: str = KEY) -> Program:
    return program(DENSE, H200, [Scheme.from_key(key)])


def run(source: str, key: str = KEY) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a variant of the kernel computes, and what is right."""
    kernel: Any = Scheme.from_key(key)
    random = np.random.default_rng(0)
    x, w = (random.integers(-4, 5, (extent, DENSE.K)).astype(np.float16) for extent in (ROWS, DENSE.N))
    y = np.full((ROWS, DENSE.N), np.nan, np.float16)
    row_tiles = -(-ROWS // kernel.rows)
    grid = row_tiles * -(-DENSE.N // kernel.cols)
    shared = 2 * shared_elements(kernel.kernel, one(key).geometry)
    values = [x, w, y, grid, row_tiles, ROWS]
    Emulated.of(source).launch("k0_kernel", grid, kernel.kernel.threads, values, shared)
    return y.astype(np.float32), x.astype(np.float32) @ w.T.astype(np.float32)


def without(source: str, *statements: str) -> str:
    """The source without these calls."""
    for statement in statements:
        assert statement in source, statement
        source = source.replace(statement, "")
    return source


PUBLISH = "tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();"
FENCE = "tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();"
COMMIT = "tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();"
WAIT_FOR_STEP = "tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();"
WAIT_FOR_ALL = "tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();"


@emulated
def test_the_whole_kernel_is_right() -> None:
    found, expected = run(one().source)
    np.testing.assert_array_equal(found, expected)


@emulated
@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        (PUBLISH, r"no fence\.proxy\.async after what thread \d+ copied"),
        (FENCE, r"without wgmma\.fence after registers were written or read"),
        (WAIT_FOR_STEP, "shared memory was written before a wait covered the product"),
        (COMMIT, "shared memory was written before a wait covered the product"),
    ],
)
def test_a_missing_step_is_told(missing: str, complaint: str) -> None:
    with pytest.raises(EmulatorError, match=complaint):
        run(without(one().source, missing))


@emulated
def test_sums_that_nobody_waited_for_are_no_numbers() -> None:
    found, _ = run(without(one().source, WAIT_FOR_ALL))
    assert np.isnan(found).all()


@emulated
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (f"(int64_t){described(swizzled(64, 64, 64), across=False)}", f"(int64_t){1 << 62 | 32 << 32}"),
        (" ^ ", " | "),
        ("% 8) * 8) >> 3) & 7)", "% 8) * 8) >> 3) & 3)"),
    ],
    ids=["stride", "swizzle", "cell"],
)
def test_a_wrong_layout_is_a_wrong_result(right: str, wrong: str) -> None:
    assert right in one().source
    found, expected = run(one().source.replace(right, wrong))
    assert not np.array_equal(found, expected)


@emulated
def test_four_warps_are_needed() -> None:
    source = one().source.replace("__launch_bounds__(128)", "__launch_bounds__(96)")
    kernel: Any = Scheme.from_key(KEY)
    x, w, y = (np.zeros(size, np.float16) for size in ((64, DENSE.K), (DENSE.N, DENSE.K), (64, DENSE.N)))
    shared = 2 * shared_elements(kernel.kernel, one().geometry)
    with pytest.raises(EmulatorError, match="needs four whole warps; the block has 96 threads"):
        Emulated.of(source).launch("k0_kernel", 1, 96, [x, w, y, 1, 1, 64], shared)


def test_shared_memory_begins_with_a_pattern() -> None:
    assert f"extern __shared__ __align__({PATTERN_BYTES}) half" in one().source
    assert "__align__(16) half" in program(DENSE, H200, [Scheme.from_key("64x32x64.w2x1.s3")]).source
