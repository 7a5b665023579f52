"""The emulator computes what a GPU does, and shows what a GPU would leave undefined."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, python

from . import snippets
from .emulator import Emulated
from .errors import EmulatorError
from .instructions import translate_asm

RANDOM = np.random.default_rng(0)


@cache
def emulated(kernel: str, helpers: tuple[str, ...] = (), tags: tuple[str, ...] = ()) -> Emulated:
    return Emulated.of(snippets.source(kernel, helpers, tags))


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_a_bound_check_keeps_threads_inside(n: int) -> None:
    a, b, c = floats(n), floats(n), np.full(n, np.nan, np.float32)
    emulated(snippets.ADD).launch("add_kernel", -(-n // 64), 64, {"A": a, "B": b, "C": c, "n": n})
    np.testing.assert_array_equal(c, a + b)


def test_an_access_outside_of_an_array_is_told_with_the_array() -> None:
    a, b, c = floats(100), floats(128), floats(128)
    with pytest.raises(EmulatorError, match=r"thread .*nothing is at \(byte 508 of A, which has 400 bytes\)"):
        emulated(snippets.ADD).launch("add_kernel", 2, 64, [c, a, b, 128])


def test_a_tile_passes_through_shared_memory() -> None:
    a, b = floats(256), floats(256)
    emulated(snippets.REVERSE.replace("BARRIER", "__syncthreads();")).launch("reverse_kernel", 2, 128, [b, a])
    np.testing.assert_array_equal(b.reshape(2, 128), a.reshape(2, 128)[:, ::-1])


def test_a_missing_barrier_shows_as_nan() -> None:
    a, b = floats(256), floats(256)
    emulated(snippets.REVERSE.replace("BARRIER", "")).launch("reverse_kernel", 2, 128, [b, a])
    assert np.isnan(b).sum() == 128


@pytest.mark.parametrize(
    "barrier",
    [
        "if (((int)threadIdx.x) < 64) { __syncthreads(); }",
        "if (((int)threadIdx.x) < 64) { __syncthreads(); } else {\n __syncthreads(); }",
    ],
)
def test_a_divergent_barrier_is_an_error(barrier: str) -> None:
    a, b = floats(128), floats(128)
    with pytest.raises(EmulatorError, match="divergent barrier"):
        emulated(snippets.REVERSE.replace("BARRIER", barrier)).launch("reverse_kernel", 1, 128, [b, a])


def test_a_warp_that_does_not_meet_is_an_error() -> None:
    kernel = 'extern "C" __global__ void k(int* A) { if (((int)threadIdx.x) < 7) { __syncwarp(); } }'
    with pytest.raises(EmulatorError, match="divergent warp: lanes 0x7f of warp 0 wait in __syncwarp"):
        emulated(kernel).launch("k", 1, 32, [np.zeros(1, np.int32)])


def test_dynamic_shared_memory_ends_where_the_launch_says() -> None:
    kernel, b = emulated(snippets.DYNAMIC), floats(32)
    kernel.launch("dynamic_kernel", 1, 32, [b, 0], shared_bytes=512)
    np.testing.assert_array_equal(b, np.arange(32))
    with pytest.raises(EmulatorError, match="offset 512 of 512 bytes of shared memory"):
        kernel.launch("dynamic_kernel", 1, 32, [b, 4], shared_bytes=512)
    with pytest.raises(EmulatorError, match="no multiple of 16"):
        kernel.launch("dynamic_kernel", 1, 32, [b, 1], shared_bytes=1024)
    with pytest.raises(EmulatorError, match="at most 232448 bytes of shared memory; got 232449"):
        kernel.launch("dynamic_kernel", 1, 32, [b, 0], shared_bytes=232449)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (0, 64, "a grid has 1 to"),
        ((1, 65536), 64, "a grid has 1 to"),
        (1, 65, "at most 64 threads; got 65"),
        (1, (1, 1, 65), "a block has 1 to"),
    ],
)
def test_launches_that_a_gpu_refuses(grid: Any, block: Any, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        emulated(snippets.ADD).launch("add_kernel", grid, block, [floats(1), floats(1), floats(1), 1])


def clustered(
    first: str, last: str, blocks: int = 2, grid: int = 4, cluster: int = 2
) -> np.ndarray[Any, Any]:
    """The sum over a cluster's blocks of what each has, turned around; less what is expected."""
    kernel = emulated(snippets.CLUSTER.replace("FIRST", first).replace("LAST", last))
    a, b = floats(grid, 64), floats(grid, 64)
    kernel.launch("cluster_kernel", grid, 64, [b, a, blocks], cluster=cluster)
    sums = a.reshape(-1, cluster, 64)[:, :, ::-1].sum(axis=1, keepdims=True)
    expected = sums + np.arange(cluster, dtype=np.float32)[:, None]
    return b - expected.reshape(grid, 64)


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_blocks_of_a_cluster_read_each_others_shared_memory(cluster: int) -> None:
    off = clustered(snippets.MEET, snippets.MEET, cluster, 4, cluster)
    np.testing.assert_allclose(off, 0, atol=1e-5)


@pytest.mark.parametrize(("first", "last"), [("", snippets.MEET), (snippets.MEET, "")])
def test_a_missing_barrier_of_a_cluster_shows_as_nan(first: str, last: str) -> None:
    """Before the others have written, and after they have left."""
    assert np.isnan(clustered(first, last)).any()


def test_clusters_that_cannot_be() -> None:
    alone = f"if (rank == 0) {{ {snippets.MEET} }}"
    with pytest.raises(EmulatorError, match="1 of 2 blocks of a cluster wait"):
        clustered(snippets.MEET, alone)
    some = f"if (i < 32) {{ {snippets.MEET} }}"
    with pytest.raises(EmulatorError, match="32 of 64 threads wait for their cluster"):
        clustered(some, snippets.MEET)
    with pytest.raises(EmulatorError, match="mapa to block 2 of a cluster of 2"):
        clustered(snippets.MEET, snippets.MEET, blocks=3)
    with pytest.raises(EmulatorError, match="a grid of 3 blocks has no clusters of 2"):
        clustered(snippets.MEET, snippets.MEET, grid=3)
    with pytest.raises(EmulatorError, match="wait without an arrive"):
        clustered('asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");', "")


COMMIT = snippets.helper("cp_async_commit_group", "async", "commit_group")
WAIT = snippets.helper("cp_async_wait_group", "async", "wait_group", imms=("0",))
CG = ("async", "cg", "shared", "global", "", "")


def copied(entry: str, guard: str, waits: bool = True, valid: int = 128) -> np.ndarray[Any, Any]:
    copy = snippets.helper(entry, *CG, imms=("16",))
    wait = f"{WAIT[0]}();" if waits else ""
    kernel = snippets.COPY.format(copy=copy[0], guard=guard, commit=COMMIT[0], wait=wait)
    a, b = np.arange(valid, dtype=np.float32), floats(128)
    emulated(kernel, (copy[1], COMMIT[1], WAIT[1])).launch("copy_kernel", 1, 32, [b, a, valid])
    return b


def test_cp_async_fills_with_zeros_and_reads_nothing_there() -> None:
    """The last vector is cut, the ones behind it are beyond the array: local padding."""
    count = "((n - first) > 0 ? ((n - first) < 4 ? ((n - first) * 4) : 16) : 0)"
    expected = np.where(np.arange(128) < 102, np.arange(128), 0)
    np.testing.assert_array_equal(copied("cp_async_cg_src_size", count, valid=102), expected)
    whole = np.where(np.arange(128) < 100, np.arange(128), 0)
    np.testing.assert_array_equal(copied("cp_async_cg_ignore_src", "first >= n", valid=100), whole)


def test_cp_async_lands_when_it_is_waited_for() -> None:
    assert not np.isnan(copied("cp_async_cg_src_size", "16")).any()
    assert np.isnan(copied("cp_async_cg_src_size", "16", waits=False)).all()


def test_cp_async_groups_land_in_order() -> None:
    ca = ("async", "ca", "shared", "global", "", "")
    copy = snippets.helper("cp_async_ca", *ca, imms=("4",))
    later = snippets.helper("cp_async_wait_group", "async", "wait_group", imms=("1",))
    kernel = f"""
    extern "C" __global__ void __launch_bounds__(1) k(float* B, float* A) {{
      __shared__ float S[2];
      for (int i = 0; i < 2; ++i) {{
        {copy[0]}(__cvta_generic_to_shared(S + i), A + i);
        {COMMIT[0]}();
      }}
      {later[0]}();
      B[0] = S[0]; B[1] = S[1];
      {WAIT[0]}();
      B[2] = S[1];
    }}"""
    b = floats(3)
    helpers = (copy[1], later[1], COMMIT[1], WAIT[1])
    emulated(kernel, helpers).launch("k", 1, 1, [b, np.array([5, 6], np.float32)])
    assert b[0] == 5 and np.isnan(b[1]) and b[2] == 6


def as_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("kind", "name"), [("f16", "half"), ("bf16", "nv_bfloat16")])
def test_a_product_of_tensor_cores(kind: str, name: str, transposed: bool) -> None:
    trans = "trans" if transposed else ""
    load_a = snippets.helper("ldmatrix", "sync", "aligned", "m8n8", "x4", "", "", "b16")
    load_b = snippets.helper("ldmatrix", "sync", "aligned", "m8n8", "x2", trans, "shared", "b16")
    mma = snippets.helper("mma", "sync", "aligned", "m16n8k16", "row", "col", "f32", kind, kind, "f32")
    b_row = "((lane % 16) * 8)" if transposed else "((lane % 8) * 16) + (((lane / 8) % 2) * 8)"
    kernel = snippets.MMA.format(load_a=load_a[0], load_b=load_b[0], mma=mma[0], b_row=b_row)
    a = RANDOM.integers(-8, 8, (16, 16)).astype(np.float32)
    b = RANDOM.integers(-8, 8, (16, 8)).astype(np.float32)
    stored_b = np.ascontiguousarray(b if transposed else b.T)
    convert = as_bfloat16 if kind == "bf16" else lambda values: values.astype(np.float16)
    c = floats(16, 8)
    tag = {"f16": "fp16", "bf16": "bf16"}[kind]
    typed = kernel.replace("T*", f"{name}*").replace(" T ", f" {name} ")
    tile = emulated(typed, (load_a[1], load_b[1], mma[1]), (tag,))
    tile.launch("mma_kernel", 1, 32, [c, convert(a), convert(stored_b)])
    np.testing.assert_array_equal(c, a @ b + 1)


def test_lanes_of_a_warp_exchange_values() -> None:
    h = RANDOM.integers(-4, 4, 64).astype(np.float16)
    before, s, d, n = h.astype(np.float32), floats(64), floats(64), np.zeros(1, np.int32)
    kernel = emulated(snippets.WARP, tags=("fp16", "bf16", "int8", "math_constants", "warp_shuffle"))
    kernel.launch("warp_kernel", 1, 64, [s, d, h, n])
    warps = before.reshape(2, 32)
    np.testing.assert_array_equal(s.reshape(2, 32), np.repeat(warps.sum(1, keepdims=True), 32, 1))
    np.testing.assert_array_equal(d.reshape(2, 32)[:, :-1], warps[:, 1:])
    np.testing.assert_array_equal(h, 2 * np.maximum(before, 0.5))
    assert n[0] == 64


def test_an_instruction_without_a_rule_is_named() -> None:
    with pytest.raises(EmulatorError, match=r"tcgen05\.fence::before_thread_sync"):
        translate_asm('asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");')


@pytest.fixture(scope="module")
def child() -> dict[str, Any]:
    """What ``end_to_end.py`` found, in a process of its own."""
    done = python("-m", "cuda_emulation.end_to_end", cwd=ROOT / "tests")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_tvm_launches_on_the_stub_driver(child: dict[str, Any]) -> None:
    assert child["device"] == ["9.0", 132, "stub device"]
    assert child["errors"] == [0.0] * 4
    assert child["exported"] == 0.0
    assert [entry["grid"][0] for entry in child["launches"]] == [1, 1, 2, 4]
    assert child["empty"] == [[1, 1, 1]]  # TVM never asks for an empty grid
    assert {entry["code"] for entry in child["launches"]} == {0}


def test_the_log_tells_streams_apart(child: dict[str, Any]) -> None:
    first, second = child["streams"]
    assert first != second and min(first, second) > 2
    assert child["launched_on"] == [0, first, second]


def test_launches_that_the_driver_refuses(child: dict[str, Any]) -> None:
    invalid = ("threads", "empty grid", "grid y", "grid z", "block z", "shared 49153", "attribute 232449")
    fine = ("plain", "attribute 232448", "shared 232448")
    assert child["refused"] == {**dict.fromkeys(invalid, 1), **dict.fromkeys(fine, 0), "stream": 400}


def test_a_fault_is_an_illegal_address(child: dict[str, Any]) -> None:
    assert child["fault"] == 700
    assert "offset 4096 of 4096 bytes of shared memory" in child["failure"]


def test_memory_runs_out_when_it_is_told_to(child: dict[str, Any]) -> None:
    assert "out of memory" in child["out_of_memory"].lower()
    assert child["live_bytes"] <= 1 << 20
