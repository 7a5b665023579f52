"""Tiles that a producer brings by bulk copies (TMA): results, broken rings, fallbacks and machine code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulation.emulator import Emulated, TensorMap
from cuda_emulation.errors import EmulatorError
from cuda_emulation.operators import Emulated as Operators
from cuda_samples import emulated as needs_emulator
from test_cuda_compile import Program, assembled, program

from dietlab.base.errors import SpaceError
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim
from dietlab.scheme import Leaf, Scheme, Split, build_space
from dietlab.targets.cuda.lowering.geometry import shared_elements
from dietlab.targets.cuda.nvidia_packages import package_folders
from dietlab.targets.cuda.ring import described, registers_of_roles

H200 = Hardware.preset("h200")
DENSE = Dense(T=Dim(1, 128), N=40, K=456, dtype="float16")
KEY = "64x32x64.p1x1.s4"
SHARED_KEY, SPLIT_KEY = f"{KEY}.m2", f"{KEY}.k2"
ROWS = 70
"""Nothing is a multiple of the tile, and the ring goes round: eight steps in four stages."""


# Results


@needs_emulator
@pytest.mark.parametrize(
    ("key", "n", "k", "dtype"),
    [
        ("64x32x64.p1x1.s4", 40, 456, "float16"),
        ("128x96x64.p2x1.s4.even", 200, 72, "bfloat16"),
        ("64x32x64.p1x1.s4.m2", 64, 456, "float16"),
        ("128x32x64.p2x1.s4.m4.even", 128, 840, "bfloat16"),
        ("64x96x64.p1x1.s4.k4.rest", 200, 840, "bfloat16"),
        pytest.param("128x64x64.p1x2.s6.rest", 63, 320, "bfloat16", marks=pytest.mark.thorough),
        pytest.param("256x64x64.p2x2.s4.b2.even", 96, 8, "float16", marks=pytest.mark.thorough),
    ],
)
def test_results_are_right_on_awkward_shapes(
    emulated: Operators, key: str, n: int, k: int, dtype: str
) -> None:
    work = Dense(T=Dim(1, 300), N=n, K=k, dtype=dtype, bias=True, activation="relu", residual=True)
    emulated.check(work, [key], [1, 63, 64, 65, 127, 128, 129, 257])
    (case,) = emulated.run(work, [key], [0])
    assert case["launches"] == [] and case["error"] == 0.0


@needs_emulator
def test_what_cannot_be_described_is_computed_by_another_plan(emulated: Operators) -> None:
    """Arrays that begin anywhere, and lines that begin at no multiple of 16 bytes."""
    aligned = emulated.check(DENSE, [KEY], [1, 65])
    shifted = emulated.check(DENSE, [KEY], [1, 65], shift=2)
    odd = emulated.check(Dense(T=Dim(1, 128), N=40, K=100, dtype="float16"), [KEY], [1, 65])
    threads = [{case["launches"][0]["block"][0] for case in found} for found in (aligned, shifted, odd)]
    assert threads == [{256}, {128}, {128}]


@needs_emulator
def test_the_tree_chooses_between_units(emulated: Operators) -> None:
    plans = ["32x32x32.w2x2.s3.even", f"{KEY}.even"]
    found = emulated.check(DENSE, plans, [1, 40, 41, 100], Split("T", 40, Leaf(0), Leaf(1)))
    assert [case["plan"] for case in found] == [0, 0, 1, 1]


# Broken rings


@cache
def one(key: str = KEY) -> Program:
    return program(replace(DENSE, N=64) if key == SHARED_KEY else DENSE, H200, [Scheme.from_key(key)])


def run(source: str, key: str = KEY) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a variant of the kernel computes, and what is right."""
    kernel: Any = Scheme.from_key(key).kernel
    work, random = one(key).work, np.random.default_rng(0)
    x, w = (random.integers(-4, 5, (extent, work.K)).astype(np.float16) for extent in (ROWS, work.N))
    y = np.full((ROWS, work.N), np.nan, np.float16)
    row_tiles = -(-ROWS // kernel.rows)
    tiles = row_tiles * -(-work.N // kernel.cols)
    emulator = Emulated.of(source)
    parameters = emulator.kernels["k0_kernel"].parameters
    known: dict[str, Any] = {
        "w_map": TensorMap(w, (32, 64)),
        "x_map": TensorMap(x, (64 // kernel.multicast, 64)),
        "x_end_map": TensorMap(x, (-(-(ROWS % 64) // 8) * 8, 64)),
        "T": ROWS,
        "rows": ROWS,
        "grid": tiles // kernel.multicast,
        "row_tiles": row_tiles,
    }
    values = [known.get(parameter.name, y) for parameter in parameters]
    shared = 2 * shared_elements(kernel, one(key).geometry)
    blocks = tiles * kernel.splits
    emulator.launch("k0_kernel", blocks, kernel.threads, values, shared, kernel.cluster)
    return y.astype(np.float32), x.astype(np.float32) @ w.T.astype(np.float32)


@needs_emulator
@pytest.mark.parametrize("key", [KEY, SHARED_KEY, SPLIT_KEY])
def test_the_whole_kernel_is_right(key: str) -> None:
    found, expected = run(one(key).source, key)
    np.testing.assert_array_equal(found, expected)


FULL = "dietlab_wait((&(((uint64_t*)shared_ptr)[(ring_ptr[0] + 6144)])), ring_ptr[1]);"
EMPTY = "dietlab_wait((&(((uint64_t*)shared_ptr)[(ring_ptr[0] + 6148)])), (ring_ptr[1] ^ 1));"
COMPUTED = "tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();"
NO_END = "without end for the mbarrier"
BROKEN = {
    "a slot is read before it is full": (FULL, "", "reads what a bulk copy is still bringing"),
    "a slot is filled before it is empty": (EMPTY, "", "more arrivals than the 1 of a phase"),
    "its bytes are counted wrong": (" + 4096);", " + 4088);", "-8 bytes are missing"),
    "nobody says that it is empty": ("if ((step_1 > 0) && (lane == 0))", "if (step_1 < 0)", NO_END),
    "the wrong phase is waited for": ("(ring_ptr[1] ^ 1));", "ring_ptr[1]);", NO_END),
    "the product may still be computed": (COMPUTED, "", "was written before a wait covered the product"),
}


@needs_emulator
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_ring_is_told(how: str) -> None:
    right, wrong, complaint = BROKEN[how]
    assert right in one().source
    with pytest.raises(EmulatorError, match=complaint):
        run(one().source.replace(right, wrong))


@needs_emulator
def test_the_last_rows_come_in_a_box_of_their_own() -> None:
    """Without it the rows before are right, and these are not."""
    assert one().source.count("if (end > 0)") == 1, "one copy, whatever its rows"
    found, expected = run(one().source.replace("int end = ", "int end = 0 * "))
    np.testing.assert_array_equal(found[:64], expected[:64])
    assert not (found[64:] == expected[64:]).all()


MEETING = """tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_relaxed_aligned();
  tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire_aligned();
  ring_ptr[0] = 0;"""
EARLY = "more arrivals than the 4|was written before|another copy to offset"
BROKEN_CLUSTERS = {
    "rows come where no barriers are yet": (
        MEETING,
        "__syncthreads();\n  ring_ptr[0] = 0;",
        r"where no mbarrier\.init was",
    ),
    "only the block itself is told of an empty slot": (
        "(lane < 2)",
        "(lane == 1)",
        f"{NO_END}|more arrivals",
    ),
    "a slot is filled before the other block left it": ("(uint)8);", "(uint)4);", EARLY),
    "the others' half of the rows never comes": ("(ushort)3", "(ushort)1", NO_END),
}


@needs_emulator
@pytest.mark.parametrize("how", BROKEN_CLUSTERS)
def test_a_broken_cluster_is_told(how: str) -> None:
    right, wrong, complaint = BROKEN_CLUSTERS[how]
    source = one(SHARED_KEY).source
    assert right in source
    with pytest.raises(EmulatorError, match=complaint):
        run(source.replace(right, wrong), SHARED_KEY)


# The space


def test_keys_and_what_a_ring_takes() -> None:
    kernel: Any = Scheme.from_key("128x256x64.p2x1.s4.even").kernel
    assert kernel.key == "128x256x64.p2x1.s4" and kernel.unit == "tma"
    assert kernel.threads == 3 * 128 and kernel.granule == 128
    roles = registers_of_roles(kernel)
    assert (roles.launched, roles.producer, roles.worker) == (168, 40, 232)


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("64x64x64.p1x1x2.s4", "computed in whole steps"),
        ("64x64x64.p1x1.s2", "one stage must be fetched"),
        ("64x64x64.p1x1.s4.k2.m2", "can only share rows of producers or a reduction"),
        ("64x64x64.g1x1.s4.m2", "can only share rows of producers or a reduction"),
        ("64x64x64.p1x1.s4.m16", "a cluster must have at most 8 blocks"),
    ],
)
def test_what_no_ring_is(key: str, complaint: str) -> None:
    with pytest.raises(SpaceError, match=complaint):
        Scheme.from_key(key)


def test_blocks_share_rows_where_the_columns_are_whole_clusters() -> None:
    for cols, most in ((4096, 4), (2304, 4), (2300, 1)):
        work = Dense(T=Dim(1, 2048), N=cols, K=768, dtype="bfloat16")
        found = [scheme.kernel for scheme in build_space(work, H200) if scheme.kernel.unit == "tma"]
        assert max(kernel.multicast for kernel in found) == most
        assert all(kernel.multicast == 1 or cols % (kernel.cols * kernel.multicast) == 0 for kernel in found)


@needs_emulator
def test_columns_that_are_no_whole_clusters_are_computed_by_another_plan(emulated: Operators) -> None:
    (case,) = emulated.check(DENSE, [SHARED_KEY], [65])
    assert case["launches"][0]["block"][0] == 128


def test_rings_join_the_space_where_operands_can_be_described() -> None:
    work = Dense(T=Dim(1, 2048), N=2304, K=768, dtype="bfloat16")
    space: Any = build_space(work, H200)
    rings = [scheme for scheme in space if scheme.kernel.unit == "tma"]
    assert rings and len(rings) < 0.2 * len(space)
    assert {scheme.kernel.stages for scheme in rings} == {4, 6, 8, 12, 16}
    for other in (
        Dense(T=Dim(1, 2048), N=2304, K=764, dtype="bfloat16"),
        BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nn", dtype="bfloat16"),
        BatchMatmul(T=Dim(1, 128), B=3, D=64, form="nt", dtype="bfloat16"),
    ):
        assert not described(other)
        assert all(scheme.kernel.unit != "tma" for scheme in build_space(other, H200))


# Machine code


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_rings_compile_without_a_spill() -> None:
    keys = ["128x256x64.p2x1.s4.m4", "64x128x64.p1x1.s4.b2", "256x128x64.p2x1.s4.m2.even"]
    keys += ["128x192x64.p1x2.s4", "128x128x64.p2x1.s4.k8"]
    work = Dense(T=Dim(1, 2048), N=4096, K=4096, dtype="bfloat16")
    cubin = assembled(program(work, H200, [Scheme.from_key(key) for key in keys]))
    assert not cubin.remarks
    for number, key in enumerate(keys):
        kernel: Any = Scheme.from_key(key).kernel
        used = cubin.kernels[f"k{number}_kernel"]
        assert used.spill_bytes == used.stack_bytes == 0, key
        assert used.registers <= registers_of_roles(kernel).launched


def disassembled(cubin: bytes, folder: Path) -> str:
    """The machine code, if a disassembler is installed."""
    places = [str(place / "bin") for place in package_folders()]
    tool = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(places))
    if tool is None:
        pytest.skip("no disassembler is installed (pip install nvidia-cuda-cuobjdump)")
    path = folder / "ring.cubin"
    path.write_bytes(cubin)
    return subprocess.run([tool, "-sass", str(path)], capture_output=True, text=True, check=True).stdout


def loops(code: str) -> list[list[str]]:
    """The opcodes of each loop: from a branch's target up to the branch."""
    lines = [line for line in code.splitlines() if re.match(r"\s+/\*[0-9a-f]{4,}\*/", line)]
    places, opcodes, found = {}, [], []
    for number, line in enumerate(lines):
        address, text = re.findall(r"/\*([0-9a-f]+)\*/\s+(.*)", line)[0]
        places[int(address, 16)] = number
        words = [word for word in text.split() if not word.startswith("@")]
        opcodes.append(words[0].rstrip(";"))
        target = re.search(r"0x([0-9a-f]+)", text) if words[0].startswith("BRA") else None
        first = places.get(int(target[1], 16)) if target else None
        if first is not None:
            found.append(opcodes[first:])
    return found


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("compiler")
def test_workers_do_nothing_but_wait_and_multiply(tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 2048), N=4096, K=4096, dtype="bfloat16")
    cubin = assembled(program(work, H200, [Scheme.from_key("128x256x64.p2x1.s4")]))
    code = disassembled(cubin.data, tmp_path)
    assert code.count("USETMAXREG") == 2 and not re.search(r"\b(LDL|STL|LDGSTS)\b", code)
    working = min((loop for loop in loops(code) if any("HGMMA" in op for op in loop)), key=len)
    assert sum(op.startswith("HGMMA.64x256x16") for op in working) == 4 and len(working) <= 100
    assert any(op.startswith("SYNCS.PHASECHK") for op in working)
    slow = ("UTMALDG", "LDG", "LDS", "MEMBAR", "BAR", "I2F", "F2I", "MUFU")
    assert not [op for op in working if op.startswith(slow)]
    brought = [sum(op.startswith("UTMALDG") for op in loop) for loop in loops(code)]
    assert any(3 <= count <= 8 for count in brought), brought
