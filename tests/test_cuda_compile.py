"""Micro-kernels as CUDA: they compile everywhere without a spill, and compute without a bound check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
from conftest import Golden
from cuda_samples import CONTEXT, DENSE, SCORES, typed
from schemes import cuda_scheme

from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim, Workload, require_dtype, static_extent
from dietlab.scheme import Leaf, Scheme, build_space, scheme_with
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.lowering.compiler import cuda_source, kernel_texts, lower, without_spills
from dietlab.targets.cuda.lowering.cubin import Cubin, Resources
from dietlab.targets.cuda.lowering.geometry import BlockGeometry, shared_elements
from dietlab.targets.cuda.lowering.library import library_module
from dietlab.targets.cuda.lowering.nvcc import Compiler, compile_cubin
from dietlab.targets.cuda.lowering.sources import Clamped, Strided
from dietlab.targets.cuda.lowering.tir import int32, int64
from dietlab.targets.cuda.needs import BOOKKEEPING, held_registers, shared_bytes, thread_registers
from dietlab.targets.cuda.occupancy import blocks_per_sm

ARCHES = ("h100", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("t4", "a100", "groups")))
"""Presets, and ``groups`` for what only groups of warps of an H200 compute."""

RELU = Dense(T=Dim(1, 2048), N=2300, K=768, bias=True, activation="relu", residual=True)
SAMPLES: dict[str, tuple[tuple[Workload, int], ...]] = {
    "t4": ((DENSE, 8), (SCORES, 6), (CONTEXT, 6), (RELU, 4)),
    **dict.fromkeys(
        ("a100", "h100"),
        (
            (DENSE, 6),
            (CONTEXT, 4),
            (typed(DENSE, "float16"), 4),
            (typed(DENSE, "bfloat16"), 4),
            (typed(SCORES, "float16"), 2),
            (typed(CONTEXT, "bfloat16"), 4),
        ),
    ),
    "groups": (
        (typed(DENSE, "float16"), 8),
        (typed(DENSE, "bfloat16"), 4),
        (typed(RELU, "bfloat16"), 4),
        (typed(SCORES, "float16"), 4),
        (typed(CONTEXT, "bfloat16"), 4),
    ),
}
"""What is drawn from each architecture's spaces: 24 micro-kernels, a quarter of them composed."""

SLACK = 1.5
"""How many times the registers that the compiler used the estimate may be."""

CALM = 200 / 255
"""Share of the registers that a thread can have, up to which by the estimate nothing may spill."""

COMPILERS = 2
"""Compilers at a time."""


@dataclass(frozen=True)
class Program:
    """Some micro-kernels of one operator as the kernels ``k0_kernel``, ``k1_kernel``, ... of one source."""

    work: Workload
    hardware: Hardware
    kernels: tuple[CudaScheme, ...]
    source: str

    @property
    def geometry(self) -> BlockGeometry:
        return BlockGeometry.of(self.work, self.hardware)

    def text(self, number: int) -> str:
        """The generated kernel."""
        return next(text for text in kernel_texts(self.source) if f"k{number}_kernel(" in text)


def program(work: Workload, hardware: Hardware, kernels: list[Any]) -> Program:
    """Each micro-kernel with its widest copies only; a composed one with its two tallest heights."""
    geometry, entries = BlockGeometry.of(work, hardware), {}
    for number, kernel in enumerate(kernels):
        most = kernel.rows // kernel.kernel.granule
        rows = max(kernel.rows * most - kernel.kernel.granule, kernel.kernel.granule)
        module = library_module(geometry, [kernel], Leaf(0), only=[[{geometry.rows: rows}]])
        entries[f"k{number}"] = module["run"].with_attr("global_symbol", f"k{number}")
    source = cuda_source(lower(tvm.IRModule(entries), hardware))
    prelude, *parts = re.split(r'^(?=extern "C" __global__)', source, flags=re.MULTILINE)
    wanted = (part for part in parts if re.search(r"\bk\d+_kernel\(", part.partition("{")[0]))
    return Program(work, hardware, tuple(kernels), prelude + "".join(wanted))


@cache
def programs(preset: str) -> tuple[Program, ...]:
    groups = preset == "groups"
    hardware = Hardware.preset("h200" if groups else preset)
    found = []
    for seed, (work, count) in enumerate(SAMPLES[preset]):
        space: Any = build_space(work, hardware, ("padded",))
        # Rings of bulk copies have another loop: test_cuda_tma.py.
        drawn = [k for k in space if not k.kernel.pieces.producers and (k.kernel.unit == "wgmma") == groups]
        kernels = Random(seed).sample(drawn, count)
        composed = [scheme_with(kernel, edge="even") for kernel in kernels[: -(-count // 4)]]
        chosen = [*composed, *kernels[len(composed) :]]
        # Several in one source save compilers' starts; two sources keep two of them busy.
        halves = (chosen[::2], chosen[1::2]) if count > 4 else (chosen,)
        found += [program(work, hardware, half) for half in halves]
    return tuple(found)


def assembled(one: Program) -> Cubin:
    _, cubin = without_spills(one.source, one.hardware.limits.arch, partial(compile_cubin, cache=None))
    return cubin


@pytest.fixture(scope="module", params=ARCHES)
def compiled(
    request: pytest.FixtureRequest, compiler: Compiler
) -> list[tuple[Program, CudaMicroKernel, Resources]]:
    chosen = programs(request.param)
    with ThreadPoolExecutor(COMPILERS) as pool:
        cubins = list(pool.map(assembled, chosen))
    for one, cubin in zip(chosen, cubins, strict=True):
        # Above all: no instruction of a group of warps waits for the one before it.
        assert not cubin.remarks
        assert set(cubin.kernels) == {f"k{number}_kernel" for number in range(len(one.kernels))}
    return [
        (one, kernel, cubin.kernels[f"k{number}_kernel"])
        for one, cubin in zip(chosen, cubins, strict=True)
        for number, kernel in enumerate(one.kernels)
    ]


Compiled = list[tuple[Program, CudaMicroKernel, Resources]]


@pytest.mark.cuda_compile
def test_sampled_micro_kernels_compile_and_fit(compiled: Compiled) -> None:
    assert len(compiled) == 24 and {kernel.edge for _, kernel, _ in compiled} == {"padded", "even"}
    for one, kernel, used in compiled:
        gpu = one.hardware.limits
        item = require_dtype(one.work.dtype).itemsize
        shared = shared_elements(kernel.kernel, one.geometry) * item
        assert used.max_threads == kernel.kernel.threads and used.code_bytes > 0
        assert used.shared_bytes == 0, "all of it is asked for at the launch"
        assert shared <= gpu.smem_per_block_bytes
        assert shared <= shared_bytes(kernel.kernel, item) <= gpu.smem_per_block_bytes
        padded = kernel.cols // kernel.kernel.panel_run_cols
        if one.work.weights != "direct" and padded >= kernel.kernel.step:
            assert shared == shared_bytes(kernel.kernel, item)
        assert blocks_per_sm(gpu, kernel.kernel.threads, used.registers, shared) >= 1, kernel.key


@pytest.mark.cuda_compile
def test_nothing_spills_where_registers_suffice(compiled: Compiled) -> None:
    spilled = {
        kernel.key: (used.spill_bytes, used.registers, estimate)
        for one, kernel, used in compiled
        for gpu in [one.hardware.limits]
        for estimate in [thread_registers(kernel.kernel) + held_registers(kernel.kernel, one.work, gpu)]
        if estimate <= CALM * min(gpu.registers_per_thread, gpu.registers_per_block // kernel.kernel.threads)
        and kernel.kernel.resident == 1
        and (used.spill_bytes or used.stack_bytes)
    }
    assert not spilled


@pytest.mark.cuda_compile
def test_estimated_registers_are_not_far_above_the_real_ones(compiled: Compiled) -> None:
    """The space rejects by the estimate: what it rejects must really not fit. Tiles far below that need less
    than the estimate has for bookkeeping."""
    above = {
        kernel.key: (estimate, used.registers)
        for _, kernel, used in compiled
        if (estimate := thread_registers(kernel.kernel))
        > max(SLACK * used.registers, used.registers + BOOKKEEPING)
    }
    assert not above


# The generated source


@pytest.mark.parametrize("across", [False, True])
def test_an_element_has_an_address_and_is_inside_or_not(across: bool) -> None:
    """``x[5, 8]`` or ``w[8, 5]``, of whose rows (or columns) the tile begins at the third one."""
    shape = (8, 5) if across else (5, 8)
    flat = np.arange(40).reshape(shape).T if across else np.arange(40).reshape(shape)
    origin, stride = int64(int(flat[2, 0])), int32(shape[1])
    matrix = Strided(None, origin, stride, across, rows_left=int32(3), depth=int32(8), width=2)
    clamped = Clamped(matrix)

    def value(expression: Any) -> int:
        return int(tvm.sym.Analyzer().simplify(expression).value)

    for row, step in product(range(4), range(0, 10, 2)):
        place = int32(row), int32(step % 4), int32(step - step % 4)
        inside = row < 3 and step < 8
        assert value(matrix.inside(*place)) == inside
        assert clamped.inside(*place) is None
        if inside:
            assert value(matrix.address(*place)) == flat[2 + row, step]
        last = (min(row, 1), min(step, 7)) if across else (min(row, 2), min(step, 6))
        assert value(clamped.address(*place)) == flat[2 + last[0], last[1]]
    unbounded = replace(matrix, rows_left=None, depth=None)
    assert unbounded.inside(int32(9), int32(9), int32(0)) is None


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """The statements of one level, each with the lines inside it."""
    level, statement = indent(lines[0]), [lines[0]]
    for line in lines[1:]:
        if indent(line) == level and not line.strip().startswith("}"):
            yield statement
            statement = []
        statement.append(line)
    yield statement


def main_loops(text: str) -> list[list[list[str]]]:
    """The statements of each loop over the reduction axis: the loops with a barrier of their own."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = []
    for start, line in enumerate(lines):
        if line.strip().startswith("for (") and line.endswith("{"):
            end = next(n for n in range(start + 1, len(lines)) if lines[n] == " " * indent(line) + "}")
            inside = list(blocks(lines[start + 1 : end]))
            if any(len(statement) == 1 and "cta_sync" in statement[0] for statement in inside):
                found.append(inside)
    return found


def compute_stage(loop: list[list[str]], *, asynchronous: bool) -> str:
    """What stands in a main loop after the barrier, without the fetch of a coming step and what ends it."""
    fetches = [n for n, statement in enumerate(loop) if statement[0].strip().startswith("if (")]
    barrier = next(n for n, statement in enumerate(loop) if "cta_sync" in statement[0])
    assert len(fetches) == (1 if asynchronous else 2) and fetches[0] > barrier
    stage = [statement for n, statement in enumerate(loop) if n > barrier and n not in fetches]
    counters = [statement for statement in stage if re.match(r"\s*(slot|free)_ptr\w*\[0\] = ", statement[0])]
    assert len(counters) == 2, "of the stage that is computed, and of that which is fetched"
    stage = [statement for statement in stage if statement not in counters]
    return "\n".join(line for statement in stage for line in statement)


def has_bound_check(stage: str) -> bool:
    return "?" in stage or re.search(r"\bif\b", stage) is not None


def multiplies(stage: str, kernel: CudaScheme) -> bool:
    return "mma" in stage if kernel.kernel.unit != "fma" else re.search(r"\] \* \w+\[", stage) is not None


@pytest.mark.parametrize("preset", ARCHES)
def test_no_bound_check_is_left_in_the_compute_stage(preset: str) -> None:
    """Local padding: only the fetch and the write-back know where the output ends (paper, section 3.2)."""
    for one in programs(preset):
        for number, kernel in enumerate(one.kernels):
            text = one.text(number)
            loops = main_loops(text)
            depth = static_extent(one.work, "depth")
            if kernel.kernel.splits == 1 and depth is not None and depth <= kernel.kernel.step:
                continue  # of one step there is no loop
            two = kernel.composed and kernel.rows > kernel.kernel.granule
            assert len(loops) == (2 if two else 1), (kernel.key, text)
            for loop in loops:
                stage = compute_stage(loop, asynchronous="held_ptr" not in text)
                assert multiplies(stage, kernel), (kernel.key, stage)
                assert not has_bound_check(stage), (kernel.key, stage)
            assert has_bound_check(text), "the write-back has one"


def test_bound_checks_that_are_asked_for_are_in_the_compute_stage() -> None:
    """What local padding is compared with; it also shows that the test above would see them."""
    kernel = cuda_scheme(32, 64, 16, 8, 16, stages=3)
    work, hardware = Dense(T=Dim(1, 128), N=100, K=200), Hardware.preset("h100")
    for edge, checked in (("padded", False), ("checked", True)):
        one = program(work, hardware, [kernel.changed(edge=edge)])  # type: ignore[arg-type]
        (loop,) = main_loops(one.text(0))
        assert has_bound_check(compute_stage(loop, asynchronous=True)) == checked


@pytest.mark.parametrize("preset", ARCHES)
def test_copies_pass_the_registers_by_where_the_chip_can(preset: str) -> None:
    for one in programs(preset):
        texts = kernel_texts(one.source)
        assert len(texts) == len(one.kernels)
        assert all(("cp_async" in text) == (preset != "t4") for text in texts)
        if preset != "t4" and one.work.weights != "direct":
            # Rows of both operands lie at multiples of 16 bytes: no copy is shorter.
            assert all("shared_global_16" in text and "shared_global_4" not in text for text in texts)


GOLDEN_WORK = Dense(T=Dim(1, 128), N=100, K=200, bias=True, activation="relu")
"""Nothing is a multiple of the tile: rows, columns and the reduction axis are padded."""


@pytest.mark.parametrize(
    ("name", "key", "dtype"),
    [
        ("cuda_fma", "32x64x16.t8x16.s3", "float32"),
        ("cuda_mma", "32x64x32.w1x2.s3", "float16"),
        ("cuda_wgmma", "64x32x64.g1x1.s3", "bfloat16"),
    ],
)
def test_source_of_known_micro_kernels(name: str, key: str, dtype: str, golden: Golden) -> None:
    one = program(typed(GOLDEN_WORK, dtype), Hardware.preset("h100"), [Scheme.from_key(key)])
    golden(f"{name}.txt", one.text(0))


def test_the_same_micro_kernel_is_the_same_source() -> None:
    kernels = [Scheme.from_key("32x64x16.t8x16.s3"), Scheme.from_key("32x64x16.t8x16x2.s2.even")]
    sources = [program(GOLDEN_WORK, Hardware.preset("a100"), kernels).source for _ in range(2)]
    assert sources[0] == sources[1]
