"""Plans and the tree over them become one shared library, for whatever processor they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dietlab.base.errors import BuildError
from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import sizes_of
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.lower.target import MachineCode, lower_target
from dietlab.machine import Hardware
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme, Tree
from dietlab.scheme.target import space_target


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
        lowering: decisions that no scheme names.

    Raises:
        BuildError: if the program does not compile, or a scheme cannot be of this operator on this processor.
    """
    require_kind(hardware, schemes)
    called = None if only is None else [[sizes_of(workload, s) for s in shapes] for shapes in only]
    compiled = lower_target(hardware.kind).compile_plans
    return compiled(
        workload, hardware, schemes, tree, path, every_plan=every_plan, only=called, lowering=lowering
    )


def source_of(workload: Workload, hardware: Hardware, scheme: Scheme) -> str:
    """Returns the program of one scheme, to read: CUDA C++ for a GPU, its private functions as TensorIR
    for a CPU. Needs TVM, but neither the processor nor its compiler.

    Args:
        workload: the operator that is lowered.
        hardware: the processor that it is lowered for.
        scheme: what to lower, of that processor's kind.

    Raises:
        BuildError: if the scheme is of another processor.
    """
    require_kind(hardware, [scheme])
    return lower_target(hardware.kind).source_of(workload, hardware, scheme)


def read_as(hardware: Hardware) -> tuple[str, str]:
    """Returns what :func:`source_of` and :func:`machine_code_of` return for a processor, in words, such as
    ``("TensorIR", "assembly of the inner loop")``."""
    return lower_target(hardware.kind).READ_AS


def machine_code_of(workload: Workload, hardware: Hardware, scheme: Scheme) -> MachineCode:
    """Compiles one scheme and returns what its machine code tells; the processor need not be here.

    Args:
        workload: the operator.
        hardware: the processor to compile for.
        scheme: of that kind of processor.

    Raises:
        BuildError: if the scheme is of another processor, or does not compile.
        MissingDependencyError: if the compiler is missing.
    """
    require_kind(hardware, [scheme])
    return lower_target(hardware.kind).machine_code(workload, hardware, scheme)


def require_kind(hardware: Hardware, schemes: Sequence[Scheme]) -> None:
    """Requires that schemes are of the processor's kind.

    Args:
        hardware: the processor.
        schemes: any.

    Raises:
        BuildError: if one is of another kind.
    """
    kernel = space_target(hardware.kind).KERNEL
    strangers = [scheme.key for scheme in schemes if not isinstance(scheme.kernel, kernel)]
    if strangers:
        raise BuildError(f"schemes are made for {hardware.name}, a {hardware.kind} processor", strangers[0])
