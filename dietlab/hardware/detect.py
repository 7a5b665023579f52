"""Reads what this machine's processor is; its speed is measured in a child process."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from dietlab.errors import HardwareError
from dietlab.hardware.cpu_limits import CpuLimits
from dietlab.hardware.description import Hardware

PROBE_SECONDS = 120.0
"""Seconds until the probe of peak and bandwidth is given up."""

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""The system call on x86-64 that asks for a part of the processor's state, what it asks, and for which part:
the tiles of AMX (Linux's documentation, "Using XSTATE features in user space applications")."""

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def detect_cpu(*, measure: bool) -> Hardware:
    """This machine's CPU, with every core this process may run on."""
    hardware = Hardware(
        name=_model_name(), source="detected", cores=len(os.sched_getaffinity(0)), limits=_limits()
    )
    return measure_peaks(hardware) if measure else hardware


def measure_peaks(hardware: Hardware) -> Hardware:
    """Measures the FMA peak and bandwidths for ``hardware.cores`` cores; returns the CPU with them.

    Generated loops run in a child process (``python -m dietlab.lower.probe``): a fault in
    them cannot hurt the caller, and this layer needs no compiler.

    Raises:
        HardwareError: if the probe fails.
    """
    if importlib.util.find_spec("tvm") is None:
        raise HardwareError(
            "measuring a CPU needs apache-tvm",
            "not installed",
            "Install it, or use Hardware.detect(measure=False) or a preset.",
        )
    command = [sys.executable, "-m", "dietlab.lower.probe"]
    probe = subprocess.run(
        command,
        input=json.dumps(hardware.to_json()),
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        check=False,
        env={**os.environ, "TVM_NUM_THREADS": str(hardware.cores)},
    )
    if probe.returncode != 0:
        raise HardwareError("the speed probe runs", probe.stderr.strip()[-400:])
    return replace(hardware, source="detected and measured", **json.loads(probe.stdout))


def _model_name() -> str:
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def processor_vendor() -> str:
    """Returns the maker that this processor names on Linux, such as ``"AuthenticAMD"``; else ``""``."""
    try:
        named = [line for line in _cpuinfo() if line.startswith("vendor_id")]
    except HardwareError:
        return ""
    return named[0].partition(":")[2].strip() if named else ""


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise HardwareError(
            "detection reads /proc/cpuinfo (Linux)",
            platform.system(),
            "Describe the machine with Hardware(...) or use a preset.",
        ) from None


def _flags() -> frozenset[str]:
    for line in _cpuinfo():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _limits() -> CpuLimits:
    llvm_cpu, vector_bytes, registers = _vector_unit(platform.machine(), _flags())
    caches = _caches()
    return CpuLimits(
        llvm_cpu=llvm_cpu,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        l1d_bytes=caches.get(1, 32 << 10),
        l2_bytes=caches.get(2, 256 << 10),
        l3_bytes=caches.get(3, 0),
    )


def _vector_unit(machine: str, flags: frozenset[str]) -> tuple[str, int, int]:
    """Returns LLVM's name of the processor family, bytes of a vector, number of vector registers."""
    if machine == "aarch64" and "asimd" in flags:
        return "generic", 16, 32
    if "avx512f" in flags and "avx512vl" in flags:
        if "sse4a" in flags:  # AMD only
            return "znver4", 64, 32
        if {"avx512_fp16", "amx_int8", "amx_bf16"} <= flags and amx_permitted():
            return "sapphirerapids", 64, 32
        if "avx512_bf16" in flags:
            return "cooperlake", 64, 32
        return ("cascadelake" if "avx512_vnni" in flags else "skylake-avx512"), 64, 32
    if "avx2" in flags and "fma" in flags:
        return ("znver3" if "sse4a" in flags else "haswell"), 32, 16
    raise HardwareError(
        "the CPU has AVX2 with FMA, AVX-512 or NEON", machine, "Use a preset to explore a space."
    )


def amx_permitted() -> bool:
    """Returns whether the system lets this process use AMX's tiles; asks it to (Linux 5.16 on)."""
    try:
        arch_prctl = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return bool(arch_prctl(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0)


def _caches() -> dict[int, int]:
    """Returns the bytes of the data or unified cache of each level that core 0 sees."""
    caches: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "type").read_text().strip() == "Instruction":
            continue
        size = (index / "size").read_text().strip()
        caches[int((index / "level").read_text())] = int(size[:-1]) * _SIZES[size[-1]]
    return caches
