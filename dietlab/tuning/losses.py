"""The sets of micro-kernels that schemes need, and the loss on each shape if only some micro-kernels are
chosen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.problem import ShapeSet, Workload
from dietlab.scheme import Edge, MicroKernel, Scheme, covers_lines, heights, spans

Heights = tuple[int, ...]

UNCOVERED = 1000.0
"""The loss of a shape that no plan covers, in units of :func:`lost`: larger than any sum of other losses."""

TAIL = 60.0
"""The weight of the squared logarithm in :func:`lost`: with 60, a slowdown of 5 % counts four times as
much as its logarithm. A program waits for its slowest calls, and small differences are noise."""

MOST = 2
"""The most micro-kernels that a plan may need for one shape: two heights. A scheme that needs more on a shape
does not serve that shape."""


def lost(slowdowns: Values) -> Values:
    """Returns the loss of each slowdown, a ratio of at least 1: the slowdown's logarithm plus :data:`TAIL`
    times the square of the logarithm.

    Args:
        slowdowns: the ratios of times, in an array of any shape.
    """
    logs = np.log(slowdowns)
    found: Values = np.minimum(logs + TAIL * logs**2, UNCOVERED)
    return found


@dataclass(frozen=True)
class Needs:
    """The set of micro-kernels that each scheme needs on each shape, whatever the times are.

    Args:
        kernels: all micro-kernels that some scheme needs, in order.
        sets: the distinct sets of micro-kernels, as indices in ``kernels``.
        numbers: the index in ``sets`` of the set that a scheme needs on a shape, ``[schemes, shapes]``.
        beyond: the set that each scheme needs to serve every shape beyond the range.
    """

    kernels: tuple[MicroKernel, ...]
    sets: tuple[frozenset[int], ...]
    numbers: npt.NDArray[np.intp]
    beyond: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, workload: Workload, schemes: Sequence[Scheme], shapes: ShapeSet) -> Needs:
        """Returns the needs of schemes. Each shape represents all lengths after the shape before it."""
        kernels = tuple(sorted({lower.kernel for scheme in schemes for lower in scheme.heights}))
        numbered = {kernel: number for number, kernel in enumerate(kernels)}
        of = {lines: spans(workload, shapes, lines=lines) for lines in (False, True)}
        covers: dict[tuple[Edge, int, int, bool], tuple[list[Heights], npt.NDArray[np.intp], Heights]] = {}
        sets: dict[frozenset[int], int] = {}
        rows, beyond = [], []
        for scheme in schemes:
            lines = covers_lines(scheme, workload)
            cover = scheme.edge, scheme.kernel.granule, scheme.rows, lines  # all that heights depend on
            if cover not in covers:
                within = of[lines]
                # Of several dimensions, a shape beyond the range in one of them may have any number of rows.
                first = 1 if len(workload.dims) > 1 else 1 + max(high for _, high in within)
                found = {span: heights(scheme, *span) for span in dict.fromkeys(within)}
                distinct = list(dict.fromkeys(found.values()))
                places = np.array([distinct.index(found[span]) for span in within])
                covers[cover] = distinct, places, heights(scheme, first)
            distinct, places, above = covers[cover]
            own = {lower.rows: numbered[lower.kernel] for lower in scheme.heights}
            wanted = [frozenset(own[height] for height in tiles) for tiles in (*distinct, above)]
            beyond.append(wanted.pop())
            rows.append(np.array([sets.setdefault(one, len(sets)) for one in wanted])[places])
        return cls(kernels, tuple(sets), np.array(rows), tuple(beyond))

    def covered(self, chosen: Collection[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels include all that a scheme needs, ``[schemes, shapes]``."""
        had = frozenset(chosen)
        return np.array([len(wanted) <= MOST and wanted <= had for wanted in self.sets])[self.numbers]

    def of_size(self, size: int) -> dict[tuple[int, ...], int]:
        """Returns the sets of ``size`` micro-kernels. Keys are the ascending indices of the micro-kernels;
        values are the index of the set in ``sets``."""
        found = ((tuple(sorted(s)), number) for number, s in enumerate(self.sets) if len(s) == size)
        return dict(sorted(found))


@dataclass(frozen=True)
class Losses:
    """The losses of shapes for any set of micro-kernels: each shape takes the fastest scheme whose
    micro-kernels are all in the set.

    Args:
        alone: the slowdown of the fastest scheme that needs just this micro-kernel, ``[kernels, shapes]``;
            infinite if there is no such scheme.
        pairs: the pairs of micro-kernels that a scheme needs together on a shape, in order, ``[2, pairs]``.
            The lower index of a pair comes first.
        together: the slowdown of the fastest scheme that needs just this pair, ``[pairs, shapes]``.
        beyond: for each scheme, the set of micro-kernels that it needs to serve every shape beyond the
            operator's ranges; equal sets are one.
    """

    alone: Values
    pairs: npt.NDArray[np.intp]
    together: Values
    weights: Values
    beyond: frozenset[frozenset[int]]

    @classmethod
    def of(cls, needs: Needs, table: Values, weights: Sequence[float]) -> Losses:
        """Returns the losses of schemes whose seconds are ``table [schemes, shapes]``."""
        slowdowns, size = table / table.min(axis=0), table.shape[1]
        least = np.full((len(needs.sets), size), inf)
        _each_cell(np.minimum, least, needs.numbers, slowdowns)
        ones, twos = needs.of_size(1), needs.of_size(2)
        alone = np.full((len(needs.kernels), size), inf)
        alone[[kernel for (kernel,) in ones]] = least[list(ones.values())]
        pairs = np.array(list(twos), np.intp).reshape(-1, 2).T
        return cls(alone, pairs, least[list(twos.values())], np.array(weights), frozenset(needs.beyond))

    @cached_property
    def _lost(self) -> tuple[Values, Values]:
        """The loss with each micro-kernel alone, and with each pair."""
        return lost(self.alone), lost(self.together)

    def present(self, chosen: Collection[int]) -> npt.NDArray[np.bool_]:
        """Returns whether each micro-kernel is chosen, ``[kernels]``."""
        found = np.zeros(len(self.alone), bool)
        found[list(chosen)] = True
        return found

    def slowdowns(self, chosen: Collection[int]) -> Values:
        """Returns the slowdown on each shape: the time of the fastest covered scheme over the time of the
        fastest scheme; infinite if no scheme is covered."""
        low, high = self.present(chosen)[self.pairs]
        least = self.alone[list(chosen)].min(axis=0, initial=inf)
        return np.asarray(np.minimum(least, self.together[low & high].min(axis=0, initial=inf)))

    def settles(self, chosen: Collection[int]) -> bool:
        """Returns whether some scheme can serve every shape beyond the operator's ranges with the chosen
        micro-kernels alone."""
        return any(map(frozenset(chosen).issuperset, self.beyond))

    def lacking(self, chosen: Collection[int], count: int) -> set[frozenset[int]]:
        """Returns the sets of ``count`` further micro-kernels with which some scheme can serve all shapes
        beyond the range."""
        missing = (needed.difference(chosen) for needed in self.beyond)
        return {lacks for lacks in missing if len(lacks) == count}

    def loss(self, chosen: Collection[int]) -> float:
        """Returns the weighted mean loss."""
        # A portfolio without a scheme for shapes beyond the range would need further micro-kernels there.
        beyond = 0.0 if self.settles(chosen) else UNCOVERED
        return float(lost(self.slowdowns(chosen)) @ self.weights) + beyond

    def mean_slowdown(self, chosen: Collection[int]) -> float | None:
        """Returns the weighted geometric mean of the slowdown; None until every shape is covered."""
        slowdowns = self.slowdowns(chosen)
        if not (np.isfinite(slowdowns).all() and self.settles(chosen)):
            return None
        return exp(float(np.log(slowdowns) @ self.weights))

    def saved(self, chosen: Collection[int]) -> Values:
        """Returns the weighted loss that each further micro-kernel saves, ``[kernels, shapes]``, by schemes
        that need this micro-kernel alone or together with a chosen one."""
        alone, together = self._lost
        base, (low, high) = lost(self.slowdowns(chosen)), self.present(chosen)[self.pairs]
        found = np.maximum((base - alone) * self.weights, 0.0)
        at = np.flatnonzero(low != high)  # pairs that lack one micro-kernel
        further = np.where(low, self.pairs[1], self.pairs[0])[at]
        _each_cell(np.maximum, found, further[:, None], (base - together[at]) * self.weights)
        return found

    def saved_by_pairs(self, chosen: Collection[int], at: npt.NDArray[np.intp]) -> Values:
        """Returns the weighted loss that each pair in ``at`` saves over all shapes, ``[at]``.

        Args:
            at: the indices of the pairs. Neither micro-kernel of a pair is chosen yet.
        """
        alone, base = self.saved(chosen), lost(self.slowdowns(chosen))
        low, high = self.pairs[:, at]
        both = (base - self._lost[1][at]) * self.weights
        return np.asarray(np.maximum(np.maximum(alone[low], alone[high]), both).sum(axis=1))

    def beyond_losses(self, chosen: Collection[int]) -> Values:
        """Returns the loss beyond the range after the addition of each micro-kernel, ``[kernels]``: 0 if a
        scheme then serves every shape beyond the range."""
        if self.settles(chosen):
            return np.zeros(len(self.alone))
        found = np.full(len(self.alone), UNCOVERED)
        found[[kernel for (kernel,) in self.lacking(chosen, 1)]] = 0.0
        return found


def _each_cell(function: np.ufunc, table: Values, rows: npt.NDArray[np.intp], values: Values) -> None:
    """Applies a function to cells of a table ``[., shapes]``, in place and one by one. The function takes a
    cell and one of the values ``[n, shapes]``.

    Args:
        rows: for each value, the row of its cell, ``[n, shapes]`` or ``[n, 1]``.
    """
    # Flat, since ``ufunc.at`` is twenty times slower in two dimensions.
    size = table.shape[1]
    function.at(table.reshape(-1), (rows * size + np.arange(size)).ravel(), values.ravel())
