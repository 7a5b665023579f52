"""Chooses micro-kernels among those that the schemes of a table need: greedily, then by exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf

import numpy as np
import numpy.typing as npt

from dietlab.problem import ShapeSet, Workload
from dietlab.scheme import Edge, MicroKernel, Scheme, heights, needed, spans, with_rows
from dietlab.tuning.ways import UNCOVERED, Ways, lost

Values = npt.NDArray[np.float64]

STARTS = 3
"""Families whose lowest micro-kernels are tried as starts of the exchanges, beside the greedy
choice."""

MOST = 2
"""The most micro-kernels that a plan may need for one shape: two heights."""


@dataclass(frozen=True)
class Choice:
    """The choice of micro-kernels: which of them each scheme needs on each shape, and the loss of a set.

    Args:
        workload: the operator.
        schemes: the candidates.
        shapes: the weighted shapes.
        table: expected seconds, ``[schemes, shapes]``.
    """

    workload: Workload
    schemes: tuple[Scheme, ...]
    shapes: ShapeSet
    table: Values

    @cached_property
    def kernels(self) -> tuple[MicroKernel, ...]:
        """All micro-kernels that some scheme needs."""
        return tuple(sorted({lower.kernel for scheme in self.schemes for lower in scheme.heights}))

    @cached_property
    def _numbers(self) -> dict[MicroKernel, int]:
        return {kernel: number for number, kernel in enumerate(self.kernels)}

    @cached_property
    def _needed(self) -> npt.NDArray[np.intp]:
        """The micro-kernels of a scheme's tiles, ``[scheme, shape, MOST]``. A shape stands for all since the
        one before it; one that needs more than ``MOST`` for them gets a number that no micro-kernel has."""
        distinct: dict[tuple[int, int], int] = {}
        columns = [distinct.setdefault(s, len(distinct)) for s in spans(self.workload, self.shapes)]
        covers: dict[tuple[Edge, int, int], npt.NDArray[np.intp]] = {}
        found = []
        for scheme in self.schemes:
            cover = scheme.edge, scheme.kernel.granule, scheme.rows  # all that heights depend on
            if cover not in covers:
                covers[cover] = np.array([_padded(heights(scheme, *span)) for span in distinct])
            found.append(self._by_height(scheme)[covers[cover]])
        return np.asarray(np.array(found)[:, columns])

    def _by_height(self, scheme: Scheme) -> npt.NDArray[np.intp]:
        """Returns the micro-kernel of each height of a scheme, ``[rows + 1]``; for others a number that no
        micro-kernel has."""
        found = np.full(scheme.rows + 1, len(self.kernels))
        for lower in scheme.heights:
            found[lower.rows] = self._numbers[lower.kernel]
        return found

    @cached_property
    def _both(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The two micro-kernels of each scheme on each shape, ``[scheme, shape]`` each; the same one twice if
        it needs one."""
        one, other = np.moveaxis(self._needed, 2, 0)
        return np.ascontiguousarray(one), np.ascontiguousarray(other)

    @cached_property
    def _beyond(self) -> tuple[frozenset[int], ...]:
        """The micro-kernels that each scheme needs to serve every shape beyond the range; of several
        dimensions, a shape beyond it in one may have any number of rows."""
        last = max(high for _, high in spans(self.workload, self.shapes))
        first = 1 if len(self.workload.dims) > 1 else last + 1
        return tuple(
            frozenset(self._numbers[kernel] for kernel in needed(scheme, first)) for scheme in self.schemes
        )

    @cached_property
    def _distinct_beyond(self) -> frozenset[frozenset[int]]:
        return frozenset(self._beyond)

    def with_table(self, table: Values) -> Choice:
        """Returns the choice among the same schemes at other times; what does not depend on them is known."""
        found = replace(self, table=table)
        same = ("kernels", "_numbers", "_needed", "_both", "_beyond", "_distinct_beyond", "_ways")
        found.__dict__.update({name: getattr(self, name) for name in same})
        return found

    def best(
        self, max_kernels: int, max_slowdown: float = 1.0
    ) -> tuple[tuple[int, ...], tuple[tuple[int, float], ...]]:
        """Returns the numbers of the micro-kernels that lose least together, and ``(micro-kernels, mean
        slowdown)`` of every size that covers all shapes.

        Adds them one by one, then exchanges single ones, from there, from what is best added in pairs, and
        from the best families' lowest.

        Args:
            max_kernels: the most micro-kernels.
            max_slowdown: stops early once the mean slowdown, a ratio, is at most this (1 means never).
        """
        chosen: tuple[int, ...] = ()
        curve: list[tuple[int, float]] = []
        while len(chosen) < min(max_kernels, len(self.kernels)):
            chosen = self.filled(chosen, len(chosen) + 1)
            slowdown = self.slowdown(chosen)
            if slowdown is not None:
                curve.append((len(chosen), slowdown))
                if slowdown <= max_slowdown:
                    break
        size = len(chosen)
        paired = self.filled_in_pairs(size)
        starts = [chosen, paired, *sorted(self.family_starts(size), key=self.loss)[:STARTS]]
        chosen = min((self.exchanged(self.filled(start, size)) for start in starts), key=self.loss)
        curve = [point for point in curve if point[0] < len(chosen)]
        return chosen, (*curve, (len(chosen), self.slowdown(chosen) or inf))

    def fastest(self, chosen: Sequence[int]) -> npt.NDArray[np.intp]:
        """Returns the number of the scheme that serves each shape, ``[shape]``, out of those that the chosen
        micro-kernels cover; where they cover none, as in a replay with gaps, out of all."""
        covered = self.covered(chosen)
        covered |= ~covered.any(axis=0)
        return np.asarray(np.where(covered, self.table, np.inf).argmin(axis=0))

    @cached_property
    def _ways(self) -> Ways:
        return Ways.of(*self._both, np.array(self.shapes.weights), len(self.kernels))

    @cached_property
    def _slowdowns(self) -> Values:
        """The slowdown of each way over the fastest scheme of the shape, 1 or more, ``[ways]``."""
        return self._ways.lowest(self.table / self.table.min(axis=0))

    @cached_property
    def _losses(self) -> Values:
        return lost(self._slowdowns)

    def covered(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels cover each scheme's tiles, ``[scheme, shape]``."""
        present = np.zeros(len(self.kernels) + 1, bool)
        present[list(chosen)] = True
        one, other = self._both
        found: npt.NDArray[np.bool_] = present[one] & present[other]
        return found

    def settled(self, chosen: Sequence[int]) -> list[int]:
        """Schemes that serve every shape beyond the range."""
        had = {*chosen}
        return [number for number, beyond in enumerate(self._beyond) if beyond <= had]

    def _lacking(self, chosen: Sequence[int], count: int) -> set[tuple[int, ...]]:
        """Returns the ``count`` micro-kernels, in order, that a scheme lacks to serve every shape beyond the
        range, of each scheme that lacks exactly that number."""
        lacking = (beyond.difference(chosen) for beyond in self._distinct_beyond)
        return {tuple(sorted(missing)) for missing in lacking if len(missing) == count}

    def _settles(self, chosen: Sequence[int]) -> bool:
        return bool(self._lacking(chosen, 0))

    def loss(self, chosen: Sequence[int]) -> float:
        """Returns the weighted mean loss when each shape takes its best scheme."""
        losses = self._ways.least(self._losses, chosen, UNCOVERED)
        # A portfolio without a scheme for shapes beyond the range would need further micro-kernels there.
        return float(losses @ np.array(self.shapes.weights)) + (0.0 if self._settles(chosen) else UNCOVERED)

    def slowdown(self, chosen: Sequence[int]) -> float | None:
        """Returns the weighted geometric mean of the slowdown; None until every shape is covered."""
        least = self._ways.least(self._slowdowns, chosen, inf)
        if not (np.isfinite(least).all() and self._settles(chosen)):
            return None
        return exp(float(np.log(least) @ np.array(self.shapes.weights)))

    def with_best_addition(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Adds the micro-kernel that lowers the loss most; all candidates are compared in one pass.

        A scheme that lacks exactly one micro-kernel on a shape becomes available there with it.
        """
        _, alone = self._ways.gains_after(self._losses, chosen)
        losses = self._beyond_losses(chosen) - alone.sum(axis=1)
        losses[list(chosen)] = np.inf
        return (*chosen, int(losses.argmin()))

    def with_best_pair(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Adds the two micro-kernels that lower the loss most together, out of those that some scheme needs
        both on a shape: a tall tile alone is worth little where the last rows want one of another height."""
        ways = self._ways
        ends, pairs = ways.pairs, slice(ways.alone, None)
        low, high = ways.kernels[:, ends[:-1]]
        free = ~np.isin(low, chosen) & ~np.isin(high, chosen)
        if not free.any():
            return self.with_best_addition(self.with_best_addition(chosen))
        base, alone = ways.gains_after(self._losses, chosen)
        gains = ways.gains(self._losses, base, pairs)
        beyond, every = self._beyond_losses(chosen), alone.sum(axis=1)
        settled = np.zeros(len(low), bool)
        for one, other in self._lacking(chosen, 2):
            settled |= (low == one) & (high == other)
        loses = np.where(settled, 0.0, np.minimum(beyond[low], beyond[high]))
        # No pair gains more than its members and both together do, one added to the other.
        places = np.repeat(np.arange(len(low)), np.diff(ends))
        most = np.bincount(places, gains, len(low)) + every[low] + every[high] - loses
        best, found = -inf, 0
        for number in np.where(free, -most, inf).argsort(kind="stable"):
            if most[number] <= best or not free[number]:
                break
            together = np.maximum(alone[low[number]], alone[high[number]])
            own = slice(ends[number], ends[number + 1])
            np.maximum.at(together, ways.shapes[own], gains[own.start - ways.alone : own.stop - ways.alone])
            gained = float(together.sum()) - loses[number]
            if gained > best:
                best, found = gained, int(number)
        return (*chosen, int(low[found]), int(high[found]))

    def _beyond_losses(self, chosen: tuple[int, ...]) -> Values:
        """Returns the loss beyond the range after each addition: 0 if a scheme serves every shape there."""
        if self._settles(chosen):
            return np.zeros(len(self.kernels))
        losses = np.full(len(self.kernels), UNCOVERED)
        losses[[kernel for (kernel,) in self._lacking(chosen, 1)]] = 0.0
        return losses

    def family_starts(self, size: int) -> list[tuple[int, ...]]:
        """Returns each family's lowest ``size`` micro-kernels: even splits cover every shape with them."""
        families: dict[MicroKernel, list[int]] = {}
        for number, kernel in enumerate(self.kernels):
            families.setdefault(with_rows(kernel, kernel.granule), []).append(number)
        return [tuple(members[:size]) for members in families.values()]

    def filled(self, chosen: tuple[int, ...], size: int) -> tuple[int, ...]:
        """Adds the best micro-kernels one by one until there are ``size``."""
        while len(chosen) < size:
            chosen = self.with_best_addition(chosen)
        return chosen

    def filled_in_pairs(self, size: int) -> tuple[int, ...]:
        """Adds the best pairs of micro-kernels, or the best one where that lowers the loss more than half as
        much, until there are ``size``."""
        chosen: tuple[int, ...] = ()
        while len(chosen) + 1 < min(size, len(self.kernels)):
            before, alone, pair = (
                self.loss(chosen),
                self.with_best_addition(chosen),
                self.with_best_pair(chosen),
            )
            gained = before - self.loss(pair)
            chosen = alone if 2 * (before - self.loss(alone)) >= gained else pair
        return self.filled(chosen, min(size, len(self.kernels)))

    def exchanged(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Exchanges one member for the best other as long as that lowers the loss."""
        least = self.loss(chosen)
        improved = True
        while improved:
            improved = False
            for member in chosen:
                candidate = self.with_best_addition(tuple(code for code in chosen if code != member))
                found = self.loss(candidate)
                if found < least - 1e-9:
                    chosen, least, improved = candidate, found, True
                    break
        return chosen


def _padded(found: tuple[int, ...]) -> tuple[int, ...]:
    """Returns :data:`MOST` heights: the first one again for those that lack, and 0, which no tile has, for
    more."""
    return (*found, *found[:1] * (MOST - len(found))) if len(found) <= MOST else (0,) * MOST
