"""The part of a target that bounds its space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dietlab.hardware import Hardware
from dietlab.hardware.target import part
from dietlab.space.limit import Limit
from dietlab.space.micro_kernel import Edge, MicroKernel
from dietlab.space.scheme import Scheme
from dietlab.workloads import Workload


class SpaceTarget(Protocol):
    """The micro-kernels of a target and the limits that reject them."""

    @property
    def KERNEL(self) -> type[MicroKernel]:
        """The class of its micro-kernels."""

    def candidates(self, workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]) -> Iterable[Scheme]:
        """Returns all schemes to choose from."""

    def limits(self, workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
        """Returns the limits of a scheme, in the order in which they are checked."""

    def pads(self, workload: Workload) -> bool:
        """Returns whether edge tiles can be copied and filled with zeros."""


def space_target(name: str) -> SpaceTarget:
    """Returns the part of a target that bounds its space."""
    found: SpaceTarget = part(name, "space")
    return found
