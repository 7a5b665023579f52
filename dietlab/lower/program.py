"""Compiles plans and the decision tree to one shared library, for any processor."""

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
        hardware: the processor; the program depends on its limits and, coarsely, on its speeds
            (:meth:`~dietlab.machine.Hardware.as_programmed`).
        schemes: the schemes by number, all of the processor's kind.
        every_plan: whether any scheme can run on any shape, to compare them.
        only: for each scheme the shapes that it will be called with (default: any).

    Raises:
        BuildError: if the program does not compile, or a scheme does not fit operator or processor.
    """
    require_kind(hardware, schemes)
    called = None if only is None else [[sizes_of(workload, s) for s in shapes] for shapes in only]
    compiled = lower_target(hardware.kind).compile_plans
    processor = hardware.as_programmed()
    return compiled(
        workload, processor, schemes, tree, path, every_plan=every_plan, only=called, lowering=lowering
    )


def source_of(workload: Workload, hardware: Hardware, scheme: Scheme) -> str:
    """Returns the program of one scheme as text: CUDA C++ for a GPU, the private functions in TensorIR for a
    CPU. Needs TVM, but neither the processor nor its compiler.

    Args:
        workload, hardware: the operator, and the processor to lower for.
        scheme: a scheme of that kind of processor.

    Raises:
        BuildError: if the scheme is of another kind of processor.
    """
    require_kind(hardware, [scheme])
    return lower_target(hardware.kind).source_of(workload, hardware.as_programmed(), scheme)


def read_as(hardware: Hardware) -> tuple[str, str]:
    """Returns the languages of :func:`source_of` and :func:`machine_code_of` for a processor, in words:
    ``("TensorIR", "assembly of the inner loop")``."""
    return lower_target(hardware.kind).READ_AS


def machine_code_of(workload: Workload, hardware: Hardware, scheme: Scheme) -> MachineCode:
    """Compiles one scheme and returns its machine code to read; this machine need not have the processor.

    Raises:
        BuildError: if the scheme is of another kind of processor, or does not compile.
        MissingDependencyError: if the compiler is missing.
    """
    require_kind(hardware, [scheme])
    return lower_target(hardware.kind).machine_code(workload, hardware.as_programmed(), scheme)


def require_kind(hardware: Hardware, schemes: Sequence[Scheme]) -> None:
    """Checks that schemes are of the processor's kind."""
    kernel = space_target(hardware.kind).KERNEL
    others = [scheme.key for scheme in schemes if not isinstance(scheme.kernel, kernel)]
    if others:
        raise BuildError(f"schemes must be made for {hardware.name}, a {hardware.kind} processor", others[0])
