"""The assembly of one scheme: its inner loop, found by an instruction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dietlab.base.errors import BuildError
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim
from dietlab.scheme import Scheme
from dietlab.targets.cpu.lowering.assembly import assembly_text, inner_loop, read_assembly

TEXT = """
outer:
.Louter:
    movq    %rax, %rbx
.Linner:
.Ltmp1:
    vpdpbusd    %zmm1, %zmm2, %zmm0
    jne .Linner
    vpdpbusd    %zmm1, %zmm2, %zmm3
    jne .Louter
    jmp .Lend
.Lend:
    ret
"""


def test_inner_loop_is_the_shortest_with_the_instruction() -> None:
    loop = inner_loop(TEXT, "vpdpbusd")
    assert loop == ("vpdpbusd    %zmm1, %zmm2, %zmm0", "jne .Linner")
    assert inner_loop(TEXT, "movq")[-1] == "jne .Louter"


@pytest.mark.parametrize("instruction", ["ret", "jmp", "vfmadd"])
def test_code_outside_of_loops_is_no_loop(instruction: str) -> None:
    with pytest.raises(BuildError, match=f"must have the instruction; got {instruction}"):
        inner_loop(TEXT, instruction)


def test_code_is_made_for_processors_that_are_not_here() -> None:
    described = Hardware.preset("zen4-1core")
    work, scheme = Dense(Dim(1, 8), 64, 256, dtype="int8"), Scheme.from_key("2x32.u1.ws.p0.vnni.even")
    for llvm_cpu in ("znver4", "cascadelake"):
        hardware = replace(described, limits=replace(described.limits, llvm_cpu=llvm_cpu))
        loop = inner_loop(assembly_text(work, hardware, scheme, {"T": 2}), "vpdpbusd")
        products = sum(line.startswith("vpdpbusd") for line in loop)
        assert products and products % 4 == 0  # LLVM may repeat a short loop's body


def test_a_unit_that_the_processor_lacks_is_refused() -> None:
    known = Hardware.preset("haswell-1core")
    work, scheme = Dense(Dim(1, 8), 64, 256, dtype="int8"), Scheme.from_key("2x16.u1.ws.p0.vnni.even")
    with pytest.raises(
        BuildError,
        match=r"must have the scheme's instruction for multiply-adds; got 2x16.*Those of .* are .*maddwd",
    ):
        assembly_text(work, known, scheme, {"T": 2})


@pytest.mark.parametrize("key", ["9x48.u2.ws.p64.even", "8x48.u2.ws.p64.even"])
@pytest.mark.parametrize("epilogue", [{}, {"bias": True}, {"bias": True, "activation": "gelu_erf"}])
def test_a_library_for_every_layer_keeps_its_sums_in_registers(key: str, epilogue: dict[str, Any]) -> None:
    """With a bias the prefetches had addresses of their own, for which scalar registers lacked: of 137
    instructions for 54 multiply-adds 44 moved sums to the stack and back. (9 x 48 leaves one of 32
    registers.)"""
    known, scheme = Hardware.preset("zen4-1core"), Scheme.from_key(key)
    work = Dense(Dim(1, 512), Dim(64, 4096), Dim(64, 4096), **epilogue)
    calls = {"T": 4 * scheme.rows, "N": 768, "K": 768}
    found = read_assembly(assembly_text(work, known, scheme, calls).splitlines())
    assert found.multiply_adds >= scheme.rows * scheme.cols // 16 * scheme.kernel.unroll
    assert found.loop_spills <= 6
