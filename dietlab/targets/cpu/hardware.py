"""CPUs: detection and peaks."""

from __future__ import annotations

from collections.abc import Sequence

from dietlab.hardware import CpuLimits, Hardware
from dietlab.hardware.detect import detect_cpu, measure_peaks
from dietlab.hardware.knob import SIZES, Knob, some_cores, times


def _vectors(real: int) -> Sequence[int]:
    return (16, 32, 64)  # SSE or NEON, AVX, AVX-512: what a hardware description allows


LIMITS = CpuLimits
KNOBS = (
    Knob("vector_registers", "vector registers", times(1 / 4, 1 / 2, 1, 2)),
    Knob("vector_bytes", "vector width", _vectors),
    Knob("cores", "cores", some_cores),
    Knob("l1d_bytes", "L1 data cache", SIZES),
    Knob("l2_bytes", "L2 cache", SIZES),
)


def detect(*, measure: bool, device: int) -> Hardware:
    """Returns this machine's CPU; there is one only, whatever the device."""
    return detect_cpu(measure=measure)


measured = measure_peaks
