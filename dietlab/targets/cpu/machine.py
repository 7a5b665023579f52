"""This machine's CPU: its description, and its speed, which a child process measures."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import FAMILIES
from dietlab.machine.roofline import Ceiling
from dietlab.machine.system import amx_permitted, cpuinfo, flags, usable_cores
from dietlab.machine.target import SIZES, Knob, some_cores, times
from dietlab.measure.timing.process import STARTER
from dietlab.targets.cpu.limits import VECTOR_BYTES, CpuLimits, cpu_of

PROBE_SECONDS = 120.0
"""The longest that the probe of peak and bandwidth may take, in seconds."""

LOADED_FOR_ONE = 1.0
"""The largest number of vectors that a core loads from L1 in the time of a multiply-add: x86 cores since
Haswell start two loads and two multiply-adds in a cycle (Intel 64 and IA-32 Architectures Optimization
Reference Manual)."""

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

LIMITS = CpuLimits
KNOBS = (
    Knob("vector_registers", "vector registers", times(1 / 4, 1 / 2, 1, 2)),
    Knob("vector_bytes", "vector width", lambda real: VECTOR_BYTES),
    Knob("cores", "cores", some_cores),
    Knob("l1d_bytes", "L1 data cache", SIZES),
    Knob("l2_bytes", "L2 cache", SIZES),
)


def ceilings(hardware: Hardware) -> list[Ceiling]:
    """Returns the measured bandwidth of the last-level cache, and the bandwidth of L1 that follows from the
    peak. L2 is not measured."""
    found = []
    if hardware.l3_gbps is not None:
        found.append(Ceiling("L3", hardware.l3_gbps * hardware.cores, "measured: one core, times the cores"))
    # A multiply-add of one float32 lane is two operations, and its load four bytes.
    loaded = LOADED_FOR_ONE * 4 / 2 * (hardware.peak_gflops or 0.0) * hardware.cores
    bytes_loaded = cpu_of(hardware).vector_bytes
    return [*found, Ceiling("L1", loaded, f"a load of {bytes_loaded} bytes for each multiply-add")]


def detect(*, measure: bool, device: int = 0) -> Hardware:
    """Returns this machine's CPU with every core that this process may use; ``device`` does not matter."""
    llvm_cpu, vector_bytes, registers = _vector_unit(platform.machine(), flags())
    caches = _caches()
    l1d_bytes, l2_bytes, l3_bytes = caches.get(1, 32 << 10), caches.get(2, 256 << 10), caches.get(3, 0)
    limits = CpuLimits(llvm_cpu, vector_bytes, registers, l1d_bytes, l2_bytes, l3_bytes)
    name = _named("model name") or platform.processor() or platform.machine()
    hardware = Hardware(name=name, source="detected", cores=usable_cores(), limits=limits)
    return measured(hardware) if measure else hardware


def measured(hardware: Hardware) -> Hardware:
    """Measures the FMA peak and bandwidths for ``hardware.cores`` cores; returns the CPU with them.

    Generated loops run in a child process, so that a fault in them cannot hurt the caller.

    Raises:
        HardwareError: if the probe fails.
    """
    if importlib.util.find_spec("tvm") is None:
        raise HardwareError(
            "measuring a CPU needs apache-tvm",
            "not installed",
            "Install it, or use Hardware.detect(measure=False) or a preset (--hardware).",
        )
    probe = subprocess.run(
        [sys.executable, "-m", STARTER, "dietlab.targets.cpu.probe"],
        input=json.dumps(hardware.to_json()),
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        check=False,
        env={**os.environ, "TVM_NUM_THREADS": str(hardware.cores)},
    )
    if probe.returncode != 0:
        said = [line.strip() for line in probe.stderr.splitlines() if line.strip()]
        raise HardwareError(
            "the speed probe must run",
            said[-1] if said else f"exit status {probe.returncode}",
            "It needs 1 GiB of memory; --hardware FILE needs no probe.",
        )
    return replace(hardware, source="detected and measured", **json.loads(probe.stdout))


def _named(field: str) -> str:
    """Returns a field of the first processor in ``/proc/cpuinfo``; ``""`` if it has no such field."""
    return next((line.partition(":")[2].strip() for line in cpuinfo() if line.startswith(field)), "")


def processor_vendor() -> str:
    """Returns the processor's maker by Linux's name, such as ``"AuthenticAMD"``; ``""`` elsewhere."""
    try:
        return _named("vendor_id")
    except HardwareError:
        return ""


def _vector_unit(machine: str, present: frozenset[str]) -> tuple[str, int, int]:
    """Returns three values: LLVM's name of the processor family, the bytes of a vector, and the number of
    vector registers."""
    families = [family for family in FAMILIES if family.machine == machine]
    for family in families:
        if family.instructions | family.matrix <= present and (not family.matrix or amx_permitted()):
            return family.llvm_cpu, family.vector_bytes, family.vector_registers
    missing = sorted(families[-1].instructions - present) if families else []
    raise HardwareError(
        "the CPU must have AVX2 with FMA, AVX-512 or NEON",
        f"{machine} without {', '.join(missing)}" if missing else machine,
        "Use a preset to explore a space.",
    )


def _caches() -> dict[int, int]:
    """Returns the bytes of each level's data or unified cache, as core 0 sees it."""
    caches: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "type").read_text().strip() == "Instruction":
            continue
        size = (index / "size").read_text().strip()
        caches[int((index / "level").read_text())] = int(size[:-1]) * _SIZES[size[-1]]
    return caches
