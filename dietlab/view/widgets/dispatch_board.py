"""A portfolio to change by hand: the plans of its micro-kernels, a portfolio without one, and trees made by
hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.errors import DispatchError
from dietlab.base.statistics import Values
from dietlab.cost import Known
from dietlab.problem import Shape, at_layer, length_dim, shapes_of_layer
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Leaf, MicroKernel, Scheme, Split, Tree
from dietlab.tuning import Dispatcher, Portfolio
from dietlab.tuning.choice import Choice
from dietlab.tuning.portfolio import BEYOND, variants
from dietlab.view.figures.dispatch_tree import Layer, dispatch_table

if TYPE_CHECKING:
    import pandas as pd


SHOWN = 5
"""The most shapes that a sentence names."""


@dataclass(frozen=True)
class Board:
    """A portfolio, with every plan whose leading micro-kernel is in it.

    Args:
        choice: the choice among the portfolio's schemes and, where plans are composed, among the other
            heights and edges of their families that the portfolio has micro-kernels for. Times are those that
            the run expects, even for plans of which the portfolio lacks a micro-kernel.
        beyond: the seconds of each of these schemes on a shape beyond the range.
    """

    portfolio: Portfolio
    choice: Choice
    beyond: Values

    @cached_property
    def best(self) -> Values:
        """The least time known of any plan, in seconds, ``[shapes]``."""
        least: Values = np.vstack([self.choice.table, np.array(self.portfolio.best_seconds)]).min(axis=0)
        return least

    def table(self, dispatcher: Dispatcher, layer: Layer | None = None) -> pd.DataFrame:
        """Returns the table of ``frame_dispatch`` from known times, without another prediction.

        Args:
            dispatcher: the dispatcher of the portfolio, or the one restricted to ``layer``.
            layer: the extents of a layer, whose lengths are shown; None if the operator's only dynamic
                dimension is the length.
        """
        known = {scheme: number for number, scheme in enumerate(self.choice.schemes)}
        unknown = [scheme.key for scheme in dispatcher.schemes if scheme not in known]
        if unknown:
            raise DispatchError("every plan of the dispatcher must be on the board", ", ".join(unknown))
        rows = [known[scheme] for scheme in dispatcher.schemes]
        shapes, columns = self.portfolio.shapes, list(range(len(self.portfolio.shapes)))
        if layer:
            length, wanted = length_dim(self.portfolio.workload), Shape.of(**layer)
            columns = [i for i, shape in enumerate(shapes) if shape.without(length) == wanted]
            shapes = shapes_of_layer(shapes, layer, length)
        return dispatch_table(
            dispatcher, shapes, self.choice.table[np.ix_(rows, columns)], self.best[columns]
        )

    def without(self, dropped: MicroKernel) -> Portfolio:
        """Returns the portfolio without one micro-kernel, ready to train a tree on."""
        left = tuple(kernel for kernel in self.portfolio.micro_kernels if kernel != dropped)
        chosen = [number for number, kernel in enumerate(self.choice.kernels) if kernel in left]
        covered = self.choice.covered(chosen)
        bare = [self.portfolio.shapes.shapes[i] for i in np.flatnonzero(~covered.any(axis=0))]
        if bare:
            more = len(bare) - SHOWN
            found = ", ".join(map(str, bare[:SHOWN])) + (f" and {more} more" if more > 0 else "")
            raise DispatchError(
                f"without {dropped} the portfolio must still cover every shape",
                f"no plan for {found}",
                "Drop another one.",
            )
        kept = np.flatnonzero(covered.any(axis=1)).tolist()
        settled = sorted({*self.choice.settled(chosen)} & {*kept}) or kept
        return replace(
            self.portfolio,
            micro_kernels=left,
            schemes=tuple(self.choice.schemes[i] for i in kept),
            seconds=tuple(map(tuple, np.where(covered, self.choice.table, np.inf)[kept].tolist())),
            best_seconds=tuple(self.best.tolist()),
            curve=(),
            safe_scheme=self.choice.schemes[min(settled, key=lambda i: float(self.beyond[i]))],
        )


def board_of(run: Known, portfolio: Portfolio) -> Board:
    """Returns the board of a portfolio that was chosen from a run; only its few plans are predicted."""
    plans, shapes = variants(portfolio), portfolio.shapes
    beyond = Shape.of(**{name: BEYOND * dim.high for name, dim in portfolio.workload.dims.items()})
    choice = Choice(portfolio.workload, plans, shapes, run.expected_seconds(plans, shapes.shapes))
    return Board(portfolio, choice, run.seconds_table(plans, [beyond])[:, 0])


def by_hand(
    portfolio: Portfolio, cuts: Sequence[int], plans: Sequence[Scheme], layer: Layer | None = None
) -> Dispatcher:
    """Returns a dispatcher with a tree made by hand. Each plan serves up to its cut (included; cuts ascend),
    and the last one up to the end of the range. Beyond, the portfolio's safe plan serves.

    Args:
        plans: the plans in the order of the intervals, one more than ``cuts``.
        layer: the extents of all dimensions but the length.
    """
    workload = at_layer(portfolio.workload, layer)
    name, dim = only_dim(workload)
    if len(plans) != len(cuts) + 1:
        raise DispatchError(f"{len(cuts)} cuts need {len(cuts) + 1} plans, one an interval", len(plans))
    used = tuple(sorted({*plans, portfolio.safe_scheme}))
    tree: Tree = Leaf(used.index(plans[-1]))
    for cut, plan in zip(sorted(cuts)[::-1], plans[-2::-1], strict=True):
        tree = Split(name, cut, Leaf(used.index(plan)), tree)
    safe = Leaf(used.index(portfolio.safe_scheme))
    return Dispatcher(workload, portfolio.hardware, used, Split(name, dim.high, tree, safe))
