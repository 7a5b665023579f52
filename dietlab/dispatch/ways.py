"""The ways to serve shapes with micro-kernels, and what each further micro-kernel gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """The ways to serve each shape: with two micro-kernels, or one twice, as fast as the fastest scheme that
    needs these.

    Args:
        kernels: the numbers of both, in order, ``[2, ways]``.
        shapes: the number of the shape, ascending, ``[ways]``.
        slowdowns: over the fastest scheme of the shape, 1 or more, ``[ways]``.
        losses: as :func:`lost` counts them, ``[ways]``.
        weights: of the shapes, ``[ways]``.
        shape_count, kernel_count: how many shapes and micro-kernels there are.
    """

    kernels: npt.NDArray[np.intp]
    shapes: npt.NDArray[np.intp]
    slowdowns: Values
    losses: Values
    weights: Values
    shape_count: int
    kernel_count: int

    @classmethod
    def of(
        cls,
        one: npt.NDArray[np.intp],
        other: npt.NDArray[np.intp],
        slowdowns: Values,
        weights: Values,
        kernel_count: int,
    ) -> Ways:
        """Returns the ways of schemes.

        Args:
            one, other: the micro-kernels that a scheme needs on a shape, ``[schemes, shapes]``.
            slowdowns: of schemes, ``[schemes, shapes]``.
            weights: of shapes.
            kernel_count: how many micro-kernels there are; that number stands for one that cannot be had.
        """
        size = one.shape[1]
        low, high = np.minimum(one, other).ravel(), np.maximum(one, other).ravel()
        shapes, ratios = np.tile(np.arange(size), len(one)), slowdowns.ravel()
        codes = (shapes * kernel_count + low) * kernel_count + high
        order = np.lexsort((ratios, codes))
        order = order[high[order] < kernel_count]
        order = order[np.diff(codes[order], prepend=-1) != 0]
        shapes, ratios = shapes[order], ratios[order]
        kernels = np.stack([low[order], high[order]])
        return cls(kernels, shapes, ratios, lost(ratios), weights[shapes], size, kernel_count)

    def lacking_one(self, chosen: Sequence[int]) -> Ways:
        """Returns the ways that need at most one micro-kernel beside the chosen ones."""
        lacks_one, lacks_other = self.lacked(chosen)
        one, other = self.kernels
        near = np.flatnonzero(~(lacks_one & lacks_other) | (one == other))
        return replace(
            self,
            kernels=self.kernels[:, near],
            shapes=self.shapes[near],
            slowdowns=self.slowdowns[near],
            losses=self.losses[near],
            weights=self.weights[near],
        )

    def lacked(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels lack each of a way's two, ``[2, ways]``."""
        absent = np.ones(self.kernel_count, bool)
        absent[list(chosen)] = False
        return np.asarray(absent[self.kernels])

    def gains_after(self, chosen: tuple[int, ...]) -> Gains:
        """Returns what each further micro-kernel, and each pair, gains beside the chosen ones."""
        lacks_one, lacks_other = self.lacked(chosen)
        base = self.least(self.losses, ~(lacks_one | lacks_other), UNCOVERED)
        gains = (base[self.shapes] - self.losses) * self.weights
        one, other = self.kernels
        single = np.flatnonzero(((lacks_one != lacks_other) | (lacks_one & (one == other))) & (gains > 0))
        alone = np.zeros(self.kernel_count * self.shape_count)
        lacked = np.where(lacks_one[single], one[single], other[single])
        np.maximum.at(alone, lacked * self.shape_count + self.shapes[single], gains[single])
        pairs = np.flatnonzero(lacks_one & lacks_other & (one != other))
        numbers = one[pairs] * self.kernel_count + other[pairs]
        by_shape = alone.reshape(self.kernel_count, self.shape_count)
        return Gains(by_shape, numbers, self.shapes[pairs], np.maximum(gains[pairs], 0.0))

    def had(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels are all that a way needs, ``[ways]``."""
        one, other = self.lacked(chosen)
        return np.asarray(~(one | other))

    def least(self, values: Values, at: npt.NDArray[np.bool_], without: float) -> Values:
        """Returns the least value of each shape out of the ways where ``at`` is true, ``[shapes]``; where
        none is, ``without``."""
        found = np.full(self.shape_count, without)
        np.minimum.at(found, self.shapes[at], values[at])
        return found


@dataclass(frozen=True)
class Gains:
    """The weighted losses that further micro-kernels save.

    Args:
        alone: by each micro-kernel on each shape, ``[micro-kernels, shapes]``.
        pairs, shapes, gains: of each pair that a scheme lacks on a shape, by its number, ``[pairs]``; some
            gain nothing.
    """

    alone: Values
    pairs: npt.NDArray[np.intp]
    shapes: npt.NDArray[np.intp]
    gains: Values

    def together(self, low: int, high: int, ways: npt.NDArray[np.intp]) -> float:
        """Returns the gain of a pair, whose own ``ways`` are those of ``pairs``."""
        found = np.maximum(self.alone[low], self.alone[high])
        np.maximum.at(found, self.shapes[ways], self.gains[ways])
        return float(found.sum())
