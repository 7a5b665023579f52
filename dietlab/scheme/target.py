"""The part of a target that bounds its space, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.problem import Workload
from dietlab.scheme.micro_kernel import Edge, MicroKernel
from dietlab.scheme.scheme import Scheme


@dataclass(frozen=True)
class Limit:
    """A limit of the hardware or the operator: ``measure(scheme) <= most``.

    Args:
        reason: the exceeded resource in words, as cards show it.
        most: the largest value that fits.
        unit: the unit of both values.
        measure: a function that returns a scheme's value.
    """

    reason: str
    most: float
    unit: str
    measure: Callable[[Any], float]

    def excess(self, scheme: Any) -> float:
        """Returns the excess over the limit, relative to it; 0 or less if the scheme fits."""
        return (self.measure(scheme) - self.most) / max(self.most, 1.0)


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


IMPOSSIBLE = 1.0
"""The relative excess over a processor's registers from which a file's scheme cannot be of that processor. An
excess below it may be a version's with other limits. A scheme of a thousand rows would take minutes to plan
with."""


def misfits(workload: Workload, hardware: Hardware) -> Callable[[Scheme], tuple[str, str] | None]:
    """Returns a function of a scheme in a file: what it must be to run on a processor, and what it is; None
    if it may run."""
    target = space_target(hardware.kind)
    registers = [limit for limit in target.limits(workload, hardware) if limit.unit == "registers"]

    def misfit(scheme: Scheme) -> tuple[str, str] | None:
        if not isinstance(scheme.kernel, target.KERNEL):
            return f"schemes for {hardware.name}", scheme.key
        for limit in registers:
            if limit.excess(scheme) > IMPOSSIBLE:
                found = f"{scheme.key}, {limit.measure(scheme):g} of {limit.most:g} registers"
                return f"schemes that {hardware.name} can run: {limit.reason}", found
        return None

    return misfit


def space_target(name: str) -> SpaceTarget:
    """Returns the part of a target that bounds its space."""
    found: SpaceTarget = part(name, "space")
    return found
