"""A convolution's tree, kept to the micro-kernels of its portfolio.

The portfolio counts the heights of a scheme by the numbers of rows that its shapes represent. A leaf of the
tree may be reached by other numbers of rows: the sizes of an image say little about their product, and a
library also serves images of other sizes than a static one. Where these need another height, the leaf is
split by rows; if its tiles cover lines of the output, by the width of the image, unless that is static.
Trees of a depthwise convolution stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.lower.contraction import Contraction, contraction_of
from dietlab.problem import split_extents
from dietlab.scheme import Box, Leaf, MicroKernel, Scheme, Split, Tree, needed
from dietlab.scheme.tree import Range
from dietlab.tuning.losses import UNCOVERED
from dietlab.tuning.portfolio import Portfolio
from dietlab.tuning.tree_growth import balanced, best_cuts

OTHERS = 1e-3
"""The weight, 0 to 1, of the shapes of other leaves with the same numbers of rows: they only decide between
schemes that the leaf's own shapes do not tell apart."""


def with_kept_heights(tree: Tree, portfolio: Portfolio, losses: Values, price: float) -> Tree:
    """Splits leaves by the number of rows or by the width until no leaf needs a micro-kernel that the
    portfolio lacks. Only trees of convolutions have such leaves; others, and those of depthwise convolutions,
    are returned as they are.

    Args:
        tree: the trained tree, whose leaves name the portfolio's schemes, and its safe scheme by the index
            after the last.
        losses: the weighted loss of each scheme on each of the portfolio's shapes, ``[shape, scheme]``.
        price: the loss that a further split must save.
    """
    contraction = Contraction(**contraction_of(portfolio.workload))
    if contraction.patches is None or contraction.channelwise or not portfolio.workload.dims:
        return tree
    return _Leaves(portfolio, contraction, losses, price).kept(
        tree, {contraction.rows: (1, None)}, np.ones(len(losses), bool)
    )


@dataclass(frozen=True)
class _Leaves:
    portfolio: Portfolio
    contraction: Contraction
    losses: Values
    price: float

    def kept(self, tree: Tree, box: Box, own: npt.NDArray[np.bool_]) -> Tree:
        """Returns a subtree that is reached from a box, with its leaves split where they must be.

        Args:
            own: whether each of the portfolio's shapes reaches the subtree.
        """
        if isinstance(tree, Leaf):
            return tree if self._has(tree.scheme, box) else self._split(tree, box, own)
        low, high = box.get(tree.dim, (1, None))
        last = tree.at_most if high is None else min(high, tree.at_most)
        below = self._extents[tree.dim] <= tree.at_most
        return Split(
            tree.dim,
            tree.at_most,
            self.kept(tree.low, {**box, tree.dim: (low, last)}, own & below),
            self.kept(tree.high, {**box, tree.dim: (max(low, tree.at_most + 1), high)}, own & ~below),
        )

    def _split(self, leaf: Leaf, box: Box, own: npt.NDArray[np.bool_]) -> Tree:
        """Returns the tree over the extents of a dimension in a leaf's box that loses least on the leaf's
        shapes."""
        dim = self._width if self._schemes[leaf.scheme].kernel.lines else self.contraction.rows
        low, high = box.get(dim, (1, None))
        spans = [
            (max(low, first), last if high is None else min(high, last or high))
            for first, last in self._spans(dim)
            if (last is None or last >= low) and (high is None or first <= high)
        ]
        table = np.array([self._span_losses(leaf, {**box, dim: span}, dim, own) for span in spans])
        cuts = best_cuts(table, self.price)
        return balanced(dim, [(spans[last][1] or 0, scheme) for last, scheme in cuts])

    def _span_losses(self, leaf: Leaf, box: Box, dim: str, own: npt.NDArray[np.bool_]) -> Values:
        """Returns the loss of each scheme, the safe one last, on a box of one span of a dimension."""
        low, high = box[dim]
        counts = self._extents[dim]
        here = (counts >= low) & (high is None or counts <= high)
        found = np.full(len(self.portfolio.schemes) + 1, UNCOVERED)
        if here.any():
            found[:-1] = np.where(own, 1.0, OTHERS)[here] @ self.losses[here]
        else:
            # Beyond all shapes of the portfolio, the safe scheme serves, or the leaf's own.
            found[-1] = 0.0
        if not (own & here).any():
            found[leaf.scheme] = 0.0
        lacking = [not self._has(scheme, box) for scheme in range(len(found))]
        return np.asarray(np.where(lacking, found + UNCOVERED, found))

    def _has(self, number: int, box: Box) -> bool:
        """Returns whether the portfolio has all micro-kernels that a scheme needs for the shapes in a box."""
        scheme = self._schemes[number]
        if scheme.kernel.lines and self._width not in self.portfolio.workload.dims:
            return True  # no split can keep its heights
        low, high = self.contraction.range_of_rows(box, lines=scheme.kernel.lines)
        if high is not None and low > high:
            return True
        return self._present.issuperset(needed(scheme, low, high))

    @property
    def _width(self) -> str:
        assert self.contraction.patches is not None
        return self.contraction.patches.windows[-1].dim

    @cached_property
    def _schemes(self) -> tuple[Scheme, ...]:
        return (*self.portfolio.schemes, self.portfolio.safe_scheme)

    @cached_property
    def _present(self) -> frozenset[MicroKernel]:
        return frozenset(self.portfolio.micro_kernels)

    @cached_property
    def _extents(self) -> dict[str, npt.NDArray[np.int_]]:
        workload, shapes = self.portfolio.workload, self.portfolio.shapes
        each = [split_extents(workload, shape) for shape in shapes]
        return {name: np.array([extents[name] for extents in each]) for name in each[0]}

    def _spans(self, dim: str) -> list[Range]:
        """Returns the ranges of a dimension that the portfolio's shapes represent, and all above."""
        ends = sorted(set(self._extents[dim].tolist()))
        return [(first + 1, last) for first, last in zip((0, *ends), (*ends, None), strict=True)]
