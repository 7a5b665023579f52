"""The assembly of one scheme, to read: which instructions its inner loop has, on processors that are not here
as well."""

from __future__ import annotations

import re
from typing import Any

from dietlab.errors import BuildError
from dietlab.hardware import Hardware
from dietlab.lower.compiler import NARROWING, last_line, target_of, tvm_module
from dietlab.lower.contraction import Sizes
from dietlab.lower.cpu.geometry import Geometry
from dietlab.lower.cpu.library import library_module
from dietlab.plans import Leaf
from dietlab.space import CpuScheme
from dietlab.workloads import Workload

LEFT_OUT = (".Ltmp", ".p2align")
"""How lines begin that are no instructions and no loop's label: those for debuggers, and alignment."""


def assembly_of(workload: Workload, hardware: Hardware, scheme: CpuScheme, only: Sizes) -> str:
    """Returns the assembly that LLVM makes of a scheme for a processor, which need not be this one.

    Args:
        only: extents of the dynamic dimensions that the program is for, so that it is short.

    Raises:
        MissingDependencyError: if TVM is not installed.
        BuildError: if the processor has no such unit, at which LLVM would end the process, or if the program
            does not compile.
    """
    if scheme.kernel.unit not in hardware.cpu.units(workload.dtype):
        units = ", ".join(hardware.cpu.units(workload.dtype)) or "none"
        raise BuildError(
            "the processor has the unit of the scheme", scheme.key, f"Units of {hardware.name}: {units}."
        )
    tvm = tvm_module()
    module = library_module(Geometry.of(workload, hardware, [scheme]), [scheme], Leaf(0), only=[[only]])
    try:
        with tvm.transform.PassContext(disabled_pass=[NARROWING]):
            built: Any = tvm.compile(module, target=target_of(hardware), tir_pipeline="tirx")
    except Exception as error:  # TVM raises several exception types
        raise BuildError("the program compiles", last_line(error)) from error
    return str(built.mod.inspect_source("asm"))


def inner_loop(assembly: str, instruction: str) -> tuple[str, ...]:
    """Returns the shortest loop that has an instruction, from its label to the jump back, without directives
    and the labels that only debuggers read.

    Raises:
        BuildError: if no loop has it.
    """
    stripped = (line.strip() for line in assembly.splitlines())
    lines = [line for line in stripped if not line.startswith(LEFT_OUT)]
    places = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for number, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.\w+)$", line)
        if jump and places.get(jump[1], number) < number:
            loops.append(tuple(lines[places[jump[1]] : number + 1]))
    found = [loop for loop in loops if any(line.startswith(instruction) for line in loop)]
    if not found:
        raise BuildError(
            "a loop of the program has the instruction", instruction, "Another unit's scheme has it."
        )
    return min(found, key=len)
