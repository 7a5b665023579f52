"""The part of a target that bounds its space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.problem import Workload
from dietlab.scheme.limit import Limit
from dietlab.scheme.micro_kernel import Edge, MicroKernel
from dietlab.scheme.scheme import Scheme


class SpaceTarget(Protocol):
    """The micro-kernels of a target and the limits that reject them."""

    @property
    def KERNEL(self) -> type[MicroKernel]:
        """The class of its micro-kernels."""

    def candidates(self, workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]) -> Iterable[Scheme]:
        """Returns all candidate schemes, before limits reject some."""

    def limits(self, workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
        """Returns the limits of a scheme, in the order of the checks."""

    def pads(self, workload: Workload) -> bool:
        """Returns whether edge tiles can be copied and filled with zeros (local padding)."""


def space_target(name: str) -> SpaceTarget:
    """Returns the part of a target that bounds its space."""
    found: SpaceTarget = part(name, "space")
    return found
