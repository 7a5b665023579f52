"""Rings whose operands are exchanged (``swapped``): results, both layouts of weights, and machine code."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_emulation.emulator import Emulated, TensorMap
from cuda_emulation.errors import EmulatorError
from cuda_emulation.operators import Emulated as Operators
from cuda_samples import emulated as needs_emulator
from test_cuda_compile import assembled, program
from test_cuda_tma import disassembled, loops

from dietlab.base.errors import SpaceError
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim
from dietlab.scheme import Leaf, Scheme, build_space
from dietlab.targets.cuda.lowering.compiler import cuda_source, lower
from dietlab.targets.cuda.lowering.geometry import BlockGeometry, shared_elements
from dietlab.targets.cuda.lowering.library import library_module
from dietlab.targets.cuda.ring import registers_of_roles

H200 = Hardware.preset("h200")
LAYER = Dense(T=Dim(1, 128), N=4096, K=4096, dtype="bfloat16")


# Results


@needs_emulator
@pytest.mark.parametrize(
    ("key", "n", "k", "dtype"),
    [
        ("8x64x64.x1x1.s4", 40, 456, "float16"),
        ("48x128x64.x1x2.s4.even", 200, 72, "bfloat16"),
        ("24x128x64.x1x1.s4.k4.rest", 200, 840, "bfloat16"),
        ("40x192x128.x1x1.s3.k2", 192, 840, "float16"),
        pytest.param("16x256x64.x1x2.s4.k8.even", 300, 1100, "bfloat16", marks=pytest.mark.thorough),
        pytest.param("128x128x64.x1x1.s4.b2.even", 63, 8, "float16", marks=pytest.mark.thorough),
    ],
)
def test_results_are_right_on_awkward_shapes(
    emulated: Operators, key: str, n: int, k: int, dtype: str
) -> None:
    """300 columns are whole stores of 8 bytes but not of 16, 63 columns are stored one by one."""
    work = Dense(T=Dim(1, 150), N=n, K=k, dtype=dtype, bias=True, activation="relu", residual=True)
    emulated.check(work, [key], [1, 7, 8, 9, 24, 48, 49, 129])
    (case,) = emulated.run(work, [key], [0])
    assert case["launches"] == [] and case["error"] == 0.0


@needs_emulator
@pytest.mark.parametrize(
    "fused", [{}, {"activation": "gelu_erf", "bias": True, "residual": "before"}], ids=["none", "before"]
)
def test_epilogues_are_those_of_other_units(emulated: Operators, fused: dict[str, Any]) -> None:
    work = Dense(T=Dim(1, 40), N=72, K=136, dtype="bfloat16", **fused)
    emulated.check(work, ["16x64x64.x1x1.s4.even", "16x64x64.x1x1.s4.k2"], [1, 15, 16, 33])


# Variants of a kernel

KEY, SPLIT_KEY = "24x128x64.x1x1.s4", "24x128x64.x1x1.s4.k2"
ROWS, COLS, DEPTH = 37, 136, 456


@cache
def source(key: str, weights: Any) -> tuple[str, BlockGeometry]:
    """The CUDA source. No operator of today has one matrix ``w[depth, cols]``: the geometry is changed."""
    work = Dense(T=Dim(1, 64), N=COLS, K=DEPTH, dtype="float16")
    geometry = replace(BlockGeometry.of(work, H200), weights=weights)
    module = library_module(geometry, [Scheme.from_key(key)], Leaf(0), only=[[{"T": ROWS}]])
    entry = module["run"].with_attr("global_symbol", "k0")
    return cuda_source(lower(tvm.IRModule({"k0": entry}), H200)), geometry


def run(text: str, key: str, weights: str = "packed") -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a variant of the kernel computes, and what is right."""
    kernel: Any = Scheme.from_key(key).kernel
    _, geometry = source(key, weights)
    random = np.random.default_rng(0)
    x, w = (random.integers(-4, 5, (extent, DEPTH)).astype(np.float16) for extent in (ROWS, COLS))
    expected = x.astype(np.float32) @ w.T.astype(np.float32)
    if geometry.direct:
        w = np.ascontiguousarray(w.T)
    y = np.full((ROWS, COLS), np.nan, np.float16)
    row_tiles = -(-ROWS // kernel.rows)
    tiles = row_tiles * -(-COLS // kernel.cols)
    known: dict[str, Any] = {
        "w_map": TensorMap(w, (kernel.step, 64) if geometry.direct else (kernel.tile_cols, 64)),
        "x_map": TensorMap(x, (kernel.rows, 64)),
        "x_end_map": TensorMap(x, (-(-(ROWS % kernel.rows) // 8) * 8, 64)),
        "T": ROWS,
        "rows": ROWS,
        "grid": tiles,
        "row_tiles": row_tiles,
    }
    emulator = Emulated.of(text)
    (name,) = emulator.kernels
    values = [known.get(parameter.name, y) for parameter in emulator.kernels[name].parameters]
    shared = 2 * shared_elements(kernel, geometry)
    emulator.launch(name, tiles * kernel.splits, kernel.threads, values, shared, kernel.cluster)
    return y.astype(np.float32), expected


@needs_emulator
@pytest.mark.parametrize("key", [KEY, SPLIT_KEY, "40x128x128.x1x2.s3"])
@pytest.mark.parametrize("weights", ["transposed", "direct"])
def test_both_layouts_of_weights_are_right(key: str, weights: str) -> None:
    """The tensor cores transpose ``w[depth, cols]``, their first operand here."""
    text, _ = source(key, weights)
    assert re.search(rf"m64n{key.split('x')[0]}k16[\w.]* ", text)
    found, expected = run(text, key, weights)
    np.testing.assert_array_equal(found, expected)


COMPUTED = "tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();"
BROKEN = {
    "the last rows never come": ("int end = ", "int end = 0 * ", "bytes are missing|without end"),
    "the product may still be computed": (COMPUTED, "", "was written before a wait covered the product"),
}


@needs_emulator
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_ring_is_told(how: str) -> None:
    text, _ = source(KEY, "transposed")
    right, wrong, complaint = BROKEN[how]
    assert right in text
    if "end" in right:  # these are counted, too: their rows hold what was there before
        found, expected = run(text.replace(right, wrong), KEY)
        np.testing.assert_array_equal(found[:24], expected[:24])
        assert not (found[24:] == expected[24:]).all()
        return
    with pytest.raises(EmulatorError, match=complaint):
        run(text.replace(right, wrong), KEY)


@needs_emulator
def test_sums_are_put_in_order_behind_a_barrier() -> None:
    text, _ = source(KEY, "transposed")
    barrier = "tvm_builtin_ptx_bar_sync_count_sync((uint)1, (uint)128);"
    assert text.count(barrier) == 2, "before sums are written, and before they are read"
    found, expected = run(text.replace(barrier, ""), KEY)
    assert not (found == expected).all()


# The space


def test_keys_and_what_exchanged_operands_take() -> None:
    kernel: Any = Scheme.from_key("16x128x64.x1x2.s8.k4").kernel
    assert kernel.key == "16x128x64.x1x2.s8.k4" and kernel.unit == "swapped"
    assert kernel.threads == 3 * 128 and kernel.granule == 8 and kernel.accumulators == 16 * 64 // 128
    assert [scheme.rows for scheme in Scheme.from_key("24x64x64.x1x1.s4.even").heights] == [8, 16, 24]


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("16x64x64.x2x1.s4", "each worker must compute all rows, 256 at most"),
        ("264x64x64.x1x1.s4", "each worker must compute all rows, 256 at most"),
        ("12x64x64.x1x1.s4", "share a multiple of 8 rows"),
        ("16x96x64.x1x1.s4", "share a multiple of 64 columns"),
        ("16x64x32.x1x1.s4", "share a multiple of 64 steps"),
        ("16x320x64.x1x1.s4", "at most 256 columns"),
        ("16x64x64.x1x1x2.s4", "computed in whole steps"),
        ("16x64x64.x1x1.s4.m2", "can only share rows of producers or a reduction"),
    ],
)
def test_what_exchanged_operands_are_not(key: str, complaint: str) -> None:
    with pytest.raises(SpaceError, match=complaint):
        Scheme.from_key(key)


def test_the_space_has_a_moderate_number_for_few_rows() -> None:
    space: Any = build_space(LAYER, H200)
    found = [scheme.kernel for scheme in space if scheme.kernel.unit == "swapped"]
    others = len(space) - len(found)
    assert 0.1 * others < len(found) < 0.25 * others
    assert {kernel.rows for kernel in found} == {8, 16, 24, 32, 48, 64}
    assert {kernel.stages for kernel in found} == {4, 6, 8, 12, 16}
    assert {kernel.splits for kernel in found} == {1, 2, 4, 8}
    assert {kernel.multicast for kernel in found} == {kernel.down for kernel in found} == {1}


# Machine code


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_few_rows_compile_without_a_spill() -> None:
    keys = ["8x64x64.x1x1.s16.k2", "16x128x64.x1x2.s12.b2", "128x128x64.x1x1.s6.k8", "64x256x64.x1x1.s4"]
    keys += ["48x256x128.x1x2.s3.even"]
    work = replace(LAYER, bias=True, activation="gelu_tanh", residual=True)
    cubin = assembled(program(work, H200, [Scheme.from_key(key) for key in keys]))
    assert not cubin.remarks
    for number, key in enumerate(keys):
        kernel: Any = Scheme.from_key(key).kernel
        used = cubin.kernels[f"k{number}_kernel"]
        assert used.spill_bytes == used.stack_bytes == 0, key
        assert used.registers <= registers_of_roles(kernel).launched


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_workers_only_wait_and_multiply_and_store_16_bytes(tmp_path: Path) -> None:
    work = replace(LAYER, bias=True, residual=True)
    cubin = assembled(program(work, H200, [Scheme.from_key("16x128x64.x1x1.s8.k4")]))
    code = disassembled(cubin.data, tmp_path)
    assert not re.search(r"\b(LDL|STL|LDGSTS)\b", code)
    working = min((loop for loop in loops(code) if any("HGMMA" in op for op in loop)), key=len)
    assert sum(op.startswith("HGMMA.64x16x16") for op in working) == 8 and len(working) <= 100
    slow = ("UTMALDG", "LDG", "LDS", "MEMBAR", "BAR", "I2F", "F2I", "MUFU")
    assert not [op for op in working if op.startswith(slow)]
    stored, read = (set(re.findall(rf"\b{op}\.[\w.]+", code)) for op in ("STG", "LDG"))
    assert stored == {"STG.E.128"} and all(name.endswith(".128") for name in read), (stored, read)
    assert any(sum(op.startswith("UTMALDG") for op in loop) == 3 for loop in loops(code))
