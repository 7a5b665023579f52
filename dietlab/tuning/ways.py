"""The ways to serve shapes with micro-kernels, and what each further micro-kernel gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

UNCOVERED = 1000.0
"""The loss of a shape that no plan covers, in units of :func:`lost`: larger than any sum of other losses."""

TAIL = 60.0
"""The weight of the squared logarithm in :func:`lost`: with 60, a slowdown of 5 % counts four times as
much as its logarithm. A program waits for its slowest calls, and small differences are noise."""


def lost(slowdowns: Values) -> Values:
    """Returns the loss of slowdowns (ratios >= 1): their logarithm plus :data:`TAIL` times its square.

    Args:
        slowdowns: ratios of times, in an array of any shape.
    """
    logs = np.log(slowdowns)
    found: Values = np.minimum(logs + TAIL * logs**2, UNCOVERED)
    return found


@dataclass(frozen=True)
class Ways:
    """The ways to serve each shape, whatever the times are: with two micro-kernels, or one twice, as fast as
    the fastest scheme that needs these. Those with one come first. All ways of the same micro-kernels lie
    together, in the order of the shapes.

    Args:
        kernels: the numbers of both, in order, ``[2, ways]``.
        shapes: the number of the shape, ``[ways]``.
        weights: of the shapes, ``[ways]``.
        places: of schemes in a flat table ``[schemes, shapes]``: those of the first way, then of the second.
        starts: where the places of each way begin.
        shape_count, kernel_count: how many shapes and micro-kernels there are.
    """

    kernels: npt.NDArray[np.intp]
    shapes: npt.NDArray[np.intp]
    weights: Values
    places: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    shape_count: int
    kernel_count: int

    @classmethod
    def of(
        cls, one: npt.NDArray[np.intp], other: npt.NDArray[np.intp], weights: Values, kernel_count: int
    ) -> Ways:
        """Returns the ways of schemes.

        Args:
            one, other: the micro-kernels that a scheme needs on a shape, ``[schemes, shapes]``.
            weights: of shapes.
            kernel_count: how many micro-kernels there are; that number stands for one that cannot be had.
        """
        size = one.shape[1]
        low, high = np.minimum(one, other).ravel(), np.maximum(one, other).ravel()
        numbers = np.where(low == high, low, kernel_count * (1 + low) + high)
        codes = numbers * size + np.tile(np.arange(size), len(one))
        places = codes.argsort(kind="stable")
        places = places[high[places] < kernel_count]
        starts = np.flatnonzero(np.diff(codes[places], prepend=-1))
        firsts = places[starts]
        shapes, kernels = firsts % size, np.stack([low[firsts], high[firsts]])
        return cls(kernels, shapes, weights[shapes], places, starts, size, kernel_count)

    def lowest(self, table: Values) -> Values:
        """Returns the least value of each way's schemes, ``[ways]``, of a table ``[schemes, shapes]``."""
        found = table.ravel()[self.places]
        return np.asarray(np.minimum.reduceat(found, self.starts) if len(found) else found)

    @cached_property
    def alone(self) -> int:
        """The number of ways that need one micro-kernel."""
        return int(np.count_nonzero(self.kernels[0] == self.kernels[1]))

    @cached_property
    def pairs(self) -> npt.NDArray[np.intp]:
        """The places where the ways of each pair of micro-kernels begin, and where the last one's end."""
        changes = np.diff(self.kernels[:, self.alone :], axis=1, prepend=-1).any(axis=0)
        return np.append(np.flatnonzero(changes), changes.size) + self.alone

    @cached_property
    def _by_kernel(self) -> tuple[list[int], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The ways that need each micro-kernel: where they begin, the ways, and what they need beside it."""
        having = np.append(self.kernels[0], self.kernels[1, self.alone :])
        beside = np.append(self.kernels[1], self.kernels[0, self.alone :])
        order = having.argsort(kind="stable")
        ends = np.searchsorted(having[order], np.arange(self.kernel_count + 1)).tolist()
        later = np.append(np.arange(self.shapes.size), np.arange(self.alone, self.shapes.size))
        return ends, later[order], beside[order]

    def _needing(self, chosen: Sequence[int]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Returns the ways that need any of the chosen micro-kernels, and what they need beside it; those
        that need two of these twice."""
        ends, ways, beside = self._by_kernel
        runs = [slice(ends[number], ends[number + 1]) for number in chosen] or [slice(0)]
        return np.concatenate([ways[run] for run in runs]), np.concatenate([beside[run] for run in runs])

    def least(self, values: Values, chosen: Sequence[int], without: float) -> Values:
        """Returns the least value of each shape out of the ways that need chosen micro-kernels only,
        ``[shapes]``; where there are none, ``without``."""
        ways, beside = self._needing(chosen)
        present = np.zeros(self.kernel_count, bool)
        present[list(chosen)] = True
        had = ways[present[beside]]
        found = np.full(self.shape_count, without)
        np.minimum.at(found, self.shapes[had], values[had])
        return found

    def gains(self, losses: Values, base: Values, at: npt.NDArray[np.intp] | slice) -> Values:
        """Returns the weighted losses that ways save where each shape would lose ``base [shapes]``."""
        return np.asarray(np.maximum((base[self.shapes[at]] - losses[at]) * self.weights[at], 0.0))

    def gains_after(self, losses: Values, chosen: Sequence[int]) -> tuple[Values, Values]:
        """Returns what each shape loses with the chosen micro-kernels, ``[shapes]``, and what each further
        one alone gains there, ``[micro-kernels, shapes]``."""
        base = self.least(losses, chosen, UNCOVERED)
        own, (ways, beside) = slice(self.alone), self._needing(chosen)
        found = np.zeros(self.kernel_count * self.shape_count)
        found[self.kernels[0, own] * self.shape_count + self.shapes[own]] = self.gains(losses, base, own)
        np.maximum.at(found, beside * self.shape_count + self.shapes[ways], self.gains(losses, base, ways))
        return base, found.reshape(self.kernel_count, self.shape_count)
