"""Code for a CPU: LLVM compiles it, and TVM's pool of threads runs it on several cores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import BuildError
from dietlab.lower import compiler
from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import Sizes
from dietlab.lower.decisions import Lowering
from dietlab.lower.runtime import RUNTIME_NAME, load_runtime, open_library
from dietlab.lower.target import MachineCode
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements, family
from dietlab.problem import Workload
from dietlab.scheme import Scheme, Tree
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.space import layout_limits
from dietlab.targets.cpu.units import UNITS

if TYPE_CHECKING:
    from dietlab.targets.cpu.lowering.geometry import Geometry

DECIDES = True
READ_AS = ("TensorIR", "assembly of the inner loop")

LAYOUTS = 32
"""The largest number of object files that stay in memory, some 10 KB each: a space has a layout for each
width of a tile."""

require_tools = compiler.require_tools


def target_of(hardware: Hardware) -> Any:
    """Returns TVM's target for one CPU."""
    return compiler.tvm_module().target.Target(
        {"kind": "llvm", "mcpu": cpu_of(hardware).llvm_cpu, "num-cores": hardware.cores}
    )


def compile_plans(
    workload: Workload,
    hardware: Hardware,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    path: Path,
    *,
    every_plan: bool,
    only: Sequence[Sequence[Sizes]] | None,
    lowering: Lowering,
) -> Artifact:
    """Compiles an operator of register tiles."""
    from dietlab.targets.cpu.lowering.geometry import Geometry
    from dietlab.targets.cpu.lowering.library import library_module

    for limit, scheme in product(layout_limits(workload), schemes):
        if limit.excess(scheme) > 0:
            raise BuildError(limit.reason, scheme.key, "Choose a scheme of dietlab.build_space().")
    geometry = Geometry.of(workload, hardware, schemes, lowering)
    module = library_module(geometry, schemes, tree, every_plan=every_plan, only=only)
    artifact = compile_packing(module, geometry, hardware, path)
    assert artifact.requires is not None
    used = artifact.requires.instructions.union(*(UNITS[s.kernel.unit].instructions for s in schemes))
    requires = replace(artifact.requires, instructions=used)
    return replace(artifact, packs=bool(workload.constants), requires=requires)


def compile_packing(module: Any, geometry: Geometry, hardware: Hardware, path: Path) -> Artifact:
    """Compiles the module of :func:`~dietlab.targets.cpu.lowering.library.library_module`, and links the
    functions that pack its weights."""
    packing = [_packing(geometry, hardware)] if geometry.weights == "packed" else []
    return compiler.compile_library(module, target_of(hardware), path, packing)


@lru_cache(LAYOUTS)
def _packing(geometry: Geometry, hardware: Hardware) -> bytes:
    """Returns the object file that packs weights. It is kept: compiling it takes a third of the time that a
    scheme's library takes."""
    from dietlab.targets.cpu.lowering.library import packing_module

    return compiler.object_of(packing_module(geometry), target_of(hardware))


def source_of(workload: Workload, hardware: Hardware, scheme: CpuScheme) -> str:
    """Returns the scheme's private functions as TensorIR."""
    from dietlab.targets.cpu.lowering.geometry import Geometry
    from dietlab.targets.cpu.lowering.library import function_of_tile

    return str(function_of_tile(scheme.kernel, Geometry.of(workload, hardware, [scheme]), "exact").script())


def machine_code(workload: Workload, hardware: Hardware, scheme: CpuScheme) -> MachineCode:
    """Returns the inner loop in AT&T syntax, and the vector registers and spills that LLVM chose."""
    compiler.require_tools()
    from dietlab.targets.cpu.lowering.assembly import assembly_of

    found, registers = assembly_of(workload, hardware, scheme), cpu_of(hardware).vector_registers
    share = 100 * found.multiply_adds / max(1, len(found.loop))
    return MachineCode(
        "\n".join(found.loop) or "No loop of its code multiplies.",
        {
            "vector registers of the loop": f"{found.vector_registers} of {registers}",
            "vectors to or from the stack in the loop": str(found.loop_spills),
            "the same in all functions": str(found.spills),
            "instructions of the loop": str(len(found.loop)),
            "of these multiply-adds": f"{found.multiply_adds} ({share:.0f} %)",
        },
    )


def runtimes(cores: int) -> tuple[str, ...]:
    """Returns the name of TVM's pool of threads; nothing for one core."""
    return (RUNTIME_NAME,) if cores > 1 else ()


def lacking(requires: Requirements | None, hardware: Mapping[str, Any], schemes: Sequence[str]) -> str:
    """Returns what the processor or the system lacks. Libraries of earlier versions have no ``requires``:
    their processor family determines what they need."""
    if requires is None:
        llvm_cpu = cpu_of(Hardware.from_json(hardware)).llvm_cpu
        known = family(llvm_cpu)
        if known is None:
            return f"a library for {llvm_cpu} that does not say which instruction sets it uses"
        units = {Scheme.from_key(key).kernel.unit for key in schemes}
        used = known.instructions.union(*(UNITS[unit].instructions for unit in units))
        requires = Requirements(known.machine, used)
    return requires.lacking()


def load(path: Path, cores: int) -> Any:
    """Returns the functions of a library. For several cores TVM's pool of threads must be in the process
    *before* the first call, which would otherwise jump to address zero."""
    if cores > 1:
        # TVM reads this when its pool starts; without it, it takes half of the processors on x86.
        os.environ.setdefault("TVM_NUM_THREADS", str(cores))
        load_runtime(path.parent)
    return open_library(path)


def operands(name: str, dtype: str) -> tuple[str, str]:
    """Returns two texts for messages: where operands lie, and how to make an array there."""
    return "on the CPU", f"np.array(x, np.{dtype}, order='C') makes such an array."
