"""The assembly that LLVM makes of one scheme, and counts of its inner loops' instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dietlab.base.errors import BuildError
from dietlab.lower import compiler
from dietlab.lower.contraction import Sizes
from dietlab.machine import Hardware
from dietlab.problem import Workload
from dietlab.scheme import Leaf
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.lowering import target_of

LABEL = re.compile(r"^([.\w$]+):")
JUMP = re.compile(r"^\s*j[a-z]+\s+([.\w$]+)\s*$")
VECTOR = re.compile(r"%[xyz]mm(\d+)")
MULTIPLY = re.compile(r"^\s*(vfn?m(add|sub)\w*|vdp\w*|vpdp\w*|tdp\w*|vmulps|vmulpd)\s")
DIVIDE = re.compile(r"^\s*vdiv")
STACK = re.compile(r"\(%rsp[,)]")


@dataclass(frozen=True)
class Assembly:
    """Counts of the machine code of a scheme.

    Args:
        loop: the instructions of the inner loop with most multiply-adds, in AT&T syntax.
        multiply_adds: the number of the loop's instructions that multiply.
        vector_registers: the number of distinct vector registers in the loop.
        loop_spills: the number of the loop's vector loads from the stack and stores to it.
        spills: the same in all functions of the library.
    """

    loop: tuple[str, ...]
    multiply_adds: int
    vector_registers: int
    loop_spills: int
    spills: int


def assembly_text(
    workload: Workload, hardware: Hardware, scheme: CpuScheme, only: Sizes | None = None
) -> str:
    """Returns the assembly that LLVM makes of a scheme for a processor, which need not be this one.

    Args:
        only: the extents that the program is for; few extents make it short (default: all).

    Raises:
        MissingDependencyError: if TVM's compiler is not installed.
        BuildError: if the program does not compile, or the processor lacks the unit.
    """
    # LLVM would end the process.
    if scheme.kernel.unit not in cpu_of(hardware).units(workload.dtype):
        units = ", ".join(cpu_of(hardware).units(workload.dtype)) or "none"
        rule = "the processor must have the scheme's instruction for multiply-adds"
        raise BuildError(rule, scheme.key, f"Those of {hardware.name} are {units}.")
    compiler.require_tools()
    from dietlab.targets.cpu.lowering.geometry import Geometry
    from dietlab.targets.cpu.lowering.library import library_module

    geometry = Geometry.of(workload, hardware, [scheme])
    module = library_module(geometry, [scheme], Leaf(0), only=None if only is None else [[only]])
    return str(compiler.compiled(module, target_of(hardware)).mod.inspect_source("asm"))


def assembly_of(workload: Workload, hardware: Hardware, scheme: CpuScheme) -> Assembly:
    """Returns the counts of one scheme's assembly for all extents; raises as :func:`assembly_text`."""
    return read_assembly(assembly_text(workload, hardware, scheme).splitlines())


def inner_loop(assembly: str, instruction: str) -> tuple[str, ...]:
    """Returns the shortest loop with an instruction that begins with ``instruction``."""
    lines = assembly.splitlines()
    loops = [_instructions(lines[first : last + 1]) for first, last in _loops(lines)]
    found = [loop for loop in loops if any(line.startswith(instruction) for line in loop)]
    if not found:
        raise BuildError(
            "a loop of the program must have the instruction",
            instruction,
            "Choose a scheme whose key names it.",
        )
    return min(found, key=len)


def read_assembly(lines: Sequence[str]) -> Assembly:
    """Returns the counts of assembly in AT&T syntax; the loop is empty if none multiplies. Loops that divide
    do not count: they compute activations."""
    loops = [_instructions(part) for part in _inner_loops(lines)]
    loops = [loop for loop in loops if not any(map(DIVIDE.match, loop))]
    loop = max(loops, key=_multiplies, default=())
    if not _multiplies(loop):
        loop = ()
    registers = {number for line in loop for number in VECTOR.findall(line)}
    return Assembly(loop, _multiplies(loop), len(registers), _spills(loop), _spills(_instructions(lines)))


def _loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the first and the last line number of each loop: a label, and a jump back to it."""
    at: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := LABEL.match(line):
            at[label[1]] = number
        elif (jump := JUMP.match(line)) and jump[1] in at:
            found.append((at[jump[1]], number))
    return found


def _inner_loops(lines: Sequence[str]) -> list[Sequence[str]]:
    """Returns the lines of loops with no other between their first and last line."""
    found = _loops(lines)
    return [
        lines[first : last + 1]
        for first, last in found
        if not any(first < other and end < last for other, end in found if (other, end) != (first, last))
    ]


def _instructions(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        line.strip().replace("\t", " ")
        for line in lines
        if line[:1].isspace() and line.strip()[:1] not in ".#"
    )


def _multiplies(lines: Iterable[str]) -> int:
    return sum(MULTIPLY.match(line) is not None for line in lines)


def _spills(lines: Iterable[str]) -> int:
    """Returns the number of instructions that move a vector to or from the stack."""
    return sum(bool(STACK.search(line) and VECTOR.search(line)) for line in lines)
