"""Code for a GPU: TVM writes CUDA C++, NVIDIA's compiler makes cubins of it, and the driver loads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dietlab.lower import compiler as tvm_compiler
from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import Sizes
from dietlab.lower.decisions import Lowering
from dietlab.lower.runtime import RUNTIME_NAME, open_library
from dietlab.lower.target import MachineCode
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements
from dietlab.problem import Workload
from dietlab.scheme import Leaf, Tree
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.lowering.nvcc import require_compiler
from dietlab.targets.cuda.machine import detect_gpus
from dietlab.targets.cuda.nvidia_packages import CUDA_RUNTIME_NAME, load_cuda_runtime

DECIDES = False
READ_AS = ("CUDA C++", "machine code")


def compile_plans(
    workload: Workload,
    hardware: Hardware,
    schemes: Sequence[CudaScheme],
    tree: Tree,
    path: Path,
    *,
    every_plan: bool,
    only: Sequence[Sequence[Sizes]] | None,
    lowering: Lowering,
) -> Artifact:
    """Compiles an operator of thread-block tiles. ``lowering`` is not used."""
    from dietlab.targets.cuda.lowering.compiler import compile_library
    from dietlab.targets.cuda.lowering.geometry import BlockGeometry
    from dietlab.targets.cuda.lowering.library import library_module

    geometry = BlockGeometry.of(workload, hardware)
    module = library_module(geometry, schemes, tree, every_plan=every_plan, only=only)
    return compile_library(module, hardware, path)


def source_of(workload: Workload, hardware: Hardware, scheme: CudaScheme) -> str:
    """Returns the scheme's kernel as CUDA C++."""
    from dietlab.targets.cuda.lowering.compiler import cuda_source, kernel_texts, lower
    from dietlab.targets.cuda.lowering.geometry import BlockGeometry
    from dietlab.targets.cuda.lowering.library import library_module

    module = library_module(BlockGeometry.of(workload, hardware), [scheme], Leaf(0))
    return kernel_texts(cuda_source(lower(module, hardware)))[0]


def machine_code(workload: Workload, hardware: Hardware, scheme: CudaScheme) -> MachineCode:
    """Returns the counts of instructions that ``cuobjdump`` shows, and the resources that the compiler
    reports."""
    require_compiler()
    from dietlab.targets.cuda.compiler_report import COLUMNS, MACHINE_CODE, frame_compiled

    row = frame_compiled(workload, hardware, [scheme], workers=1, machine_code=True).iloc[0]
    known = {str(name): str(value) for name, value in row.items() if str(value) not in ("", "None")}
    counted, used = ([name for name in names if name in known] for names in (MACHINE_CODE, COLUMNS))
    lines = [f"{name.replace('_', ' ')}: {known[name]}" for name in counted]
    return MachineCode("\n".join(lines), {name.replace("_", " "): known[name] for name in used})


def require_tools() -> str:
    """Checks for TVM's compiler, a linker and NVIDIA's compiler."""
    return f"{tvm_compiler.require_tools()} {require_compiler().version()}"


def runtimes(cores: int) -> tuple[str, ...]:
    """Returns TVM's runtime, and its part for the driver."""
    return (RUNTIME_NAME, CUDA_RUNTIME_NAME)


def lacking(requires: Requirements | None, hardware: Mapping[str, Any], schemes: Sequence[str]) -> str:
    """Returns in words what the host lacks, or that none of its GPUs runs the kernels. Empty if nothing is
    lacking, or if there is no GPU: the error is then left to :func:`load`."""
    if requires is None:
        requires = Requirements("x86_64", frozenset(), gpu_of(Hardware.from_json(hardware)).arch)
    if missing := requires.lacking():
        return missing
    found = detect_gpus()
    if not found or any(gpu_of(one).runs(requires.arch) for one in found):
        return ""
    here = ", ".join(f"{one.name} with {gpu_of(one).arch}" for one in found)
    return f"no GPU that runs code for {requires.arch}, but {here}"


def load(path: Path, cores: int) -> Any:
    """Returns the functions of a library, which call TVM's part for the driver."""
    load_cuda_runtime(path.parent)
    return open_library(path)


def operands(name: str, dtype: str) -> tuple[str, str]:
    """Returns two texts: the place where operands must lie, and the remedy if they lie elsewhere."""
    remedy = f"x.to('cuda', torch.{dtype}).contiguous() makes such a tensor."
    return f"on one GPU like {name}", remedy
