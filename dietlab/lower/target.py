"""The part of a target that compiles and loads libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dietlab.lower.artifact import Artifact
from dietlab.lower.contraction import Sizes
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements
from dietlab.machine.target import part
from dietlab.problem import Workload
from dietlab.scheme import Tree

if TYPE_CHECKING:
    from dietlab.lower.decisions import Lowering


@dataclass(frozen=True)
class MachineCode:
    """The machine code of a scheme, to read.

    Args:
        text: lines of instructions, or of what was counted in them.
        uses: registers and other resources that it takes, by name.
    """

    text: str
    uses: Mapping[str, str]


class LowerTarget(Protocol):
    """The lowering of a target, and what its libraries need to run."""

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
        """The names of what ``source_of`` and ``machine_code`` return."""

    def machine_code(self, workload: Workload, hardware: Hardware, scheme: Any) -> MachineCode:
        """Compiles one scheme and returns what its machine code tells; the processor need not be here.

        Raises:
            BuildError, MissingDependencyError: if what compiles is not here, or the program does not compile.
        """

    def require_tools(self) -> str:
        """Checks that what compiles and links is here, and returns its version or place.

        Raises:
            BuildError, MissingDependencyError: if it is not.
        """

    def runtimes(self, cores: int) -> tuple[str, ...]:
        """Returns the parts of TVM's runtime that a library needs beside it."""

    def lacking(
        self, requires: Requirements | None, hardware: Mapping[str, Any], schemes: Sequence[str]
    ) -> str:
        """Returns what this machine lacks to run a library, in words; empty if it runs it.

        Args:
            requires: what its code asks for (:attr:`~dietlab.lower.artifact.Artifact.requires`); None if its
                manifest does not say, as earlier ones did not.
            hardware: the processor that it was built for, as JSON.
            schemes: those in it, by key.
        """

    def load(self, path: Path, cores: int) -> Any:
        """Returns the functions of a library; see :func:`~dietlab.lower.runtime.load_library`."""

    def operands(self, name: str, dtype: str) -> tuple[str, str]:
        """Returns where operands lie for a processor of that name, and how to make one, as errors tell."""


def lower_target(name: str) -> LowerTarget:
    """Returns the part of a target that compiles and loads libraries."""
    found: LowerTarget = part(name, "lowering")
    return found
