"""The limits of a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware
from dietlab.machine.limits import Limits, require_numbers, require_positive
from dietlab.targets.cpu.units import UNITS, CpuUnit, units_of

VECTOR_BYTES = (16, 32, 64)
"""The sizes of a vector that a description allows, in bytes: SSE or NEON, AVX, AVX-512."""


@dataclass(frozen=True)
class CpuLimits(Limits):
    """The limits of a CPU that bound a micro-kernel; caches are per core except the last level.

    Args:
        llvm_cpu: the processor's name for LLVM, such as ``"znver3"``.
        vector_bytes: the size of a vector register.
        vector_registers: the number of vector registers.
        l1d_bytes, l2_bytes: the sizes of one core's first-level data cache and second-level cache.
        l3_bytes: the size of the last-level cache that cores share; 0 if there is none.
    """

    kind = "cpu"
    device = "CPU"

    llvm_cpu: str
    vector_bytes: int
    vector_registers: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int

    def __post_init__(self) -> None:
        require_positive(self, "vector_registers", "l1d_bytes", "l2_bytes")
        require_numbers(self, "l3_bytes")
        if self.vector_bytes not in VECTOR_BYTES:
            raise HardwareError("vectors must have 16, 32 or 64 bytes", self.vector_bytes)

    @property
    def lanes(self) -> int:
        """The number of float32 values in one vector register."""
        return self.vector_bytes // 4

    @property
    def last_level_bytes(self) -> int:
        """The size of the largest cache in bytes: L3, or L2 where there is none."""
        return self.l3_bytes or self.l2_bytes

    def peak_for(self, dtype: str, float32: float | None) -> float | None:
        """Returns the peak of a core for a type, by the rate of its fastest instruction for multiply-adds."""
        units = self.units(dtype)
        return float32 * UNITS[units[0]].rate if float32 and units else None

    def units(self, dtype: str) -> tuple[CpuUnit, ...]:
        """Returns the instructions for multiply-adds of a type, the fastest first; empty if there is none."""
        return units_of(self.llvm_cpu, dtype)

    @property
    def coherent_code(self) -> bool:
        """True if the instruction cache sees what is written as data: on x86, not on ARM (``generic``)."""
        return self.llvm_cpu != "generic"


def cpu_of(hardware: Hardware) -> CpuLimits:
    """Returns the limits of a CPU; raises :class:`HardwareError` for another processor."""
    return hardware.limits_as(
        CpuLimits, "Use Hardware.detect() (--target cpu) or a preset like haswell-1core (--hardware)."
    )
