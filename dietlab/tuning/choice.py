"""Chooses micro-kernels among all that the schemes of a table need: greedily, then by exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.problem import ShapeSet, Workload
from dietlab.scheme import MicroKernel, Scheme, with_rows
from dietlab.tuning.losses import Losses, Needs

Chosen = tuple[int, ...]
"""Indices of micro-kernels in :attr:`Choice.kernels`, in the order in which they were chosen."""

STARTS = 3
"""The number of families whose lowest micro-kernels the exchanges also start from."""


@dataclass(frozen=True)
class Choice:
    """The choice of micro-kernels for the schemes of a table. It finds the schemes that a set of
    micro-kernels covers, and the best set.

    Args:
        workload: the operator.
        schemes: the candidates.
        shapes: the weighted shapes.
        table: the expected seconds, ``[schemes, shapes]``.
    """

    workload: Workload
    schemes: tuple[Scheme, ...]
    shapes: ShapeSet
    table: Values

    @cached_property
    def needs(self) -> Needs:
        """The micro-kernels that each scheme needs on each shape."""
        return Needs.of(self.workload, self.schemes, self.shapes)

    @cached_property
    def losses(self) -> Losses:
        """The losses of sets of micro-kernels."""
        return Losses.of(self.needs, self.table, self.shapes.weights)

    @property
    def kernels(self) -> tuple[MicroKernel, ...]:
        """All micro-kernels that some scheme needs. A set of micro-kernels holds indices of this tuple."""
        return self.needs.kernels

    def with_table(self, table: Values) -> Choice:
        """Returns the choice among the same schemes with other expected seconds, ``[schemes, shapes]``."""
        found = Choice(self.workload, self.schemes, self.shapes, table)
        found.__dict__["needs"] = self.needs
        return found

    def covered(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels cover each scheme's tiles, ``[schemes, shapes]``."""
        return self.needs.covered(chosen)

    def fastest(self, chosen: Sequence[int]) -> npt.NDArray[np.intp]:
        """Returns the index of the fastest scheme on each shape, ``[shapes]``, among the schemes that the
        chosen micro-kernels cover. If they cover no scheme, as in a replay with gaps, the fastest of all
        schemes is taken."""
        covered = self.covered(chosen)
        covered |= ~covered.any(axis=0)
        return np.asarray(np.where(covered, self.table, np.inf).argmin(axis=0))

    def settled(self, chosen: Sequence[int]) -> list[int]:
        """Returns the indices of the schemes that serve every shape beyond the range with the chosen
        micro-kernels."""
        return [number for number, needed in enumerate(self.needs.beyond) if needed.issubset(chosen)]

    def best(
        self, max_kernels: int, max_slowdown: float = 1.0
    ) -> tuple[Chosen, tuple[tuple[int, float], ...]]:
        """Returns the indices in :attr:`kernels` of the set of micro-kernels with the least loss, and a
        curve: ``(micro-kernels, mean slowdown)`` for each number of micro-kernels that covers all shapes.

        Adds micro-kernels one by one. Then exchanges single micro-kernels as long as this lowers the loss,
        and keeps the best result. The exchanges start from this set, from a set built in pairs, and from the
        lowest micro-kernels of each of the best families.

        Args:
            max_kernels: the largest number of micro-kernels.
            max_slowdown: the mean slowdown, a ratio, at which the choice stops early (1: never).
        """
        losses = self.losses
        chosen: Chosen = ()
        curve: list[tuple[int, float]] = []
        while len(chosen) < min(max_kernels, len(self.kernels)):
            chosen = with_best_addition(losses, chosen)
            slowdown = losses.mean_slowdown(chosen)
            if slowdown is not None:
                curve.append((len(chosen), slowdown))
                if slowdown <= max_slowdown:
                    break
        size = len(chosen)
        families = sorted(family_starts(self.kernels, size), key=losses.loss)[:STARTS]
        starts = [chosen, filled_in_pairs(losses, size), *families]
        chosen = min((exchanged(losses, filled(losses, start, size)) for start in starts), key=losses.loss)
        curve = [point for point in curve if point[0] < len(chosen)]
        return chosen, (*curve, (len(chosen), losses.mean_slowdown(chosen) or inf))


def with_best_addition(losses: Losses, chosen: Chosen) -> Chosen:
    """Adds the micro-kernel that lowers the loss most."""
    found = losses.beyond_losses(chosen) - losses.saved(chosen).sum(axis=1)
    found[list(chosen)] = inf
    return (*chosen, int(found.argmin()))


def with_best_pair(losses: Losses, chosen: Chosen) -> Chosen:
    """Adds the pair of micro-kernels that lowers the loss most, among pairs that a scheme needs together on a
    shape: a tall tile alone is worth little if the last rows need another height."""
    further = np.flatnonzero(~losses.present(chosen)[losses.pairs].any(axis=0))
    if not len(further):
        return with_best_addition(losses, with_best_addition(losses, chosen))
    low, high = losses.pairs[:, further]
    beyond, settling = losses.beyond_losses(chosen), losses.lacking(chosen, 2)
    pairs = list(zip(low.tolist(), high.tolist(), strict=True))
    settles = [frozenset(pair) in settling for pair in pairs]
    left = np.where(settles, 0.0, np.minimum(beyond[low], beyond[high]))
    return (*chosen, *pairs[int((losses.saved_by_pairs(chosen, further) - left).argmax())])


def filled(losses: Losses, chosen: Chosen, size: int) -> Chosen:
    """Adds the best micro-kernels one by one until there are ``size``."""
    while len(chosen) < size:
        chosen = with_best_addition(losses, chosen)
    return chosen


def filled_in_pairs(losses: Losses, size: int) -> Chosen:
    """Adds the best pair of micro-kernels, or the best single one if it lowers the loss at least half as
    much, until there are ``size``."""
    chosen: Chosen = ()
    while len(chosen) + 1 < size:
        alone, pair = with_best_addition(losses, chosen), with_best_pair(losses, chosen)
        before, one, two = map(losses.loss, (chosen, alone, pair))
        chosen = alone if 2 * (before - one) >= before - two else pair
    return filled(losses, chosen, size)


def exchanged(losses: Losses, chosen: Chosen) -> Chosen:
    """Exchanges one micro-kernel of a set for the best other one, as long as an exchange lowers the loss."""
    least, improved = losses.loss(chosen), True
    while improved:
        improved = False
        for member in chosen:
            candidate = with_best_addition(losses, tuple(other for other in chosen if other != member))
            found = losses.loss(candidate)
            if found < least - 1e-9:
                chosen, least, improved = candidate, found, True
                break
    return chosen


def family_starts(kernels: Sequence[MicroKernel], size: int) -> list[Chosen]:
    """Returns the lowest ``size`` micro-kernels of each family. Even splits into these cover every shape."""
    families: dict[MicroKernel, list[int]] = {}
    for number, kernel in enumerate(kernels):
        families.setdefault(with_rows(kernel, kernel.granule), []).append(number)
    return [tuple(members[:size]) for members in families.values()]
