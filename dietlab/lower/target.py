"""The part of a target that compiles and loads libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import Sizes
from dietlab.lower.decisions import Lowering
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements
from dietlab.machine.target import part
from dietlab.problem import Workload
from dietlab.scheme import Tree


@dataclass(frozen=True)
class MachineCode:
    """The machine code of a scheme, to read: lines of instructions, or of instruction counts, and by name the
    registers and other resources that the code ``uses``."""

    text: str
    uses: Mapping[str, str]


class LowerTarget(Protocol):
    """The lowering of a target, and the requirements of its libraries."""

    @property
    def DECIDES(self) -> bool:
        """True if its programs depend on a :class:`~dietlab.lower.decisions.Lowering`."""

    def compile_plans(
        self,
        workload: Workload,
        hardware: Hardware,
        schemes: Sequence[Any],
        tree: Tree,
        path: Path,
        *,
        every_plan: bool,
        only: Sequence[Sequence[Sizes]] | None,
        lowering: Lowering,
    ) -> Artifact:
        """Compiles an operator; see :func:`~dietlab.lower.program.compile_plans`."""

    def source_of(self, workload: Workload, hardware: Hardware, scheme: Any) -> str:
        """Returns the program of one scheme, to read."""

    @property
    def READ_AS(self) -> tuple[str, str]:
        """The languages of ``source_of`` and ``machine_code``, in words."""

    def machine_code(self, workload: Workload, hardware: Hardware, scheme: Any) -> MachineCode:
        """Compiles one scheme and returns its machine code; this machine need not have the processor.

        Raises:
            BuildError, MissingDependencyError: if a tool is missing, or the program does not compile.
        """

    def require_tools(self) -> str:
        """Checks that compiler and linker are installed, and returns their version or path.

        Raises:
            BuildError, MissingDependencyError: if one is not.
        """

    def runtimes(self, cores: int) -> tuple[str, ...]:
        """Returns the files of TVM's runtime that a library needs."""

    def lacking(
        self, requires: Requirements | None, hardware: Mapping[str, Any], schemes: Sequence[str]
    ) -> str:
        """Returns in words what this machine lacks to run a library; empty if it can.

        Args:
            requires: the requirements of its code; None if its manifest has none, as in older versions.
            hardware: the processor that it was built for, as JSON.
            schemes: the keys of its schemes.
        """

    def load(self, path: Path, cores: int) -> Any:
        """Returns the functions of a library; see :func:`~dietlab.lower.runtime.load_library`."""

    def operands(self, name: str, dtype: str) -> tuple[str, str]:
        """Returns two texts for errors: where a call's operands must lie, and how to make such an operand."""


def lower_target(name: str) -> LowerTarget:
    """Returns the part of a target that compiles and loads libraries."""
    found: LowerTarget = part(name, "lowering")
    return found


def recorded_lowering(lowering: Lowering, hardware: Hardware) -> dict[str, Any]:
    """Returns the decisions as headers and manifests of a processor's programs contain them; empty for a GPU,
    whose programs do not depend on them."""
    return lowering.to_json() if lower_target(hardware.kind).DECIDES else {}
