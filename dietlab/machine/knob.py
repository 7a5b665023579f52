"""Figures of a processor that an explorer can vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A figure of a processor that an explorer can vary.

    Args:
        field: the name of a field of :class:`~dietlab.machine.Hardware` or of its limits.
        label: its name for people.
        values: a function that returns the values to choose from, given the real value.
    """

    field: str
    label: str
    values: Callable[[int], Sequence[int]]


def times(*factors: float) -> Callable[[int], Sequence[int]]:
    """Returns a function that multiplies a value by each of these factors and rounds the results, to at least
    1."""
    return lambda real: sorted({max(1, round(real * factor)) for factor in factors})


def some_cores(real: int) -> Sequence[int]:
    """Returns the powers of two up to 64, the real number of cores, and its double."""
    return sorted({1, 2, 4, 8, 16, 32, 64, real, 2 * real})


SIZES = times(1 / 4, 1 / 2, 1, 2, 4)
"""The values to choose from for a size: a quarter to four times the real size."""
