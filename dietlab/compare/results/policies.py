"""Common policies of padding a dynamic extent, to compare their waste with the waste of dietlab's plans.

A policy returns the executed extent for an extent of the call. Waste is the share of the executed
multiply-adds that no output needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

from dietlab.problem import Dim, Shape, Workload

Policy = Callable[[int], int]
PLANS = "dietlab's plans"


def next_multiple(extent: int, tile: int) -> int:
    """Returns the least multiple of ``tile`` (1 or more) not below ``extent``; 0 for 0."""
    return tile * ceil(extent / tile)


def next_power_of_two(extent: int) -> int:
    """Returns the least power of two not below ``extent``; 0 for 0."""
    return 1 << (extent - 1).bit_length() if extent else 0


POLICIES: Mapping[str, Policy] = {
    "to multiples of 16": partial(next_multiple, tile=16),
    "to powers of two": next_power_of_two,
    "to multiples of 128": partial(next_multiple, tile=128),
}


@dataclass(frozen=True)
class Padding:
    """One policy over a trace: the executed and the useful multiply-adds of a mean call."""

    policy: str
    executed: float
    useful: float

    @property
    def waste(self) -> float:
        """Share of the executed multiply-adds that no output needs, in [0, 1)."""
        return 1 - self.useful / self.executed if self.executed else 0.0

    @property
    def ratio(self) -> float:
        """Executed over useful multiply-adds, 1 or more."""
        return self.executed / self.useful if self.useful else 1.0


def multiply_adds(workload: Workload, shape: Shape, policy: Policy | None = None) -> int:
    """Returns the multiply-adds of one call whose dynamic axes ``policy`` pads (None: without padding)."""
    return prod(
        policy(axis.at(shape)) if policy and isinstance(axis.extent, Dim) else axis.at(shape)
        for axis in workload.axes
    )


def policy_waste(workload: Workload, shape: Shape, policy: Policy) -> float:
    """Returns the waste of one call, in [0, 1)."""
    executed = multiply_adds(workload, shape, policy)
    return 1 - multiply_adds(workload, shape) / executed if executed else 0.0


def padding_over(
    workload: Workload, weights: Mapping[Shape, float], waste: Mapping[Shape, float]
) -> tuple[Padding, ...]:
    """Returns the padding of dietlab's plans, then of each policy, as weighted means over the shapes.

    Args:
        weights: the positive weights of the shapes, with any sum.
        waste: the waste of dietlab's plans by shape, in [0, 1); the plans are left out if a shape is missing.
    """
    total = sum(weights.values())

    def mean(amount: Callable[[Shape], float]) -> float:
        return sum(weight * amount(shape) for shape, weight in weights.items()) / total

    if not total:
        return ()
    useful = mean(lambda shape: multiply_adds(workload, shape))
    found = [
        Padding(name, mean(partial(_executed, workload, policy)), useful) for name, policy in POLICIES.items()
    ]
    if set(weights) <= set(waste):
        plans = mean(lambda shape: multiply_adds(workload, shape) / (1 - waste[shape]))
        found.insert(0, Padding(PLANS, plans, useful))
    return tuple(found)


def _executed(workload: Workload, policy: Policy, shape: Shape) -> int:
    return multiply_adds(workload, shape, policy)
