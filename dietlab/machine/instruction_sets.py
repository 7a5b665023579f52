"""The instruction sets that compiled code uses, by Linux's names, and whether this machine has them."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dietlab.machine.system import amx_permitted, flags

LINUX_NAMES: Mapping[str, str] = {
    **{name: name for name in ("avx", "avx2", "bmi2", "f16c", "fma", "fma4", "gfni", "movbe", "popcnt")},
    **{name: name for name in ("sse4a", "ssse3", "tbm", "xop")},
    **{f"avx512{name}": f"avx512{name}" for name in ("bw", "cd", "dq", "f", "ifma", "vbmi", "vl")},
    **{f"avx512{name}": f"avx512_{name}" for name in ("bf16", "bitalg", "fp16", "vbmi2", "vnni")},
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni",
    "avxvnniint16": "avx_vnni_int16",
    "avxvnniint8": "avx_vnni_int8",
    "bmi": "bmi1",
    "egpr": "apx",
    "fp-armv8": "fp",
    "lzcnt": "abm",
    "neon": "asimd",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
}
"""Linux's name of each instruction set that LLVM uses by itself, by LLVM's name. Sets that every 64-bit
processor has are left out, and so are sets used only by the system or through intrinsics. (AMX is used
through intrinsics: :attr:`~dietlab.targets.cpu.units.UnitFacts.instructions` names it.)"""

X86_WIDE = ("avx", "sse")
"""Prefixes of x86's vector instruction sets. A set that :data:`LINUX_NAMES` lacks keeps LLVM's name; code
that uses it is refused unless Linux lists this name."""

AMX = "amx_"
"""Prefix of instruction sets that the system must also permit to a process."""

_SSE = frozenset({"pni", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_AVX2 = _SSE | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_AVX512 = _AVX2 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_VNNI = _AVX512 | {"avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_WIDEST = _BF16 | {"avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "gfni"}


@dataclass(frozen=True)
class Family:
    """Processors for which the same code is compiled.

    Args:
        llvm_cpu: LLVM's name of the family.
        machine: the architecture, as ``uname -m`` prints it.
        vector_bytes: the size of a vector register, in bytes.
        vector_registers: the number of vector registers.
        instructions: the instruction sets that LLVM may use, by Linux's names.
        matrix: the instruction sets that the family's matrix units use.
    """

    llvm_cpu: str
    machine: str
    vector_bytes: int
    vector_registers: int
    instructions: frozenset[str]
    matrix: frozenset[str] = frozenset()


FAMILIES = (
    Family("znver4", "x86_64", 64, 32, _WIDEST | {"sse4a"}),
    Family(
        "sapphirerapids",
        "x86_64",
        64,
        32,
        _WIDEST | {"avx512_fp16", "avx_vnni"},
        frozenset({"amx_bf16", "amx_int8", "amx_tile"}),
    ),
    Family("cooperlake", "x86_64", 64, 32, _BF16),
    Family("cascadelake", "x86_64", 64, 32, _VNNI),
    Family("skylake-avx512", "x86_64", 64, 32, _AVX512),
    Family("znver3", "x86_64", 32, 16, _AVX2 | {"sse4a"}),
    Family("haswell", "x86_64", 32, 16, _AVX2),
    Family("generic", "aarch64", 16, 32, frozenset({"asimd", "fp"})),
)
"""The families that detection knows, the fastest first: a processor belongs to the first family whose
instruction sets it has."""


@dataclass(frozen=True)
class Requirements:
    """Requirements of compiled code on the machine that runs it.

    Args:
        machine: the architecture, as ``uname -m`` prints it.
        instructions: the instruction sets that it may use, by Linux's names.
        arch: the architecture of a GPU's code, such as ``"sm_90a"``; empty for a CPU's.
    """

    machine: str
    instructions: frozenset[str]
    arch: str = ""

    def lacking(self) -> str:
        """Returns in words what prevents the code from running on this CPU: something that the machine lacks,
        or that its system does not permit to this process. Empty if nothing does."""
        if platform.machine() != self.machine:
            return f"a processor of {platform.machine()}, not of {self.machine}"
        missing = sorted(self.instructions - flags())
        if missing:
            return f"a processor, or a system, without {', '.join(missing)}"
        if any(name.startswith(AMX) for name in self.instructions) and not amx_permitted():
            return "a system that does not let this process use AMX's registers"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Returns the requirements as a JSON value."""
        return {"machine": self.machine, "instructions": sorted(self.instructions), "arch": self.arch}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Requirements:
        """Returns the requirements of a JSON object made by ``to_json``.

        Raises:
            LookupError, TypeError: if a field is missing or of another type.
        """
        machine, instructions, arch = value["machine"], value["instructions"], value["arch"]
        if not all(isinstance(text, str) for text in (machine, arch, *instructions)):
            raise TypeError("machine, instructions and arch are texts")
        if isinstance(instructions, str):
            raise TypeError("instructions are a list")
        return cls(machine, frozenset(instructions), arch)


def used(llvm_features: Iterable[str]) -> frozenset[str]:
    """Returns the instruction sets, by Linux's names, that LLVM uses by itself for a processor with these
    features."""
    known = {LINUX_NAMES.get(name, name) for name in llvm_features if name in LINUX_NAMES or _wide(name)}
    return frozenset(known - {"sse", "sse2"})


def _wide(feature: str) -> bool:
    return feature.startswith(X86_WIDE)


def families_with(instructions: str) -> tuple[str, ...]:
    """Returns LLVM's names of the processor families that have an instruction set, such as ``"avx2"``."""
    return tuple(f.llvm_cpu for f in FAMILIES if instructions in f.instructions | f.matrix)


def family(llvm_cpu: str) -> Family | None:
    """Returns the family with this LLVM name; None if detection does not know it."""
    return next((found for found in FAMILIES if found.llvm_cpu == llvm_cpu), None)
