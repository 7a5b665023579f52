"""Plans and the tree over them become one shared library, for whatever processor they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from dietlab.errors import BuildError
from dietlab.hardware import Hardware
from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import Sizes, sizes_of
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.plans import Leaf, Tree
from dietlab.shapes import Shape
from dietlab.space import CpuMicroKernel, CudaMicroKernel, Scheme, layout_limits
from dietlab.workloads import Workload


def compile_plans(
    workload: Workload,
    hardware: Hardware,
    schemes: Sequence[Scheme],
    tree: Tree,
    path: Path,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Shape]] | None = None,
    lowering: Lowering = DEFAULTS,
) -> Artifact:
    """Compiles an operator that covers each shape by the scheme that ``tree`` names.

    Args:
        schemes: by number; all of the processor's kind.
        every_plan: whether any scheme can be run on any shape, for comparing them.
        only: for each scheme the shapes that it will be called with (default: any).
        lowering: decisions that no scheme names; a GPU has none.

    Raises:
        BuildError: if the program does not compile, or a scheme cannot be of this operator on this processor.
    """
    compile_cpu = partial(_cpu, lowering)
    own, compile_own = {"cuda": (CudaMicroKernel, _cuda)}.get(hardware.kind, (CpuMicroKernel, compile_cpu))
    strangers = [scheme.key for scheme in schemes if not isinstance(scheme.kernel, own)]
    if strangers:
        raise BuildError(f"schemes are made for {hardware.name}, a {hardware.kind} processor", strangers[0])
    called = None if only is None else [[sizes_of(workload, s) for s in shapes] for shapes in only]
    return compile_own(workload, hardware, schemes, tree, path, every_plan, called)


def source_of(workload: Workload, hardware: Hardware, scheme: Scheme) -> str:
    """Returns the program of one scheme, to read: CUDA C++ for a GPU, its private functions as TensorIR
    for a CPU. Needs TVM, but neither the processor nor its compiler.

    Raises:
        BuildError: if the scheme is of another processor.
    """
    if hardware.kind == "cuda" and isinstance(scheme.kernel, CudaMicroKernel):
        from dietlab.lower.cuda.compiler import cuda_source, kernel_texts, lower
        from dietlab.lower.cuda.geometry import BlockGeometry
        from dietlab.lower.cuda.library import library_module

        module = library_module(BlockGeometry.of(workload, hardware), [scheme], Leaf(0))
        return kernel_texts(cuda_source(lower(module, hardware)))[0]
    if hardware.kind == "cpu" and isinstance(scheme.kernel, CpuMicroKernel):
        from dietlab.lower.cpu.geometry import Geometry
        from dietlab.lower.cpu.micro_kernel import tile_function

        return str(tile_function(scheme.kernel, Geometry.of(workload, hardware, [scheme]), "exact").script())
    raise BuildError(f"a scheme is made for {hardware.name}, a {hardware.kind} processor", scheme.key)


def _cpu(
    lowering: Lowering,
    workload: Workload,
    hardware: Hardware,
    schemes: Any,
    tree: Tree,
    path: Path,
    every_plan: bool,
    only: Sequence[Sequence[Sizes]] | None,
) -> Artifact:
    from dietlab.lower.compiler import compile_library
    from dietlab.lower.cpu.geometry import Geometry
    from dietlab.lower.cpu.library import library_module

    for limit, scheme in product(layout_limits(workload), schemes):
        if limit.excess(scheme) > 0:
            raise BuildError(limit.reason, scheme.key, "dietlab.build_space() makes only such.")
    geometry = Geometry.of(workload, hardware, schemes, lowering)
    module = library_module(geometry, schemes, tree, every_plan=every_plan, only=only)
    artifact = compile_library(module, hardware, path)
    return replace(artifact, packs=bool(workload.constants))


def _cuda(
    workload: Workload,
    hardware: Hardware,
    schemes: Any,
    tree: Tree,
    path: Path,
    every_plan: bool,
    only: Sequence[Sequence[Sizes]] | None,
) -> Artifact:
    from dietlab.lower.cuda.compiler import compile_library
    from dietlab.lower.cuda.geometry import BlockGeometry
    from dietlab.lower.cuda.library import library_module

    geometry = BlockGeometry.of(workload, hardware)
    rows = None if only is None else [sorted({s[geometry.size] for s in called}) for called in only]
    module = library_module(geometry, schemes, tree, every_plan=every_plan, only=rows)
    return compile_library(module, hardware, path)
