"""The instructions of CPUs that multiply and add, each a unit that micro-kernels are written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dietlab.machine.instruction_sets import families_with

CpuUnit = Literal["fma", "maddwd", "vnni", "amxint8", "bf16fma", "bf16dot", "amxbf16"]

X86, AVX512_VNNI, AVX512_BF16, AMX = map(families_with, ("avx2", "avx512_vnni", "avx512_bf16", "amx_tile"))
"""LLVM's names of the processor families that have each of these instruction sets."""

WORD_BYTES = 4
"""The size of a vector's lane, in bytes. A lane holds a float32, a sum, or several operands of less than 32
bits."""

LINE_BYTES = 64
"""The size of a cache line, in bytes."""

MADE_UNSIGNED = 128
"""The number that is added to each input of a unit that takes unsigned inputs."""


@dataclass(frozen=True)
class UnitFacts:
    """The operands of a unit, and how they lie. A *step* of the reduction is one 32-bit word of a
    vector of weights.

    Args:
        per_step: the number of elements of the reduction in one step.
        staged: the type of the input's copy that is made before the loops; empty if the input is read as it
            is.
        halves: the number of instructions that one step takes; each instruction reads a half of the step's
            weights.
        temporaries: the number of vector registers in addition to accumulators and weights.
        rate: the number of operations in the time of one float32 operation, with vectors of the same width.
        processors: LLVM's names of the processors that have the unit; empty for any.
        corrects: whether the packed weights' first sums are subtracted: the unit takes unsigned inputs.
        tile_rows: the largest number of rows of the input that one instruction multiplies.
        tile_steps: the number of steps of the reduction that one instruction takes.
        instructions: the instruction sets, by Linux's names, that LLVM uses for this unit only.
    """

    dtype: str
    per_step: int
    staged: str
    halves: int
    temporaries: int
    rate: float
    processors: tuple[str, ...] = ()
    corrects: bool = False
    tile_rows: int = 1
    tile_steps: int = 1
    instructions: frozenset[str] = frozenset()

    @property
    def matrix(self) -> bool:
        """True if an instruction multiplies several rows by several vectors, held in tile registers."""
        return self.tile_rows > 1

    @property
    def staged_words(self) -> int:
        """The number of 32-bit words of the copied input in one step; 0 if it is read as it is."""
        return self.per_step * np.dtype(self.staged).itemsize // WORD_BYTES if self.staged else 0

    @property
    def layout(self) -> tuple[int, int]:
        """The facts that the packed weights depend on."""
        return self.per_step, self.halves


def _matrix(dtype: str, per_step: int, rate: float, instructions: str) -> UnitFacts:
    """Returns one of AMX's units."""
    used = frozenset({"amx_tile", instructions})
    return UnitFacts(dtype, per_step, "", 1, 1, rate, AMX, tile_rows=16, tile_steps=16, instructions=used)


UNITS: Mapping[CpuUnit, UnitFacts] = {
    "fma": UnitFacts("float32", 1, "", 1, 1, 1.0),
    "maddwd": UnitFacts("int8", 4, "int16", 2, 2, 2.0, X86),
    "vnni": UnitFacts("int8", 4, "int8", 1, 1, 4.0, AVX512_VNNI, corrects=True),
    "amxint8": _matrix("int8", 4, 32.0, "amx_int8"),
    "bf16fma": UnitFacts("bfloat16", 2, "float32", 1, 2, 1.0),
    "bf16dot": UnitFacts("bfloat16", 2, "uint16", 1, 1, 2.0, AVX512_BF16),
    "amxbf16": _matrix("bfloat16", 2, 16.0, "amx_bf16"),
}
"""Units by name. Rates are bounds that follow from the instructions and were not measured. They assume that a
processor begins as many of each instruction in a cycle as of ``vfmadd``: ``vpmaddwd`` adds two products to
each 32-bit lane, ``vpdpbusd`` four, ``vdpbf16ps`` two (Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2). In a cycle AMX multiplies a row of 16 words by 16 x 16 words, and ``vfmadd`` two vectors of
16 (Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter on AMX). ``bf16fma`` widens
bfloat16 to float32, whose rate bounds it."""


def units_of(llvm_cpu: str, dtype: str) -> tuple[CpuUnit, ...]:
    """Returns the units of a processor that multiply operands of a type, the fastest first; empty if there is
    none."""
    found = [
        (-facts.rate, unit)
        for unit, facts in UNITS.items()
        if facts.dtype == dtype and (not facts.processors or llvm_cpu in facts.processors)
    ]
    return tuple(unit for _, unit in sorted(found))
