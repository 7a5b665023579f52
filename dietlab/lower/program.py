"""Plans and the tree over them become one shared library, for whatever processor they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from dietlab.errors import BuildError
from dietlab.hardware import Hardware
from dietlab.lower.artifact import Artifact
from dietlab.space import CpuMicroKernel, CudaMicroKernel, Leaf, MicroKernel, Tree, layout_limits
from dietlab.workloads import Workload


def compile_plans(
    workload: Workload,
    hardware: Hardware,
    plans: Sequence[MicroKernel],
    tree: Tree,
    path: Path,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
) -> Artifact:
    """Compiles an operator that covers each shape by the plan that ``tree`` names.

    Args:
        plans: the micro-kernels that lead the plans, by number; all of the processor's kind.
        every_plan: whether any plan can be run on any shape, for comparing plans.
        only: for each plan the row counts that it will be called with (default: any).

    Raises:
        BuildError: if the program does not compile, or a plan cannot be of this operator on this processor.
    """
    own, compile_own = {"cuda": (CudaMicroKernel, _cuda)}.get(hardware.kind, (CpuMicroKernel, _cpu))
    strangers = [plan.key for plan in plans if not isinstance(plan, own)]
    if strangers:
        raise BuildError(f"plans are made for {hardware.name}, a {hardware.kind} processor", strangers[0])
    return compile_own(workload, hardware, plans, tree, path, every_plan, only)


def source_of(workload: Workload, hardware: Hardware, kernel: MicroKernel) -> str:
    """Returns the program of one micro-kernel, to read: CUDA C++ for a GPU, its private functions as TensorIR
    for a CPU. Needs TVM, but neither the processor nor its compiler.

    Raises:
        BuildError: if the micro-kernel is of another processor.
    """
    if hardware.kind == "cuda" and isinstance(kernel, CudaMicroKernel):
        from dietlab.lower.cuda.compiler import cuda_source, kernel_texts, lower
        from dietlab.lower.cuda.geometry import BlockGeometry
        from dietlab.lower.cuda.library import library_module

        module = library_module(BlockGeometry.of(workload, hardware), [kernel], Leaf(0))
        return kernel_texts(cuda_source(lower(module, hardware)))[0]
    if hardware.kind == "cpu" and isinstance(kernel, CpuMicroKernel):
        from dietlab.lower.cpu.geometry import Geometry
        from dietlab.lower.cpu.micro_kernel import tile_function

        return str(tile_function(kernel, Geometry.of(workload, hardware, [kernel]), "exact").script())
    raise BuildError(f"a micro-kernel is made for {hardware.name}, a {hardware.kind} processor", kernel.key)


def _cpu(
    workload: Workload,
    hardware: Hardware,
    plans: Any,
    tree: Tree,
    path: Path,
    every_plan: bool,
    only: Sequence[Sequence[int]] | None,
) -> Artifact:
    from dietlab.lower.compiler import compile_library
    from dietlab.lower.cpu.geometry import Geometry
    from dietlab.lower.cpu.library import library_module

    for limit, plan in product(layout_limits(workload), plans):
        if limit.excess(plan) > 0:
            raise BuildError(limit.reason, plan.key, "dietlab.build_space() makes only such.")
    geometry = Geometry.of(workload, hardware, plans)
    module = library_module(geometry, plans, tree, every_plan=every_plan, only=only)
    artifact = compile_library(module, hardware, path)
    return replace(artifact, packed_shape=geometry.packed_shape if workload.constants else None)


def _cuda(
    workload: Workload,
    hardware: Hardware,
    plans: Any,
    tree: Tree,
    path: Path,
    every_plan: bool,
    only: Sequence[Sequence[int]] | None,
) -> Artifact:
    from dietlab.lower.cuda.compiler import compile_library
    from dietlab.lower.cuda.geometry import BlockGeometry
    from dietlab.lower.cuda.library import library_module

    geometry = BlockGeometry.of(workload, hardware)
    module = library_module(geometry, plans, tree, every_plan=every_plan, only=only)
    return compile_library(module, hardware, path)
