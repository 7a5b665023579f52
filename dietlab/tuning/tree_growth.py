"""Trees over several dimensions, grown split by split, and over one, cut into intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.scheme import Leaf, Split, Tree


def grown(losses: Values, extents: Mapping[str, npt.NDArray[np.int_]], price: float) -> Tree:
    """Grows a tree over several dimensions from the root. Each split has the least loss if both sides take
    their best choice, and must save more than ``price``.

    A split that saves too little by itself may allow a second split that saves much, so the search looks one
    level ahead. The threshold of a split is the largest extent of the side below: extents between two shapes
    belong to the side above.

    Args:
        losses: the loss of each choice on each shape, ``[shape, choice]``.
        extents: for each dimension, the extent of every shape, ``[shape]``.
    """
    best = Leaf(int(losses.sum(axis=0).argmin()))
    least = losses[:, best.scheme].sum()
    found = _best_split(losses, extents, price)
    if found is None or found.loss > least - price:
        return best
    below = extents[found.dim] <= found.at_most
    sides = [
        grown(losses[part], {name: column[part] for name, column in extents.items()}, price)
        for part in (below, ~below)
    ]
    return Split(found.dim, found.at_most, *sides)


class _Cut(NamedTuple):
    loss: float
    dim: str
    at_most: int


MOST_AHEAD = 24
"""The number of splits for which the search looks one level ahead: the splits with the least loss by
themselves."""


def _best_split(
    losses: Values, extents: Mapping[str, npt.NDArray[np.int_]], price: float, ahead: bool = True
) -> _Cut | None:
    """Returns the split with the least loss. With ``ahead``, either side may be split once more, which adds
    ``price`` to the loss."""
    cuts: list[_Cut] = []
    for dim, column in extents.items():
        order = column.argsort(kind="stable")
        sums = losses[order].cumsum(axis=0)
        ends = np.flatnonzero(np.diff(column[order]))
        totals = sums[ends].min(axis=1) + (sums[-1] - sums[ends]).min(axis=1)
        cuts += [
            _Cut(float(total), dim, int(column[order[end]])) for total, end in zip(totals, ends, strict=True)
        ]
    cuts.sort()
    if not ahead:
        return cuts[0] if cuts else None
    return min((_with_next_split(losses, extents, price, cut) for cut in cuts[:MOST_AHEAD]), default=None)


def _with_next_split(
    losses: Values, extents: Mapping[str, npt.NDArray[np.int_]], price: float, cut: _Cut
) -> _Cut:
    """Returns a split with its loss after further splits of its sides. A side is split if this saves more
    than the ``price`` of a split."""
    total = 0.0
    below = extents[cut.dim] <= cut.at_most
    for part in (below, ~below):
        inside = {name: column[part] for name, column in extents.items()}
        further = _best_split(losses[part], inside, price, ahead=False)
        one = float(losses[part].sum(axis=0).min())
        total += min(one, further.loss + price if further else one)
    return cut._replace(loss=total)


def best_cuts(losses: Values, price: float) -> list[tuple[int, int]]:
    """Cuts a sequence into intervals so that losses plus ``price`` for each interval are least.

    Args:
        losses: the loss of each choice at each position, ``[position, choice]``.

    Returns:
        For each interval, its last position and its choice.
    """
    count = len(losses)
    sums = np.vstack([np.zeros(losses.shape[1]), losses.cumsum(axis=0)])
    least = np.zeros(count + 1)
    begins = np.zeros(count + 1, int)
    for end in range(1, count + 1):
        totals = least[:end] + (sums[end] - sums[:end]).min(axis=1) + price
        begins[end] = int(totals.argmin())
        least[end] = totals[begins[end]]
    cuts: list[tuple[int, int]] = []
    end = count
    while end:
        begin = int(begins[end])
        cuts.append((end - 1, int((sums[end] - sums[begin]).argmin())))
        end = begin
    return cuts[::-1]


def balanced(dim: str, cuts: list[tuple[int, int]]) -> Tree:
    """Builds a tree of least depth over intervals.

    Args:
        cuts: for each interval, its last extent and its scheme.
    """
    if len(cuts) == 1:
        return Leaf(cuts[0][1])
    middle = len(cuts) // 2
    return Split(dim, cuts[middle - 1][0], balanced(dim, cuts[:middle]), balanced(dim, cuts[middle:]))
