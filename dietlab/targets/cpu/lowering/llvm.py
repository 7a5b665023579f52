"""LLVM's description of a CPU, which TVM compiles for."""

from __future__ import annotations

from typing import Any

from dietlab.lower.compiler import tvm_module
from dietlab.machine import Hardware
from dietlab.targets.cpu.limits import cpu_of


def target_of(hardware: Hardware) -> Any:
    """Returns TVM's target for one CPU."""
    return tvm_module().target.Target(
        {"kind": "llvm", "mcpu": cpu_of(hardware).llvm_cpu, "num-cores": hardware.cores}
    )
