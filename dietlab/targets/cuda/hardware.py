"""GPUs: detection by NVIDIA's driver, whose clocks tell the peaks."""

from __future__ import annotations

from dietlab.hardware import GpuLimits, Hardware
from dietlab.hardware.detect_gpu import detect_gpu
from dietlab.hardware.knob import SIZES, Knob, some_cores

LIMITS = GpuLimits
KNOBS = (
    Knob("threads_per_block", "threads per block", SIZES),
    Knob("registers_per_thread", "registers per thread", SIZES),
    Knob("registers_per_block", "registers per block", SIZES),
    Knob("smem_per_block_bytes", "shared memory per block", SIZES),
    Knob("cores", "multiprocessors", some_cores),
)


def detect(*, measure: bool, device: int) -> Hardware:
    """Returns one of this machine's GPUs; nothing is measured."""
    return detect_gpu(device)


def measured(hardware: Hardware) -> Hardware:
    """Returns the GPU as it is: its peaks follow from its clocks."""
    return hardware
